"""Judging answers: a model and a file of its predictions get the same numbers, and every count has a slow twin."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp

from xmtc.cli.predict import write_answers
from xmtc.core.errors import ConfigError, DataError
from xmtc.data import read
from xmtc.data.dataset import Dataset, as_dataset
from xmtc.data.label_index import LabelIndex
from xmtc.data.planted_corpus import PlantedCorpus
from xmtc.data.topk import TopK
from xmtc.data.vocabularies import with_vocabulary
from xmtc.metrics import ReliabilityBin, reliability, tail_precision
from xmtc.models.base import Model
from xmtc.models.registry import model_class
from xmtc.workflows.compare import differences
from xmtc.workflows.evaluate import evaluate_model, evaluate_predictions, judge_file
from xmtc.workflows.evaluation import Evaluation, judge, most_filtered, write_per_label
from xmtc.workflows.requests import EvaluationOptions

LABELS = 30
KEYS = [str(label) for label in range(10, 10 + LABELS)]  # in one order as numbers and as words


@pytest.fixture(scope="module")
def sets() -> tuple[Dataset, Dataset]:
    """Documents to train and to test on; labels are numbers, the three rarest are only tested on, and some test
    documents hold none."""
    corpus = PlantedCorpus(documents=400, labels=LABELS, words_per_document=20, seed=5)
    texts, rows = [], []
    for batch in corpus.batches():
        texts += list(batch.texts)
        rows += [[KEYS[label] for label in row] for row in batch.labels]
    counts = Counter(key for row in rows[:300] for key in row)
    rare = set(sorted(KEYS, key=lambda key: counts[key])[:3])
    train = as_dataset(texts[:300], [[key for key in row if key not in rare] for row in rows[:300]])
    test = as_dataset(texts[300:], [row if number % 10 else [] for number, row in enumerate(rows[300:])])
    return train, replace(test, ids=pa.chunked_array([pa.array([f"t{row}" for row in range(100)])]))


@pytest.fixture(scope="module")
def model(sets: tuple[Dataset, Dataset]) -> Model:
    return model_class("knn")(neighbours=10).fit(sets[0])


def true_keys(test: Dataset) -> list[set[str]]:
    assert test.labels is not None
    assert test.label_index is not None
    return [set(test.label_index.strings("key", test.labels[[row]].indices)) for row in range(len(test))]


# ---- a model, and its predictions in a file


def as_lines(top: TopK, line: Callable[[str, list[str], list[float]], str], head: str = "") -> str:
    scores = [[score for _, score in row] for row in top.pairs()]
    return head + "".join(line(*row) + "\n" for row in zip(top.ids, top.keys(), scores, strict=True))


def write_form(form: str, top: TopK, folder: Path) -> Path:
    path = folder / f"predictions.{form}"
    if form in ("jsonl", "tsv", "parquet"):
        write_answers([top], path, form)
    elif form == "npz":
        rows = np.nonzero(top.labels >= 0)[0]
        numbers = [int(label["key"]) for row in top.rows() for label in row["labels"]]
        scores = top.scores[top.labels >= 0]
        sp.save_npz(path, sp.csr_matrix((scores, (rows, numbers)), shape=(len(top), 10 + LABELS)))
    elif form == "xc":
        head = f"{len(top)} {10 + LABELS}\n"
        path.write_text(as_lines(top, lambda _, keys, scores: " ".join(map("{}:{!r}".format, keys, scores)), head))
    elif form == "ft":
        path.write_text(as_lines(top, lambda _, keys, scores: " ".join(map("__label__{} {!r}".format, keys, scores))))
    elif form == "csv":
        path.write_text(as_lines(top, lambda name, keys, _: f"{name},{';'.join(keys)}", "id,labels\n"))
    else:
        path.write_text(as_lines(top, lambda name, keys, _: json.dumps({"labels": keys})))
    return path


FORMS = ["jsonl", "tsv", "parquet", "npz", "xc", "ft", "csv", "plain"]


def same(first: dict[str, float], second: dict[str, float]) -> None:
    assert first.keys() == second.keys()
    assert first == pytest.approx(second, abs=1e-12)


class TestFiles:
    @pytest.mark.parametrize("treatment", ["count", "drop"])
    @pytest.mark.parametrize("form", FORMS)
    def test_a_model_and_its_predictions_get_the_same_numbers(
        self, sets: tuple[Dataset, Dataset], model: Model, tmp_path: Path, form: str, treatment: str
    ) -> None:
        train, test = sets
        scope = EvaluationOptions(unknown_labels=treatment)
        expected = evaluate_model(model, test, scope)
        found = judge_file(write_form(form, model.predict(test, 5), tmp_path), test, scope, train=train)
        same(found.metrics, expected.metrics)
        assert (found.documents, found.unknown_labels) == (expected.documents, expected.unknown_labels)
        assert found.unknown_pairs == expected.unknown_pairs > 0

    def test_without_training_there_is_no_psp(
        self, sets: tuple[Dataset, Dataset], model: Model, tmp_path: Path
    ) -> None:
        path = write_form("jsonl", model.predict(sets[1], 5), tmp_path)
        found = judge_file(path, sets[1], EvaluationOptions())
        assert found.unknown_labels is None
        expected = evaluate_model(model, sets[1]).metrics
        kinds = {"P", "nDCG", "R", "microF1", "coverage"}
        same(
            {name: value for name, value in found.metrics.items() if not name.startswith("macro")},
            {name: value for name, value in expected.items() if name.partition("@")[0] in kinds},
        )

    def test_the_macro_mean_runs_over_labels_of_training_and_test(self, tmp_path: Path) -> None:
        """F1 at 1: a 1, b 0 (trained on, never seen again), c 0 (tested on only); one that is made up has no mean."""
        train = as_dataset(["x", "y"], [["a"], ["b"]])
        test = as_dataset(["x", "y"], [["a"], ["c"]])
        path = tmp_path / "p.jsonl"
        path.write_text('{"labels": ["a"]}\n{"labels": []}\n')
        assert judge_file(path, test, EvaluationOptions(), train=train).metrics["macroF1@1"] == pytest.approx(1 / 3)
        dropped = judge_file(path, test, EvaluationOptions(unknown_labels="drop"), train=train)
        assert dropped.metrics["macroF1@1"] == pytest.approx(1 / 2)
        path.write_text('{"labels": ["a"]}\n{"labels": ["made up"]}\n')
        found = judge_file(path, test, EvaluationOptions(), train=train)
        assert found.metrics["macroF1@1"] == pytest.approx(1 / 3)
        assert found.metrics["microF1@1"] == pytest.approx(1 / 2)
        assert found.unknown_labels == 1
        path.write_text('{"labels": ["a", "u", "v", "w"]}\n{"labels": ["made up", "x"]}\n')
        deeper = judge_file(path, test, EvaluationOptions(), train=train).metrics
        assert deeper["macroF1@1"] == pytest.approx(1 / 3)
        assert found.predictions.keys() == [["a"], ["made up"]]

    def test_more_predictions_than_are_measured_change_nothing(
        self, sets: tuple[Dataset, Dataset], model: Model, tmp_path: Path
    ) -> None:
        train, test = sets
        found = judge_file(
            write_form("jsonl", model.predict(test, 20), tmp_path), test, EvaluationOptions(), train=train
        )
        same(found.metrics, evaluate_model(model, test).metrics)

    def test_groups_of_deep_predictions(self, sets: tuple[Dataset, Dataset], model: Model, tmp_path: Path) -> None:
        train, test = sets
        path = write_form("jsonl", model.predict(test, 100), tmp_path)
        expected = evaluate_model(model, test, groups=True).groups
        assert judge_file(path, test, EvaluationOptions(groups=True), train=train).groups == expected
        assert set(expected) == {"pessimistic", "standard"}

    def test_other_keys_are_refused(self, sets: tuple[Dataset, Dataset], tmp_path: Path) -> None:
        path = tmp_path / "p.jsonl"
        path.write_text('{"labels": ["Apples"]}\n' + '{"labels": ["Pears"]}\n' * 99)
        with pytest.raises(DataError) as caught:
            judge_file(path, sets[1], EvaluationOptions())
        assert str(caught.value).startswith(f"{path}: no predicted label occurs in the test file ('Apples' predicted, ")

    def test_all_wrong_is_no_mistake_if_the_keys_are_known(self, tmp_path: Path) -> None:
        path = tmp_path / "p.jsonl"
        path.write_text('{"labels": ["b"]}\n{"labels": ["a"]}\n')
        assert judge_file(path, as_dataset(["x", "y"], [["a"], ["b"]]), EvaluationOptions()).metrics["P@1"] == 0

    def test_nothing_predicted_scores_nothing(self, tmp_path: Path) -> None:
        path = tmp_path / "p.jsonl"
        path.write_text('{"labels": []}\n{"labels": []}\n')
        found = judge_file(path, as_dataset(["x", "y"], [["a"], ["b"]]), EvaluationOptions())
        assert set(found.metrics.values()) == {0.0}

    def test_numbers_get_names(self, tmp_path: Path) -> None:
        """The columns of a matrix are the lines of a list, and those of lbl.json beside a label-feature file."""
        sp.save_npz(tmp_path / "p.npz", sp.csr_matrix([[0, 0.5, 0.25], [0.5, 0, 0]]))
        (tmp_path / "test.jsonl").write_text('{"text": "x", "labels": ["b"]}\n{"text": "y", "labels": ["a"]}\n')
        (tmp_path / "names.jsonl").write_text("".join(f'{{"key": "{key}"}}\n' for key in "abc"))
        for_names = evaluate_predictions(
            tmp_path / "p.npz", tmp_path / "test.jsonl", vocabulary=tmp_path / "names.jsonl"
        )
        assert for_names.metrics["P@1"] == 1
        with pytest.raises(DataError, match="no predicted label occurs in the test file"):
            evaluate_predictions(tmp_path / "p.npz", tmp_path / "test.jsonl")
        (tmp_path / "names.jsonl").write_text('{"key": "a"}\n{"key": "b"}\n')
        with pytest.raises(DataError, match="label number 2 is out of range for 2 labels"):
            evaluate_predictions(tmp_path / "p.npz", tmp_path / "test.jsonl", vocabulary=tmp_path / "names.jsonl")
        (tmp_path / "lf").mkdir()
        (tmp_path / "lf" / "tst.json").write_text(
            '{"uid": "d1", "title": "x", "content": "", "target_ind": [1]}\n'
            '{"uid": "d2", "title": "y", "content": "", "target_ind": [0, 2]}\n'
        )
        (tmp_path / "lf" / "lbl.json").write_text("".join(f'{{"uid": "u{key}", "title": "{key}"}}\n' for key in "abc"))
        assert evaluate_predictions(tmp_path / "p.npz", tmp_path / "lf" / "tst.json").metrics["P@1"] == 1

    def test_a_test_set_without_labels(self, sets: tuple[Dataset, Dataset], model: Model) -> None:
        bare = replace(sets[1], labels=None, label_index=None)
        with pytest.raises(DataError, match="the test documents have no labels"):
            evaluate_model(model, bare)
        with pytest.raises(DataError, match="the test documents have no labels"):
            judge(model.predict(bare), bare, EvaluationOptions())


# ---- labels that training never saw


class TestUnknownLabels:
    def test_counted_or_dropped(self, sets: tuple[Dataset, Dataset], model: Model) -> None:
        train, test = sets
        assert train.labels is not None
        assert train.label_index is not None
        known = set(train.label_index.keys)
        truth = true_keys(test)
        unknown = [key for row in truth for key in row if key not in known]
        best = list(map(set, model.predict(test, 5).keys()))
        for treatment in ("count", "drop"):
            found = evaluate_model(model, test, unknown_labels=treatment)
            assert (found.unknown_labels, found.unknown_pairs) == (len(set(unknown)), len(unknown))
            kept = truth if treatment == "count" else [row & known for row in truth]
            recall = np.mean([len(row & given) / len(row) if row else 0 for row, given in zip(kept, best, strict=True)])
            assert found.metrics["R@5"] == pytest.approx(recall)
            pairs = sum(map(len, kept)) + sum(map(len, best))
            hits = sum(len(row & given) for row, given in zip(kept, best, strict=True))
            assert found.metrics["microF1@5"] == pytest.approx(2 * hits / pairs)
            per_key = []
            for key in known | set().union(*kept):
                held, given = (
                    {n for n, row in enumerate(kept) if key in row},
                    {n for n, r in enumerate(best) if key in r},
                )
                per_key.append(2 * len(held & given) / max(len(held) + len(given), 1))
            assert found.metrics["macroF1@5"] == pytest.approx(np.mean(per_key))


# ---- sets of labels at a threshold


def slow_sets(sets: list[set[str]], truth: list[set[str]], columns: set[str]) -> dict[str, float]:
    hits = sum(len(row & held) for row, held in zip(sets, truth, strict=True))
    by_document = [2 * len(row & held) / max(len(row) + len(held), 1) for row, held in zip(sets, truth, strict=True)]
    by_label = []
    for key in columns:
        given, held = ({n for n, row in enumerate(rows) if key in row} for rows in (sets, truth))
        by_label.append(2 * len(given & held) / max(len(given) + len(held), 1))
    returned, true = sum(map(len, sets)), sum(map(len, truth))
    return {
        "micro": 2 * hits / (returned + true),
        "macro": float(np.mean(by_label)),
        "document": float(np.mean(by_document)),
        "precision": hits / returned,
        "recall": hits / true,
        "labels": returned / len(sets),
    }


class TestSets:
    @pytest.fixture(scope="class")
    @staticmethod
    def tuned(sets: tuple[Dataset, Dataset]) -> Model:
        return model_class("knn")(neighbours=10).fit(sets[0]).calibrate(sets[1], k=12, threshold="label")

    @pytest.mark.parametrize("treatment", ["count", "drop"])
    @pytest.mark.parametrize("threshold", ["auto", 0.3])
    def test_with_labels_that_training_never_saw(
        self, sets: tuple[Dataset, Dataset], tuned: Model, treatment: str, threshold: float | str
    ) -> None:
        train, test = sets
        assert train.label_index is not None
        known = set(train.label_index.keys)
        truth = [row if treatment == "count" else row & known for row in true_keys(test)]
        chosen = list(map(set, tuned.predict(test, threshold=threshold).keys()))
        found = evaluate_model(tuned, test, unknown_labels=treatment, threshold=threshold)
        assert found.sets == pytest.approx(slow_sets(chosen, truth, known | set().union(*truth)))
        same(found.metrics, evaluate_model(tuned, test, unknown_labels=treatment).metrics)

    def test_what_calibrate_said(self, sets: tuple[Dataset, Dataset], tuned: Model) -> None:
        found = evaluate_model(tuned, sets[1])
        assert found.sets == tuned.decisions.facts["F1"]
        assert found.threshold is tuned.decisions.thresholds
        assert found.predictions.k == 5
        assert evaluate_model(tuned, sets[1], groups=True).sets == found.sets  # however deep the predictions
        told = json.loads(json.dumps(found.to_json()))["threshold"]
        assert told["scores"] == found.sets
        assert (told["kind"], told["measure"]) == ("label", "micro")

    @pytest.mark.parametrize("threshold", ["auto", 0.2])
    def test_without_filtered_pairs(
        self, sets: tuple[Dataset, Dataset], tuned: Model, tmp_path: Path, threshold: float | str
    ) -> None:
        """Labels beyond those that were looked at move up, as if the filtered ones were denied."""
        test, truth = sets[1], true_keys(sets[1])
        pairs = {(row, key) for row, keys in enumerate(tuned.predict(test, 3).keys()) for key in keys[: row % 3]}
        scope = EvaluationOptions(filter_file=write_filter(tmp_path / "f.txt", pairs), threshold=threshold)
        chosen = []
        for row in range(len(test)):
            denied = [key for other, key in pairs if other == row]
            chosen.append(set(tuned.predict(test.slice(row, row + 1), threshold=threshold, deny=denied).keys()[0]))
        assert sets[0].label_index is not None
        kept = [{key for key in held if (row, key) not in pairs} for row, held in enumerate(truth)]
        expected = slow_sets(chosen, kept, set(sets[0].label_index.keys) | set().union(*kept))
        assert evaluate_model(tuned, test, scope).sets == pytest.approx(expected)

    def test_a_file_has_sets_of_any_size(self, sets: tuple[Dataset, Dataset], model: Model, tmp_path: Path) -> None:
        train, test = sets
        path = write_form("jsonl", model.predict(test, LABELS), tmp_path)
        expected = evaluate_model(model, test, threshold=0.01)
        found = judge_file(path, test, EvaluationOptions(threshold=0.01), train=train)
        assert found.sets == expected.sets
        assert found.sets is not None
        assert found.sets["labels"] > 5
        same(found.metrics, evaluate_model(model, test).metrics)
        assert found.to_json()["threshold"]["value"] == 0.01

    def test_none_where_nobody_asks(self, sets: tuple[Dataset, Dataset], model: Model) -> None:
        found = evaluate_model(model, sets[1])
        assert found.sets is None
        assert "threshold" not in found.to_json()

    def test_no_label_reaches_it(self, sets: tuple[Dataset, Dataset], model: Model) -> None:
        found = evaluate_model(model, sets[1], threshold=1e9).sets
        assert found is not None
        assert set(found.values()) == {0.0}

    def test_a_model_that_does_not_know_what_it_was_trained_on(
        self, sets: tuple[Dataset, Dataset], tuned: Model, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(type(tuned), "counted", lambda _: None)
        found = evaluate_model(tuned, sets[1])
        assert found.unknown_labels is None
        assert not any(name.startswith("PS") for name in found.metrics)
        chosen, truth = list(map(set, tuned.predict(sets[1], threshold="auto").keys())), true_keys(sets[1])
        assert found.sets == pytest.approx(slow_sets(chosen, truth, set().union(*truth)))

    def test_refused(self, sets: tuple[Dataset, Dataset], model: Model, tmp_path: Path) -> None:
        for bad in ("x", ""):
            with pytest.raises(ConfigError, match=r"--threshold must be a number such as 0.3, or auto"):
                EvaluationOptions(threshold=bad)
        with pytest.raises(ConfigError, match="this model has no tuned threshold"):
            evaluate_model(model, sets[1], threshold="auto")
        with pytest.raises(ConfigError, match="a file of predictions has no tuned threshold"):
            judge_file(tmp_path / "p.jsonl", sets[1], EvaluationOptions(threshold="auto"))
        with pytest.raises(ConfigError, match="a threshold must be a number"):
            evaluate_model(model, sets[1], threshold=float("nan"))


# ---- pairs to leave out


def slow_filtered(
    ranked: list[list[str]], truth: list[set[str]], pairs: set[tuple[int, str]], k: int
) -> tuple[float, float]:
    """P@k and R@k after removing pairs, document by document."""
    precision, recall = [], []
    for row, (keys, held) in enumerate(zip(ranked, truth, strict=True)):
        kept = [key for key in keys if (row, key) not in pairs][:k]
        held = {key for key in held if (row, key) not in pairs}
        hits = len(held & set(kept))
        precision.append(hits / k)
        recall.append(hits / len(held) if held else 0)
    return float(np.mean(precision)), float(np.mean(recall))


def write_filter(path: Path, pairs: set[tuple[int, str]], repeated: bool = True) -> Path:
    lines = [f"{row} {key}" for row, key in sorted(pairs)]
    path.write_text("\n".join(lines + lines[:3] * repeated) + "\n\n")
    return path


class TestFilter:
    @pytest.fixture
    def pairs(self, sets: tuple[Dataset, Dataset], model: Model) -> set[tuple[int, str]]:
        """Some right answers, some wrong ones, some true labels that were not returned, some that nobody knows."""
        chosen = np.random.default_rng(0)
        best = model.predict(sets[1], 4).keys()
        pairs = {(row, key) for row, keys in enumerate(best) for key in keys if chosen.random() < 0.4}
        pairs |= {(row, key) for row, keys in enumerate(true_keys(sets[1])) for key in keys if chosen.random() < 0.3}
        return pairs | {(3, "999"), (99, "10")}

    def test_a_model_makes_up_for_filtered_labels(
        self, sets: tuple[Dataset, Dataset], model: Model, pairs: set[tuple[int, str]], tmp_path: Path
    ) -> None:
        test, truth = sets[1], true_keys(sets[1])
        scope = EvaluationOptions(filter_file=write_filter(tmp_path / "f.txt", pairs))
        most = max(np.bincount([row for row, _ in pairs]))
        assert most_filtered(scope, test) >= most
        whole = model.predict(test, LABELS).keys()
        found = evaluate_model(model, test, scope)
        for k in (1, 3, 5):
            precision, recall = slow_filtered(whole, truth, pairs, k)
            assert found.metrics[f"P@{k}"] == pytest.approx(precision)
            assert found.metrics[f"R@{k}"] == pytest.approx(recall)
        assert found.metrics["P@5"] != evaluate_model(model, test).metrics["P@5"]
        assert all((row, key) not in pairs for row, keys in enumerate(found.predictions.keys()) for key in keys)
        assert found.predictions.k == 5

    def test_in_a_file_later_labels_move_up(
        self, sets: tuple[Dataset, Dataset], model: Model, pairs: set[tuple[int, str]], tmp_path: Path
    ) -> None:
        train, test = sets
        ranked = model.predict(test, 6)
        path = write_form("jsonl", ranked, tmp_path)
        scope = EvaluationOptions(filter_file=write_filter(tmp_path / "f.txt", pairs))
        found = judge_file(path, test, scope, train=train)
        for k in (1, 3, 5):
            precision, recall = slow_filtered(ranked.keys(), true_keys(test), pairs, k)
            assert found.metrics[f"P@{k}"] == pytest.approx(precision)
            assert found.metrics[f"R@{k}"] == pytest.approx(recall)

    def test_labels_are_lines_of_lbl_json_beside_the_filter(self, tmp_path: Path) -> None:
        """Document 0 is the label u1 itself, and document 1 the label u0; the first hit of both goes away."""
        (tmp_path / "lbl.json").write_text("".join(f'{{"uid": "u{n}", "title": "t{n}"}}\n' for n in range(3)))
        test = as_dataset(["x", "y"], [["u1", "u2"], ["u0"]])
        (tmp_path / "filter.txt").write_text("0 1\n1 0\n")
        (tmp_path / "p.jsonl").write_text('{"labels": ["u1", "u2"]}\n{"labels": ["u0", "u2"]}\n')
        plain = judge_file(tmp_path / "p.jsonl", test, EvaluationOptions()).metrics
        assert plain["P@1"] == 1
        found = judge_file(tmp_path / "p.jsonl", test, EvaluationOptions(filter_file=tmp_path / "filter.txt"))
        assert found.predictions.keys() == [["u2"], ["u2"]]
        assert found.metrics["P@1"] == 0.5
        assert found.truth.sum() == 1

    @pytest.mark.parametrize(
        ("content", "line", "words"),
        [
            ("0 1\n0\n", 2, "not two integers. Write: document label."),
            ("0 1 2\n", 1, "not two integers"),
            ("0 x\n", 1, "not two integers"),
            ("-1 0\n", 1, "not two integers"),
            (f"0 {'1' * 5000}\n", 1, "not two integers"),
            ("0 1\n\n100 0\n", 3, "document 100 is out of range: 100 documents"),
            (b"\xff\n", 1, "not UTF-8"),
            (None, None, "no such file"),
        ],
    )
    def test_mistakes(
        self,
        sets: tuple[Dataset, Dataset],
        model: Model,
        tmp_path: Path,
        content: str | bytes | None,
        line: int | None,
        words: str,
    ) -> None:
        path = tmp_path / "f.txt"
        if content is not None:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(DataError) as caught:
            evaluate_model(model, sets[1], filter_file=path)
        assert str(caught.value).startswith(f"{path}: " if line is None else f"{path}:{line}: ")
        assert words in str(caught.value)

    def test_a_label_beyond_lbl_json(self, sets: tuple[Dataset, Dataset], model: Model, tmp_path: Path) -> None:
        (tmp_path / "lbl.json").write_text('{"uid": "0", "title": "t"}\n')
        (tmp_path / "f.txt").write_text("0 1\n")
        with pytest.raises(DataError, match=r"f\.txt:1: label 1 is out of range: lbl\.json has 1 labels"):
            evaluate_model(model, sets[1], filter_file=tmp_path / "f.txt")

    def test_an_empty_filter_changes_nothing(self, sets: tuple[Dataset, Dataset], model: Model, tmp_path: Path) -> None:
        (tmp_path / "f.txt").write_text("")
        found = evaluate_model(model, sets[1], filter_file=tmp_path / "f.txt")
        same(found.metrics, evaluate_model(model, sets[1]).metrics)

    def test_a_filter_without_a_known_label_is_for_other_files(
        self, sets: tuple[Dataset, Dataset], model: Model, tmp_path: Path
    ) -> None:
        (tmp_path / "f.txt").write_text("0 999999\n")
        with pytest.raises(DataError, match="no pair matches a predicted or true label"):
            evaluate_model(model, sets[1], filter_file=tmp_path / "f.txt")


# ---- closer looks


class TestCloserLooks:
    def test_per_label_counts(self, sets: tuple[Dataset, Dataset], model: Model, tmp_path: Path) -> None:
        test, path = sets[1], tmp_path / "labels.csv"
        write_per_label(evaluate_model(model, test), path)
        best, truth = model.predict(test, 5).keys(), true_keys(test)
        with path.open(encoding="utf-8", newline="") as stream:
            header, *rows = csv.reader(stream)
        assert header == ["key", "name", "support", "suggested@5", "hits@5", "never_suggested"]
        expected = {}
        for key in {key for row in (*best, *truth) for key in row}:
            support, suggested = sum(key in row for row in truth), sum(key in row for row in best)
            hits = sum(key in row and key in given for row, given in zip(truth, best, strict=True))
            expected[key] = [key, str(support), str(suggested), str(hits), "no" if suggested else "yes"]
        assert {row[0]: row[1:] for row in rows} == expected
        assert len(rows) == len(expected)
        assert "yes" in {row[-1] for row in rows}  # the labels of the test set alone

    def test_per_label_names_come_through_csv(self, tmp_path: Path) -> None:
        (tmp_path / "p.jsonl").write_text(
            json.dumps({"labels": [{"key": "a,\n", "name": 'quo"ted; größe', "score": 1}]}) + "\n"
        )
        found = judge_file(tmp_path / "p.jsonl", as_dataset(["x"], [["a,\n", "b"]]), EvaluationOptions())
        write_per_label(found, tmp_path / "labels.csv")
        with (tmp_path / "labels.csv").open(encoding="utf-8", newline="") as stream:
            rows = list(csv.reader(stream))[1:]
        assert rows == [["a,\n", 'quo"ted; größe', "1", "1", "1", "no"], ["b", "b", "1", "0", "0", "yes"]]

    def test_tail_against_plain_ranking(self, sets: tuple[Dataset, Dataset], model: Model) -> None:
        train, test = sets
        assert train.labels is not None
        truth = true_keys(test)
        counts = dict(zip(model.labels.keys, np.asarray(train.labels.sum(axis=0)).ravel().astype(int), strict=True))
        tested = [key for key in model.labels.keys if counts[key] and any(key in row for row in truth)]
        rare = sorted(tested, key=lambda key: counts[key])[:10]
        numbers = [model.labels.keys.index(key) for key in rare]
        scores = model.score_labels(test, np.array([numbers] * len(test)))
        hits = dict.fromkeys((1, 10, 20), 0)
        for column, key in enumerate(rare):
            order = sorted(range(len(test)), key=lambda row: (-scores[row][column], key in truth[row]))
            for k in hits:
                hits[k] += sum(key in truth[row] for row in order[:k])
        documents = [sum(key in row for row in truth) for key in rare]
        found = evaluate_model(model, test, tail=True).tail
        for name, bound in (("max", max), ("min", min)):
            expected = {f"P@{k}": hits[k] / sum(bound(count, k) for count in documents) for k in hits}
            assert found[name] == pytest.approx(expected)
        held = sp.csr_array([[float(key in row) for key in rare] for row in truth])
        assert found == tail_precision(scores, held)

    def test_reliability_is_of_what_is_measured(self, tmp_path: Path) -> None:
        """The best label of the first document, a hit, is filtered, and its sixth, another, moves up."""
        rows = [[(key, 0.9 - 0.1 * rank) for rank, key in enumerate("abcdef")], [("b", 0.75)]]
        path, pairs = tmp_path / "p.jsonl", tmp_path / "f.txt"
        path.write_text("".join(json.dumps({"labels": row}) + "\n" for row in rows))
        test = as_dataset(["x", "y"], [["a", "f"], ["b"]])
        found = judge_file(path, test, EvaluationOptions()).reliability
        assert found is not None
        assert [round(each.lowest, 4) for each in found.bins] == [0.5, 0.6, 0.7, 0.75, 0.8, 0.9]
        assert [each.accuracy for each in found.bins] == [0, 0, 0, 1, 0, 1]
        (tmp_path / "lbl.json").write_text("".join(f'{{"uid": "{key}", "title": "{key}"}}\n' for key in "abcdef"))
        pairs.write_text("0 0\n")
        found = judge_file(path, test, EvaluationOptions(filter_file=pairs)).reliability
        assert found is not None
        assert [round(each.lowest, 4) for each in found.bins] == [0.4, 0.5, 0.6, 0.7, 0.75, 0.8]
        assert [each.accuracy for each in found.bins] == [1, 0, 0, 0, 1, 0]

    def test_reliability_in_json(self, sets: tuple[Dataset, Dataset], model: Model) -> None:
        evaluation = evaluate_model(model, sets[1])
        found = evaluation.reliability
        assert found == reliability(model.predict(sets[1], 5), evaluation.truth, 5)
        assert found is not None
        told = json.loads(json.dumps(evaluation.to_json()))["reliability"]
        assert told["ECE@5"] == found.error
        assert len(told["bins"]) == len(found.bins) == 15
        assert list(told["bins"][0]) == ["count", "confidence", "accuracy", "lowest", "highest"]
        assert [ReliabilityBin(**each) for each in told["bins"]] == list(found.bins)

    def test_reliability_looks_at_five_labels_however_deep_the_predictions(
        self, sets: tuple[Dataset, Dataset], model: Model
    ) -> None:
        deep = evaluate_model(model, sets[1], groups=True)
        assert deep.predictions.k > 5
        assert deep.reliability == evaluate_model(model, sets[1]).reliability

    def test_scores_that_are_no_probabilities(self, tmp_path: Path) -> None:
        path = tmp_path / "p.jsonl"
        path.write_text('{"labels": [["a", 1.5]]}\n{"labels": [["b", 0.5]]}\n')
        found = judge_file(path, as_dataset(["x", "y"], [["a"], ["b"]]), EvaluationOptions())
        assert found.reliability is None
        assert "reliability" not in found.to_json()

    def test_the_tail_takes_a_model(self, sets: tuple[Dataset, Dataset], model: Model) -> None:
        with pytest.raises(ConfigError, match="need a model"):
            judge(model.predict(sets[1]), sets[1], EvaluationOptions(tail=True))

    def test_intervals_hold_the_value_and_follow_the_seed(self, sets: tuple[Dataset, Dataset], model: Model) -> None:
        found = evaluate_model(model, sets[1], bootstrap=200)
        assert {name.partition("@")[0] for name in found.intervals} >= {"P", "nDCG", "PSP", "PSnDCG", "R"}
        for name, interval in found.intervals.items():
            assert interval.value == pytest.approx(found.metrics[name])
            assert interval.low <= interval.value <= interval.high
            assert interval.high - interval.low > 0.01
        assert evaluate_model(model, sets[1], bootstrap=200).intervals == found.intervals
        assert evaluate_model(model, sets[1], bootstrap=200, seed=1).intervals != found.intervals

    def test_differences_are_those_of_the_metrics(self, sets: tuple[Dataset, Dataset], model: Model) -> None:
        train, test = sets
        scope = EvaluationOptions(bootstrap=100)
        other = model_class("popularity")().fit(train)
        results = {name: evaluate_model(each, test, scope) for name, each in (("a", model), ("b", other))}
        (name, found), *none = differences(results, scope).items()
        assert (name, none) == ("b", [])
        for measure, interval in found.items():
            expected = results["b"].metrics[measure] - results["a"].metrics[measure]
            assert interval.value == pytest.approx(expected)
            assert interval.low <= expected <= interval.high
        assert found["P@1"].high < 0

    def test_groups_need_frequent_labels(self, tmp_path: Path) -> None:
        path = tmp_path / "p.jsonl"
        path.write_text('{"labels": ["a"]}\n' * 4)
        with pytest.raises(DataError, match="at least 5 test documents, but no label has more than 4"):
            judge_file(path, as_dataset(["x"] * 4, [["a"]] * 4), EvaluationOptions(groups=True))

    def test_what_cannot_be_computed_is_null(self, tmp_path: Path) -> None:
        """Every document holds the label: there is none to put behind."""
        path = tmp_path / "p.jsonl"
        path.write_text('{"labels": ["a"]}\n' * 5)
        found = judge_file(path, as_dataset(["x"] * 5, [["a"]] * 5), EvaluationOptions(groups=True)).to_json()
        assert found["groups"]["standard"][0]["auc"] is None
        json.dumps(found, allow_nan=False)

    @pytest.mark.parametrize(
        "how", [{"unknown_labels": "keep"}, {"bootstrap": 1}, {"bootstrap": -1}, {"bootstrap": 10**7}]
    )
    def test_bad_scopes(self, how: dict[str, object]) -> None:
        with pytest.raises(ConfigError):
            EvaluationOptions(**how)  # type: ignore[arg-type]


def test_predictions_of_features_go_by_row(tmp_path: Path) -> None:
    """Lines of features have no ids: the order of the lines tells, and labels are numbers in both."""
    (tmp_path / "test.txt").write_text("2 3 4\n0,3 0:1\n2 1:1\n")
    (tmp_path / "p.txt").write_text("2 4\n3:0.5 1:0.25\n2:1\n")
    found = evaluate_predictions(tmp_path / "p.txt", tmp_path / "test.txt", train_file=tmp_path / "test.txt")
    assert isinstance(found, Evaluation)
    assert found.metrics["P@1"] == 1
    assert found.metrics["PSP@1"] == 1
    assert found.metrics["macroF1@3"] == pytest.approx(2 / 3)  # of the three labels that occur
    assert read(tmp_path / "test.txt").labels is not None


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 5, 4], [5, 4, 3, 2, 1, 0]])
def test_near_misses_do_not_depend_on_dropped_labels(order: list[int]) -> None:
    """x is dropped; c, which another model knows, is missed by one step each way in the hierarchy."""
    parents = [[], [], ["root"], ["other"], ["other"], ["root"]]
    listed = LabelIndex.from_keys(["root", "other", "a", "b", "x", "c"], parents=parents)
    model = model_class("knn")().fit(
        ["apple pie"] * 3 + ["bread loaf"] * 3, [["a"]] * 3 + [["b"]] * 3, vocabulary=listed
    )
    test = as_dataset(["apple pie"] * 10 + ["bread loaf"] * 2, [["c"]] * 10 + [["x"], ["b"]])
    test = with_vocabulary(test, listed.take(order))
    options = EvaluationOptions(unknown_labels="drop", hierarchy=True)
    found = evaluate_model(model, test, options, kept=LabelIndex.from_keys(["a", "b", "c"])).metrics
    assert found["P@1"] == pytest.approx(1 / 12)
    assert found["hP@1"] == pytest.approx((10 + 2) / (20 + 4))  # root of ten pairs, and b with its parent
    assert found["graphP@1"] == pytest.approx((10 / 3 + 1) / 12)
