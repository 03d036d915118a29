"""The command line called in this process, a small corpus, and models trained once for all of these tests."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from tests.support.command_line import call
from xmtc.data.planted_corpus import PlantedCorpus


@pytest.fixture(scope="session", autouse=True)
def _no_cache() -> Iterator[None]:
    with mock.patch.dict(os.environ, {"XMTC_CACHE": "off"}):
        yield


@pytest.fixture(scope="session")
def corpus() -> PlantedCorpus:
    return PlantedCorpus(documents=700, labels=40, words_per_document=25, seed=3)


@pytest.fixture(scope="session")
def data(corpus: PlantedCorpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train.jsonl, test.jsonl, and the same labels on made-up features as train.txt and test.txt."""
    folder = tmp_path_factory.mktemp("data")
    for name, start, stop in (("train", 0, 600), ("test", 600, 700)):
        with (folder / f"{name}.jsonl").open("w") as handle:
            corpus.write_jsonl(handle, start, stop)
        rows = [row for batch in corpus.batches(start=start, stop=stop) for row in batch.labels]
        noise = np.random.default_rng(start)
        lines = [f"{stop - start} 60 40"]
        for row in rows:
            features = {**dict.fromkeys(row, 1.0), 40 + int(noise.integers(20)): 0.3}
            pairs = " ".join(f"{number}:{value}" for number, value in sorted(features.items()))
            lines.append(f"{','.join(map(str, row))} {pairs}")
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="session")
def models(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one_vs_all, knn and popularity, trained on text, and `features`, trained on features."""
    folder = tmp_path_factory.mktemp("models")
    for name in ("one_vs_all", "knn", "popularity"):
        call("train", data / "train.jsonl", "--model", name, "--out", folder / name)
    call("train", data / "train.txt", "--model", "one_vs_all", "--out", folder / "features")
    return folder


@pytest.fixture(scope="session")
def ova(models: Path) -> Path:
    return models / "one_vs_all"


@pytest.fixture
def label_text(corpus: PlantedCorpus) -> tuple[str, str]:
    """A label's name and a text that speaks of it."""
    return corpus.label_name(1), f"The {' and '.join(corpus.label_words(1))} of the years"


@pytest.fixture(scope="session")
def tree(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose labels form a tree with three children each; the parent of the first is not a label."""
    folder = tmp_path_factory.mktemp("tree")
    keys = sorted(
        {key for line in (data / "train.jsonl").read_text().splitlines() for key in json.loads(line)["labels"]}
    )
    rows = [
        {"id": key, "name": f"Name of {key}", "parents": [keys[(number - 1) // 3] if number else "root"]}
        for number, key in enumerate(keys)
    ]
    vocabulary = folder / "labels.jsonl"
    vocabulary.write_text("".join(json.dumps(row) + "\n" for row in rows))
    call("train", data / "train.jsonl", "--model", "popularity", "--labels", vocabulary, "--out", folder / "m")
    return folder / "m"
