"""Settings that train every registered model in seconds, planted data splits, and a free port."""

from __future__ import annotations

import atexit
import functools
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from xmtc.data.dataset import Dataset, as_dataset
from xmtc.data.planted_corpus import PlantedCorpus


@functools.cache
def tiny_encoder() -> str:
    """The folder of an encoder that knows the words of the planted texts, and those that a test adds to them."""
    from tests.support.tiny_encoder import write_encoder

    folder = Path(tempfile.mkdtemp(prefix="xmtc-encoder-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    parts = planted_split(800, 200, labels=60, seed=7)[:2]
    texts = [text for part in parts for text in part.text().to_pylist()]
    words = {word for text in texts for word in text.lower().replace(".", "").split()}
    return str(write_encoder(folder, [*sorted(words), "zorbex", "quillam", "vantorp"], width=48))


_SMALL = {"vectors": "random", "corpus.width": 32, "encoder.dropout": 0.2, "training.learning_rate": 0.01}


QUICK: dict[str, dict[str, object]] = {
    "attention_lstm": {**_SMALL, "encoder.units": 32, "encoder.hidden": 64, "training.epochs": 10},
    "attention_xml": {**_SMALL, "encoder.units": 32, "head.hidden": [32], "training.epochs": 6},
    "dxml": {
        "encoder.hidden": 32,
        "vectors.width": 16,
        "vectors.graph.walks": 5,
        "vectors.graph.length": 10,
        "training.batch_size": 32,
        "training.epochs": 8,
        "training.learning_rate": 0.01,
        "training.validation_size": 40,
    },
    "lsan": {**_SMALL, "encoder.units": 32, "head.units": 32, "head.hidden": 32, "training.epochs": 6},
    "maacf": {
        "vectors": "random",
        "corpus.width": 32,
        "encoder.aspects": 2,
        "encoder.cnn.dropout": 0.2,
        "encoder.cnn.filters": 32,
        "encoder.cnn.hidden": 32,
        "encoder.cnn.pools": 1,
        "encoder.cnn.windows": [1, 2],
        "head.hidden": 32,
        "head.dropout": 0.0,
        "training.epochs": 10,
        "training.learning_rate": 0.015,
        "training.warmup_steps": 0,
    },
    "rank_ae": {
        "corpus.width": 32,
        "encoder.code": 32,
        "encoder.dropout": 0.1,
        "head.hidden": 64,
        "training.batch_size": 32,
        "training.epochs": 12,
        "training.learning_rate": 0.03,
    },
    "transformer": {
        "encoder.path": tiny_encoder,
        "encoder.hidden": 64,
        "encoder.rate": 1.0,
        "frozen": False,
        "text.max_tokens": 128,
        "training.epochs": 7,
        "training.learning_rate": 0.006,
        "training.warmup_steps": 20,
    },
    "xml_cnn": {
        **_SMALL,
        "corpus.width": 64,
        "encoder.filters": 64,
        "encoder.hidden": 64,
        "encoder.pools": 1,
        "encoder.windows": [1, 2],
        "training.epochs": 14,
        "training.learning_rate": 0.003,
    },
    "xml_rnn": {**_SMALL, "encoder.units": 32, "encoder.hidden": 64, "training.epochs": 10},
}
"""Settings with which neural models learn small planted corpora in seconds; other models take their defaults.

What can be called is made when it is needed: see `made`.
"""


def made(settings: dict[str, object]) -> dict[str, object]:
    """Settings that are all there."""
    return {key: value() if callable(value) else value for key, value in settings.items()}


TREE = {"head.tree.height": 2, "head.tree.cluster_size": 4, "head.tree.arity": 4, "head.tree.beam_width": 8}
"""What makes attention_xml grow a tree of three levels over the planted labels."""


CORRELATION = {"correlation.blocks": 2, "correlation.bottleneck": 24}
"""Correlation blocks of a size for the planted labels."""


SHARED = Path(__file__).parents[3] / "shared" / "data"


def planted_split(documents: int, test: int, **settings: object) -> tuple[Dataset, Dataset, PlantedCorpus]:
    """Train and test documents of a made-up corpus, labels by name."""
    corpus = PlantedCorpus(documents=documents + test, **settings)  # type: ignore[arg-type]

    def part(start: int, stop: int) -> Dataset:
        texts: list[str] = []
        labels: list[list[str]] = []
        for batch in corpus.batches(start=start, stop=stop):
            texts += batch.texts
            labels += [[corpus.label_name(label) for label in row] for row in batch.labels]
        return as_dataset(texts, labels)

    return part(0, documents), part(documents, documents + test), corpus


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


Xmtc = Callable[..., "subprocess.CompletedProcess[str]"]
