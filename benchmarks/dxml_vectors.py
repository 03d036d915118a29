"""The embeddings of a dxml model's training documents, and of the documents of a file, in small files for transfer.

    python benchmarks/dxml_vectors.py split MODEL TEST OUT       # on the machine that has the model
    python benchmarks/dxml_vectors.py join OUT FILE.npz          # for benchmarks/nearest.py --vectors FILE.npz

Numbers are stored in half precision, rows in parts of 25,000.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import xmtc
from xmtc.models.dxml import Dxml

ROWS = 25_000


def split(model: Path, test: Path, out: Path) -> None:
    loaded = xmtc.load(model)
    assert isinstance(loaded, Dxml)
    parts = {"vectors": loaded._vote.embedded.vectors, "queries": loaded._queries(xmtc.read(test))}
    for name, rows in parts.items():
        for low in range(0, len(rows), ROWS):
            np.save(out / f"{name}-{low // ROWS}.npy", rows[low : low + ROWS].astype(np.float16))


def join(out: Path, file: Path) -> None:
    def whole(name: str) -> np.ndarray:
        rows = np.concatenate([np.load(path) for path in sorted(out.glob(f"{name}-*.npy"))]).astype(np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    np.savez(file, vectors=whole("vectors"), queries=whole("queries"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(required=True)
    for action, names in ((split, ("model", "test", "out")), (join, ("out", "file"))):
        command = actions.add_parser(action.__name__)
        command.set_defaults(action=action)
        for name in names:
            command.add_argument(name, type=Path)
    given = vars(parser.parse_args())
    given.pop("action")(**given)
