"""Label vectors: the nearest neighbours of a label, and a map of all labels."""

from __future__ import annotations

import numpy as np

from xmtc.core.errors import DataError, shown
from xmtc.core.progress import Progress, silent
from xmtc.core.runtime import Runtime
from xmtc.labels.label_map import REGIONS, LabelMap
from xmtc.labels.layout import NEIGHBOURS, close_to, layout, nearest, regions
from xmtc.models.base import Model
from xmtc.workflows.requests import LabelMapRequest, LabelNeighboursRequest

NEAR = 5
"""Nearest neighbours listed per label of a map."""


def label_neighbours(
    request: LabelNeighboursRequest, *, runtime: Runtime | None = None
) -> tuple[dict[str, object], list[dict[str, object]]]:
    """The label and its k nearest neighbours: key, name, training documents and similarity of each.

    The label also has its alternative names and its broader labels, by name if they are labels of the model.
    """
    model = Model.load(request.folder, runtime)
    vectors, number = model.label_vectors(), model.labels.find(request.label)
    if not vectors[number].any():
        raise DataError(
            f"label '{shown(model.labels.name(number))}' has a zero vector and thus no neighbours. "
            "Choose another label."
        )
    best, cosines = close_to(vectors, number, request.k)
    counted = model.counted()

    def described(each: int) -> dict[str, object]:
        documents = None if counted is None else int(counted[0][each])
        return {"key": model.labels.key(each), "name": model.labels.name(each), "documents": documents}

    row = model.labels.table.slice(number, 1).to_pylist()[0]
    parents = zip(row["parents"], model.labels.ids(row["parents"]).tolist(), strict=True)
    broader = [key if at < 0 else model.labels.name(at) for key, at in parents]
    label = {**described(number), "alternatives": row["alternatives"], "broader": broader}
    pairs = zip(best.tolist(), cosines.tolist(), strict=True)
    return label, [{**described(each), "similarity": round(cosine, 6)} for each, cosine in pairs]


def label_map(request: LabelMapRequest, *, runtime: Runtime | None = None, progress: Progress = silent) -> LabelMap:
    """Lay out the most frequent labels of a model in two dimensions by their vectors."""
    model = Model.load(request.folder, runtime)
    title = request.folder.resolve().name.encode("utf-8", "replace").decode()
    vectors, counted = model.label_vectors(), model.counted()
    counts = None if counted is None else np.asarray(counted[0])
    total = len(model.labels)
    often = np.arange(total) if counts is None else np.argsort(-counts, kind="stable")
    drawn = np.sort(often[: request.most])
    rows = np.asarray(vectors[drawn], dtype=np.float32)
    seed, threads = model.runtime.seed, model.runtime.threads
    near = nearest(rows, NEIGHBOURS, threads=threads, progress=progress)
    places = layout(rows, seed=seed, threads=threads, progress=progress, near=near)
    found, has_vector = np.full(len(rows), -1, dtype=np.int64), rows.any(axis=1)
    found[has_vector] = regions(places[has_vector], REGIONS, seed=seed)
    return LabelMap(
        title=f"Labels of {title}",
        model=model.name,
        names=model.labels.strings("name", drawn),
        keys=model.labels.strings("key", drawn),
        documents=None if counts is None else counts[drawn],
        places=places,
        regions=found,
        near=near[0][:, :NEAR],
        cosines=near[1][:, :NEAR],
        left_out=total - len(drawn),
    )
