"""Average ranks and p-values that two papers print, from the cells of their own tables: a check of both sides."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.stats

from tests.support.published_tables import Comparison, published_tables
from xmtc.experiments.published import published
from xmtc.metrics import average_ranks, wilcoxon

Results = np.ndarray[Any, np.dtype[np.float64]]

CELLS = {"P": ("P@1", "P@3", "P@5"), "nDCG": ("P@1", "nDCG@3", "nDCG@5")}  # nDCG@1 is P@1
OUT_OF_LINE = {"FastXML": 3.28, "PD-Sparse": 4.39, "FastText": 4.78, "Bow-CNN": 5.89}
"""What Rank-AE's nDCG gives where it prints other average ranks."""
TIED = {("P", "AnnexML"), ("nDCG", "Parabel")}
"""Two differences are equal but for the last bits of floating point, and the printed value counts them as unequal."""


def results(source: str, measure: str, method: str) -> Results:
    """(datasets × cut-offs,) in percent, as printed; NaN where the method was not run."""
    datasets = dict.fromkeys(each.dataset for each in published().figures if each.source.key == source)
    cells = []
    for dataset in datasets:
        figure = published().figure(source, dataset, method)
        cells += [math.nan if figure is None else round(100 * figure.metrics[name], 4) for name in CELLS[measure]]
    return np.array(cells)


def ranks_of(source: str, measure: str) -> Comparison:
    return next(each for each in published_tables().ranks if (each.source.key, each.measure) == (source, measure))


def p_values_of(measure: str, against: str) -> Comparison:
    return next(each for each in published_tables().p_values if (each.measure, each.against) == (measure, against))


def recomputed_ranks(source: str, measure: str) -> dict[str, float]:
    methods = list(ranks_of(source, measure).values)
    table = np.stack([results(source, measure, method) for method in methods], axis=1)  # (results, methods)
    return dict(zip(methods, average_ranks(table).tolist(), strict=True))


def within_one_of_the_last_digit(value: float, printed: float) -> bool:
    """Of three digits, which is what both papers print."""
    return abs(value - printed) <= 1.0001 * 10.0 ** (math.floor(math.log10(printed)) - 2)


def test_last_digits() -> None:
    assert within_one_of_the_last_digit(8.5449e-4, 8.55e-4)
    assert not within_one_of_the_last_digit(8.53e-4, 8.55e-4)
    assert within_one_of_the_last_digit(2.8333, 2.83)
    assert not within_one_of_the_last_digit(2.85, 2.83)


@pytest.mark.parametrize(
    ("source", "measure", "rows"),
    [("attentionxml-v1", "P", 15), ("attentionxml-v1", "nDCG", 15), ("rank-ae", "P", 18)],
)
def test_average_ranks(source: str, measure: str, rows: int) -> None:
    printed = ranks_of(source, measure).values
    assert len(results(source, measure, "SLEEC")) == rows
    assert len(printed) >= 7
    for method, rank in recomputed_ranks(source, measure).items():
        assert within_one_of_the_last_digit(rank, printed[method]), (method, rank, printed[method])


def test_rank_ae_prints_four_average_ranks_of_ndcg_that_its_figures_do_not_give() -> None:
    printed = ranks_of("rank-ae", "nDCG").values
    for method, rank in recomputed_ranks("rank-ae", "nDCG").items():
        assert within_one_of_the_last_digit(rank, OUT_OF_LINE.get(method, printed[method])), (method, rank)
        assert within_one_of_the_last_digit(rank, printed[method]) == (method not in OUT_OF_LINE), (method, rank)


@pytest.mark.parametrize(
    ("measure", "method"),
    [(measure, method) for measure in CELLS for method in p_values_of(measure, "AttentionXML").values],
)
def test_p_values_against_attention_xml(measure: str, method: str) -> None:
    printed = p_values_of(measure, "AttentionXML").values[method]
    pair = results("attentionxml-v1", measure, "AttentionXML"), results("attentionxml-v1", measure, method)
    value = wilcoxon(*pair, noise=0)
    assert within_one_of_the_last_digit(value, printed), (value, printed)
    assert (wilcoxon(*pair) == value) == ((measure, method) not in TIED)


def test_p_value_of_annexml_is_printed_as_if_nothing_were_tied() -> None:
    # RCV1 at 3 and AmazonCat at 5 both differ by 1.92. Their mid-ranks leave 134 of 2¹⁵ choices of signs; the printed
    # value counts 140, those of the ranks 1 to 15. In floating point the two differences are unequal by their last
    # bits, and SciPy ranks them so.
    ours, theirs = (results("attentionxml-v1", "P", method) for method in ("AttentionXML", "AnnexML"))
    printed = p_values_of("P", "AttentionXML").values["AnnexML"]
    assert (ours - theirs)[[1, 14]].tolist() == pytest.approx([1.92, 1.92], abs=1e-12)
    assert wilcoxon(ours, theirs) == pytest.approx(134 / 2**15, rel=1e-12)
    assert within_one_of_the_last_digit(scipy.stats.wilcoxon(ours, theirs, method="exact").pvalue, printed)
    for apart in (-1e-4, 1e-4):  # far less than a printed digit, but more than rounding
        theirs[1] += apart
        assert within_one_of_the_last_digit(wilcoxon(ours, theirs), printed)
        theirs[1] -= apart


@pytest.mark.parametrize(("measure", "recomputed"), [("P", 3.05e-4), ("nDCG", 1.83e-4)])
def test_p_value_of_the_text_for_xml_rnn_is_not_that_of_the_figures(measure: str, recomputed: float) -> None:
    value = wilcoxon(*(results("attentionxml-v1", measure, method) for method in ("XML-RNN", "XML-CNN")))
    assert within_one_of_the_last_digit(value, recomputed)
    assert not within_one_of_the_last_digit(value, p_values_of(measure, "XML-RNN").values["XML-CNN"])
