"""PECOS and napkinXC on one dataset, for `linear.py`: train, save, load for prediction, predict. Prints one JSON line.

It runs in a separate environment with libpecos, napkinxc and scikit-learn, but without xmtc.
"""

from __future__ import annotations

import time

BEGAN = time.perf_counter()

import argparse
import json
import lzma
import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

TOP, BEAM, SINGLE, TIMES = 5, 10, 300, 3


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    result = call()
    return time.perf_counter() - started, result


def fastest(call: Callable[[], Any]) -> tuple[float, Any]:
    runs = [timed(call) for _ in range(TIMES)]
    return min(seconds for seconds, _ in runs), runs[0][1]


def median_ms(call: Callable[[Any], Any], rows: Any) -> float:
    singles = [rows[place] for place in range(min(SINGLE, rows.shape[0]))]
    call(singles[0])
    return 1000 * statistics.median(timed(lambda row=row: call(row))[0] for row in singles)


def megabytes(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def best_columns(scores: Any) -> Any:
    """(n, TOP) columns of the largest entries of each row of a sparse matrix, best first, −1 as pads."""
    ranking = np.full((scores.shape[0], TOP), -1, dtype=np.int64)
    for place in range(scores.shape[0]):
        part = slice(scores.indptr[place], scores.indptr[place + 1])
        order = np.argsort(-scores.data[part], kind="stable")[:TOP]
        ranking[place, : len(order)] = scores.indices[part][order]
    return ranking


def pecos_trained(rows: Any, labels: Any, branches: int) -> Any:
    from pecos.xmc import Indexer, LabelEmbeddingFactory
    from pecos.xmc.xlinear.model import XLinearModel

    embedding = LabelEmbeddingFactory.create(labels, rows, method="pifa")
    tree = Indexer.gen(embedding, indexer_type="hierarchicalkmeans", nr_splits=branches, max_leaf_size=100)
    return XLinearModel.train(rows, labels, C=tree)


def pecos_loaded(folder: Path) -> Any:
    """A saved model in the form that PECOS means for prediction, which is much faster than the one just trained."""
    from pecos.xmc.xlinear.model import XLinearModel

    return XLinearModel.load(str(folder), is_predict_only=True, weight_matrix_type="HASH_CHUNKED")


def pecos(matrices: dict[str, Any], branches: int, folder: Path) -> tuple[dict[str, float], Any]:
    training, model = timed(lambda: pecos_trained(matrices["X_train"], matrices["Y_train"], branches))
    model.save(str(folder))
    loading, model = timed(lambda: pecos_loaded(folder))
    test, wanted = matrices["X_test"], {"beam_size": BEAM, "only_topk": TOP}
    model.predict(test[:50], **wanted)
    predicting, scores = fastest(lambda: model.predict(test, **wanted))
    one = median_ms(lambda row: model.predict(row, threads=1, **wanted), test)
    found = {"train": training, "predict": predicting, "one_ms": one, "load": loading, "size": megabytes(folder)}
    return found, best_columns(scores.tocsr())


def napkin(matrices: dict[str, Any], folder: Path) -> tuple[dict[str, float], Any]:
    from napkinxc.models import PLT

    labels = np.split(matrices["Y_train"].indices, matrices["Y_train"].indptr[1:-1])
    lists = [row.tolist() for row in labels]
    training, _ = timed(lambda: PLT(str(folder)).fit(matrices["X_train"], lists))
    model, single, test = PLT(str(folder)), PLT(str(folder), threads=1), matrices["X_test"]
    loading, _ = timed(model.load)
    single.load()
    model.predict(test[:50], top_k=TOP)
    predicting, answers = fastest(lambda: model.predict(test, top_k=TOP))
    one = median_ms(lambda row: single.predict(row, top_k=TOP), test)
    ranking = np.full((test.shape[0], TOP), -1, dtype=np.int64)
    for place, answer in enumerate(answers):
        ranking[place, : len(answer)] = answer
    found = {"train": training, "predict": predicting, "one_ms": one, "load": loading, "size": megabytes(folder)}
    return found, ranking


def on_matrices(source: Path, system: str, target: Path) -> dict[str, float]:
    names = ("X_train", "X_test", "Y_train", "Y_test")
    matrices = {name: sp.csr_matrix(sp.load_npz(source / f"{name}.npz")) for name in names}
    with tempfile.TemporaryDirectory() as folder:
        kind, _, detail = system.partition("-")
        if kind == "pecos":
            found, ranking = pecos(matrices, int(detail), Path(folder))
        else:
            found, ranking = napkin(matrices, Path(folder))
    np.save(target, ranking)
    return found


# ---- from text to scores


def records(path: Path) -> Iterator[dict[str, Any]]:
    with (lzma.open if path.suffix == ".xz" else open)(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def on_text(train_path: Path, test_path: Path) -> dict[str, float]:
    """Files to P@k: reading, tf-idf, a tree of PECOS with 16 branches, saved and loaded, answers for the test file."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.preprocessing import MultiLabelBinarizer

    imported = time.perf_counter()
    train, test = list(records(train_path)), list(records(test_path))
    weigher = TfidfVectorizer(sublinear_tf=True, min_df=2, max_features=200_000, dtype=np.float32)
    rows = weigher.fit_transform(record["text"] for record in train).tocsr()
    test_rows = weigher.transform(record["text"] for record in test).tocsr()
    numbers = MultiLabelBinarizer(sparse_output=True)
    labels = numbers.fit_transform([record["labels"] for record in train]).tocsr().astype(np.float32)
    known = {label: number for number, label in enumerate(numbers.classes_)}
    for matrix in (rows, test_rows, labels):
        matrix.sort_indices()
    featured = time.perf_counter()
    model = pecos_trained(rows, labels, 16)
    trained = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        model.save(folder)
        scores = pecos_loaded(Path(folder)).predict(test_rows, beam_size=BEAM, only_topk=TOP)
    ranking = best_columns(scores.tocsr())
    truth = [{known[label] for label in record["labels"] if label in known} for record in test]
    hits = np.array([[label in held for label in row] for row, held in zip(ranking.tolist(), truth)])  # noqa: B905
    ended = time.perf_counter()
    discounts = 1 / np.log2(np.arange(2, TOP + 2))
    ideal = np.array([discounts[: len(held)].sum() for held in truth])
    return {
        "imports": imported - BEGAN,
        "features": featured - imported,
        "train": trained - featured,
        "predict": ended - trained,
        "total": ended - BEGAN,
        **{f"P@{k}": float(hits[:, :k].mean()) for k in (1, 3, 5)},
        "nDCG@5": float(np.mean(hits @ discounts / np.maximum(ideal, discounts[0]))),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    matrices = actions.add_parser("matrices")
    matrices.add_argument("folder", type=Path)
    matrices.add_argument("system", help="pecos-16, pecos-2 or napkin-plt")
    matrices.add_argument("ranking", type=Path, help="the .npy file to write")
    text = actions.add_parser("text")
    text.add_argument("train", type=Path)
    text.add_argument("test", type=Path)
    given = parser.parse_args()
    if given.action == "text":
        found = on_text(given.train, given.test)
    else:
        found = on_matrices(given.folder, given.system, given.ranking)
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
