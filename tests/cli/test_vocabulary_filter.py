"""`xmtc predict --under --only-unused --hierarchy …`: labels selected by the vocabulary."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.command_line import call, mistake
from xmtc import load
from xmtc.labels.hierarchy import Hierarchy


def predicted(model: Path, *flags: object) -> list[str]:
    (row,) = call("predict", model, "--text", "x", "-k", 40, *flags).lines()
    return [label["key"] for label in row["labels"]]


def test_under(tree: Path) -> None:
    labels = load(tree).labels
    third, fourth = labels.key(2), labels.name(3)
    below = Hierarchy(labels).under([2])
    assert set(predicted(tree, "--under", third)) == {labels.key(int(n)) for n in below.nonzero()[0]}
    below |= Hierarchy(labels).under([3])
    both = predicted(tree, "--under", third, "--under", fourth)
    assert set(both) == {labels.key(int(number)) for number in below.nonzero()[0]}
    assert [key for key in predicted(tree) if key in both] == both  # the ranking without the others
    assert len(predicted(tree, "--under", "root")) == len(labels)  # not a label, but the parent of one


def test_with_files(tree: Path, tmp_path: Path) -> None:
    labels = load(tree).labels
    deny = tmp_path / "deny.txt"
    deny.write_text(labels.key(2))
    under = predicted(tree, "--under", labels.key(2))
    assert predicted(tree, "--under", labels.key(2), "--deny", deny) == [key for key in under if key != labels.key(2)]
    said = mistake("predict", tree, "--text", "x", "--under", labels.key(39), "--allow", deny)
    assert said.endswith("none of the model's 40 labels remains. Use fewer conditions.")


def test_hierarchy(tree: Path, data: Path, tmp_path: Path) -> None:
    model = load(tree)
    texts = [json.loads(line)["text"] for line in (data / "test.jsonl").read_text().splitlines()]
    for how in ("narrowest", "broadest"):
        done = call("predict", tree, data / "test.jsonl", "-k", 4, "--hierarchy", how)
        keys = [[label["key"] for label in row["labels"]] for row in done.lines()]
        assert keys == model.predict(texts, 4, hierarchy=how).keys()  # type: ignore[arg-type]
    parts = tmp_path / "parts"
    call("predict", tree, data / "test.jsonl", "--parts", 60, "--out", parts, "--hierarchy", "narrowest")
    given = json.loads((parts / "_answers.json").read_text())["made_of"]
    assert given["hierarchy"] == "narrowest"
    assert given["selected labels"] is None  # as in folders written before the conditions existed
    some = ("--under", model.labels.key(2), "--only-used")
    call("predict", tree, data / "test.jsonl", "--parts", 60, "--out", tmp_path / "some", *some)
    given = json.loads((tmp_path / "some" / "_answers.json").read_text())["made_of"]
    assert given["selected labels"] == {"under": [model.labels.key(2)], "used": True}


def test_mistakes(tree: Path, ova: Path) -> None:
    ask = ("predict", tree, "--text", "x")
    name = load(tree).labels.name(3)
    assert f"Did you mean '{name}'?" in mistake(*ask, "--under", f"{name}x")
    assert mistake(*ask, "--only-unused").endswith(
        "have training documents. Leave out this condition, or train a model that uses label names with "
        "--labels VOCABULARY."
    )
    assert predicted(tree, "--only-used") == predicted(tree)
    assert "--only-used and --only-unused" in mistake(*ask, "--only-unused", "--only-used")
    assert "no label of the model has a scheme" in mistake(*ask, "--scheme", "s")
    assert "--hierarchy must be keep or narrowest or broadest" in mistake(*ask, "--hierarchy", "x")
    said = mistake("predict", ova, "--text", "x", "--hierarchy", "narrowest")
    assert said.startswith("no label of the model has a broader label among the labels.")
    assert said.endswith(", or leave out --hierarchy.")


def test_details(tree: Path, tmp_path: Path) -> None:
    labels = load(tree).labels
    (row,) = call("predict", tree, "--text", "x", "-k", 40, "--json", "--details").lines()
    by_key = {label["key"]: label for label in row["labels"]}
    assert by_key[labels.key(5)]["broader"] == [labels.name(1)]
    assert by_key[labels.key(0)]["broader"] == ["root"]  # not a label: its key
    assert set(by_key[labels.key(0)]) - {"key", "name", "score"} == {
        "broader",
        "description",
        "notes",
        "schemes",
        "documents",
    }
    assert [label["documents"] for label in row["labels"]] == sorted(load(tree).label_counts.tolist(), reverse=True)
    ask = ("predict", tree, "--text", "x", "--details")
    assert call(*ask, "--out", tmp_path / "p.jsonl").status == 0
    parts = mistake("predict", tree, "x.jsonl", "--details", "--parts", 5, "--out", tmp_path / "p")
    assert parts.endswith("Leave out --parts or --details.")
    assert "--details writes JSON Lines, not tsv" in mistake(*ask, "--out", tmp_path / "p.tsv")
    assert "--details writes JSON Lines, not table" in mistake(*ask, "--output-format", "table")


def test_under_a_label_that_training_left_out(tmp_path: Path) -> None:
    """No document has 'mid' or 'top', so that the model does not have them; 'a' is still below both."""
    (tmp_path / "train.jsonl").write_text('{"text": "x", "labels": ["a", "b"]}\n{"text": "y", "labels": ["b"]}\n')
    rows = [{"id": "a", "parents": ["mid"]}, {"id": "b"}, {"id": "mid", "parents": ["top"]}, {"id": "top"}]
    (tmp_path / "labels.jsonl").write_text("\n".join(map(json.dumps, rows)))
    given = ("--labels", tmp_path / "labels.jsonl", "--model", "popularity", "--out", tmp_path / "m")
    call("train", tmp_path / "train.jsonl", *given)
    assert predicted(tmp_path / "m", "--under", "top") == predicted(tmp_path / "m", "--under", "mid") == ["a"]
