"""`xmtc demo`: the main job on made-up texts, from a file to a scored ranking."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

from xmtc import workflows
from xmtc.cli.show import metrics_table, ranking
from xmtc.core.errors import DataError
from xmtc.core.files import replace_file
from xmtc.core.progress import Progress
from xmtc.core.runtime import Runtime
from xmtc.data.demo_corpus import PlantedCorpus
from xmtc.data.reading import read
from xmtc.models.popularity import Popularity
from xmtc.models.registry import preferred

TRAIN, TEST, LABELS = 4000, 1000, 300
NOTE = b"Made by `xmtc demo`, which writes train.jsonl, test.jsonl and model anew each time. Delete it as you like.\n"
"""Stands in the folder, so that a demo never writes over files that are not its own."""


def run_demo(folder: Path, runtime: Runtime, progress: Progress, say: Callable[[str], None]) -> None:
    """Write a corpus, train on it, measure, tag three texts, and tell how to go on."""
    corpus = PlantedCorpus(documents=TRAIN + TEST, labels=LABELS, seed=runtime.seed)
    train, test, out = folder / "train.jsonl", folder / "test.jsonl", folder / "model"
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder}: is a file. Name a folder with --out.")
    note = folder / "README.txt"
    if folder.is_dir() and any(folder.iterdir()) and not (note.is_file() and note.read_bytes() == NOTE):
        raise DataError(f"{folder}: holds other files. Name a new folder with --out.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder}: cannot be made ({error.strerror}). Choose another place with --out.") from None
    with replace_file(note) as stream:
        stream.write(NOTE)
    _write(corpus, train, 0, TRAIN)
    _write(corpus, test, TRAIN, TRAIN + TEST)
    name = preferred()
    say(f"A made-up corpus: {TRAIN:,} texts to learn from, {TEST:,} to test on, {LABELS} labels. Model: {name}.\n")
    plan = workflows.plan(out, name=name, force=True)
    model = workflows.train(plan, train, runtime=runtime, progress=progress)
    say(f"Trained in {model.training['seconds']:.1f} s.\n")
    documents = workflows.read_test(test, progress=progress)
    ours = workflows.evaluate(model, documents, progress=progress).metrics
    baseline = workflows.evaluate(Popularity().fit(read(train), runtime=runtime), documents).metrics
    say("Scores on the test file, beside those of a baseline that reads nothing:\n")
    say(metrics_table({name: _shown(ours), "popularity": _shown(baseline)}))
    texts = documents.text().slice(0, 3).to_pylist()
    assert documents.labels is not None
    assert documents.label_index is not None
    truth = [documents.label_index.strings("name", documents.labels[[row]].indices) for row in range(3)]
    say("\nThree texts of the test file and the labels they get (*: right):\n")
    say(ranking(model.predict(texts, k=3), texts, truth))
    say('\nTry it on this corpus, then on a file of your own with a "text" and "labels" on every line:\n')
    say(commands(train, test, out))


def _shown(metrics: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if name.partition("@")[0] in ("P", "nDCG", "PSP")}


def _write(corpus: PlantedCorpus, path: Path, start: int, stop: int) -> None:
    text = io.StringIO()
    corpus.write_jsonl(text, start, stop)
    with replace_file(path) as stream:
        stream.write(text.getvalue().encode())


def commands(train: Path, test: Path, out: Path) -> str:
    """What to type next."""
    mine = out.with_name("my-model")
    return "\n".join(
        [
            f'  xmtc predict {out} --text "Some text to tag"',
            f"  xmtc train {train} --model knn --out {mine}",
            f"  xmtc evaluate {mine} {test}",
            f"  xmtc compare {out} {mine} {test}",
            f"  xmtc predict {mine} {test} -k 3 --output answers.jsonl",
        ]
    )
