"""Time, memory and size of a model on all documents, extrapolated from training it on two samples."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from xmtc.core.kernel_cache import work_time
from xmtc.core.progress import Progress
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset
from xmtc.models.base import Model
from xmtc.models.registry import model_class
from xmtc.presets.candidates import Candidate

SAMPLE_SHARE, LEAST_SAMPLE, MOST_SAMPLE = 0.08, 600, 5000
"""Documents of the larger sample; the smaller one has a third of them."""
SLOW = 8.0
"""If the smaller sample takes this many seconds, the larger one is left out."""
LARGEST_EXPONENT = 1.3
"""Time grows at most with this power of the number of documents."""
LEAST_SLOPE = 0.25
"""Time and memory per further document are at least this part of the means per document of a sample."""
PREDICTED = 1000
"""Documents to predict."""
SEARCHING = ("knn",)
"""Models that search all training documents, so that prediction takes longer the more there are."""
PROCESS, CONTAINER = Path("/proc/self"), Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Estimate:
    """What a model takes, trained on all documents."""

    train_seconds: float
    predict_ms: float
    """Milliseconds per document, in batches."""
    megabytes: float
    """Size of the model folder."""
    memory_megabytes: float
    """Memory for training, in addition to what is in use."""


def create(candidate: Candidate) -> Model:
    """An untrained model."""
    model: Model = model_class(candidate.model)(**candidate.plain_settings())
    return model


def estimate(candidate: Candidate, documents: Dataset, runtime: Runtime, progress: Progress) -> Estimate:
    """Train on two samples and extrapolate."""
    count = len(documents)
    size = min(max(round(SAMPLE_SHARE * count), LEAST_SAMPLE), MOST_SAMPLE, count)
    order = np.random.default_rng(runtime.seed).permutation(count)
    sizes = [max(size // 3, 1), size]
    candidate = _as_for_all(candidate, count)
    seconds, memory, milliseconds, found = [], [], [], None
    predicted = documents.take(np.sort(order[-min(PREDICTED, count) :]))
    for part in sizes:
        before = _memory_in_use()
        sample = documents.take(np.sort(order[:part]))
        started = work_time()
        model = create(candidate).fit(sample, runtime=runtime, progress=progress)
        seconds.append(max(work_time() - started, 1e-3))
        memory.append(max(_peak_memory() - before, 0.0))
        milliseconds.append(predict_ms(model, predicted))
        found = model
        if seconds[-1] > SLOW:
            break
    assert found is not None
    scale = count / sizes[len(seconds) - 1]
    with tempfile.TemporaryDirectory(prefix="xmtc-") as folder:
        found.save(Path(folder) / "model")
        megabytes = folder_megabytes(Path(folder) / "model")
    return Estimate(
        _extrapolated(seconds, sizes, count),
        _on_a_line(milliseconds, sizes, count) if candidate.model in SEARCHING else milliseconds[-1],
        megabytes * scale,
        _on_a_line(memory, sizes, count),
    )


def _as_for_all(candidate: Candidate, documents: int) -> Candidate:
    """The automatic batch size is smaller for samples, which takes more time per document, on a GPU many times more."""
    settings = candidate.plain_settings()
    if settings.get("training", {}).get("batch_size") != "auto":
        return candidate
    from xmtc.nn.training.loop import automatic_batch_size  # networks need PyTorch

    return replace(candidate, settings={**candidate.settings, "training.batch_size": automatic_batch_size(documents)})


def _extrapolated(seconds: Sequence[float], sizes: Sequence[int], count: int) -> float:
    """Seconds for `count` documents: a power of their number if time grows faster than linearly, else a line.

    Part of the time of small samples does not depend on their size.
    """
    last, size = seconds[-1], sizes[len(seconds) - 1]
    if len(seconds) < 2 or sizes[1] == sizes[0]:
        return last * count / size
    power = math.log(seconds[1] / seconds[0]) / math.log(sizes[1] / sizes[0])
    if power > 1:
        return float(last * (count / size) ** min(power, LARGEST_EXPONENT))
    return _on_a_line(seconds, sizes, count)


def _on_a_line(measured: Sequence[float], sizes: Sequence[int], count: int) -> float:
    """What was measured on one or two samples, extrapolated to `count` documents."""
    last, size = measured[-1], sizes[len(measured) - 1]
    if len(measured) < 2 or sizes[1] == sizes[0]:
        return last * count / size
    slope = max((measured[1] - measured[0]) / (sizes[1] - sizes[0]), LEAST_SLOPE * last / size)
    return last + slope * (count - size)


def predict_ms(model: Model, documents: Dataset) -> float:
    """Milliseconds per document to predict up to `PREDICTED` of these documents."""
    documents = documents.slice(0, PREDICTED)
    model.predict(documents.take(np.arange(min(10, len(documents)))))  # compiles
    started = time.perf_counter()
    model.predict(documents)
    return 1000 * (time.perf_counter() - started) / len(documents)


def folder_megabytes(folder: Path) -> float:
    """Size of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20


def _memory_in_use() -> float:
    """Memory of this process in MiB, and reset its peak to that; 0 where the system does not tell."""
    try:
        PROCESS.joinpath("clear_refs").write_text("5", encoding="ascii")  # the peak becomes what is in use
        return _status("VmRSS")
    except (OSError, KeyError):
        return _peak_memory()


def _peak_memory() -> float:
    """Peak memory of this process in MiB since the reset; 0 where the system does not tell."""
    try:
        return _status("VmHWM")
    except (OSError, KeyError):
        return 0.0


def _status(name: str) -> float:
    return _kibibytes(PROCESS / "status")[name] / 2**10


def _kibibytes(file: Path) -> dict[str, float]:
    """The entries of a file of the kernel that have the unit kB."""
    lines = (line.split() for line in file.read_text(encoding="ascii", errors="replace").splitlines())
    return {words[0].rstrip(":"): float(words[1]) for words in lines if len(words) == 3 and words[2] == "kB"}


def available_megabytes() -> float:
    """Memory that can be used without swapping, in MiB, also within a container; infinite if unknown."""
    found = math.inf
    try:
        found = _kibibytes(Path("/proc/meminfo"))["MemAvailable"] / 2**10
        limit, used = (float((CONTAINER / f"memory.{name}").read_text(encoding="ascii")) for name in ("max", "current"))
        return min(found, (limit - used) / 2**20)
    except (OSError, ValueError, KeyError):  # without a limit, the file says max
        return found
