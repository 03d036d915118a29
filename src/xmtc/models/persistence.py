"""The state of a trained model, and how it is saved to a model folder and loaded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from xmtc.artifact import store
from xmtc.artifact.saved_state import SavedState
from xmtc.artifact.store import State
from xmtc.core import config
from xmtc.core.errors import DataError, ModelFormatError, NotFittedError, XmtcError, shown
from xmtc.core.files import check_output_folder
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset
from xmtc.data.label_index import LabelIndex
from xmtc.decisions.decision_rules import Decisions
from xmtc.models.registry import stored_class
from xmtc.models.replay import replay_state, restored_replay

DECISIONS = "decisions"
"""The part of a model folder with calibration and thresholds."""
MOST_DOCUMENTS = 1 << 40
"""More than any number of training documents; sums of such numbers do not overflow."""
ANCESTORS = "ancestors"
"""The table of a model folder with broader labels that the model cannot return."""
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
    def _restore(self, state: SavedState) -> None:
        """Restore the saved state, naming type, shape and range of each array.

        Arrays are memory-mapped and must not be modified.
        """

    @property
    def labels(self) -> LabelIndex:
        """The labels that this model can return."""
        if self._labels is None:
            raise NotFittedError(f"{self.name} is not trained yet. Call fit, or load a trained model.")
        return self._labels

    @property
    def uses_label_names(self) -> bool:
        """Whether the model learns from label names, so that it can return labels without training documents."""
        return False

    @property
    def adds_unseen_labels(self) -> bool:
        """Whether an update with a vocabulary adds labels without documents."""
        return self.uses_label_names

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
    def name_weight(self) -> float:
        """Weight of a label's names in training, relative to a document; 0 if they are not used."""
        return 0.0

    @property
    def replay(self) -> Dataset | None:
        """The documents stored for replay in updates."""
        if isinstance(self._replay, State):
            self._replay = restored_replay(SavedState(self._replay), self.labels)
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
        tables = {"labels": labels.saved_table(), **state.tables}
        if labels.ancestors is not None:
            tables[ANCESTORS] = labels.ancestors.saved_table()
        manifest = {
            "model": self.name,
            "settings": config.to_mapping(self.config),
            "labels": len(labels),
            **self._label_facts(),
            "training": self.training,
            **({"history": self.history} if self.history else {}),
        }
        parts = {DECISIONS: self.decisions.state()} if self.decisions.is_fitted else {}
        if self.replay is not None:
            parts[REPLAY] = replay_state(self.replay)
        store.write_folder(Path(folder), manifest, State(state.values, arrays, tables, parts, state.links))

    def _label_facts(self) -> dict[str, Any]:
        """Numbers that describe the labels, for model.json; those that are 0 are left out."""
        known = self.counted()
        facts = {
            "without_documents": 0 if known is None else int(np.count_nonzero(known[0] == 0)),
            **self.labels.described(),
        }
        facts = {name: count for name, count in facts.items() if count}
        return {"label_facts": facts} if facts else {}

    @classmethod
    def load(cls, folder: str | Path, runtime: Runtime | None = None, *, verify: bool = False) -> Self:
        """Load a trained model from its folder; arrays are memory-mapped, and everything is checked.

        The files are hashed unless they were verified before and have not changed since; `verify` hashes them in any
        case. Type, shape and range of every array are checked on each load.
        """
        manifest, state = store.read_folder(Path(folder), verify)
        kind = stored_class(manifest["model"])
        if not issubclass(kind, cls):
            raise ModelFormatError(f"{folder}: contains the model {manifest['model']}, not {cls.name}. Use xmtc.load.")
        try:
            model: Self = kind(**config.current_names(kind.Config, manifest["settings"]))
            model.runtime = runtime or Runtime()
            model._take_over(manifest, state)
            state.release()
        except ModelFormatError as error:
            raise ModelFormatError(f"{folder}: {error}") from None
        except XmtcError:
            raise
        except MemoryError:
            remedy = f"Use a machine with more memory; check the folder with: xmtc verify {folder}"
            raise ModelFormatError(f"{folder}: not enough memory to load the model. {remedy}") from None
        except Exception as error:  # of any kind, depending on what is damaged
            reason = shown(str(error).strip().splitlines()[0]) if str(error).strip() else type(error).__name__
            what = f"{reason} is missing" if isinstance(error, KeyError) else f"inconsistent model folder: {reason}"
            raise ModelFormatError(f"{folder}: {what}. Copy or train the model again.") from error
        return model

    def _take_over(self, manifest: Mapping[str, Any], state: State) -> None:
        """Restore everything from a model folder."""
        saved = SavedState(state)
        self._labels = _saved_labels(saved, "labels", manifest["labels"])
        if saved.has_table(ANCESTORS):
            self._labels = self._labels.with_ancestors(_saved_labels(saved, ANCESTORS))
        self.label_counts = saved.array("label_counts", np.int64, (len(self._labels),), low=0, high=MOST_DOCUMENTS)
        self.training = _checked_training(manifest["training"])
        self.facts = dict(self.training.get("found", {}))
        self.history = [dict(entry) for entry in manifest.get("history", [])]
        self._replay = state.parts.get(REPLAY)
        self._restore(saved.part("model."))
        saved.finish()
        if DECISIONS in state.parts:
            decisions = SavedState(state.parts[DECISIONS])
            self.decisions = Decisions.restored(decisions, len(self.labels))
            decisions.finish()


def _checked_training(training: Mapping[str, Any]) -> dict[str, Any]:
    """Return the training facts; raise ValueError if those that the code uses are damaged."""
    documents, features = training["documents"], training.get("features")
    if (
        type(documents) is not int
        or not 0 <= documents < MOST_DOCUMENTS
        or not isinstance(training.get("found", {}), dict)
    ):
        raise ValueError("the training facts are damaged")
    if training["input"] not in ("text", "features") or (features is not None and type(features) is not int):
        raise ValueError("the training facts do not name the input of the model")
    return dict(training)


def _saved_labels(saved: SavedState, name: str, count: int | None = None) -> LabelIndex:
    """Return a table of labels of a model folder; tables of earlier versions lack the further columns."""
    table = saved.table(name, LabelIndex.columns, count)
    further = {column: kind for column, kind in LabelIndex.further_columns.items() if column in table.column_names}
    labels = LabelIndex(saved.table(name, further))
    for header, column in zip(labels.table.column_names, labels.table.columns, strict=True):
        if pa.types.is_list(column.type) and pc.list_flatten(column).null_count:
            raise ModelFormatError(
                f"column '{header}' of table '{name}' has missing values. Copy or train the model again."
            )
    return labels
