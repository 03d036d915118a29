"""What a trained model holds, and how it gets into a model folder and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from xmtc.artifact import store
from xmtc.artifact.store import State
from xmtc.core import config
from xmtc.core.errors import ModelFormatError, NotFittedError, XmtcError
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset
from xmtc.data.label_index import LabelIndex
from xmtc.decisions.decision_rules import Decisions
from xmtc.models.registry import model_class
from xmtc.models.replay import replay_state, restored_replay

DECISIONS = "decisions"
"""The part of a model folder that says how scores are read."""
REPLAY = "replay"
"""The part of a model folder that holds documents to be seen again in updates."""


class StoredModel(ABC):
    """Settings, labels and training facts of a model, which every model folder holds beside the system's own state."""

    name: ClassVar[str]
    Config: ClassVar[type[config.Settings]]

    def __init__(self, **settings: Any) -> None:
        plain = {key.replace("__", "."): value for key, value in settings.items()}
        self.config: Any = config.from_mapping(self.Config, config.merge(plain))
        self.runtime = Runtime()
        self.label_counts: NDArray[np.int64] = np.empty(0, dtype=np.int64)  # (L,) training documents of each label
        self.training: dict[str, Any] = {}
        self.facts: dict[str, Any] = {}  # what training found out by itself, kept with the model
        self.decisions = Decisions()  # how scores are read
        self.history: list[dict[str, Any]] = []  # of updates
        self._labels: LabelIndex | None = None
        self._replay: State | Dataset | None = None  # documents to be seen again, as they are kept or read

    def __repr__(self) -> str:
        default, values = config.to_mapping(self.Config()), config.to_mapping(self.config)
        changed = ", ".join(f"{key}={value!r}" for key, value in values.items() if value != default[key])
        return f"{type(self).__name__}({changed})"

    @abstractmethod
    def _state(self) -> State:
        """What to keep."""

    @abstractmethod
    def _restore(self, state: State) -> None:
        """Take up what was kept; arrays are mapped from the file and must not be written to."""

    @property
    def labels(self) -> LabelIndex:
        """The labels this model can return."""
        if self._labels is None:
            raise NotFittedError(f"{self.name} is not trained yet. Call fit, or load a trained model.")
        return self._labels

    def counted(self) -> tuple[NDArray[np.int64], int] | None:
        """(L,) training documents of each label, and how many there were; None where that is not known."""
        return self.label_counts, int(self.training["documents"])

    @property
    def feature_count(self) -> int | None:
        """Columns of the matrix that the model was trained on; None where it was trained on text."""
        return self.training.get("features")

    @property
    def kept_for_replay(self) -> int:
        """Documents that are kept to be seen again in updates, at most."""
        return int(getattr(self.config, "keep_replay", 0))

    @property
    def replay(self) -> Dataset | None:
        """Documents that were kept to be seen again in updates."""
        if isinstance(self._replay, State):
            self._replay = restored_replay(self._replay, self.labels)
        return self._replay

    def remember(self, documents: Dataset | None) -> None:
        """Keep these documents, to be seen again in updates."""
        self._replay = documents

    def save(self, folder: str | Path) -> None:
        """Write or replace a model folder; a save that is killed leaves what was there before."""
        labels = self.labels  # a model that is not trained has nothing to save
        state = self._state()
        arrays = {
            "label_counts": self.label_counts,
            **{f"model.{name}": a for name, a in state.arrays.items()},
        }
        tables = {"labels": labels.table, **state.tables}
        manifest = {
            "model": self.name,
            "settings": config.to_mapping(self.config),
            "labels": len(labels),
            "training": self.training,
            **({"history": self.history} if self.history else {}),
        }
        parts = {DECISIONS: self.decisions.state()} if self.decisions.is_fitted else {}
        if self.replay is not None:
            parts[REPLAY] = replay_state(self.replay)
        store.write_folder(Path(folder), manifest, State(state.values, arrays, tables, parts, state.links))

    @classmethod
    def load(cls, folder: str | Path, runtime: Runtime | None = None) -> Self:
        """A trained model from its folder; arrays are mapped, not read."""
        manifest, state = store.read_folder(Path(folder))
        kind = model_class(manifest["model"])
        if not issubclass(kind, cls):
            raise ModelFormatError(f"{folder}: holds a {manifest['model']}, not a {cls.name}. Use xmtc.load.")
        try:
            model: Self = kind(**config.current_names(kind.Config, manifest["settings"]))
            model._labels = LabelIndex(state.tables["labels"])
            model.label_counts = state.arrays["label_counts"]
            model.training = dict(manifest["training"])
            model.facts = dict(model.training.get("found", {}))
            model.history = [dict(entry) for entry in manifest.get("history", [])]
            model._replay = state.parts.get(REPLAY)
            model.runtime = runtime or Runtime()
            arrays = {
                name.removeprefix("model."): array for name, array in state.arrays.items() if name.startswith("model.")
            }
            model._restore(State(state.values, arrays, state.tables, links=state.links))
            if DECISIONS in state.parts:
                model.decisions = Decisions.restored(state.parts[DECISIONS], len(model.labels))
        except ModelFormatError as error:
            raise ModelFormatError(f"{folder}: {error}") from None
        except XmtcError:
            raise
        except (KeyError, ValueError, TypeError, IndexError, RuntimeError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else f"its parts do not fit together: {error}"
            raise ModelFormatError(f"{folder}: {what}. Copy or train the model again.") from None
        return model
