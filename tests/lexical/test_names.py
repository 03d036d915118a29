"""The index of label names: which names there are, their words, anchors, ambiguity and n-grams."""

from __future__ import annotations

import time
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from tests.support.name_matching import plain_grams, plain_key
from xmtc.data.label_index import LabelIndex
from xmtc.labels.name_index import fold_all
from xmtc.lexical.names import (
    ALTERNATIVE,
    MOST_WORDS,
    PREFERRED,
    UNQUALIFIED,
    GramIndex,
    NameTable,
    index_names,
    names_of,
)
from xmtc.lexical.texts import words_of


def indexed(*labels: tuple[str, ...]) -> tuple[NameTable, GramIndex]:
    """Index labels given as their preferred name followed by alternatives."""
    keys = [f"k{i}" for i in range(len(labels))]
    index = LabelIndex.from_keys(keys, [own[0] for own in labels], [list(own[1:]) for own in labels])
    return index_names(index, None)


def stem_numbers(names: NameTable, *words: str) -> list[int]:
    return names.stem_table.numbers(words_of(fold_all(words), None).stems).tolist()


def stems_of(names: NameTable, name: int) -> list[int]:
    return names.stems[names.indptr[name] : names.indptr[name + 1]].tolist()


def test_qualifiers_in_brackets_and_alternatives() -> None:
    names, _ = indexed(
        ("Mercury (planet)", "Hermes <star>"), ("wine", "vino", "Wein"), ("(R)-limonene",), ("(all in brackets)",)
    )
    assert names.owners.tolist() == [0, 0, 0, 0, 1, 1, 1, 2, 3]
    assert names.first.tolist() == [0, 4, 7, 8, 9]
    both = [PREFERRED, PREFERRED + UNQUALIFIED, ALTERNATIVE, ALTERNATIVE + UNQUALIFIED]
    assert names.kinds.tolist() == [*both, PREFERRED, ALTERNATIVE, ALTERNATIVE, PREFERRED, PREFERRED]
    assert stems_of(names, 0) == stem_numbers(names, "mercury", "planet")
    assert stems_of(names, 1) == stem_numbers(names, "mercury")
    assert stems_of(names, 7) == stem_numbers(names, "r", "limonene")
    assert stems_of(names, 8) == stem_numbers(names, "all", "in", "brackets")


def test_names_of_one_label() -> None:
    index = LabelIndex.from_keys(["a", "b"], ["law", "Bank_x (river)"], [[], ["shore", "strand <coast>"]])
    assert names_of(index, 0) == ["law"]
    assert names_of(index, 1) == ["Bank x (river)", "Bank x", "shore", "strand <coast>", "strand"]
    assert len(index_names(index, None)[0].owners) == 6


@pytest.mark.parametrize("name", ["Bank [river]", "Bank <river>", "Bank (a) (river)", "Bank  (river)"])
def test_kinds_of_brackets(name: str) -> None:
    names, _ = indexed((name,))
    assert len(names.owners) == 2
    assert stems_of(names, 1) == stem_numbers(names, "bank")


def test_underscores_are_spaces() -> None:
    names, _ = indexed(("food_safety",), ("food_law_(general)",))
    assert stems_of(names, 0) == stem_numbers(names, "food", "safety")
    assert stems_of(names, 1) == stem_numbers(names, "food", "law", "general")
    assert stems_of(names, 2) == stem_numbers(names, "food", "law")


def test_forms_and_stems_are_numbered_apart() -> None:
    names, _ = indexed(("wind farm",), ("Wind Farms",), ("Wínd fárm",))
    assert len(names.form_table) == 3  # wind, farm, farms
    assert len(names.stem_table) == 2
    assert stems_of(names, 0) == stems_of(names, 1) == stems_of(names, 2) == stem_numbers(names, "wind", "farm")
    forms = np.split(names.forms, names.indptr[1:-1])
    assert forms[0].tolist() == forms[2].tolist() != forms[1].tolist()


def test_ambiguity_is_the_number_of_labels_with_these_stems() -> None:
    names, _ = indexed(
        ("wind farm", "wind farms", "farm of winds"), ("Wind Farms",), ("farm, wind", "windmill"), ("wind wind farm",)
    )
    assert dict(zip(range(7), names.ambiguity.tolist(), strict=True)) == {0: 3, 1: 3, 2: 1, 3: 3, 4: 3, 5: 1, 6: 1}
    names, _ = indexed(("Mercury (planet)",), ("Mercury (element)",), ("planet mercury",))
    assert names.ambiguity.tolist() == [2, 2, 1, 2, 2]


def test_labels_without_words() -> None:
    names, grams = indexed(("!!!",), ("wine",), ("—", "…"))
    assert names.first.tolist() == [0, 1, 2, 4]
    assert np.diff(names.indptr).tolist() == [0, 1, 0, 0]
    assert names.anchored.tolist() == [1]
    assert np.diff(grams.indptr).tolist() == [0, 5, 0, 0]
    assert np.isfinite(grams.scales).all()
    names, grams = indexed(("!!!",), ("?",))
    assert len(names.forms) == len(names.anchored) == len(grams.grams) == len(grams.postings) == 0


def test_further_words_of_a_long_name_are_ignored() -> None:
    words = [f"word{i:02d}x" for i in range(MOST_WORDS + 4)]
    names, grams = indexed((" ".join(words),), ("short name",))
    assert stems_of(names, 0) == stem_numbers(names, *words[:MOST_WORDS])
    assert stems_of(names, 1) == stem_numbers(names, "short", "name")
    kept = {gram for word in words[:MOST_WORDS] for gram in plain_grams(word, 4, 5)}
    assert grams.indptr[1] == len(kept)


def test_anchors_are_the_rarest_stems() -> None:
    random = np.random.default_rng(2)
    labels = [tuple(" ".join(f"w{i}q" for i in random.zipf(1.4, size=random.integers(1, 5)) % 30) for _ in range(2))
              for _ in range(60)]  # fmt: skip
    names, _ = indexed(*labels)
    counts = Counter(names.stems.tolist())
    found = np.full(len(names.owners), -1)
    for stem in range(len(names.stem_table)):
        own = names.anchored[names.anchor_indptr[stem] : names.anchor_indptr[stem + 1]]
        assert own.tolist() == sorted(own.tolist())
        assert (found[own] == -1).all()
        found[own] = stem
    for name, stem in enumerate(found.tolist()):
        own = stems_of(names, name)
        assert stem in own
        assert counts[stem] == min(counts[each] for each in own)


def test_grams_in_both_directions() -> None:
    labels = ["wind farm", "wind", "an", "windy wind", "farm"]
    _, grams = indexed(*((label,) for label in labels))
    own = [{gram for word in label.split() for gram in plain_grams(word, 4, 5)} for label in labels]
    distinct = set().union(*own)
    assert len(grams.table) == len(distinct)
    number = {gram: grams.table.numbers(np.array([plain_key(gram, 11)], np.uint64))[0] for gram in distinct}
    for name, each in enumerate(own):
        held = grams.grams[grams.indptr[name] : grams.indptr[name + 1]]
        assert sorted(held.tolist()) == sorted(int(number[gram]) for gram in each)
        length = np.sqrt(sum(float(grams.idf[number[gram]]) ** 2 for gram in each))
        assert grams.scales[name] == pytest.approx(1 / length, rel=1e-6)
    for gram in distinct:
        having = [name for name, each in enumerate(own) if gram in each]
        low, high = grams.posting_indptr[number[gram] : number[gram] + 2]
        assert grams.postings[low:high].tolist() == having
        assert grams.idf[number[gram]] == pytest.approx(1 + np.log(len(labels) / len(having)))


def test_part_of_a_table() -> None:
    """Alternatives keep to their labels when the table is a slice of several chunks."""
    index = LabelIndex.from_keys(list("abcd"), list("ABCD"), [["one"], [], ["three", "drei"], ["four"]])
    table = pa.concat_tables([index.table.slice(1, 1), index.table.slice(2, 2)])
    names, _ = index_names(LabelIndex(table), None)
    assert names.owners.tolist() == [0, 1, 1, 1, 2, 2]
    assert stems_of(names, 5) == stem_numbers(names, "four")


def test_many_spaces_and_brackets_take_linear_time() -> None:
    started = time.perf_counter()
    names, _ = indexed(("a" + " " * 100_000 + "b)",), ("(" * 100_000 + ")",))
    assert time.perf_counter() - started < 5  # minutes if every space began a search of its own
    assert names.kinds.tolist() == [PREFERRED, PREFERRED, PREFERRED + UNQUALIFIED]


def test_an_ngram_that_occurs_often_in_a_name() -> None:
    counts = [np.diff(indexed(("a" * length,))[1].indptr).tolist() for length in range(250, 270)]
    assert counts == [[6]] * 20  # aaaa, aaaaa and those at either end
