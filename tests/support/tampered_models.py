"""Small trained models of every kind, as folders to damage, with documents to use them on."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.models import QUICK, TREE, made, planted_split
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import as_dataset
from xmtc.models.registry import available, model_class

BRIEF = {"training.epochs": 1}
NGRAMS = {"text.word_ngrams": 2, "text.char_ngrams": [3, 4]}
REPLAY = {"keep_replay": 12}


@dataclass(frozen=True)
class Kind:
    """A model to train."""

    model: str
    settings: dict[str, object]
    is_text: bool = True
    calibration: tuple[str, str] | None = None
    """Method and kind of threshold."""


def _neural(name: str, more: dict[str, object] | None = None, **rest: Any) -> Kind:
    return Kind(name, {**QUICK[name], **BRIEF, **(more or {})}, **rest)


KINDS: dict[str, Kind] = {
    "attention_lstm": _neural("attention_lstm", REPLAY),
    "attention_xml": _neural("attention_xml", {"members": 2}, calibration=("isotonic", "label")),
    "attention_xml, tree": _neural("attention_xml", {**TREE, **REPLAY}),
    "bonsai": Kind("bonsai", {"trees": 1}, calibration=("platt", "global")),
    "dxml": _neural("dxml", {**REPLAY, "search.clusters": 2}),
    "dxml, features": _neural("dxml", {"members": 2}, is_text=False, calibration=("isotonic", "document")),
    "knn": Kind("knn", {"neighbours": 10, "power": 2, **NGRAMS}, calibration=("isotonic", "label")),
    "knn, features": Kind("knn", {}, is_text=False),
    "leml": Kind("leml", {}, calibration=("platt", "document")),
    "leml, features": Kind("leml", {}, is_text=False),
    "lexical": Kind("lexical", {"scorer": {"trees": 20}}, calibration=("platt", "global")),
    "lsan": _neural("lsan", {"correlation.blocks": 1, "correlation.bottleneck": 16, **REPLAY}),
    "maacf": _neural("maacf", {}, calibration=("isotonic", "global")),
    "one_vs_all": Kind("one_vs_all", {}),
    "parabel": Kind("parabel", {"trees": 2, **NGRAMS}, calibration=("isotonic", "label")),
    "parabel, features": Kind("parabel", {"trees": 2}, is_text=False),
    "popularity": Kind("popularity", {}),
    "rank_ae": _neural("rank_ae", {}),
    "rank_ae, features": _neural("rank_ae", {}, is_text=False),
    "sleec": Kind("sleec", {}, calibration=("isotonic", "label")),
    "sleec, features": Kind("sleec", {}, is_text=False),
    "transformer": _neural("transformer", REPLAY),
    "xml_cnn": _neural("xml_cnn", {"frozen": True, "members": 2, **REPLAY}, calibration=("isotonic", "label")),
    "xml_rnn": _neural("xml_rnn"),
    "consensus, copied": Kind("consensus", {"copy": True, "calibrate": "isotonic"}, calibration=("platt", "label")),
    "consensus, linked": Kind("consensus", {"complete": True, "combine": "noisy-or"}),
}
"""Every registered model; `test_tampering` checks that none is missing."""


def build(folder: Path, names: Iterable[str] = tuple(KINDS)) -> dict[str, tuple[Path, Path]]:
    """Train these models; return their folders, and files with the documents to use them on."""
    train, test, _ = planted_split(150, 20, labels=20, seed=7)
    texts, labels = train.text().to_pylist(), train.labels
    assert labels is not None
    features = _matrix(texts + test.text().to_pylist())
    index = train.label_index
    assert index is not None
    keys = [[index.key(label) for label in labels[[row]].indices.tolist()] for row in range(len(texts))]
    queries = {True: [*test.text().to_pylist()[:4], "", "no word is known"], False: features[150:155]}
    new = {True: (texts[:6], [[*row[:1], "a new label"] for row in keys[:6]]), False: (features[:6], keys[:6])}
    places = {}
    for is_text, kind in ((True, "text"), (False, "features")):
        places[is_text] = folder / f"{kind}.pickle"
        places[is_text].write_bytes(pickle.dumps((queries[is_text], new[is_text])))
    runtime, found = Runtime(threads=1, seed=3), {}
    for name in names:
        kind = KINDS[name]
        target = folder / name.replace(", ", "-")
        if available(kind.model):
            found[name] = target, places[kind.is_text]
        if name not in found or target.exists():
            continue
        settings = made(kind.settings)
        if kind.model == "consensus":
            settings["members"] = _members(folder, as_dataset(texts, keys), runtime)
        documents = texts if kind.is_text else features[:150]
        model = model_class(kind.model)(**settings).fit(documents, keys, runtime=runtime)
        if kind.calibration is not None:
            model.calibrate(documents, keys, method=kind.calibration[0], threshold=kind.calibration[1], k=10)
        model.save(target)
    return found


def _members(folder: Path, train: Any, runtime: Runtime) -> list[str]:
    for name, settings in (("parabel", {"trees": 1}), ("knn", {"neighbours": 5, "power": 1})):
        place = folder / f"member-{name}"
        if not place.exists():
            model_class(name)(**settings).fit(train, runtime=runtime).save(place)
    return [str(folder / "member-parabel"), str(folder / "member-knn")]


def _matrix(texts: list[str], width: int = 300) -> Any:
    import scipy.sparse as sp

    rows, columns = [], []
    for row, text in enumerate(texts):
        for word in text.lower().split():
            rows.append(row)
            columns.append(sum(ord(letter) * 31**i for i, letter in enumerate(word)) % width)
    made = sp.csr_array((np.ones(len(rows), np.float32), (rows, columns)), shape=(len(texts), width))
    made.sum_duplicates()
    return made
