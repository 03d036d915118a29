"""Write data sets made from parts of public ones, which resemble other corpora, to check defaults on more of them.

    python -m benchmarks.derived_sets --data ../shared/data --out OUT

Each folder of OUT has train.jsonl and test.jsonl, as `fast_preset.py` and `linear_peers.py text` read them: titles,
beginnings or passages of texts, all labels or only the most frequent ones, all documents or a random sample.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.linear_peers import records

Record = dict[str, Any]


@dataclass(frozen=True)
class Derived:
    """A part of a data set: a part of each text, the most frequent labels, a sample of documents."""

    source: str
    titles: bool = False
    words: int | None = None
    passages: bool = False
    """Whether every passage of this many words is a document, instead of the first one."""
    labels: int | None = None
    documents: int | None = None

    def texts(self, text: str) -> list[str]:
        words = (text.split("\n", 1)[0] if self.titles else text).split(" " if self.words is None else None)
        size = self.words or len(words)
        starts = range(0, max(len(words) - size // 2, 1), size) if self.passages else [0]
        return [" ".join(words[start : start + size]) for start in starts]


SETS = {
    "titles": Derived("tibkat-gnd", titles=True),
    "titles-300-labels": Derived("tibkat-gnd", titles=True, labels=300, documents=20_000),
    "texts-300-labels": Derived("tibkat-gnd", labels=300, documents=20_000),
    "laws-100-labels": Derived("eurlex57k", words=250, labels=100, documents=12_000),
    "laws-25-words": Derived("eurlex57k", words=25),
    "passages": Derived("tibkat-gnd", words=12, passages=True, documents=600_000),
}


def derived(wanted: Derived, documents: Iterable[Record], labels: set[str] | None) -> list[Record]:
    """The documents that have a label of `labels`, with their shortened texts."""
    changed = []
    for document in documents:
        true = [label for label in document["labels"] if labels is None or label in labels]
        if true:
            changed += [{"text": text, "labels": true} for text in wanted.texts(document["text"])]
    return changed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    for name in given.sets:
        wanted = SETS[name]
        parts = {part: list(records(given.data / wanted.source / f"{part}.jsonl.xz")) for part in ("train", "test")}
        counts = Counter(label for document in parts["train"] for label in document["labels"])
        labels = {label for label, _ in counts.most_common(wanted.labels)} if wanted.labels else None
        folder = given.out / name
        folder.mkdir(parents=True, exist_ok=True)
        for part, documents in parts.items():
            found = derived(wanted, documents, labels)
            if wanted.documents is not None and (part == "train" or wanted.passages):
                most = wanted.documents if part == "train" else wanted.documents // 20
                found = random.Random(0).sample(found, min(most, len(found)))
            lines = (json.dumps(document, ensure_ascii=False) + "\n" for document in found)
            (folder / f"{part}.jsonl").write_text("".join(lines), encoding="utf-8")
            print(f"{name}: {len(found):,} documents of {part}", flush=True)


if __name__ == "__main__":
    main()
