"""The published figures: the shipped file holds together, and the reader refuses one that does not."""

from __future__ import annotations

import itertools
import re

import pytest

from tests.support.published_tables import published_tables, read_tables
from xmtc.core.errors import DataError
from xmtc.data.catalogue import CATALOGUE
from xmtc.experiments.published import Figure, parsed, published
from xmtc.models.registry import MODELS
from xmtc.workflows.evaluation import KS

UNSPLIT = {"bibtex", "delicious"}  # in the catalogue; published figures are of a split
ANYWHERE = {"lf-wikipedia-500k", "wikilshtc-36k", "rcv1-2k", "imdb", "aapd", "tibkat-gnd"}  # not in the catalogue

SMALL = """
[sources.a]
kind = "paper"
title = "A"
own = ["Tree"]
[sources.b]
kind = "collected"
title = "B"
[datasets.toy]
name = "Toy"
size = { train = 4, labels = 2 }
also = ["toy-again"]
[datasets.other]
name = "Other"
size = {}
[methods]
parabel = ["Tree", "Other tree"]
popularity = []
[figures.b.toy]
"Tree"  = { P = [50.5, 40, 30], mark = "secondary" }
"Bush"  = { "nDCG@5" = 12.5 }
[figures.a.toy]
"Tree" = { P = [87.05, 40, 30], nDCG = [45, 42], PSP = [1, 2, 3.25], note = "so" }
[figures.a.other]
"Tree" = { "P@1" = 100 }
[seconds.a.toy]
"Tree" = { train = 3, test = 0.5 }
"""


def named(figure: Figure) -> str:
    return f"{figure.source.key}, {figure.dataset}, {figure.method}"


def test_figures_come_out_as_fractions_under_the_names_of_evaluate() -> None:
    found = parsed(SMALL).figure("a", "toy", "Tree")
    assert found is not None
    assert found.metrics == {
        "P@1": 0.8705,
        "P@3": 0.4,
        "P@5": 0.3,
        "nDCG@3": 0.45,
        "nDCG@5": 0.42,
        "PSP@1": 0.01,
        "PSP@3": 0.02,
        "PSP@5": 0.0325,
    }
    assert (found.note, found.mark, found.own) == ("so", "", True)
    assert parsed(SMALL).figure("a", "toy", "Bush") is None


def test_of_a_data_set_by_any_of_its_names() -> None:
    small = parsed(SMALL)
    lines = [("b", "Tree"), ("b", "Bush"), ("a", "Tree")]
    assert [(each.source.key, each.method) for each in small.of("toy")] == lines
    assert small.of("toy-again") == small.of("toy")
    assert small.of("toys") == []
    assert small.dataset("toys") is None
    toy = small.dataset("toy-again")
    assert toy is not None
    assert (toy.key, toy.train, toy.test, toy.labels) == ("toy", 4, None, 2)


def test_beside_a_model_stand_the_figures_of_its_method_its_own_paper_first() -> None:
    small = parsed(SMALL)
    assert [(each.source.key, each.mark) for each in small.beside("parabel", "toy-again")] == [
        ("a", ""),
        ("b", "secondary"),
    ]
    assert small.beside("popularity", "toy") == []
    assert small.beside("no_such_model", "toy") == []


@pytest.mark.parametrize(
    ("was", "becomes", "message"),
    [
        ("[sources.a]", "[sources.a", "invalid TOML"),
        ("[sources.a]", "[source.a]", "unknown name 'source'. Did you mean 'sources'?"),
        ('kind = "paper"', 'kind = "papers"', "sources.a: unknown name 'papers'"),
        ('kind = "paper"\n', "", "sources.a: a field is missing"),
        ('title = "A"', 'titel = "A"', "unknown name 'titel'. Did you mean 'title'?"),
        ("train = 4", "trains = 4", "datasets.toy: unknown name 'trains'"),
        ("[figures.a.other]", "[figures.c.other]", "figures: unknown name 'c'"),
        ("[figures.a.other]", "[figures.a.others]", "figures.a: unknown name 'others'. Did you mean 'other'?"),
        ("[seconds.a.toy]", "[seconds.a.toys]", "seconds.a: unknown name 'toys'"),
        ("[seconds.a.toy]", "[ranks.a.R]", "ranks.a: unknown name 'R'"),
        ("test = 0.5", "tests = 0.5", "seconds.a.toy: Tree: unknown name 'tests'"),
        ("[87.05, 40, 30]", "[87.05, 40]", "figures.a.toy: Tree: expected 3 values"),
        ("[87.05, 40, 30]", "[87.05, 40, 300]", "from 0 to 100. Got 300"),
        ("[87.05, 40, 30]", '["87.05", 40, 30]', "from 0 to 100. Got 87.05"),
        ('"nDCG@5"', '"nDGC@5"', "Bush: unknown name 'nDGC@5'"),
        ('"secondary"', '"second"', "unknown name 'second'. Did you mean 'secondary'?"),
        ('"P@1" = 100', 'note = "none"', "figures.a.other: Tree: contains no metric"),
    ],
)
def test_what_is_not_known_is_refused(was: str, becomes: str, message: str) -> None:
    assert was in SMALL
    with pytest.raises(DataError, match=re.escape(message)) as error:
        read_tables(SMALL.replace(was, becomes, 1))
    assert "\n" not in str(error.value)


def test_the_shipped_file_is_read_once() -> None:
    assert published() is published()
    assert len(published().figures) > 250


def test_every_model_of_the_registry_is_mapped_or_said_to_be_without() -> None:
    methods = published().methods
    assert set(methods) == set(MODELS)
    assert [model for model, names in methods.items() if not names] == ["lexical", "popularity"]
    known = {figure.method for figure in published().figures}
    for model, names in methods.items():
        assert set(names) <= known, model
    every = [name for names in methods.values() for name in names]
    assert len(every) == len(set(every)), "a method belongs to one model"


def test_sources_say_what_they_are() -> None:
    for source in published().sources.values():
        assert bool(source.machine) == (source.kind == "measured here"), source.key
        if source.kind == "paper":
            assert source.authors, source.key
            assert source.where, source.key
            assert source.year, source.key
            assert source.tables, source.key
        said = {figure.method for figure in published().figures if figure.source.key == source.key}
        assert said, f"nothing is from {source.key}"
        assert set(source.own) <= said, source.key


def test_data_sets_are_those_of_the_catalogue() -> None:
    names = [name for key, each in published().datasets.items() for name in (key, *each.also)]
    assert len(names) == len(set(names))
    assert set(names) - set(CATALOGUE) == ANYWHERE
    for key, each in published().datasets.items():
        for name in {key, *each.also} & set(CATALOGUE):
            entry = CATALOGUE[name]
            if name in UNSPLIT:
                assert each.train is not None
                assert each.test is not None
                assert (each.train + each.test, each.labels) == (entry.train, entry.labels), name
            else:
                assert (each.train, each.test) == (entry.train, entry.test), name
        assert published().of(key), f"no figure on {key}"


def test_the_two_versions_of_eurlex_are_kept_apart() -> None:
    text, words = published().dataset("eurlex-4k"), published().dataset("eurlex-4k-xmlrepo")
    assert text is not None
    assert words is not None
    assert (text.train, text.test, text.labels) == (15_449, 3_865, 3_956)
    assert (words.train, words.test, words.labels) == (15_539, 3_809, 3_993)
    assert {each.source.key for each in published().of("eurlex-4k-xmlrepo")} == {"rank-ae"}


def test_measures_that_we_take_too() -> None:
    ours = {f"{name}@{k}" for name in ("P", "nDCG", "PSP") for k in KS}
    others = {name for figure in published().figures for name in figure.metrics if name not in ours}
    assert others == {"R@100"}


def test_precision_falls_and_hits_grow_with_the_cut_off() -> None:
    # Falling is what rankings of any use do; that k · P@k grows holds for every ranking. The last digits are rounded.
    broken = []
    for figure in published().figures:
        precision = [(k, figure.metrics[f"P@{k}"]) for k in KS if f"P@{k}" in figure.metrics]
        for (k, value), (deeper, later) in itertools.pairwise(precision):
            if not (k * value - 0.5e-4 * (k + deeper)) / deeper <= later <= value:
                broken.append(f"{named(figure)}: {value} at {k}, {later} at {deeper}")
    assert broken == []


def test_known_misprints_have_their_note() -> None:
    for source, dataset, method, metric, value in (
        ("rank-ae", "wiki10-31k", "FastXML", "nDCG@3", 0.7535),
        ("dxml", "wiki10-31k", "FastXML", "nDCG@3", 0.7101),
        ("dxml", "delicious", "ML-CSSP", "nDCG@5", 0.6336),
    ):
        figure = published().figure(source, dataset, method)
        assert figure is not None
        assert figure.metrics[metric] == value
        assert metric in figure.note


def test_the_same_cells_of_two_papers_agree() -> None:
    # Both took them from the same repository; the one that differs is a misprint with a note.
    differ = []
    for figure in published().figures:
        other = published().figure("dxml", figure.dataset, figure.method)
        if figure.source.key == "rank-ae" and other is not None and figure.metrics != other.metrics:
            differ.append(named(figure))
    assert differ == ["rank-ae, wiki10-31k, FastXML"]


def test_groups_tail_time_and_overlap() -> None:
    found, figure = published_tables(), published().figure
    assert {each.dataset for each in found.groups} == {each.dataset for each in found.overlaps}
    for group in found.groups:
        assert len(group.auc) == len(group.aupr) == len(group.least) == len(group.labels) == len(group.share) == 3
        assert list(group.least) == sorted(group.least, reverse=True)
        assert list(group.labels) == sorted(group.labels)
        assert sum(group.share) <= 1
    rarest = next(each for each in found.groups if (each.dataset, each.method) == ("wiki10-31k", "AnnexML"))
    assert (rarest.auc[2], rarest.aupr[2], rarest.least[2]) == (0.2365, 0.1445, 5)
    for tail in found.tail:
        assert list(tail.metrics) == ["P@1", "P@10", "P@20"]
        assert list(tail.metrics.values()) == sorted(tail.metrics.values(), reverse=True)
        assert figure(tail.source.key, tail.dataset, tail.method) is not None
    for seconds in found.seconds:
        assert seconds.train > seconds.test > 0
        assert seconds.document is None or seconds.document < seconds.test
        assert figure(seconds.source.key, seconds.dataset, seconds.method) is not None
    assert all(len(each.shared) == 5 and set(each.methods) == {"AttentionXML", "Parabel"} for each in found.overlaps)


def test_compared_methods_have_figures() -> None:
    ranks = [(each.source, each.values) for each in published_tables().ranks]
    p_values = [(each.source, {**each.values, each.against: 0.5}) for each in published_tables().p_values]
    for source, methods in ranks + p_values:
        said = {figure.method for figure in published().figures if figure.source == source}
        assert set(methods) <= said
        assert all(0 < value < len(said) for value in methods.values())
