"""A two-dimensional map of a model's labels as a self-contained interactive HTML page."""

from __future__ import annotations

import base64
import unicodedata
from typing import Any

import numpy as np
from jinja2.utils import htmlsafe_json_dumps
from numpy.typing import NDArray

from xmtc.labels.label_map import REGIONS, LabelMap
from xmtc.views.pages import render, script, several

LONGEST = 160
"""Maximum length of a name or a key on the page in characters."""


def page(shown: LabelMap) -> str:
    """Render the page."""
    count = len(shown.names)
    labels = several(count, "label")
    if shown.left_out:
        labels = f"the {count:,} most frequent of {count + shown.left_out:,} labels"
    source, script_hash = script("label_map_drawing.js", "label_map_controls.js")
    return render(
        "label_map.html",
        title=_clean(shown.title),
        model=_clean(shown.model),
        labels=labels,
        documents_known=shown.documents is not None,
        data=htmlsafe_json_dumps(_content(shown), ensure_ascii=False, separators=(",", ":")),
        script=source,
        script_hash=script_hash,
    )


def _content(shown: LabelMap) -> dict[str, Any]:
    """The data for the script in compact form: all labels, most frequent first."""
    count = len(shown.names)
    documents = np.zeros(count, dtype=np.int64) if shown.documents is None else np.asarray(shown.documents)
    order = np.argsort(-documents, kind="stable")
    rank = np.empty(count, dtype=np.int64)
    rank[order] = np.arange(count)
    names = [_clean(shown.names[label].strip() or shown.keys[label]) for label in order]
    keys = [_clean(shown.keys[label]) for label in order]
    other_keys = ["" if key == name else key for key, name in zip(keys, names, strict=True)]
    regions = np.where(shown.regions < 0, REGIONS, shown.regions)[order]
    # A label without a vector has no neighbours; its own number marks that.
    near = np.where(shown.regions[order, None] < 0, np.arange(count)[:, None], rank[shown.near[order]])
    wide = count > 1 << 16
    return {
        "names": names,
        "keys": other_keys if any(other_keys) else None,
        "places": _packed(_quantised(shown.places[order]), "<u2"),
        "documents": None if shown.documents is None else _packed(np.minimum(documents[order], 2**32 - 1), "<u4"),
        "regions": _packed(regions, "u1"),
        "width": int(shown.near.shape[1]),
        "wide": wide,
        "near": _packed(near, "<u4" if wide else "<u2"),
        "cosines": _packed(np.rint(100 * np.clip(shown.cosines[order], -1, 1)), "i1"),
    }


def _quantised(places: NDArray[np.float32]) -> NDArray[np.float64]:
    """Scale positions to integers below 2¹⁶ with equal aspect, centred along the shorter side."""
    if not len(places):
        return np.zeros((0, 2))
    low, high = places.min(axis=0).astype(np.float64), places.max(axis=0).astype(np.float64)
    extent = max(float((high - low).max()), 1e-9)
    return np.asarray(np.rint(65535 * np.clip((places - (low + high) / 2) / extent + 0.5, 0, 1)))


def _packed(numbers: NDArray[Any], kind: str) -> str:
    return base64.b64encode(np.ascontiguousarray(numbers).astype(kind).tobytes()).decode()


def _clean(text: str) -> str:
    """Put foreign text on one line of limited length; control characters and lone surrogates become visible."""
    line = " ".join(text[: 4 * LONGEST].split())
    line = line if len(line) <= LONGEST else line[: LONGEST - 1].rstrip() + "…"
    return "".join("\ufffd" if unicodedata.category(char) in ("Cc", "Cs") else char for char in line)
