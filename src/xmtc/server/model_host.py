"""Models that a service answers with: loaded, described, and loaded anew when their folder changes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
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
from xmtc.core.errors import ConfigError, DataError, XmtcError, nearest, shown
from xmtc.core.runtime import Runtime
from xmtc.labels.name_index import LabelSearch
from xmtc.models.base import Model
from xmtc.models.label_selection import allowed_labels
from xmtc.server.batching import Answer, Batcher, How
from xmtc.server.errors import Problem
from xmtc.server.limits import Limits
from xmtc.server.metrics import Tallies
from xmtc.workflows import saved_metrics
from xmtc.workflows.feedback import Feedback, feedback_path

Tell = Callable[[str], None]

POLL = 1.0
"""Seconds between two looks at the folders."""
MOST_EVIDENCE = 5_000
"""Words or neighbours of an explanation."""
MOST_SEARCHED = 200
"""Characters of a search."""
CHOICES = 16
"""Different sets of allowed labels that are remembered."""


class LoadedModel:
    """A model as it was saved at one time; it never changes."""

    def __init__(self, folder: Path, runtime: Runtime) -> None:
        self._folder, self._content = folder, content_of(folder)
        self.version = self._content[:16]
        self.model = Model.load(folder, runtime)
        self.since = datetime.now(UTC).isoformat(timespec="seconds")
        self._choices: dict[tuple[tuple[str, ...] | None, tuple[str, ...] | None], NDArray[np.bool_] | None] = {}
        self._lock = Lock()
        counted = self.model.counted()
        self._counts = None if counted is None else counted[0]
        self.model.predict([""], 1)  # kernels are loaded before the first request, and a damaged model is known by now

    def tag(self, texts: list[str], how: How) -> list[Answer]:
        """The labels of each text."""
        answer = self.model.predict(texts, how.k, threshold=how.threshold, allow=self._allowed(how))
        return [row["labels"] for row in answer.rows()]

    def explain(self, text: str, label: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """The label that is meant, and why the text gets the score that it gets for it: the strongest evidence."""
        number = self._meant(label)
        found = self.model.explain(text, number)
        told = replace(found, evidence=found.evidence[:MOST_EVIDENCE]).to_json()
        return {**self.named(number), "score": found.score}, told

    def named(self, number: int) -> dict[str, str]:
        return {"key": self.model.labels.key(number), "name": self.model.labels.name(number)}

    @cached_property
    def _searched(self) -> LabelSearch:
        return LabelSearch(self.model.labels, self._counts)

    def index(self) -> LabelSearch:
        """What finds labels by their names. It is made once, by whoever asks first; of a million, in seconds."""
        with self._lock:
            return self._searched

    def search(self, words: str, limit: int) -> tuple[list[dict[str, Any]], bool]:
        """Labels that these words may mean, and whether there are more."""
        found, more = self.index().find(words, limit)
        rows = [
            {
                **self.named(one.label),
                "alternative": one.alternative,
                "documents": 0 if self._counts is None else int(self._counts[one.label]),
            }
            for one in found
        ]
        return rows, more

    def known(self, keys: Sequence[str], what: str) -> None:
        """Refuse keys that are not labels of the model."""
        numbers = self.model.labels.ids(keys)
        if (numbers < 0).any():
            raise self._unknown(keys[int(np.argmin(numbers))], f"label of '{what}'", " Labels are meant by their keys.")

    def _meant(self, label: str) -> int:
        """The number of a label by its key or name, case ignored last."""
        for column in ("key", "name"):
            exact = pc.index(self.model.labels.table[column], label).as_py()
            if exact >= 0:
                return int(exact)
        likely = self.index().find(label[:MOST_SEARCHED], 1)[0] if label.strip() else []
        for found in likely:
            names = self.model.labels.key(found.label), self.model.labels.name(found.label), found.alternative or ""
            if label.casefold() in [name.casefold() for name in names]:
                return found.label
        raise self._unknown(label, "label", " Check its spelling.")

    def _unknown(self, label: str, what: str, otherwise: str) -> DataError:
        """The words for a label that the model does not have.

        What is near is found by the search and not by comparing with every name, which others would have to wait for.
        """
        found = self.index().find(label[:MOST_SEARCHED], 1)[0] if label.strip() else []
        close = f" Did you mean '{shown(self.model.labels.name(found[0].label))}'?" if found else otherwise
        return DataError(f"{what} '{shown(label)}' is not among the model's {len(self.model.labels):,} labels.{close}")

    def _allowed(self, how: How) -> NDArray[np.bool_] | None:
        if how.allow is None and how.deny is None:
            return None
        choice = how.allow, how.deny
        if choice not in self._choices:
            for what, keys in (("allow", how.allow), ("deny", how.deny)):
                self.known(keys or (), what)
            allowed = allowed_labels(self.model.labels, how.allow, how.deny)
            if len(self._choices) >= CHOICES:
                self._choices.pop(next(iter(self._choices)))
            self._choices[choice] = allowed
        return self._choices[choice]

    def describe(self) -> dict[str, Any]:
        model = self.model
        return {
            "kind": model.name,
            "labels": len(model.labels),
            "can": sorted(model.capabilities),
            "calibrated": model.decisions.calibration is not None,
            "threshold": model.decisions.thresholds is not None,
            "settings": {name: _shown(value) for name, value in config.to_mapping(model.config).items()},
            "training": model.training,
            "history": model.history,
            "metrics": saved_metrics.read_metrics(self._folder, self._content),
            "version": self.version,
            "since": self.since,
        }


@dataclass
class Host:
    """One folder: the model that answers now, the requests that wait for it, and what people said of its answers."""

    name: str
    folder: Path
    runtime: Runtime
    limits: Limits
    tallies: Tallies
    feedback_file: Path
    tell: Tell
    """Told what the operator wants to know."""
    loaded: LoadedModel = field(init=False)
    batcher: Batcher = field(init=False)
    _seen: tuple[int, ...] = field(init=False)
    _feedback: Feedback | None = None

    def __post_init__(self) -> None:
        self._seen = self._signature()
        self.loaded = LoadedModel(self.folder, self.runtime)
        self.tallies.add("loads", self.name)
        window, queue = self.limits.window, self.limits.queue
        self.batcher = Batcher(self.name, self._tag, queue, window, self.tallies)

    def _tag(self, texts: list[str], how: How) -> list[Answer]:
        return self.loaded.tag(texts, how)

    def _signature(self) -> tuple[int, ...]:
        """What changes when another model is saved in the folder."""
        try:
            found = (self.folder / MANIFEST).stat()
        except OSError:
            return ()
        return found.st_mtime_ns, found.st_size, found.st_ino

    def refresh(self) -> str | None:
        """Load what was saved in the folder meanwhile; returns a line for the operator, if there is anything to say.

        What cannot be loaded leaves the model of before in its place, and is tried again when it changes.
        """
        now = self._signature()
        if now in ((), self._seen):
            return None
        self._seen = now
        try:
            check_servable(self.folder)
            loaded = LoadedModel(self.folder, self.runtime)
            loaded.index()
        except Exception as error:  # whatever it is, out of memory too: the model of before is still there
            self.tallies.add("failed_loads", self.name)
            why = str(error) if isinstance(error, XmtcError) else f"{type(error).__name__}: {error}"
            return f"{self.name}: the model of before stays, as the new one cannot be used. {why}"
        if loaded.version == self.loaded.version:
            return None
        self.loaded = loaded
        self.tallies.add("loads", self.name)
        return f"{self.name}: a new model answers from now on ({len(loaded.model.labels):,} labels)"

    @property
    def takes_feedback(self) -> bool:
        place = self.feedback_file
        return os.access(place.parent, os.W_OK) and (not place.exists() or os.access(place, os.W_OK))

    def keep(self, text: str, accepted: list[str], rejected: list[str]) -> int:
        """Keep what a person decided; it is on disk when this returns."""
        loaded = self.loaded
        loaded.known(accepted, "accepted")
        loaded.known(rejected, "rejected")
        try:
            if self._feedback is None:
                self._feedback = Feedback(self.feedback_file)
            kept = self._feedback.add(version=loaded.version, text=text, accepted=accepted, rejected=rejected)
        except DataError as error:  # where the file lies is nothing for strangers
            self.tell(str(error))
            raise Problem(503, "feedback could not be kept; the service said why on its standard error.") from None
        self.tallies.add("feedback", self.name)
        return kept

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, **self.loaded.describe(), "feedback": self.takes_feedback}


class Hosts:
    """All models of a service, by name; the first is the one that is meant where none is named."""

    def __init__(
        self,
        folders: Sequence[Path],
        runtime: Runtime,
        limits: Limits,
        tallies: Tallies,
        feedback: Path | None = None,
        tell: Tell = lambda line: None,
        announces: bool = True,
    ) -> None:
        self.limits = limits
        self.tallies = tallies
        self._announces = announces
        self.aside = ThreadPoolExecutor(2, "aside")
        """For what takes its time and is no work for a model: loading, searching, writing feedback."""
        self.by_name = {
            name: Host(name, folder, runtime, limits, tallies, _feedback_file(folder, feedback), tell)
            for name, folder in named(folders).items()
        }

    def __getitem__(self, name: str | None) -> Host:
        if name is None:
            return next(iter(self.by_name.values()))
        if name not in self.by_name:
            close = nearest(name, self.by_name) or f" Models: {', '.join(self.by_name)}."
            raise Problem(404, f"there is no model '{shown(name)}'.{close}")
        return self.by_name[name]

    async def watch(self) -> None:
        """Look at the folders again and again."""
        loop = asyncio.get_running_loop()
        for host in self.by_name.values():
            with suppress(Exception):  # whoever searches is told
                await loop.run_in_executor(self.aside, host.loaded.index)
        while True:
            await asyncio.sleep(POLL)
            self.tallies.beat()
            for host in self.by_name.values():
                line = await loop.run_in_executor(self.aside, host.refresh)
                if line is not None and self._announces:
                    host.tell(line)

    def close(self) -> None:
        for host in self.by_name.values():
            host.batcher.close()
        self.aside.shutdown(wait=False, cancel_futures=True)


def named(folders: Sequence[Path]) -> dict[str, Path]:
    """Each model's name, which is that of its folder."""
    found: dict[str, Path] = {}
    for folder in folders:
        name = Path(os.path.abspath(folder)).name  # of a link, not of what it leads to today
        if name in found:
            raise ConfigError(f"{folder}: another model is called '{shown(name)}' too. Rename one of the folders.")
        found[name] = folder
    return found


def check_servable(folder: Path) -> None:
    """Refuse what is not a model folder, and models that read no text."""
    training = read_manifest(folder).get("training", {})
    if training.get("input") == "features":
        raise ConfigError(f"{folder}: was trained on a matrix of features, and a service takes texts. Serve another.")


def _shown(value: Any) -> Any:
    """A setting as strangers may see it: of a path, which says where things lie on this machine, the last part."""
    if isinstance(value, str):
        return value.rpartition(os.sep)[2]
    if isinstance(value, (list, tuple)):
        return [_shown(part) for part in value]
    return {name: _shown(part) for name, part in value.items()} if isinstance(value, dict) else value


def _feedback_file(folder: Path, elsewhere: Path | None) -> Path:
    place = feedback_path(folder)
    return place if elsewhere is None else elsewhere / place.name
