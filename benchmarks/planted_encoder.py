"""A label tree on one encoder against `parabel`, on planted corpora of a hundred thousand or a million labels.

    PYTHONPATH=src python benchmarks/planted_encoder.py --labels 100000 1000000 --out results.jsonl
    PYTHONPATH=src python benchmarks/planted_encoder.py --encoder FOLDER --set encoder.rate=0.1 --set frozen=true

Without `--encoder`, a small BERT with random weights is written to a temporary folder. Its tokeniser has every word
that occurs twice, because the words of planted labels are invented: a pretrained encoder sees only their pieces.
Documents are those of `million.py`, but with five documents per label instead of one: three labels and about 33 words
each.

The table has the P@k of both models, the seconds of their training and, on a GPU, the memory that the plan printed
before training says and the peak that PyTorch allocated. Each row is also a line of the file `--out`, written when it
is known.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch

from million import Told, planted
from xmtc.core.config import parse_assignments
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset
from xmtc.metrics import precision
from xmtc.models.registry import model_class
from xmtc.nn.device import chosen_device

MARKS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
POSITIONS = 64
ENCODER = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_dropout_prob": 0.0}
SETTINGS: dict[str, Any] = {
    "frozen": False,
    "text.max_tokens": POSITIONS,
    "encoder.rate": 1.0,
    "encoder.dropout": 0.0,
    "head.pooling": "attention",
    "head.tree.height": 1,
    "head.tree.cluster_size": 64,
    "head.tree.beam_width": 32,
    "head.tree.label_features": 8,
    "training.epochs": 6,
    "training.batch_size": 512,
    "training.learning_rate": 0.005,
    "training.warmup_steps": 200,
    "training.decay_from": 0.0,
    "training.lengths": 2,
    "training.average_window": 0.1,
    "training.validation_size": 1000,
}


def write_encoder(folder: Path, texts: list[str], width: int) -> Path:
    """A BERT with random weights, and a tokeniser of the words that occur at least twice."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertModel

    normal, split = normalizers.Lowercase(), pre_tokenizers.BertPreTokenizer()
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text.lower().replace(".", " .").split())
    words = {word: number for number, word in enumerate([*MARKS, *(w for w, count in counts.items() if count > 1)])}
    tokeniser = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokeniser.normalizer, tokeniser.pre_tokenizer = normal, split
    marks = [(mark, words[mark]) for mark in ("[CLS]", "[SEP]")]
    tokeniser.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=marks)
    torch.manual_seed(1)
    module = BertModel(
        BertConfig(
            vocab_size=len(words),
            hidden_size=width,
            intermediate_size=2 * width,
            max_position_embeddings=POSITIONS,
            attention_probs_dropout_prob=0.0,
            **ENCODER,
        )
    )
    module.save_pretrained(folder)
    tokeniser.save(str(folder / "tokenizer.json"))
    print(f"  encoder: {len(words):,} words, {width} wide, {ENCODER['num_hidden_layers']} layers", flush=True)
    return folder


class Saying(Told):
    """Prints what a training says, and keeps it."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)
        super().say(line)

    def planned(self) -> float | None:
        """GB of the plan."""
        found = [re.search(r"plan for [^:]+:\D*([\d.]+) (GB|MB|kB)", line) for line in self.lines]
        units = {"GB": 1.0, "MB": 1e-3, "kB": 1e-6}
        return next((float(match[1]) * units[match[2]] for match in found if match), None)


def measured(
    name: str, settings: dict[str, Any], parts: tuple[Dataset, Dataset, Dataset], runtime: Runtime
) -> dict[str, Any]:
    """Train a model and score its predictions for the test documents."""
    train, valid, test = parts
    device, saying = chosen_device(runtime), Saying()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    started = time.perf_counter()
    model = model_class(name)(**settings)
    model.fit(train, valid=valid, runtime=runtime, progress=saying)
    row: dict[str, Any] = {"model": name, "seconds": round(time.perf_counter() - started, 1)}
    row["planned GB"] = saying.planned()
    uses_gpu = device.type == "cuda" and name == "transformer"
    row["peak GB"] = round(torch.cuda.max_memory_allocated(device) / 1e9, 3) if uses_gpu else None
    started = time.perf_counter()
    found = model.predict(test, 5).labels
    row["ms per document"] = round(1000 * (time.perf_counter() - started) / len(test), 3)
    for k in (1, 3, 5):
        row[f"P@{k}"] = round(100 * float(np.mean(precision(found, test.labels, k))), 2)
    return row


def main() -> None:
    """Train both models for every number of labels."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--labels", type=int, nargs="+", default=[100_000])
    parser.add_argument("--per-label", type=float, default=5.0, help="training documents per label")
    parser.add_argument("--test", type=int, default=10_000, help="test documents")
    parser.add_argument("--encoder", type=Path, help="folder of a pretrained encoder; by default a random one is made")
    parser.add_argument("--width", type=int, default=128, help="width of the random encoder")
    parser.add_argument("--models", nargs="+", default=["transformer", "parabel"], choices=["transformer", "parabel"])
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="settings of transformer")
    parser.add_argument("--threads", type=int, default=Runtime().threads)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=Path("planted_encoder.jsonl"))
    options = parser.parse_args()
    runtime = Runtime(threads=options.threads, seed=1, device=options.device)
    rows = []
    for labels in options.labels:
        started = time.perf_counter()
        documents = round(options.per_label * labels)
        parts = planted(labels, documents, valid=1_000, test=options.test, processes=options.threads)
        seconds = time.perf_counter() - started
        print(f"{labels:,} labels, {len(parts[0]):,} documents, made in {seconds:.0f} s", flush=True)
        for name in options.models:
            with tempfile.TemporaryDirectory() as folder:
                settings: dict[str, Any] = {}
                if name == "transformer":
                    path = options.encoder or write_encoder(Path(folder), parts[0].text().to_pylist(), options.width)
                    settings = {**SETTINGS, "encoder.path": str(path), **parse_assignments(options.set)}
                row = {"labels": labels, "documents": len(parts[0]), **measured(name, settings, parts, runtime)}
            rows.append(row)
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps({**row, "settings": settings, "command": sys.argv[1:]}) + "\n")
            print_table(rows)


def print_table(rows: list[dict[str, Any]]) -> None:
    """Print all rows so far."""
    names = list(rows[0])
    print("  ".join(f"{name:>{max(11, len(name))}}" for name in names), flush=True)
    for row in rows:
        shown = [
            "–" if row[name] is None else f"{row[name]:,}" if isinstance(row[name], int) else str(row[name])
            for name in names
        ]
        print("  ".join(f"{value:>{max(11, len(name))}}" for name, value in zip(names, shown, strict=True)), flush=True)


if __name__ == "__main__":
    main()
