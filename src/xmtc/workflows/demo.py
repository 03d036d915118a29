"""The demo: train and measure a model on made-up texts, from a file to a scored ranking."""

from __future__ import annotations

import io
from pathlib import Path

from xmtc.core.files import check_output_folder, make_folder, replace_file
from xmtc.core.progress import Progress, silent
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset
from xmtc.data.planted_corpus import PlantedCorpus
from xmtc.data.reading import read
from xmtc.data.topk import TopK
from xmtc.models.base import Model
from xmtc.models.popularity import Popularity
from xmtc.models.registry import preferred
from xmtc.workflows.evaluate import evaluate_model, read_test
from xmtc.workflows.requests import TrainRequest
from xmtc.workflows.train import train

TRAIN, TEST, LABELS = 4000, 1000, 300
"""Texts to train on, texts to test on, and labels."""
NOTE = b"Made by `xmtc demo`, which writes train.jsonl, test.jsonl and model anew each time. Delete it as you like.\n"
"""Stands in the folder, so that a demo never writes over files that are not its own."""


class Demo:
    """The steps of the demo, in the order of the methods."""

    def __init__(self, folder: Path, runtime: Runtime | None = None, progress: Progress = silent) -> None:
        self.folder, self.model_name = folder, preferred()
        self.train_file, self.test_file, self.out = folder / "train.jsonl", folder / "test.jsonl", folder / "model"
        self._runtime, self._progress = runtime or Runtime(), progress

    def write_corpus(self) -> None:
        """Write the files to train and to test on."""
        corpus = PlantedCorpus(documents=TRAIN + TEST, labels=LABELS, seed=self._runtime.seed)
        note = self.folder / "README.txt"
        own = note.is_file() and note.read_bytes() == NOTE
        check_output_folder(self.folder, lambda path: own, "with --out")
        make_folder(self.folder)
        with replace_file(note) as stream:
            stream.write(NOTE)
        _write(corpus, self.train_file, 0, TRAIN)
        _write(corpus, self.test_file, TRAIN, TRAIN + TEST)

    def train(self) -> Model:
        """Train the preferred model."""
        request = TrainRequest(train_file=self.train_file, out=self.out, model=self.model_name, force=True)
        return train(request, runtime=self._runtime, progress=self._progress)

    def test_documents(self) -> Dataset:
        return read_test(self.test_file, progress=self._progress)

    def metrics(self, model: Model, documents: Dataset) -> dict[str, dict[str, float]]:
        """P, nDCG and PSP of the model and of the most-frequent-label baseline."""
        baseline = Popularity().fit(read(self.train_file), runtime=self._runtime)
        results = {
            self.model_name: evaluate_model(model, documents, progress=self._progress),
            "popularity": evaluate_model(baseline, documents),
        }
        return {
            name: {key: value for key, value in result.metrics.items() if key.partition("@")[0] in ("P", "nDCG", "PSP")}
            for name, result in results.items()
        }

    def examples(self, model: Model, documents: Dataset, count: int = 3) -> tuple[TopK, list[str], list[list[str]]]:
        """Predictions for the first test documents, their texts, and the names of their labels."""
        texts = documents.text().slice(0, count).to_pylist()
        assert documents.labels is not None
        assert documents.label_index is not None
        truth = [documents.label_index.strings("name", documents.labels[[row]].indices) for row in range(count)]
        return model.predict(texts, k=3), texts, truth


def _write(corpus: PlantedCorpus, path: Path, start: int, stop: int) -> None:
    text = io.StringIO()
    corpus.write_jsonl(text, start, stop)
    with replace_file(path) as stream:
        stream.write(text.getvalue().encode())
