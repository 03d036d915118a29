"""Export a saved neural model to ONNX, and compare its predictions with those of the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import xmtc
from xmtc.core.errors import DataError, RefusedError
from xmtc.core.progress import Progress, silent
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset, as_dataset
from xmtc.data.reading import stream
from xmtc.models.base import Model
from xmtc.models.onnx import OnnxModel
from xmtc.models.persistence import check_model_target
from xmtc.workflows.loading import load_model
from xmtc.workflows.requests import ExportRequest

TOLERANCE = 1e-3
"""Largest difference between the probabilities of a model and of its export, without 8-bit weights."""
LENGTHS = (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233)
"""Words of the texts to compare on, if no documents are given."""
DOCUMENTS, LABELS = 256, 50
"""Documents of a file, and the best labels of each, to compare on."""


@dataclass(frozen=True)
class Differences:
    """How far predictions differ on some texts."""

    texts: int
    largest: float
    """Largest difference of a probability."""
    mean: float
    """Mean difference of the probabilities of the best labels."""
    same_best: int
    """Texts whose best label is the same."""


@dataclass(frozen=True)
class ExportReport:
    """An exported model, and how far its predictions differ from those of the original."""

    model: OnnxModel
    exported: Differences
    int8: Differences | None
    """Differences with 8-bit weights; None without them."""


def export(request: ExportRequest, *, runtime: Runtime | None = None, progress: Progress = silent) -> ExportReport:
    """Write OUT if the exported model gives the same probabilities; otherwise raise an error and write nothing."""
    is_file = request.onnx.suffix.lower() == ".onnx"
    if request.onnx.resolve() == request.folder.resolve():
        raise DataError(f"{request.onnx}: is the model to export. Choose another folder.")
    _check_target(request.onnx, is_file, request.force)
    given = None if request.check_file is None else _documents(request.check_file, request)
    threads = (runtime or Runtime()).threads
    source = load_model(request.folder, Runtime(device="cpu", precision="float32", threads=threads), "predict")
    with progress.task("exporting", total=2 + request.int8) as task:
        network = source.to_onnx()
        texts = as_dataset(example_texts(network.reader.words)) if given is None else given
        made = OnnxModel.of(source, network)
        task.advance()
        expected = source.ask(texts, LABELS)
        exported, int8 = differences(*expected, made, texts), None
        if not exported.largest <= TOLERANCE:
            raise RefusedError(
                f"{request.folder}: probabilities of the exported model differ by {exported.largest:.2g}, more than "
                f"{TOLERANCE:g}, so nothing was written. Update PyTorch and onnxruntime, and export again."
            )
        task.advance()
        if request.int8:
            made = made.quantised()
            int8 = differences(*expected, made, texts)
            task.advance()
    made.decisions = source.decisions  # only now, since raw scores were compared
    if is_file:
        facts = {"xmtc": xmtc.__version__, "model": source.name, "labels": str(len(source.labels))}
        made.graph.write(request.onnx, facts)
    else:
        made.save(request.onnx, overwrite=request.force)
    return ExportReport(made, exported, int8)


def _check_target(target: Path, is_file: bool, force: bool) -> None:
    """Refuse an OUT that exists, unless it is replaced."""
    if not is_file:
        check_model_target(target, force, "--force")
    elif target.is_dir():
        raise DataError(f"{target}: is a folder. Pass a file name that ends in .onnx, or another folder name.")
    elif target.exists() and not force:
        raise DataError(f"{target}: already exists. Choose another file, or replace it with --force.")
    elif not target.parent.is_dir():
        raise DataError(f"{target}: the folder {target.parent} does not exist. Create it first.")


def _documents(path: Path, request: ExportRequest) -> Dataset:
    """The first documents of a file."""
    return next(stream(path, request.reading.options, size=DOCUMENTS))


def example_texts(words: Sequence[str]) -> list[str]:
    """Texts of random words of a model, of different lengths."""
    named = [word for word in words if word.isalnum()] or ["a"]
    random = np.random.default_rng(0)
    return ["", *(" ".join(random.choice(named, length)) for length in LENGTHS)]


def differences(labels: NDArray[np.int64], scores: NDArray[np.float32], exported: Model, texts: Dataset) -> Differences:
    """Compare the best labels (n, k) of a model and their scores with those of an exported model."""
    best, given = exported.ask(texts, labels.shape[1])
    apart = np.abs(exported.score_labels(texts, labels) - scores)
    largest = max(float(apart.max()), float(np.abs(given - scores).max()))  # the latter: no other label scores higher
    return Differences(len(texts), largest, float(apart.mean()), int((best[:, 0] == labels[:, 0]).sum()))
