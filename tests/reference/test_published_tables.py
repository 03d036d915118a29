"""Average ranks and p-values of two papers, from the cells of their own tables."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
import scipy.stats

from xmtc.metrics import average_ranks, wilcoxon

Row = tuple[float, float, float]
Results = np.ndarray[Any, np.dtype[np.float64]]
NOT_RUN: Row = (math.nan, math.nan, math.nan)

# AttentionXML, first version: P@1, P@3, P@5 on RCV1, EUR-Lex, Wiki10, WikiLSHTC, AmazonCat.
ATTENTION_XML: dict[str, list[Row]] = {
    "SLEEC": [
        (94.69, 78.90, 54.24),
        (79.09, 64.14, 52.51),
        (85.88, 72.98, 62.70),
        (48.57, 27.25, 18.46),
        (90.53, 76.33, 61.52),
    ],
    "AnnexML": [
        (95.26, 79.30, 55.25),
        (79.56, 64.92, 53.53),
        (86.50, 74.29, 64.20),
        (57.78, 33.09, 22.54),
        (93.54, 78.38, 63.32),
    ],
    "PfastreXML": [
        (94.11, 79.59, 55.80),
        (73.14, 60.16, 50.54),
        (83.57, 68.61, 59.10),
        (50.85, 29.62, 20.17),
        (91.75, 77.97, 63.68),
    ],
    "PD-Sparse": [
        (93.72, 78.74, 54.82),
        (74.00, 60.24, 49.64),
        (75.63, 62.95, 52.90),
        (53.26, 30.72, 20.91),
        (88.85, 73.20, 59.24),
    ],
    "Parabel": [
        (95.85, 80.05, 55.88),
        (82.12, 68.91, 57.89),
        (84.19, 72.46, 63.37),
        (58.79, 34.47, 23.33),
        (93.02, 79.14, 64.51),
    ],
    "XML-CNN": [
        (94.79, 78.93, 54.59),
        (75.32, 60.14, 49.21),
        (81.41, 66.23, 56.11),
        (55.17, 31.09, 21.13),
        (93.26, 77.06, 61.40),
    ],
    "XML-RNN": [
        (95.30, 80.42, 55.99),
        (74.77, 61.04, 50.11),
        (82.94, 69.77, 59.38),
        (57.02, 31.82, 21.46),
        (94.08, 78.41, 62.34),
    ],
    "AttentionXML": [
        (95.76, 81.22, 56.75),
        (82.87, 70.35, 58.39),
        (83.03, 74.58, 65.28),
        (62.89, 36.05, 24.32),
        (94.83, 80.45, 65.24),
    ],
}

# Rank-AE: P@1, P@3, P@5 on Delicious, Mediamill, RCV, IMDb, EUR-Lex, Wiki10.
RANK_AE: dict[str, list[Row]] = {
    "SLEEC": [
        (67.59, 61.38, 56.56),
        (87.82, 73.45, 59.17),
        (90.25, 72.42, 51.88),
        (51.37, 34.46, 27.34),
        (79.26, 64.30, 52.33),
        (85.88, 72.98, 62.70),
    ],
    "FastXML": [
        (69.61, 64.12, 59.27),
        (84.22, 67.33, 53.04),
        (91.23, 73.51, 53.31),
        (66.45, 48.32, 36.28),
        (71.36, 59.90, 50.39),
        (83.03, 67.47, 57.76),
    ],
    "PD-Sparse": [
        (51.82, 44.18, 38.95),
        (81.86, 62.52, 45.11),
        (90.08, 72.03, 51.09),
        (66.84, 46.29, 35.04),
        (76.43, 60.37, 49.72),
        (81.03, 57.36, 44.10),
    ],
    "FastText": [
        NOT_RUN,
        NOT_RUN,
        NOT_RUN,
        (69.55, 48.76, 36.53),
        (71.51, 60.37, 50.41),
        (68.86, 54.65, 47.61),
    ],
    "Bow-CNN": [
        NOT_RUN,
        NOT_RUN,
        NOT_RUN,
        (66.59, 48.42, 36.56),
        (64.99, 51.68, 42.32),
        (81.16, 50.67, 36.03),
    ],
    "XML-CNN": [
        NOT_RUN,
        NOT_RUN,
        NOT_RUN,
        (75.55, 52.59, 38.90),
        (76.38, 62.81, 51.41),
        (84.11, 70.24, 59.87),
    ],
    "Rank-AE": [
        (69.26, 62.72, 57.63),
        (86.53, 70.17, 55.44),
        (90.90, 72.82, 52.05),
        (75.91, 52.66, 38.48),
        (79.52, 65.14, 53.18),
        (83.60, 72.07, 62.07),
    ],
}


def columns(table: dict[str, list[Row]]) -> Results:
    """(datasets × cut-offs, methods)"""
    return np.array([np.ravel(rows) for rows in table.values()]).T


def within_one_of_the_last_digit(value: float, printed: str) -> bool:
    return abs(Decimal(value) - Decimal(printed)) <= Decimal(1).scaleb(int(Decimal(printed).as_tuple().exponent))


def test_last_digits() -> None:
    assert within_one_of_the_last_digit(8.5449e-4, "8.55e-4")
    assert not within_one_of_the_last_digit(8.53e-4, "8.55e-4")
    assert within_one_of_the_last_digit(2.8333, "2.83")
    assert not within_one_of_the_last_digit(2.85, "2.83")


@pytest.mark.parametrize(
    ("table", "printed"),
    [
        (ATTENTION_XML, "5.73 3.20 5.73 7.20 2.53 6.13 4.13 1.33"),
        (RANK_AE, "2.83 3.33 4.56 4.56 5.78 2.56 1.78"),
    ],
    ids=["AttentionXML", "Rank-AE"],
)
def test_average_ranks(table: dict[str, list[Row]], printed: str) -> None:
    ranks = dict(zip(table, average_ranks(columns(table)).tolist(), strict=True))
    for (method, rank), expected in zip(ranks.items(), printed.split(), strict=True):
        assert within_one_of_the_last_digit(rank, expected), (method, rank, expected)


def against_attention_xml(method: str) -> tuple[Results, Results]:
    """15 pairs of results, one for each dataset and cut-off."""
    results = dict(zip(ATTENTION_XML, columns(ATTENTION_XML).T, strict=True))
    return results["AttentionXML"], results[method]


@pytest.mark.parametrize(
    ("method", "printed"),
    [
        ("SLEEC", "8.55e-4"),
        ("AnnexML", "4.27e-3"),
        ("PfastreXML", "1.22e-4"),
        ("PD-Sparse", "6.10e-5"),
        ("Parabel", "1.53e-3"),
        ("XML-CNN", "6.10e-5"),
        ("XML-RNN", "6.10e-5"),
    ],
)
def test_p_values_against_attention_xml(method: str, printed: str) -> None:
    value = wilcoxon(*against_attention_xml(method), noise=0)
    assert within_one_of_the_last_digit(value, printed), (value, printed)
    if method != "AnnexML":  # see below
        assert wilcoxon(*against_attention_xml(method)) == value


def test_p_value_of_annexml_is_printed_as_if_nothing_were_tied() -> None:
    # RCV1 at 3 and AmazonCat at 5 both differ by 1.92. Their mid-ranks leave 134 of 2¹⁵ choices of signs; the printed
    # value counts 140, those of the ranks 1 to 15. In floating point the two differences are unequal by their last
    # bits, and SciPy ranks them so.
    ours, theirs = against_attention_xml("AnnexML")
    assert (ours - theirs)[[1, 14]].tolist() == pytest.approx([1.92, 1.92], abs=1e-12)
    assert wilcoxon(ours, theirs) == pytest.approx(134 / 2**15, rel=1e-12)
    assert within_one_of_the_last_digit(scipy.stats.wilcoxon(ours, theirs, method="exact").pvalue, "4.27e-3")
    for apart in (-1e-4, 1e-4):  # far less than a printed digit, but more than rounding
        theirs[1] += apart
        assert within_one_of_the_last_digit(wilcoxon(ours, theirs), "4.27e-3")
        theirs[1] -= apart
