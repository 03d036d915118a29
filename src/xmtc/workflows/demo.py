"""The demo: train and evaluate a model on the built-in corpus, from files to ranked labels."""

from __future__ import annotations

from pathlib import Path

from xmtc.core.compile_ahead import compile_ahead
from xmtc.core.files import check_output_folder, make_folder, replace_file
from xmtc.core.progress import Progress, silent
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset
from xmtc.data.demo_corpus import DemoCorpus, demo_topics
from xmtc.data.reading import read
from xmtc.data.topk import TopK
from xmtc.models.base import Model
from xmtc.models.popularity import Popularity
from xmtc.models.registry import preferred
from xmtc.workflows.data_requests import VocabularyOptions
from xmtc.workflows.evaluate import evaluate_model, read_test
from xmtc.workflows.requests import TrainRequest
from xmtc.workflows.train import train

TRAIN, TEST = 10_000, 1000
"""Number of training and test documents."""
NOTE = b"Created by `xmtc demo`, which overwrites train.jsonl, test.jsonl, labels.jsonl and model. Safe to delete.\n"
"""Marks the folder, so that a demo never overwrites files that are not its own."""
TEXTS = (
    "How do I get red wine out of a carpet?",
    "My landlord wants to raise the rent because of the new windows.",
    "The Python script cannot connect to the database.",
)
"""Texts that the grammar of the corpus cannot produce."""


class Demo:
    """The steps of the demo, in the order of the methods."""

    def __init__(self, folder: Path, runtime: Runtime | None = None, progress: Progress = silent) -> None:
        self.folder, self.model_name = folder, preferred()
        self.train_file, self.test_file = folder / "train.jsonl", folder / "test.jsonl"
        self.labels_file, self.out = folder / "labels.jsonl", folder / "model"
        self._runtime, self._progress = runtime or Runtime(), progress

    @property
    def label_count(self) -> int:
        """Number of labels in the vocabulary."""
        return len(demo_topics())

    def write_corpus(self) -> None:
        """Write the training set, the test set and the label vocabulary."""
        verbs = [f"train {self.model_name}", f"predict {self.model_name}"]
        compile_ahead(*verbs, processes=self._runtime.threads)
        corpus = DemoCorpus(documents=TRAIN + TEST, seed=self._runtime.seed)
        note = self.folder / "README.txt"
        own = note.is_file() and note.read_bytes() == NOTE
        check_output_folder(self.folder, lambda path: own, "with --out")
        make_folder(self.folder)
        _write(note, NOTE.decode())
        _write(self.train_file, corpus.jsonl(0, TRAIN))
        _write(self.test_file, corpus.jsonl(TRAIN, TRAIN + TEST))
        _write(self.labels_file, corpus.labels_jsonl())

    def train(self) -> Model:
        """Train the default model."""
        request = TrainRequest(
            train_file=self.train_file,
            out=self.out,
            model=self.model_name,
            force=True,
            vocabulary=VocabularyOptions(labels=self.labels_file),
        )
        return train(request, runtime=self._runtime, progress=self._progress)

    def test_documents(self) -> Dataset:
        """Read the test set."""
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

    def examples(self, model: Model) -> TopK:
        """Predictions for texts that a person might type."""
        return model.predict(list(TEXTS), k=3)


def _write(path: Path, text: str) -> None:
    with replace_file(path) as stream:
        stream.write(text.encode())
