"""Distillation: targets and copies on small examples, and a student whose annotators left out labels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

import xmtc
from xmtc.core.errors import ConfigError, DataError
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset, align_labels, as_dataset
from xmtc.data.label_index import LabelIndex
from xmtc.data.topk import TopK
from xmtc.metrics import ndcg
from xmtc.presets.distillation import HIGHEST, LOWEST, TeacherLabels, distil, taught

LABELS, WORDS = 40, 12
"""Labels of the planted corpus, and words of each label."""
KEYS = [f"k{number:02}" for number in range(LABELS)]


def labels_of(documents: Dataset, row: int) -> list[str]:
    assert documents.labels is not None
    assert documents.label_index is not None
    return documents.label_index.strings("key", documents.labels[[row]].indices)


def planted(count: int, seed: int) -> tuple[list[str], NDArray[np.bool_]]:
    """Texts with words of their labels among words of other labels, and their labels (n, LABELS)."""
    random = np.random.default_rng(seed)
    truth = np.zeros((count, LABELS), dtype=bool)
    texts = []
    for row in range(count):
        own = random.choice(LABELS, 3, replace=False)
        truth[row, own] = True
        words = [f"w{label}x{random.integers(WORDS)}" for label in np.repeat(own, 2)]
        words += [f"w{random.integers(LABELS)}x{random.integers(WORDS)}" for _ in range(3)]
        texts.append(" ".join(words))
    return texts, truth


def answers(truth: NDArray[np.bool_], seed: int, k: int = 10, keys: list[str] = KEYS) -> TopK:
    """A teacher that knows the labels that annotators left out: a beta-distributed probability for each label."""
    random = np.random.default_rng(seed)
    chances = np.where(truth, random.beta(6, 2, truth.shape), random.beta(0.3, 6, truth.shape))
    best = np.argsort(-chances, axis=1)[:, :k]
    order = [KEYS.index(key) for key in keys]
    places = np.argsort(order)
    return TopK(places[best], np.take_along_axis(chances, best, axis=1), LabelIndex.from_keys(keys))


def annotated(texts: list[str], truth: NDArray[np.bool_]) -> Dataset:
    return Dataset(
        as_dataset(texts).fields,
        labels=sp.csr_array(truth.astype(np.float32)),
        label_index=LabelIndex.from_keys(KEYS),
    )


def quality(model: Any, test: Dataset) -> float:
    truth, _ = align_labels(test, model.labels)
    return float(ndcg(model.predict(test, k=5).labels, truth, 5))


@pytest.fixture(scope="module")
def corpus() -> tuple[Dataset, TopK, Dataset]:
    """Training documents without 30 % of their labels, a better teacher, and complete test documents."""
    texts, truth = planted(500, 1)
    kept = truth & (np.random.default_rng(2).random(truth.shape) >= 0.3)
    return annotated(texts, kept), answers(truth, 3), annotated(*planted(400, 4))


@pytest.mark.parametrize("student", ["parabel", "one_vs_all"])
def test_a_taught_student_beats_a_plain_one(corpus: tuple[Dataset, TopK, Dataset], student: str) -> None:
    train, teacher, test = corpus
    plain = xmtc.create(student).fit(train, runtime=Runtime(threads=1))
    model = distil(train, teacher, student, runtime=Runtime(threads=1))
    assert quality(model, test) > quality(plain, test) + 0.03
    assert model.config == plain.config
    assert model.training["documents"] == len(train)
    assert model.facts["taught"] is True
    assert train.label_index is not None
    assert train.labels is not None
    counts = np.bincount(train.labels.indices, minlength=LABELS)
    assert model.label_counts.tolist() == counts[train.label_index.ids(list(model.labels.keys))].tolist()


def test_unlabelled_documents_help(corpus: tuple[Dataset, TopK, Dataset]) -> None:
    train, teacher, test = corpus
    few = train.take(np.arange(100))
    first = TopK(teacher.labels[:100], teacher.scores[:100], teacher.index)
    texts, truth = planted(400, 8)
    without = distil(few, first, "parabel", runtime=Runtime(threads=1))
    more = as_dataset(texts), answers(truth, 9, k=6)  # fewer labels a document than for the annotated ones
    model = distil(few, first, "parabel", unlabelled=more, runtime=Runtime(threads=1))
    assert quality(model, test) > quality(without, test) + 0.05
    assert model.training["documents"] == 100
    assert model.label_counts.sum() == few.labels.nnz


def test_a_bad_teacher_is_not_followed_if_there_is_a_validation_set(corpus: tuple[Dataset, TopK, Dataset]) -> None:
    train, teacher, test = corpus
    wrong = TopK((teacher.labels + 7) % LABELS, teacher.scores, teacher.index)
    plain = xmtc.create("parabel").fit(train, runtime=Runtime(threads=1))
    model = distil(train, wrong, "parabel", valid=test, runtime=Runtime(threads=1))
    assert model.facts["taught"] is False
    assert (model.predict(test).labels == plain.predict(test).labels).all()
    good = distil(train, teacher, "parabel", valid=test, runtime=Runtime(threads=1))
    assert good.facts["taught"] is True
    assert good.facts["valid nDCG@5"]["taught"] > good.facts["valid nDCG@5"]["plain"]


def test_copies_count_as_one_document(corpus: tuple[Dataset, TopK, Dataset], tmp_path: Path) -> None:
    train, teacher, test = corpus
    texts = train.text().to_pylist()
    texts[0] += " unique"
    documents = replace(train, fields=as_dataset(texts).fields)
    model = distil(documents, teacher, "parabel", {"keep_replay": 500}, runtime=Runtime(threads=1))
    known = model.predict(["unique", "w1x1"]).known_words
    assert known is not None
    assert known.tolist() == [False, True]  # words of a single document are left out, as without copies
    assert model.replay is not None
    assert model.replay.labels.nnz == train.labels.nnz
    before = model.predict(test)
    model.save(tmp_path / "model")
    loaded = xmtc.load(tmp_path / "model")
    assert (loaded.predict(test).labels == before.labels).all()
    assert loaded.training["found"]["taught"] is True
    loaded.update(annotated(*planted(100, 12)), runtime=Runtime(threads=1))
    assert loaded.training["documents"] == len(train) + 100
    assert quality(loaded, test) > quality(model, test) - 0.02


def test_the_order_of_the_teachers_labels_does_not_matter(corpus: tuple[Dataset, TopK, Dataset]) -> None:
    train, teacher, _ = corpus
    _, truth = planted(500, 1)
    shuffled = answers(truth, 3, keys=[KEYS[place] for place in np.random.default_rng(5).permutation(LABELS)])
    assert (shuffled.labels != teacher.labels).any()
    assert train.label_index is not None
    one, other = (TeacherLabels.aligned(answer, train.label_index) for answer in (teacher, shuffled))
    assert (one.labels == other.labels).all()
    assert (one.probabilities == other.probabilities).all()


def test_labels_that_the_data_set_lacks_become_padding() -> None:
    answer = TopK([[0, 1]], [[0.9, 0.4]], LabelIndex.from_keys(["new", "a"]))
    aligned = TeacherLabels.aligned(answer, LabelIndex.from_keys(["a", "b"]))
    assert aligned.labels.tolist() == [[-1, 0]]


def test_a_copy_has_the_labels_whose_target_reaches_its_level() -> None:
    documents = as_dataset(["one", "two"], [["a", "b"], ["c"]])
    # Targets: a ½ + ½ × 0.9, b ½ (not listed), c ½ × 0.4; second document: c ½ + ½ × 0.1, a ½ × 0.8.
    numbers, chances = [[2, 0, -1], [0, 2, -1]], [[0.4, 0.9, -np.inf], [0.8, 0.1, np.nan]]
    found = taught(documents, numbers, chances, truth=0.5, levels=(0.1, 0.3, 0.52, 0.9))
    assert [labels_of(found, row) for row in range(8)] == [
        ["a", "b", "c"],
        ["a", "c"],
        ["a", "b"],
        ["a", "c"],
        ["a"],
        ["c"],
        ["a"],
        [],
    ]
    assert found.text().to_pylist() == ["one", "two"] * 4
    assert found.partial is None
    assert found.rejected is None


def test_documents_without_labels() -> None:
    documents = as_dataset(["one", "two", "three"], [["a"], [], []])
    numbers, chances = [[-1, -1], [0, -1], [0, -1]], [[0.0, 0.0], [0.8, 0.0], [0.8, 0.0]]
    found = taught(documents, numbers, chances, truth=0.5, levels=(0.45, 0.6), annotated=np.array([True, True, False]))
    # Annotators found no label for the second document; nobody has seen the third, where the teacher decides alone.
    assert [labels_of(found, row) for row in range(6)] == [["a"], [], ["a"], [], [], ["a"]]


def test_a_label_listed_twice_counts_once() -> None:
    matrix = TeacherLabels.of([[1, 1, 0]], [[0.2, 0.6, 0.0]]).matrix(2)
    assert matrix.toarray().tolist() == [[0.0, pytest.approx(0.6)]]


def test_partial_labels_are_respected() -> None:
    documents = as_dataset(
        ["one", "two"],
        [["a"], ["a"]],
        rejected=[["b"], ["b", "c", "d"]],
        complete=np.array([False, True]),
    )
    numbers = [[0, 1, 2, -1], [0, 1, 2, -1]]
    chances = [[0.0, 0.99, 0.5, 0.0], [0.9, 0.99, 0.5, 0.0]]
    found = taught(documents, numbers, chances, truth=0.5, levels=(0.2, 0.9))
    assert found.rejected is not None
    assert found.label_index is not None
    # First document: a stays although the teacher denies it, b stays rejected, c is open and its probability decides,
    # d stays unknown. Second document: rejected labels never become labels.
    assert [labels_of(found, row) for row in range(4)] == [["a", "c"], ["a"], ["a"], ["a"]]
    rejected = [found.label_index.strings("key", found.rejected[[row]].indices) for row in range(4)]
    assert rejected == [["b"], ["b", "c", "d"], ["b", "c"], ["b", "c", "d"]]
    assert found.partial_rows().tolist() == [True, False, True, False]


def test_levels_follow_the_fifth_label() -> None:
    few = TeacherLabels.of([[4, 3, 2, 1, 0, 5]], [[0.1, 0.9, 0.8, 0.7, 0.6, 0.05]])
    assert few.levels()[0] == pytest.approx(0.05)
    assert few.levels()[-1] == pytest.approx(HIGHEST)
    ratios = np.divide(few.levels()[1:], few.levels()[:-1])
    assert ratios == pytest.approx(np.full(3, ratios[0]))
    assert TeacherLabels.of([[0, 1]], [[0.9, 0.9]]).levels()[0] == pytest.approx(LOWEST[0])
    assert TeacherLabels.of([list(range(6))], [[0.95] * 6]).levels()[0] == pytest.approx(LOWEST[1])
    unanswered = TeacherLabels.of([[4, 3, 2, 1, 0, 5], [-1] * 6], [[0.1, 0.9, 0.8, 0.7, 0.6, 0.05], [0.0] * 6])
    assert unanswered.levels() == few.levels()


def test_errors() -> None:
    documents = as_dataset(["one", "two"], [["a"], ["b"]])
    with pytest.raises(DataError, match="2 documents but 1 rows"):
        taught(documents, [[0]], [[0.5]])
    with pytest.raises(DataError, match="from 0 to 1"):
        taught(documents, [[0], [1]], [[0.5], [1.5]])
    with pytest.raises(DataError, match="out of range for 2 labels"):
        taught(documents, [[0], [2]], [[0.5], [0.5]])
    with pytest.raises(DataError, match=r"\(n, k\) arrays"):
        taught(documents, [[0], [1]], [[0.5, 0.5], [0.5, 0.5]])
    with pytest.raises(DataError, match="requires labels"):
        taught(as_dataset(["one"]), [[0]], [[0.5]])
    with pytest.raises(ConfigError, match="'truth'"):
        taught(documents, [[0], [1]], [[0.5], [0.5]], truth=2)
    with pytest.raises(ConfigError, match="'levels'"):
        taught(documents, [[0], [1]], [[0.5], [0.5]], levels=(0.0,))
    answer = TopK([[0], [1]], [[0.5], [0.5]], documents.label_index)
    with pytest.raises(ConfigError, match="Got 'knn'"):
        distil(documents, answer, "knn")
    short = TopK([[0]], [[0.5]], documents.label_index)
    with pytest.raises(DataError, match="one row per document"):
        distil(documents, answer, "parabel", unlabelled=(as_dataset(["three", "four"]), short))
