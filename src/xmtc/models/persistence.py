"""The state of a trained model, and how it is saved to a model folder and loaded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from xmtc.artifact import store
from xmtc.artifact.store import State
from xmtc.core import config
from xmtc.core.errors import DataError, ModelFormatError, NotFittedError, XmtcError
from xmtc.core.files import check_output_folder
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset
from xmtc.data.label_index import LabelIndex
from xmtc.decisions.decision_rules import Decisions
from xmtc.models.registry import model_class
from xmtc.models.replay import replay_state, restored_replay

DECISIONS = "decisions"
"""The part of a model folder with calibration and thresholds."""
REPLAY = "replay"
"""The part of a model folder with documents for replay in updates."""


def check_model_target(folder: Path, overwrite: bool, remedy: str = "overwrite=True") -> None:
    """Refuse to save a model to a file, to a folder with other files, or to a model folder without `overwrite`."""
    replaces = store.is_model(folder)
    check_output_folder(folder, lambda path: replaces or store.is_own(path), "for the model")
    if replaces and not overwrite:
        raise DataError(f"{folder}: already contains a model. Choose another folder, or replace it with {remedy}.")


class StoredModel(ABC):
    """Settings, labels and training facts, which every model folder has in addition to the model's own state."""

    name: ClassVar[str]
    Config: ClassVar[type[config.Settings]]

    def __init__(self, **settings: Any) -> None:
        plain = {key.replace("__", "."): value for key, value in settings.items()}
        self.config: Any = config.from_mapping(self.Config, config.merge(plain))
        self.runtime = Runtime()
        self.label_counts: NDArray[np.int64] = np.empty(0, dtype=np.int64)  # (L,) training documents of each label
        self.training: dict[str, Any] = {}
        self.facts: dict[str, Any] = {}  # statistics and choices from training, saved with the model
        self.decisions = Decisions()  # calibration and thresholds
        self.history: list[dict[str, Any]] = []  # of updates
        self._labels: LabelIndex | None = None
        self._replay: State | Dataset | None = None  # documents for replay, restored on first use

    def __repr__(self) -> str:
        default, values = config.to_mapping(self.Config()), config.to_mapping(self.config)
        changed = ", ".join(f"{key}={value!r}" for key, value in values.items() if value != default[key])
        return f"{type(self).__name__}({changed})"

    @abstractmethod
    def _state(self) -> State:
        """The state to save."""

    @abstractmethod
    def _restore(self, state: State) -> None:
        """Restore the saved state; arrays are memory-mapped and must not be modified."""

    @property
    def labels(self) -> LabelIndex:
        """The labels that this model can return."""
        if self._labels is None:
            raise NotFittedError(f"{self.name} is not trained yet. Call fit, or load a trained model.")
        return self._labels

    def counted(self) -> tuple[NDArray[np.int64], int] | None:
        """(L,) training documents of each label, and their total number; None if unknown."""
        return self.label_counts, int(self.training["documents"])

    @property
    def feature_count(self) -> int | None:
        """Number of columns of the training matrix; None if the model was trained on text."""
        return self.training.get("features")

    @property
    def kept_for_replay(self) -> int:
        """Maximum number of documents stored for replay in updates."""
        return int(getattr(self.config, "keep_replay", 0))

    @property
    def replay(self) -> Dataset | None:
        """The documents stored for replay in updates."""
        if isinstance(self._replay, State):
            self._replay = restored_replay(self._replay, self.labels)
        return self._replay

    def remember(self, documents: Dataset | None) -> None:
        """Store these documents for replay in updates."""
        self._replay = documents

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write a model folder, or replace a model with `overwrite`.

        A folder with other files is always refused. An interrupted save leaves the previous model intact.
        """
        labels = self.labels  # raises NotFittedError
        check_model_target(Path(folder), overwrite)
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
        """Load a trained model from its folder; arrays are memory-mapped."""
        manifest, state = store.read_folder(Path(folder))
        kind = model_class(manifest["model"])
        if not issubclass(kind, cls):
            raise ModelFormatError(f"{folder}: contains the model {manifest['model']}, not {cls.name}. Use xmtc.load.")
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
            what = f"{error} is missing" if isinstance(error, KeyError) else f"inconsistent model folder: {error}"
            raise ModelFormatError(f"{folder}: {what}. Copy or train the model again.") from None
        return model
