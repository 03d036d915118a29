"""Linear models with tf-idf alone, and with vectors of the texts as further features.

    python benchmarks/dense_features.py --train DATA/train.jsonl.xz --dev DATA/dev.jsonl.xz --test DATA/test.jsonl.xz \
        --encoder FOLDER --models parabel one_vs_all --weights 0.5 1 2

`--encoder` is what the setting `dense.source` accepts: the folder of a pretrained encoder or of a transformer model of
xmtc, or a file of word vectors. `--embeddings FILE.npz` uses vectors that were computed elsewhere, with the arrays
train, dev and test (n, d) in the order of the files. `--dev` and `--test` are optional; `--documents` and `--others`
limit the documents of train and of the other files. Prints one row per file, model and weight (0: tf-idf alone):
accuracy in percent, seconds of training and milliseconds per document of prediction with the texts already embedded,
and the size of the forest's weights.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from xmtc.artifact.store import State
from xmtc.artifact.workspace import Workspace
from xmtc.core.config import flat, parse_assignments
from xmtc.core.progress import Progress, silent
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset
from xmtc.data.reading import read
from xmtc.models.context import FitContext
from xmtc.models.dense_source import read_text_vectors
from xmtc.models.linear_tree import ForestModel
from xmtc.models.registry import model_class
from xmtc.nn.neighbours.text_vectors import DenseSettings
from xmtc.text.features import DenseColumns
from xmtc.workflows.evaluate import evaluate_model

SHOWN = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@5")


class KnownVectors:
    """Vectors of texts that are all known; names of labels and other texts have none."""

    def __init__(self, rows: dict[bytes, NDArray[np.float32]], width: int, weight: float) -> None:
        self._rows, self.width, self.weight = rows, width, weight

    def of(self, texts: pa.ChunkedArray, runtime: Runtime, progress: Progress = silent) -> NDArray[np.float32]:
        """(n, d) vectors of length `weight`."""
        vectors = np.zeros((len(texts), self.width), dtype=np.float32)
        for place, text in enumerate(texts.to_pylist()):
            row = self._rows.get(key(text))
            if row is not None:
                vectors[place] = row
        return vectors * np.float32(self.weight)

    def state(self) -> State:
        """Nothing: these models are not saved."""
        return State()


def key(text: str) -> bytes:
    """A hash of a text."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def unit(vectors: NDArray[Any]) -> NDArray[np.float32]:
    """Rows scaled to unit length, rounded to 16 bits."""
    lengths = np.linalg.norm(vectors.astype(np.float32), axis=1, keepdims=True)
    return (vectors / np.maximum(lengths, 1e-12)).astype(np.float16).astype(np.float32)


def with_vectors(kind: type[ForestModel], vectors: DenseColumns) -> type[ForestModel]:
    """A model that uses these vectors."""

    class WithVectors(kind):  # type: ignore[misc, valid-type]
        def _text_vectors(self, train: Dataset, run: FitContext) -> DenseColumns:
            return vectors

    return WithVectors


def embedded(given: argparse.Namespace, parts: dict[str, Dataset], runtime: Runtime) -> dict[str, NDArray[np.float32]]:
    """The vectors of each file."""
    if given.embeddings is not None:
        with np.load(given.embeddings) as arrays:
            return {name: unit(arrays[name][: len(part)]) for name, part in parts.items()}
    settings = DenseSettings(source=given.encoder, weight=1.0, max_tokens=given.max_tokens)
    vectors = read_text_vectors(settings, parts["train"], FitContext(runtime, silent, Workspace()))
    assert vectors is not None
    found = {}
    for name, part in parts.items():
        started = time.perf_counter()
        found[name] = vectors.of(part.text(), runtime)
        print(f"{name}: {len(part):,} texts embedded in {time.perf_counter() - started:.1f} s", flush=True)
    return found


def main() -> None:
    """Train, evaluate and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("train", "dev", "test"):
        parser.add_argument(f"--{name}", type=Path, required=name == "train")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--encoder")
    source.add_argument("--embeddings", type=Path)
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--models", nargs="+", default=["parabel"])
    parser.add_argument("--weights", nargs="+", type=float, default=[0.5, 1.0, 2.0])
    parser.add_argument("--documents", type=int)
    parser.add_argument("--others", type=int)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", dest="settings")
    parser.add_argument("--cache", type=Path)
    given = parser.parse_args()
    runtime = Runtime(cache=given.cache)
    files = {"train": given.train, "dev": given.dev, "test": given.test}
    parts = {name: read(path) for name, path in files.items() if path is not None}
    for name, part in parts.items():
        most = given.documents if name == "train" else given.others
        parts[name] = part if most is None else part.slice(0, min(most, len(part)))
    vectors = embedded(given, parts, runtime)
    rows: dict[bytes, NDArray[np.float32]] = {}
    for name, part in parts.items():
        rows.update(zip(map(key, part.text().to_pylist()), vectors[name], strict=True))
    width = vectors["train"].shape[1]
    settings = parse_assignments(given.settings)
    print(f"| file | model | weight | {'/'.join(SHOWN)} | train, s | predict, ms | weights, MB |")
    print("|---|---|---:|---|---:|---:|---:|")
    for model_name in given.models:
        for weight in [0.0, *given.weights]:
            kind: Any = model_class(model_name)
            if weight:
                kind = with_vectors(kind, KnownVectors(rows, width, weight))
            model = kind(**flat(settings))
            started = time.perf_counter()
            model.fit(parts["train"], runtime=runtime)
            trained = time.perf_counter() - started
            arrays = model._forest.state()
            size = sum(array.nbytes for array in arrays.values()) / 1e6
            for name in [name for name in parts if name != "train"]:
                model.predict(parts[name].slice(0, 64))
                started = time.perf_counter()
                model.predict(parts[name])
                each = (time.perf_counter() - started) / len(parts[name]) * 1000
                result = evaluate_model(model, parts[name], unknown_labels="drop")
                accuracy = "/".join(f"{100 * result.metrics[metric]:.2f}" for metric in SHOWN)
                print(
                    f"| {name} | {model_name} | {weight:g} | {accuracy} | {trained:.1f} | {each:.3f} | {size:.1f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
