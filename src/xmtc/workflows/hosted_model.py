"""A loaded model in a long-running service: predict, explain, search its labels and describe it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from xmtc.artifact.dependencies import MANIFEST, content_of
from xmtc.artifact.store import read_manifest
from xmtc.core import config
from xmtc.core.constants import Redundant
from xmtc.core.errors import ConfigError, DataError, shown
from xmtc.core.runtime import Runtime
from xmtc.labels.name_index import LabelMatch, LabelSearch
from xmtc.labels.vocabulary_filter import ALL_LABELS
from xmtc.labels.vocabulary_filter import VocabularyFilter as VocabularyFilter
from xmtc.models.label_selection import allowed_labels
from xmtc.workflows import saved_metrics
from xmtc.workflows.label_details import LabelDetails
from xmtc.workflows.loading import load_model

LabelScores = dict[str, Any]
"""`labels` of one text with key, name and score, best first; `known_words` is false if it has no known word."""
MAX_EVIDENCE = 5_000
"""Maximum number of words or neighbours in an explanation."""
MAX_QUERY_LENGTH = 200
"""Maximum length of a label search in characters."""
CACHED_FILTERS = 16
"""Number of label filters whose masks are cached."""
MAX_DETAIL, MAX_DETAIL_VALUES = 500, 10
"""Maximum length of a description or note in an answer, and maximum number of notes, broader labels and schemes."""


@dataclass(frozen=True)
class PredictOptions:
    """Options of a prediction; texts with equal options can be predicted in one batch."""

    k: int | None = None
    threshold: float | str | None = None
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] | None = None
    vocabulary: VocabularyFilter = ALL_LABELS
    """Labels to return, by what the vocabulary says about them."""
    hierarchy: Redundant = "keep"
    """Which labels to return of a label and its broader ones."""
    details: bool = False
    """Whether to add what the vocabulary says about each label."""


class HostedModel:
    """A loaded model. It is immutable: to update, a service replaces it by another one."""

    def __init__(self, folder: Path, runtime: Runtime) -> None:
        self._folder, self._content = folder, content_of(folder)
        self.version = self._content[:16]
        self.model = load_model(folder, runtime, "tag", "predict")
        self.loaded_at = datetime.now(UTC).isoformat(timespec="seconds")
        self._masks: dict[PredictOptions, NDArray[np.bool_] | None] = {}
        self._lock = Lock()
        counted = self.model.counted()
        self._counts = None if counted is None else counted[0]
        self._details = LabelDetails(self.model.labels, self._counts, MAX_DETAIL, MAX_DETAIL_VALUES)
        self.model.predict([""], 1)  # compiles kernels before the first request and detects a damaged model

    @property
    def label_count(self) -> int:
        """Number of labels."""
        return len(self.model.labels)

    def predict(self, texts: list[str], options: PredictOptions) -> list[LabelScores]:
        """Predict the labels of each text."""
        top = self.model.predict(
            texts,
            options.k,
            threshold=options.threshold,
            allow=self._mask(options),
            hierarchy=options.hierarchy,
        )
        top.details = self._details if options.details else None
        return [{name: value for name, value in row.items() if name != "id"} for row in top.rows()]

    def explain(self, text: str, label: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """The label with its score, and the strongest evidence for it, both as JSON."""
        number = self._label_number(label)
        explanation = self.model.explain(text, number)
        shortened = replace(explanation, evidence=explanation.evidence[:MAX_EVIDENCE])
        return {**self._key_and_name(number), "score": explanation.score}, shortened.to_json()

    @cached_property
    def _unlocked_index(self) -> LabelSearch:
        return LabelSearch(self.model.labels, self._counts)

    def name_index(self) -> LabelSearch:
        """The search index of label names. The first call builds it, which takes seconds for a million labels."""
        with self._lock:
            return self._unlocked_index

    def search_labels(self, query: str, limit: int) -> tuple[list[dict[str, Any]], bool]:
        """Labels whose names match the query, and whether there are more."""
        matches, more = self.name_index().find(query, limit)
        details = self._details([match.label for match in matches])
        rows = [
            {
                **self._key_and_name(match.label),
                "alternative": match.alternative,
                **known,
                "documents": known["documents"] or 0,
            }
            for match, known in zip(matches, details, strict=True)
        ]
        return rows, more

    def check_keys(self, keys: Sequence[str], field: str) -> None:
        """Refuse keys that are not labels of the model."""
        numbers = self.model.labels.ids(keys)
        if (numbers < 0).any():
            unknown = keys[int(np.argmin(numbers))]
            raise self._unknown_label(unknown, f"label of '{field}'", " Give labels by key.")

    def describe(self) -> dict[str, Any]:
        """The model's entry in the response of `/v1/models`."""
        model = self.model
        return {
            "kind": model.name,
            "labels": len(model.labels),
            "can": sorted(model.capabilities),
            "calibrated": model.decisions.calibration is not None,
            "threshold": model.decisions.thresholds is not None,
            "settings": {name: _without_folders(value) for name, value in config.to_mapping(model.config).items()},
            "training": model.training,
            "history": model.history,
            "metrics": saved_metrics.read_metrics(self._folder, self._content),
            "version": self.version,
            "since": self.loaded_at,
        }

    def _key_and_name(self, number: int) -> dict[str, str]:
        return {"key": self.model.labels.key(number), "name": self.model.labels.name(number)}

    def _best_match(self, label: str) -> LabelMatch | None:
        matches = self.name_index().find(label[:MAX_QUERY_LENGTH], 1)[0] if label.strip() else []
        return matches[0] if matches else None

    def _label_number(self, label: str) -> int:
        """The number of a label, looked up by key or name; case-insensitively if there is no exact match."""
        for column in ("key", "name"):
            exact = pc.index(self.model.labels.table[column], label).as_py()
            if exact >= 0:
                return int(exact)
        match = self._best_match(label)
        if match is not None:
            names = (*self._key_and_name(match.label).values(), match.alternative or "")
            if label.casefold() in [name.casefold() for name in names]:
                return match.label
        raise self._unknown_label(label, "label", " Check its spelling.")

    def _unknown_label(self, label: str, what: str, otherwise: str) -> DataError:
        """An error that suggests the closest name. The index finds it: comparing all names would take too long."""
        match = self._best_match(label)
        remedy = otherwise if match is None else f" Did you mean '{shown(self.model.labels.name(match.label))}'?"
        return DataError(f"{what} '{shown(label)}' is not among the model's {self.label_count:,} labels.{remedy}")

    def _mask(self, options: PredictOptions) -> NDArray[np.bool_] | None:
        """(L,) mask of the labels that may be returned; None if all may."""
        if options.allow is None and options.deny is None and not options.vocabulary:
            return None
        choice = PredictOptions(allow=options.allow, deny=options.deny, vocabulary=options.vocabulary)
        if choice not in self._masks:
            self.check_keys(options.allow or (), "allow")
            self.check_keys(options.deny or (), "deny")
            mask = allowed_labels(self.model.labels, options.allow, options.deny)
            if options.vocabulary:
                selected = options.vocabulary.mask(self.model.labels, self._counts, self._label_number)
                mask = selected if mask is None else selected & mask
                if not mask.any():
                    remain = f"none of the model's {self.label_count:,} labels remains for {options.vocabulary}"
                    raise DataError(f"{remain} with 'allow' and 'deny'. Use fewer conditions.")
            if len(self._masks) >= CACHED_FILTERS:
                self._masks.pop(next(iter(self._masks)))
            self._masks[choice] = mask
        return self._masks[choice]


def folder_names(folders: Sequence[Path]) -> dict[str, Path]:
    """Model name → folder; the name of a model is the name of its folder."""
    names: dict[str, Path] = {}
    for folder in folders:
        name = Path(os.path.abspath(folder)).name  # the name of a link, not of its target
        if name in names:
            raise ConfigError(f"{folder}: two models are named '{shown(name)}'. Rename one of the folders.")
        names[name] = folder
    return names


def check_servable(folder: Path) -> None:
    """Refuse folders without a model, and models that were not trained on text."""
    training = read_manifest(folder).get("training", {})
    if training.get("input") == "features":
        raise ConfigError(f"{folder}: was trained on a feature matrix, not on texts. Serve a model trained on texts.")


def manifest_signature(folder: Path) -> tuple[int, ...]:
    """A value that changes whenever a model is saved in the folder; empty if there is none."""
    try:
        status = (folder / MANIFEST).stat()
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_size, status.st_ino


def _without_folders(value: Any) -> Any:
    """Shorten paths in a setting to their last part, so that the service does not reveal the machine's folders."""
    if isinstance(value, str):
        return value.rpartition(os.sep)[2]
    if isinstance(value, (list, tuple)):
        return [_without_folders(part) for part in value]
    return {name: _without_folders(part) for name, part in value.items()} if isinstance(value, dict) else value
