"""Labels before and after an update, worked out by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pytest
import scipy.sparse as sp

from xmtc.core.errors import DataError
from xmtc.data.dataset import Dataset, as_dataset
from xmtc.data.label_index import LabelIndex
from xmtc.labels.hierarchy import Hierarchy
from xmtc.models.popularity import Popularity
from xmtc.models.relabelling import Relabelling, became, relabelled

BEFORE = LabelIndex.from_keys(["a", "b", "c", "d"], ["An a", "A b", "A c", "A d"])


def change(
    new: Iterable[str] = (),
    retired: Iterable[str] = (),
    merged: Mapping[str, str] | None = None,
    known: Mapping[str, str] | None = None,
    before: LabelIndex = BEFORE,
) -> Relabelling:
    return relabelled(before, LabelIndex.from_keys(list(new)), retired, merged or {}, known or {})


def holding(*rows: list[str]) -> Dataset:
    return as_dataset(["x"] * len(rows), list(rows))


def held(found: Relabelling, documents: Dataset) -> list[list[str]]:
    taken = found.taken_over(documents)
    assert taken.label_index is found.index
    assert taken.labels is not None
    assert (taken.labels.data == 1).all()
    return [found.index.strings("key", taken.labels[[row]].indices) for row in range(len(documents))]


class TestRelabelled:
    def test_nothing_changes(self) -> None:
        found = change()
        assert found.index == BEFORE
        assert found.numbers.tolist() == found.kept.tolist() == [0, 1, 2, 3]
        assert (found.added, found.changes) == (0, False)

    def test_new_ones_come_last(self) -> None:
        found = change(["z", "b", "e"])
        assert found.index.keys == ["a", "b", "c", "d", "z", "e"]
        assert found.numbers.tolist() == [0, 1, 2, 3]
        assert (found.added, found.changes) == (2, False)

    def test_retired_ones_go(self) -> None:
        found = change(["e", "b"], ["b", "d", "b"])
        assert found.index.keys == ["a", "c", "e"]
        assert found.numbers.tolist() == [0, -1, 1, -1]
        assert found.kept.tolist() == [0, 2]
        assert (found.added, found.changes) == (1, True)
        assert held(found, holding(["a", "b"], ["d"], ["e", "c"])) == [["a"], [], ["c", "e"]]

    def test_merged_into_a_known_one(self) -> None:
        found = change(merged={"a": "c"})
        assert found.index.keys == ["b", "c", "d"]
        assert found.numbers.tolist() == [1, 0, 1, 2]
        assert found.changes
        assert held(found, holding(["a"], ["a", "c"], ["c"])) == [["c"]] * 3

    def test_merged_into_one_that_nobody_knows(self) -> None:
        """The first of them stays under the new key, and is called by it."""
        found = change(["e"], merged={"b": "z", "d": "z"})
        assert found.index.keys == ["a", "z", "c", "e"]
        assert found.index.names == ["An a", "z", "A c", "e"]
        assert found.numbers.tolist() == [0, 1, 2, 1]
        assert found.kept.tolist() == [0, 1, 2]
        assert found.added == 1
        assert held(found, holding(["b"], ["d", "b"], ["z", "e"])) == [["z"], ["z"], ["z", "e"]]

    def test_names_of_merged_labels_are_kept(self) -> None:
        """As alternative names, each once; a name that is just the key is none."""
        names, others = ["car", "automobile", "c", "d"], [["auto"], ["auto", "motor car"], ["see"], ["car"]]
        before = LabelIndex.from_keys(["a", "b", "c", "d"], names, others)
        found = change(merged={"b": "a", "c": "b", "d": "a"}, before=before).index
        assert found.table["alternatives"].to_pylist() == [["auto", "automobile", "motor car", "see"]]
        found = change(merged={"b": "z", "c": "z"}, before=before).index
        assert found.names == ["car", "z", "d"]
        assert found.table["alternatives"].to_pylist() == [
            ["auto"],
            ["auto", "motor car", "automobile", "see"],
            ["car"],
        ]

    def test_renamed(self) -> None:
        """A label under another key is the same label: nothing is to be learnt anew."""
        found = change(["z"], merged={"b": "z"})
        assert found.index.keys == ["a", "z", "c", "d"]
        assert found.numbers.tolist() == [0, 1, 2, 3]
        assert (found.added, found.changes) == (0, False)

    def test_chains_are_followed(self) -> None:
        found = change(merged={"a": "b", "b": "c", "c": "d"})
        assert found.index.keys == ["d"]
        assert found.numbers.tolist() == [0, 0, 0, 0]
        beyond = change(merged={"a": "b", "b": "z"})
        assert beyond.index.keys == ["z", "c", "d"]
        assert beyond.numbers.tolist() == [0, 0, 1, 2]

    @pytest.mark.parametrize("circle", [{"a": "a"}, {"a": "b", "b": "a"}, {"d": "a", "a": "b", "b": "c", "c": "a"}])
    def test_circles_are_refused(self, circle: dict[str, str]) -> None:
        with pytest.raises(DataError, match=r"^label '[abcd]' is merged into itself\. Remove one of the merges"):
            change(merged=circle)

    @pytest.mark.parametrize(("retired", "merged"), [("a", {"a": "b"}), ("b", {"a": "b"}), ("c", {"a": "b", "b": "c"})])
    def test_retired_and_merged(self, retired: str, merged: dict[str, str]) -> None:
        with pytest.raises(DataError, match=f"^label '{retired}' cannot be both retired and merged. Choose one."):
            change(retired=[retired], merged=merged)

    def test_unknown_keys(self) -> None:
        with pytest.raises(DataError, match=r"^label 'q' cannot be retired: it is not among the model's 4 labels\."):
            change(["q"], ["a", "q"])
        with pytest.raises(DataError, match=r"^label 'q' cannot be merged: it is not among the model's 4 labels\."):
            change(["q"], merged={"q": "a"})

    def test_one_label_must_be_left(self) -> None:
        for new in ([], ["a"], ["b", "d"]):  # retired and there again in the same update: still retired
            with pytest.raises(DataError, match=r"^the update would remove all labels. Keep at least one."):
                change(new, ["a", "b", "c", "d"])
        assert change(["e"], ["a", "b", "c", "d"]).index.keys == ["e"]

    def test_names_that_new_documents_bring(self) -> None:
        new = LabelIndex.from_keys(["c", "a", "z", "e"], ["c", "Better a", "The z", "An e"])
        found = relabelled(BEFORE, new, (), {"b": "z"}, {})
        assert found.index.keys == ["a", "z", "c", "d", "e"]
        assert found.index.names == ["Better a", "The z", "A c", "A d", "An e"]  # a key says nothing of c

    def test_columns(self) -> None:
        labels = sp.csr_array(np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0]], np.float32))
        found = change(["e"], ["d"], {"a": "c"}).columns(labels)
        assert found.toarray().tolist() == [[1, 1, 0], [0, 1, 0], [0, 1, 0]]  # b, c, e


class TestAgain:
    """What labels of earlier updates count as."""

    def test_one_update_after_the_other(self) -> None:
        assert became([{"a": "b"}, {"b": "c"}, {}]) == {"a": "c", "b": "c"}
        assert became([{"b": "c"}, {"a": "b"}]) == {"a": "b", "b": "c"}  # b was there again
        assert became([{"a": "b", "b": "c"}, {"c": "d"}]) == {"a": "d", "b": "d", "c": "d"}
        assert became([]) == {}

    def test_a_merged_label_counts_as_what_it_became(self) -> None:
        found = change(["y", "e"], known={"y": "b"})
        assert found.index.keys == ["a", "b", "c", "d", "e"]
        assert held(found, holding(["y"], ["y", "b"], ["e"])) == [["b"], ["b"], ["e"]]
        further = change(["y"], merged={"b": "c"}, known={"y": "b"})
        assert held(further, holding(["y"])) == [["c"]]
        renamed = change(["y"], merged={"b": "z"}, known={"y": "b"})
        assert held(renamed, holding(["y"])) == [["z"]]

    def test_one_that_is_a_label_again_is_itself(self) -> None:
        """As when a renaming is taken back."""
        found = change(["a"], known={"a": "b"})
        assert held(found, holding(["a"], ["b"])) == [["a"], ["b"]]
        back = change(["y"], merged={"b": "y"}, known={"y": "b"})
        assert back.index.keys == ["a", "y", "c", "d"]
        assert held(back, holding(["y"], ["b"])) == [["y"], ["y"]]

    def test_one_whose_successor_is_gone_is_new(self) -> None:
        found = change(["y"], known={"y": "gone"})
        assert found.index.keys == ["a", "b", "c", "d", "y"]
        both = change(["y", "gone"], known={"y": "gone"})
        assert both.index.keys == ["a", "b", "c", "d", "gone"]
        assert held(both, holding(["y"])) == [["gone"]]
        assert held(change(["y"], ["b"], known={"y": "b"}), holding(["y"])) == [[]]  # goes just now

    def test_over_three_updates(self) -> None:
        texts = [f"text {number}" for number in range(6)]
        model = Popularity().fit(texts, [["a"], ["b"], ["c"], ["d"], ["d"], ["d"]])
        model.update(merge={"a": "b"}).update(merge={"b": "c"}, retire=["d"])
        assert model.labels.keys == ["c"]
        model.update(["more", "and more"], [["a", "d"], ["a"]])
        assert model.labels.keys == ["c", "d"]  # what became c is c; what was retired is new
        assert model.label_counts.tolist() == [5, 1]
        assert [entry["merged"] for entry in model.history] == [{"a": "b"}, {"b": "c"}, {}]
        assert [entry["labels retired"] for entry in model.history] == [0, 1, 0]
        assert [entry["labels added"] for entry in model.history] == [0, 0, 1]


def test_rejected_labels_follow_and_give_way_to_accepted_ones() -> None:
    before = LabelIndex.from_keys(["a", "b", "c"])
    labels = relabelled(before, LabelIndex.from_keys([]), ["c"], {"a": "b"}, {})
    given = as_dataset(["x", "y", "z"], [["b"], [], []], [["a"], ["a"], ["c", "new"]], complete=[False, True, False])
    found = labels.taken_over(given)
    assert found.label_index is not None
    assert found.label_index.keys == ["b"]
    assert found.rejected is not None
    assert found.rejected.toarray().tolist() == [[0], [1], [0]]
    assert found.partial_rows().tolist() == [True, False, True]


def test_names_to_learn() -> None:
    """All names of new and merged labels, the new names of others, and those that have been learnt already."""
    before = LabelIndex.from_keys(list("abcde"), ["one", "two", "three", "d", "five"], [["uno"], ["due"], [], [], []])
    now = LabelIndex.from_keys(
        list("abcdf"), ["one", "zwei", "three", "four", "six"], [["eins", "uno"], [], [], [], []]
    )
    texts, is_learnt = relabelled(before, now, [], {"e": "c"}, {}).renewed(now).names_to_learn()
    assert texts.to_pylist() == ["eins", "zwei", "three\nfive", "four", "six\n"]
    assert is_learnt.tolist() == [False] * 5
    fewer = LabelIndex.from_keys(list("ab"), ["one", "two"], [["uno"], []])
    texts, is_learnt = relabelled(before, fewer, ["c"], {}, {}).renewed(fewer).names_to_learn()
    assert texts.to_pylist() == ["one\nuno", "two\n", "d\n", "five\n"]
    assert is_learnt.all()


class TestVocabulary:
    """What a merge and a vocabulary leave of names and links; in the vocabulary, merged labels may be separate."""

    VOCABULARY = LabelIndex.from_keys(
        ["energy", "renewables", "wind", "power"],
        ["Energy", "Renewable energy", "Wind", "Power"],
        [["energies"], ["green energy"], [], []],
        [["power"], [], ["energy"], []],
        related=[["wind"], [], ["energy", "renewables"], []],
    )

    def merged(self, target: str) -> Relabelling:
        return change(merged={"energy": target}, before=self.VOCABULARY)

    @pytest.mark.parametrize("target", ["renewables", "power", "new key"])
    def test_links_follow_a_merged_label(self, target: str) -> None:
        for found in (self.merged(target), self.merged(target).renewed(self.VOCABULARY)):
            row = {each["key"]: each for each in found.index.table.to_pylist()}
            assert row["wind"]["parents"] == [target]
            assert row["wind"]["related"] == list(dict.fromkeys([target, "renewables"]))
            assert found.index.ancestors is None
            hierarchy = Hierarchy(found.index)
            assert hierarchy.keys.to_pylist() == found.index.keys
            assert hierarchy.descendants(hierarchy.number(target)).tolist() == [hierarchy.number("wind")]
            assert target not in row[target]["parents"]

    def test_links_of_removed_labels_follow_too(self) -> None:
        before = LabelIndex.from_keys(["a", "b", "c", "d"], parents=[[], ["a"], ["b"], []])
        found = change(retired=["b"], merged={"a": "d"}, before=before).index
        assert found.keys == ["c", "d"]
        assert found.ancestors is not None
        assert found.ancestors.keys == ["b"]
        assert Hierarchy(found).ancestors(0).tolist() == [1, 2]  # d, and b between them

    def test_names_of_merged_labels_stay(self) -> None:
        expected = ["green energy", "Energy", "energies"]
        first = self.merged("renewables")
        again = relabelled(first.index, LabelIndex.from_keys([]), (), {}, first.keys)
        for found in (first, first.renewed(self.VOCABULARY), again.renewed(self.VOCABULARY)):
            assert found.index.table["alternatives"][0].as_py() == expected

    def test_what_new_labels_lack_stays(self) -> None:
        """A list of keys and names has neither alternatives nor links."""
        named = LabelIndex.from_keys(["wind", "power"], ["Winds", "power"])
        found = relabelled(self.VOCABULARY, named, (), {}, {})
        expected = self.VOCABULARY.table.to_pylist()
        expected[2]["name"] = "Winds"
        assert found.index.table.to_pylist() == found.renewed(named).index.table.to_pylist() == expected
