"""Time and memory grow at most linearly, up to a logarithm, with documents, labels, k, text length and labels per text.

Each case prepares the same work at a size and at eight times that size. Work that grows faster by its nature is listed
in docs/python.md and not tested here.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import xmtc
from tests.support.formats import FEATURE_NAMES, TEXT_NAMES
from tests.support.growth import MOST_MEMORY, MOST_TIME, Prepare, Work, growth
from xmtc import metrics
from xmtc.core.runtime import Runtime
from xmtc.data import read, write
from xmtc.data.dataset import Dataset, as_dataset
from xmtc.data.description import describe
from xmtc.data.label_index import LabelIndex
from xmtc.data.predictions import match_to, read_predictions
from xmtc.data.splitting import split
from xmtc.data.topk import TopK
from xmtc.data.vocabularies import read_vocabulary
from xmtc.decisions.thresholds import fixed, select_labels
from xmtc.labels.name_index import LabelSearch
from xmtc.models.base import Model
from xmtc.workflows.batch_predict import batch_predict
from xmtc.workflows.evaluate import evaluate_model
from xmtc.workflows.feedback import Feedback, feedback_path
from xmtc.workflows.feedback_export import export_feedback, summarise_feedback
from xmtc.workflows.label_filter import read_restriction
from xmtc.workflows.requests import (
    BatchOptions,
    BatchPredictRequest,
    EvaluationOptions,
    FeedbackRequest,
    PredictRequest,
)

pytestmark = pytest.mark.long
ONE = Runtime(threads=1)
CASES: dict[str, tuple[Prepare, int]] = {}


def case(name: str, size: int) -> Callable[[Prepare], Prepare]:
    """Register a case with its smaller size."""

    def add(prepare: Prepare) -> Prepare:
        assert name not in CASES
        CASES[name] = prepare, size
        return prepare

    return add


def corpus(
    documents: int, *, labels: int = 50, per_document: int = 3, words: int = 20, vocabulary: int = 2000
) -> tuple[list[str], list[list[str]]]:
    """Random texts and labels; the first words of a text depend on its labels."""
    random = np.random.default_rng(7)
    given = random.integers(0, labels, (documents, per_document))
    drawn = random.integers(0, vocabulary, (documents, words))
    texts = [
        " ".join([*(f"topic{label}" for label in own[:5]), *(f"w{word}" for word in row)])
        for own, row in zip(given.tolist(), drawn.tolist(), strict=True)
    ]
    return texts, [[f"label{label}" for label in dict.fromkeys(own)] for own in given.tolist()]


def documents(count: int, **how: int) -> Dataset:
    return as_dataset(*corpus(count, **how))


def features(dataset: Dataset, width: int = 500) -> Dataset:
    """The same labels with random features."""
    assert dataset.labels is not None
    matrix = sp.random_array((len(dataset), width), density=20 / width, format="csr", rng=3, dtype=np.float32)
    return Dataset(features=matrix, labels=dataset.labels)  # labels are numbers, as these formats require


def ranked(count: int, k: int, labels: int) -> TopK:
    """Random predictions."""
    random = np.random.default_rng(5)
    found = (random.integers(0, labels, (count, 1)) + np.arange(k) * 7919) % labels  # distinct, as 7919 is prime
    scores = np.sort(random.random((count, k)), axis=1)[:, ::-1]
    return TopK(found, scores, LabelIndex.from_keys([f"label{label}" for label in range(labels)]))


def truth(count: int, per_document: int, labels: int) -> sp.csr_array:
    random = np.random.default_rng(6)
    rows = np.repeat(np.arange(count), per_document)
    matrix = sp.csr_array(
        (np.ones(len(rows), np.float32), (rows, random.integers(0, labels, len(rows)))), (count, labels)
    )
    matrix.sum_duplicates()
    return matrix


# ---- files


def _written(dataset: Dataset, folder: Path, form: str) -> Path:
    names = {**TEXT_NAMES, **FEATURE_NAMES}
    path = Path(tempfile.mkdtemp(dir=folder)) / names[form]
    write(dataset, path, file_format=form, lossy=True)
    return path


def _format_case(form: str, name: str, size: int, make: Callable[[int], Dataset]) -> None:
    def prepare(count: int, folder: Path) -> Work:
        dataset = make(count) if form in TEXT_NAMES else features(make(count))
        path = _written(dataset, folder, form)

        def work() -> None:
            read(path, file_format=form)
            _written(dataset, folder, form)

        return work

    case(f"{form}: {name}", size)(prepare)


for _form in (*TEXT_NAMES, *FEATURE_NAMES):
    _format_case(_form, "documents", 600 if _form != "annif-folder" else 60, documents)
    _format_case(_form, "labels per document", 1000, lambda n: documents(3, labels=50 * n, per_document=n))
    if _form in TEXT_NAMES:
        _format_case(_form, "text length", 20_000, lambda n: documents(2, words=n))


@case("describe: documents", 1000)
def _(n: int, folder: Path) -> Work:
    data, half = documents(n), documents(n // 2)
    return lambda: describe(data, half)


@case("describe: labels per document", 4000)
def _(n: int, folder: Path) -> Work:
    data = documents(3, labels=50 * n, per_document=n)
    return lambda: describe(data)


@case("split: documents", 1000)
def _(n: int, folder: Path) -> Work:
    data = documents(n, labels=200)
    return lambda: split(data, test=0.2, valid=0.1)


@case("split: equal texts", 1000)
def _(n: int, folder: Path) -> Work:
    texts, labels = corpus(n, labels=3)
    data = as_dataset([*texts[: n // 2], *["the same"] * (n - n // 2)], labels)
    return lambda: split(data, test=0.2)


# ---- vocabularies and label names


def _vocabulary(n: int, folder: Path, form: str, row: Callable[[int], dict[str, Any]]) -> Path:
    path = folder / f"v.{form}"
    path.write_text("".join(json.dumps(row(i)) + "\n" for i in range(n)))
    return path


@case("vocabulary: labels", 2000)
def _(n: int, folder: Path) -> Work:
    path = _vocabulary(n, folder, "jsonl", lambda i: {"key": f"k{i}", "name": f"name {i}", "parents": [f"k{i // 2}"]})
    return lambda: read_vocabulary(path)


@case("vocabulary: chain of replacements", 1000)
def _(n: int, folder: Path) -> Work:
    path = _vocabulary(
        n, folder, "jsonl", lambda i: {"key": f"k{i}", "name": "x", **({"replaced_by": f"k{i - 1}"} if i else {})}
    )
    return lambda: read_vocabulary(path)


@case("vocabulary: alternatives of one label", 5000)
def _(n: int, folder: Path) -> Work:
    path = _vocabulary(
        2, folder, "jsonl", lambda i: {"key": f"k{i}", "name": "x", "alternatives": [f"a{j}" for j in range(n)]}
    )
    return lambda: read_vocabulary(path)


for _syntax in ("ttl", "nt", "rdf"):

    @case(f"SKOS {_syntax}: labels", 120)
    def _(n: int, folder: Path, syntax: str = _syntax) -> Work:
        pytest.importorskip("rdflib")
        path = folder / f"v.{syntax}"
        path.write_text(_skos(n, syntax))
        return lambda: read_vocabulary(path)


def _skos(n: int, syntax: str) -> str:
    skos = "http://www.w3.org/2004/02/skos/core#"
    if syntax == "ttl":
        head = f"@prefix skos: <{skos}> .\n"
        return head + "".join(
            f'<u:{i}> a skos:Concept ; skos:prefLabel "n{i}"@en ; skos:altLabel "a"@en ; skos:broader <u:{i // 2}> .\n'
            for i in range(n)
        )
    if syntax == "nt":
        return "".join(
            f"<u:{i}> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <{skos}Concept> .\n"
            f'<u:{i}> <{skos}prefLabel> "n{i}"@en .\n<u:{i}> <{skos}broader> <u:{i // 2}> .\n'
            for i in range(n)
        )
    rows = "".join(
        f'<skos:Concept rdf:about="u:{i}"><skos:prefLabel xml:lang="en">n{i}</skos:prefLabel></skos:Concept>\n'
        for i in range(n)
    )
    return f'<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:skos="{skos}">\n{rows}</rdf:RDF>\n'


def _search(names: list[str], queries: tuple[str, ...]) -> Work:
    index = LabelIndex.from_keys([f"k{i}" for i in range(len(names))], names)

    def work() -> None:
        search = LabelSearch(index)
        for query in queries:
            search.find(query, 20)
        search.find(queries[0], len(names))

    return work


@case("label search: labels", 5000)
def _(n: int, folder: Path) -> Work:
    return _search([f"name of {i}" for i in range(n)], ("name", "me of 1", "zz"))


@case("label search: one name for all labels", 5000)
def _(n: int, folder: Path) -> Work:
    return _search(["the same name"] * n, ("same", "the same name", "e"))


@case("label search: length of a name", 50_000)
def _(n: int, folder: Path) -> Work:
    return _search(["a" * n, "ab " * n, "é" * n], ("a" * 40 + "b", "ab", "b a"))


@case("label index: labels", 10_000)
def _(n: int, folder: Path) -> Work:
    keys = [f"k{i}" for i in range(n)]

    def work() -> None:
        index = LabelIndex.from_keys(keys, ["the same"] * n)
        index.joined(LabelIndex.from_keys([f"j{i}" for i in range(n)]))
        index.ids(keys[::-1])

    return work


# ---- predictions


@case("TopK: documents", 800)
def _(n: int, folder: Path) -> Work:
    return _topk(ranked(n, 5, 1000), folder)


@case("TopK: k", 500)
def _(n: int, folder: Path) -> Work:
    return _topk(ranked(4, n, 50_000), folder)


def _topk(top: TopK, folder: Path) -> Work:
    def work() -> None:
        TopK.concatenate([top, top.first(top.k)])
        top.pairs()
        for name in ("a.jsonl", "a.parquet"):
            top.write(folder / name)
            TopK.read(folder / name, top.index)
        select_labels(top, fixed(0.5).choose(top.labels, top.scores))

    return work


def _prediction_lines(top: TopK, kind: str) -> str:
    rows = list(top.rows())
    if kind == "jsonl":
        return "".join(
            json.dumps({"id": row["id"], "labels": [each["key"] for each in row["labels"]]}) + "\n" for row in rows
        )
    if kind == "tsv":
        cells = [f"{row['id']}\t{each['key']}\t{each['score']}\n" for row in rows for each in row["labels"]]
        return "id\tkey\tscore\n" + "".join(cells)
    if kind == "fasttext":
        return "".join(
            " ".join(f"__label__{each['key']} {each['score']}" for each in row["labels"]) + "\n" for row in rows
        )
    lines = [" ".join(f"{each['key'][5:]}:{each['score']}" for each in row["labels"]) for row in rows]
    return f"{len(top)} {len(top.index)}\n" + "\n".join(lines) + "\n"


for _kind, _name in (("jsonl", "a.jsonl"), ("tsv", "a.tsv"), ("fasttext", "a.txt"), ("xc", "a.xc")):
    for _what, _size, _make in (
        ("documents", 500, lambda n: ranked(n, 5, 1000)),
        ("labels per document", 1500, lambda n: ranked(3, n, 50_000)),
    ):

        @case(f"predictions in {_kind}: {_what}", _size)
        def _(n: int, folder: Path, kind: str = _kind, name: str = _name, make: Callable[[int], TopK] = _make) -> Work:
            top = make(n)
            (folder / name).write_text(_prediction_lines(top, kind))
            test = as_dataset([""] * len(top))

            def work() -> None:
                match_to(read_predictions(folder / name, kind), test, name)

            return work


# ---- metrics


def _metrics(n: int, k: int, per_document: int, labels: int) -> Work:
    top, right = ranked(n, k, labels), truth(n, per_document, labels)

    def work() -> None:
        metrics.evaluate(top, right, (1, 5), np.ones(labels))
        metrics.evaluate_sets(top, right, (1, 5))
        metrics.set_scores(top, right)
        metrics.per_label(top, right, 5)
        metrics.reliability(top, right)
        metrics.overlap(top, top, k)
        metrics.frequency_groups(top, right, at_least=1)

    return work


@case("metrics: documents", 1000)
def _(n: int, folder: Path) -> Work:
    return _metrics(n, 5, 3, 2000)


@case("metrics: k", 400)
def _(n: int, folder: Path) -> Work:
    return _metrics(40, n, 3, 50_000)


@case("metrics: labels per document", 500)
def _(n: int, folder: Path) -> Work:
    return _metrics(20, 5, n, 50_000)


@case("metrics: labels", 20_000)
def _(n: int, folder: Path) -> Work:
    return _metrics(500, 5, 3, n)


@case("metrics: bootstrap over documents", 1000)
def _(n: int, folder: Path) -> Work:
    parts = metrics.document_parts(ranked(n, 5, 1000), truth(n, 3, 1000), (1, 5))
    return lambda: metrics.bootstrap(parts, samples=100)


# ---- models

LINEAR: dict[str, dict[str, Any]] = {
    "parabel": {"trees": 1, "leaf_size": 20},
    "bonsai": {"trees": 1},
    "one_vs_all": {"passes": 3},
    "knn": {"neighbours": 5, "power": 1.0},
    "leml": {"rank": 8, "sweeps": 2},
    "sleec": {"learners": 1, "width": 8, "pairs": 5, "rounds": 2, "cluster_size": 100_000, "neighbours": 5},
    "popularity": {},
}


def fitted(name: str, data: Dataset) -> Model:
    return xmtc.create(name, **LINEAR[name]).fit(data, runtime=ONE)


def _training(name: str, what: str, size: int, make: Callable[[int], Dataset]) -> None:
    def prepare(n: int, folder: Path) -> Work:
        data = make(n)
        return lambda: fitted(name, data)

    case(f"train {name}: {what}", size)(prepare)


for _name in LINEAR:
    _training(_name, "documents", 300, documents)
    _training(_name, "labels per document", 40, lambda n: documents(100, labels=400, per_document=n))
    _training(_name, "text length", 500, lambda n: documents(20, words=n))
_training("parabel", "labels", 200, lambda n: documents(1500, labels=n))
_training("one_vs_all", "labels", 200, lambda n: documents(500, labels=n))
_training("leml", "labels", 1000, lambda n: documents(500, labels=n))
_training(
    "parabel",
    "one label for all documents",
    500,
    lambda n: as_dataset(corpus(n)[0], [["all", f"l{i % 50}"] for i in range(n)]),
)


@cache
def trained(name: str, count: int = 300, **how: int) -> Model:
    """A model that only the cases read."""
    return fitted(name, documents(count, **how))


def _predicting(name: str, what: str, size: int, make: Callable[[int], tuple[Model, Dataset, int]]) -> None:
    def prepare(n: int, folder: Path) -> Work:
        model, test, k = make(n)

        def work() -> None:
            top = model.predict(test, k)
            model.predict(test, k, threshold=0.0, allow=np.arange(len(model.labels)) % 3 > 0)
            model.predict(test, k, candidates=top.labels[:, : k // 2 + 1])

        return work

    case(f"predict {name}: {what}", size)(prepare)


FEW_WORDS = {"vocabulary": 30}
"""So that texts have words in common."""
for _name in LINEAR:
    _predicting(_name, "documents", 400, lambda n, name=_name: (trained(name), documents(n), 5))
    _predicting(_name, "text length", 6000, lambda n, name=_name: (trained(name), documents(3, words=n), 5))
    if _name == "popularity":  # label trees and leml insert into a sorted row: see docs/python.md
        many: dict[str, int] = {"labels": 16_000, "per_document": 400, **FEW_WORDS}
        _predicting(
            _name, "k", 1500, lambda n, name=_name, many=many: (trained(name, 40, **many), documents(6, **FEW_WORDS), n)
        )
    elif _name in ("knn", "sleec"):
        most: dict[str, int] = {"labels": 50_000, "per_document": 6_000, **FEW_WORDS}
        _predicting(
            _name, "k", 1500, lambda n, name=_name, most=most: (trained(name, 8, **most), documents(6, **FEW_WORDS), n)
        )
        _predicting(
            _name,
            "labels per document",
            1500,
            lambda n, name=_name: (
                fitted(name, documents(8, labels=20 * n, per_document=n, **FEW_WORDS)),
                documents(6, **FEW_WORDS),
                5,
            ),
        )


@case("k beyond the labels", 10_000_000)
def _(n: int, folder: Path) -> Work:
    model, test = trained("one_vs_all"), documents(50)
    return lambda: [model.predict(test, n, threshold=threshold) for threshold in (None, 0.1)]


@case("explain: text length", 500)
def _(n: int, folder: Path) -> Work:
    models = [trained(name) for name in ("parabel", "knn", "leml", "sleec", "one_vs_all")]
    text = corpus(1, words=n)[0][0]
    return lambda: [model.explain(text, 0) for model in models]


@case("explain knn: labels per document", 2000)
def _(n: int, folder: Path) -> Work:
    model = fitted("knn", documents(8, labels=20 * n, per_document=n, **FEW_WORDS))
    text = corpus(1, **FEW_WORDS)[0][0]
    return lambda: model.explain(text, 0)


for _kind in ("global", "label", "document"):

    @case(f"calibrate {_kind}: documents", 300)
    def _(n: int, folder: Path, kind: Any = _kind) -> Work:
        model, valid = fitted("knn", documents(300)), documents(n)  # calibrating changes it
        return lambda: model.calibrate(valid, threshold=kind)

    @case(f"calibrate {_kind}: k", 500)
    def _(n: int, folder: Path, kind: Any = _kind) -> Work:
        data = documents(12, labels=60_000, per_document=3000, **FEW_WORDS)
        model, valid = fitted("knn", data), data
        return lambda: model.calibrate(valid, threshold=kind, k=n)


@case("consensus: documents", 150)
def _(n: int, folder: Path) -> Work:
    for name in ("parabel", "knn"):
        fitted(name, documents(300)).save(folder / name)
    train, test = documents(n), documents(n)
    members = [str(folder / name) for name in ("parabel", "knn")]

    def work() -> None:
        xmtc.create("consensus", members=members).fit(train, runtime=ONE).predict(test)

    return work


@case("consensus: depth", 400)
def _(n: int, folder: Path) -> Work:
    data = documents(20, labels=8_000, per_document=1000, **FEW_WORDS)
    for name in ("one_vs_all", "knn"):
        fitted(name, data).save(folder / name)
    members = [str(folder / name) for name in ("one_vs_all", "knn")]
    model = xmtc.create("consensus", members=members, depth=n, combine="average", calibrate="none").fit(
        data, runtime=ONE
    )
    return lambda: model.predict(documents(10, **FEW_WORDS), n)


# ---- verbs


@case("evaluate: documents", 150)
def _(n: int, folder: Path) -> Work:
    model, test = trained("knn"), documents(n)
    options = EvaluationOptions(groups=True, tail=True, bootstrap=20, threshold="0.1")
    return lambda: evaluate_model(model, test, options)


@case("evaluate: labels per document", 500)
def _(n: int, folder: Path) -> Work:
    model, test = (
        fitted("knn", documents(50, labels=50_000, per_document=200)),
        documents(12, labels=50_000, per_document=n),
    )
    return lambda: evaluate_model(model, test, EvaluationOptions(threshold="0.0", bootstrap=20))


@case("feedback: records", 300)
def _(n: int, folder: Path) -> Work:
    fitted("popularity", documents(50)).save(folder / "m")
    path = feedback_path(folder / "m")
    Feedback(path).add(version="1", text="first", accepted=["label1"], rejected=[])
    connection = sqlite3.connect(path)
    row = connection.execute("SELECT time, version, accepted, rejected FROM feedback").fetchone()
    rows = [(row[0], row[1], f"text {i % (n // 2)}", row[2], row[3]) for i in range(n)]
    connection.executemany(
        "INSERT INTO feedback (time, version, text, accepted, rejected) VALUES (?, ?, ?, ?, ?)", rows
    )
    connection.commit()
    connection.close()
    request = FeedbackRequest(folder=folder / "m")

    def work() -> None:
        summarise_feedback(request)
        export_feedback(request)

    return work


@case("label filter: labels", 3000)
def _(n: int, folder: Path) -> Work:
    index = LabelIndex.from_keys([f"label{i}" for i in range(n)])
    (folder / "allow.txt").write_text("".join(f"label{i}\n" for i in range(0, n, 2)))
    (folder / "deny.txt").write_text("".join(f"label{i}\nother{i}\n" for i in range(1, n, 2)))
    return lambda: read_restriction(index, allow=folder / "allow.txt", deny=folder / "deny.txt")


@case("label filter: candidates", 4000)
def _(n: int, folder: Path) -> Work:
    index = LabelIndex.from_keys([f"label{i}" for i in range(100)])
    lines = [{"id": f"d{i}", "labels": [f"label{(i + j) % 130}" for j in range(3)]} for i in range(n)]
    (folder / "c.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return lambda: read_restriction(index, candidates=folder / "c.jsonl")


@case("predict in parts: documents", 200)
def _(n: int, folder: Path) -> Work:
    fitted("popularity", documents(50)).save(folder / "m")
    path = _written(documents(n), folder, "jsonl")
    predict = PredictRequest(folder=folder / "m", source=str(path))
    request = BatchPredictRequest(predict=predict, out=folder / "parts", batch=BatchOptions(parts=10, force=True))
    return lambda: batch_predict(request, runtime=ONE)


@pytest.mark.parametrize("name", [pytest.param(name, id=name.replace(" ", "-")) for name in CASES])
def test_growth(name: str, tmp_path: Path) -> None:
    prepare, size = CASES[name]
    time, memory, seconds = growth(prepare, size, tmp_path)
    print(f"{name}: time {time:.2f} memory {memory:.2f} {seconds:.3f} s")
    assert time <= MOST_TIME, f"{name}: time grows with exponent {time:.2f}; {seconds:.2f} s at the larger size"
    assert memory <= MOST_MEMORY, f"{name}: memory grows with exponent {memory:.2f}"
