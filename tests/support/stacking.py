"""Two models that each know half of the labels, and confidently say wrong things about the other half."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from xmtc.data.dataset import Dataset, as_dataset
from xmtc.models.parabel import Parabel

LABELS, PARTS = 20, 2


def documents(count: int, seed: int) -> tuple[list[str], list[list[str]]]:
    """Texts with one label each; the first word is the label's, the others are noise."""
    generator = np.random.default_rng(seed)
    numbers = generator.integers(LABELS, size=count)
    texts = [f"word{number} " + " ".join(f"noise{n}" for n in generator.integers(200, size=4)) for number in numbers]
    return texts, [[f"l{number}"] for number in numbers]


def split_knowledge(folder: Path) -> tuple[list[str], Dataset, Dataset]:
    """Folders of two models, validation documents and test documents."""
    texts, labels = documents(1600, 0)
    members = []
    for part in range(PARTS):
        generator = np.random.default_rng(part + 1)
        half = range(part * LABELS // PARTS, (part + 1) * LABELS // PARTS)
        mixed = [
            label if int(label[0][1:]) in half else [f"l{generator.integers(LABELS)}"] for label in labels
        ]  # random labels for the texts of the other half
        place = folder / f"half-{part}"
        Parabel(label_names=0, text={"min_df": 1}).fit(texts, mixed).save(place)
        members.append(str(place))
    return members, as_dataset(*documents(1500, 10)), as_dataset(*documents(500, 20))
