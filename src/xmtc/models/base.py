"""The contract every model keeps: fit, predict, score, explain, save and load, written once.

A system writes `_fit`, `_predict`, `_score` and hands its state over as arrays and JSON; it opens no file.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc import config, store
from xmtc.dataset import Csr, Dataset, LabelIndex, align_labels, as_dataset
from xmtc.errors import (
    ConfigError,
    DataError,
    ModelFormatError,
    NotFittedError,
    UnsupportedError,
    XmtcError,
    nearest,
    shown,
)
from xmtc.explanation import Explanation, PathStep
from xmtc.progress import Progress, silent
from xmtc.registry import model_class
from xmtc.runtime import Runtime
from xmtc.store import State
from xmtc.topk import TopK
from xmtc.workspace import Workspace

Labels = NDArray[np.int64]
Scores = NDArray[np.float32]
Mask = NDArray[np.bool_]
Choice = Iterable[str] | NDArray[Any]
"""Labels that are meant: their keys, or an array of their numbers, or one truth value for each label."""

BATCH = 16_384
"""Documents predicted at once; the answer does not depend on it."""
LABELS_SHOWN = 3
"""Labels that stand for a node of a label tree in an explanation."""


@dataclass(frozen=True)
class Run:
    """What surrounds one training: the machine, who watches, and where finished parts go."""

    runtime: Runtime
    progress: Progress
    workspace: Workspace


class Model(ABC):
    """Settings are keywords, dotted or nested: Knn(neighbours=20, text={"min_df": 1}) or text__min_df=1."""

    name: ClassVar[str]
    Config: ClassVar[type[config.Settings]]
    can: ClassVar[frozenset[str]]
    """Of 'text', 'features', 'explain', 'update', 'score'."""

    def __init__(self, **settings: Any) -> None:
        plain = {key.replace("__", "."): value for key, value in settings.items()}
        self.config: Any = config.from_mapping(self.Config, config.merge(plain))
        self.runtime = Runtime()
        self.label_counts: NDArray[np.int64] = np.empty(0, dtype=np.int64)  # (L,) training documents of each label
        self.training: dict[str, Any] = {}
        self.facts: dict[str, Any] = {}  # what training found out by itself, kept with the model
        self._labels: LabelIndex | None = None

    def __repr__(self) -> str:
        default, values = config.to_mapping(self.Config()), config.to_mapping(self.config)
        changed = ", ".join(f"{key}={value!r}" for key, value in values.items() if value != default[key])
        return f"{type(self).__name__}({changed})"

    # ---- what a system writes

    @abstractmethod
    def _fit(self, train: Dataset, valid: Dataset | None, run: Run) -> None:
        """Learn. `train` has labels; `valid`, when given, is what choices are made on."""

    @abstractmethod
    def _predict(self, batch: Dataset, k: int, allowed: Mask | None) -> tuple[Labels, Scores]:
        """(n, k) labels and scores, best first, −1 and −∞ as pads.

        `allowed` (L,) tells the labels that may be returned, None that all may; k is at most as many. The answer is the
        whole ranking without the others: a label is never missed because one that may not be returned went before it.
        """

    @abstractmethod
    def _score(self, batch: Dataset, candidates: Labels) -> Scores:
        """(n, c) scores of given labels, the ones that `_predict` gives; entries below 0 are ignored."""

    @abstractmethod
    def _state(self) -> State:
        """What to keep."""

    @abstractmethod
    def _restore(self, state: State) -> None:
        """Take up what was kept; arrays are mapped from the file and must not be written to."""

    def _explain(self, text: str, label: int, score: float) -> Explanation:
        raise UnsupportedError(f"{self.name} cannot explain its answers.")

    def _path_step(self, depth: int, probability: float, below: Labels) -> PathStep:
        """A step to a node of a label tree, told by the most frequent of the labels below it."""
        often = below[np.argsort(-self.label_counts[below], kind="stable")[:LABELS_SHOWN]]
        return PathStep(depth, probability, tuple(self.labels.name(int(label)) for label in often))

    # ---- what a user calls

    @property
    def labels(self) -> LabelIndex:
        """The labels this model can return."""
        if self._labels is None:
            raise NotFittedError(f"{self.name} is not trained yet. Call fit, or load a trained model.")
        return self._labels

    @property
    def feature_count(self) -> int | None:
        """Columns of the matrix that the model was trained on; None where it was trained on text."""
        return self.training.get("features")

    def fit(
        self,
        documents: Any,
        labels: Any = None,
        *,
        valid: Any = None,
        runtime: Runtime | None = None,
        progress: Progress = silent,
        workspace: Workspace | None = None,
    ) -> Self:
        """Learn from documents (a Dataset, texts, or a feature matrix) and their labels (lists, or a 0/1 matrix)."""
        started = time.perf_counter()
        train = self._checked(as_dataset(documents, labels))
        if train.labels is None or train.label_index is None:
            raise DataError("training needs labels. Give one list of labels a document.")
        if train.labels.nnz == 0:
            raise DataError("no document has a label. Check the label field.")
        self._labels = None
        self.runtime = runtime or Runtime()
        self.label_counts = np.bincount(train.labels.indices, minlength=train.labels.shape[1]).astype(np.int64)
        checked_valid = None if valid is None else self._valid(valid, train.label_index)
        self._fit(train, checked_valid, Run(self.runtime, progress, workspace or Workspace()))
        self._labels = train.label_index
        self.training = {
            "documents": len(train),
            "seed": self.runtime.seed,
            "seconds": round(time.perf_counter() - started, 3),
            "input": "text" if train.has_text else "features",
            **({} if train.features is None or train.has_text else {"features": int(train.features.shape[1])}),
            **({"found": self.facts} if self.facts else {}),
        }
        return self

    def predict(
        self,
        documents: Any,
        k: int = 5,
        *,
        allow: Choice | None = None,
        deny: Choice | None = None,
        candidates: Any = None,
        progress: Progress = silent,
    ) -> TopK:
        """The k best labels of each document.

        With `allow` only these labels are returned, with `deny` never these. `candidates` are labels for each document,
        in the forms that `score` takes: only they are scored, and all of them are, so that even a label for which
        nothing speaks fills a place that would stay empty.
        """
        labels, scores, dataset = self.labels, [], self._checked(as_dataset(documents), trained=True)
        if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
            raise ConfigError(f"'k' must be an integer ≥ 1. Got {k}.")
        allowed = self._allowed(allow, deny)
        most = min(int(k), len(labels) if allowed is None else int(np.count_nonzero(allowed)))
        given_labels = None if candidates is None else self._candidates(candidates, len(dataset))
        numbers: list[Labels] = []
        with progress.task("predicting", total=len(dataset)) as task:
            for start, batch in zip(range(0, len(dataset), BATCH), dataset.batches(BATCH), strict=True):
                if given_labels is None:
                    found, given = self._predict(batch, most, allowed)
                else:
                    found, given = self._best_of(batch, most, given_labels[start : start + BATCH], allowed)
                numbers.append(_padded(found, int(k), -1))
                scores.append(_padded(given, int(k), -np.inf))
                task.advance(len(batch))
        if not numbers:
            return TopK(np.empty((0, k)), np.empty((0, k)), labels)
        return TopK(np.concatenate(numbers), np.concatenate(scores), labels, dataset.document_ids())

    def tag(self, document: Any, k: int = 5) -> list[tuple[str, float]]:
        """(name, score) of the k best labels of one document, a text or one row of a feature matrix.

        What `predict` gives, with less around it: for callers that have one document at a time.
        """
        if isinstance(document, np.ndarray) and document.ndim == 1:
            document = document[None, :]
        if not isinstance(document, (str, np.ndarray)) and not sp.issparse(document):
            kind = type(document).__name__
            raise DataError(f"'tag' takes one text or one row of features. Got {kind}: for several, use predict.")
        if not self._is_plain_row(document) or isinstance(k, bool) or not isinstance(k, int) or k < 1:
            answer = self.predict([document] if isinstance(document, str) else document, k)
            if len(answer) != 1:
                raise DataError(f"'tag' takes one document. Got {len(answer):,}: use predict.")
            return answer.pairs()[0]
        found, given = self._tag(document, min(k, len(self.labels)))
        names = self.labels.strings("name", found)
        return list(zip(names, given.tolist(), strict=True))

    def _tag(self, row: Csr, k: int) -> tuple[Labels, Scores]:
        """Labels and scores of one row of features, best first, without pads."""
        answer = self.predict(row, k)
        kept = answer.labels[0] >= 0
        return answer.labels[0, kept], answer.scores[0, kept]

    def score(self, documents: Any, candidates: Any) -> Scores:
        """(n, c) scores of given labels: an (n, c) array of label numbers with −1 pads, a TopK, or lists of keys."""
        dataset = self._checked(as_dataset(documents), trained=True)
        numbers = self._candidates(candidates, len(dataset))
        parts = [
            self._score(batch, numbers[start : start + BATCH])
            for start, batch in zip(range(0, len(dataset), BATCH), dataset.batches(BATCH), strict=True)
        ]
        scores = np.concatenate(parts) if parts else np.empty(numbers.shape, dtype=np.float32)
        return np.where(numbers >= 0, scores, np.float32(-np.inf)).astype(np.float32)

    def _best_of(self, batch: Dataset, k: int, candidates: Labels, allowed: Mask | None) -> tuple[Labels, Scores]:
        """The best k of each row's candidates; a label that is there twice counts once."""
        numbers = np.maximum(np.sort(candidates, axis=1), -1)  # ascending, so that a stable sort by score orders ties
        numbers[:, 1:][numbers[:, 1:] == numbers[:, :-1]] = -1
        if allowed is not None:
            numbers[~allowed[numbers]] = -1  # a pad looks the last label up, and stays a pad either way
        scores = np.where(numbers >= 0, self._score(batch, numbers), np.float32(-np.inf))
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        found, given = np.take_along_axis(numbers, order, axis=1), np.take_along_axis(scores, order, axis=1)
        return found, given.astype(np.float32)

    def explain(self, text: str, label: str | int) -> Explanation:
        """Why this text gets this label (named by key, name or number) the score it gets."""
        if "explain" not in self.can:
            able = "Models that can are marked 'explain' in: xmtc models"
            raise UnsupportedError(f"{self.name} cannot explain its answers. {able}")
        if not isinstance(text, str):
            raise DataError(f"explain takes one text. Got {type(text).__name__}.")
        number = int(label) if isinstance(label, (int, np.integer)) else self.labels.find(label)
        if not 0 <= number < len(self.labels):
            raise DataError(f"label {number} is not below the model's {len(self.labels):,} labels.")
        score = float(self.score([text], np.array([[number]]))[0, 0])
        return self._explain(text, number, score)

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
        }
        store.write_folder(Path(folder), manifest, State(state.values, arrays, tables))

    @classmethod
    def load(cls, folder: str | Path, runtime: Runtime | None = None) -> Model:
        """A trained model from its folder; arrays are mapped, not read."""
        manifest, state = store.read_folder(Path(folder))
        kind = model_class(manifest["model"])
        if not issubclass(kind, cls):
            raise ModelFormatError(f"{folder}: holds a {manifest['model']}, not a {cls.name}. Use xmtc.load.")
        try:
            model = kind(**manifest["settings"])
            model._labels = LabelIndex(state.tables["labels"])
            model.label_counts = state.arrays["label_counts"]
            model.training = dict(manifest["training"])
            model.facts = dict(model.training.get("found", {}))
            model.runtime = runtime or Runtime()
            arrays = {
                name.removeprefix("model."): array for name, array in state.arrays.items() if name.startswith("model.")
            }
            model._restore(State(state.values, arrays, state.tables))
        except ModelFormatError as error:
            raise ModelFormatError(f"{folder}: {error}") from None
        except XmtcError:
            raise
        except (KeyError, ValueError, TypeError, IndexError, RuntimeError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else f"its parts do not fit together: {error}"
            raise ModelFormatError(f"{folder}: {what}. Copy or train the model again.") from None
        return model

    # ---- scikit-learn's manners, so that clone and GridSearchCV work

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings by name; with `deep`, nested ones as group__name too."""
        out: dict[str, Any] = {}
        for name in config.field_types(self.Config):
            value = getattr(self.config, name)
            out[name] = value
            if deep and isinstance(value, config.Settings):
                out.update({f"{name}__{inner}": getattr(value, inner) for inner in config.field_types(type(value))})
        return out

    def set_params(self, **settings: Any) -> Self:
        """Settings set anew; a trained model must be trained again for them to matter."""
        self.config = config.changed(self.config, {key.replace("__", "."): value for key, value in settings.items()})
        return self

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=True))

    def __sklearn_is_fitted__(self) -> bool:
        return self._labels is not None

    # ---- checks

    def _checked(self, dataset: Dataset, trained: bool = False) -> Dataset:
        """The dataset, if this model can read it. A document with both text and features is read as text."""
        if trained:
            _ = self.labels
        if dataset.has_text and "text" in self.can:
            return dataset
        if dataset.features is not None and "features" in self.can:
            return replace(dataset, fields={})
        given, taken = ("text", "features") if dataset.has_text else ("features", "text")
        raise UnsupportedError(f"{self.name} takes {taken}, not {given}. See what each model takes: xmtc models")

    def _valid(self, valid: Any, index: LabelIndex) -> Dataset:
        dataset = self._checked(as_dataset(*valid) if isinstance(valid, tuple) else as_dataset(valid))
        if dataset.labels is None or dataset.label_index is None:
            raise DataError("validation documents need labels.")
        labels, _ = align_labels(dataset, index)
        return replace(dataset, labels=labels[:, : len(index)], label_index=index)

    def _is_plain_row(self, document: Any) -> bool:
        """Whether this is one row as the model's own matrix has them, with nothing left to put right."""
        return (
            sp.issparse(document)
            and document.format == "csr"
            and document.shape == (1, self.feature_count)
            and document.dtype == np.float32
            and document.has_canonical_format
            and bool(np.isfinite(document.data).all())
            and (not document.nnz or (document.indices[0] >= 0 and document.indices[-1] < document.shape[1]))
        )

    def _allowed(self, allow: Choice | None, deny: Choice | None) -> Mask | None:
        """(L,) the labels that may be returned; None where all may."""
        if allow is None and deny is None:
            return None
        allowed = np.ones(len(self.labels), dtype=bool) if allow is None else self._mask(allow, "allow")
        if deny is not None:
            allowed = allowed & ~self._mask(deny, "deny")
        if not allowed.any():
            raise DataError(
                f"'allow' and 'deny' leave none of the model's {len(self.labels):,} labels. Allow more, or deny fewer."
            )
        return None if allowed.all() else allowed

    def _mask(self, choice: Choice, name: str) -> Mask:
        count = len(self.labels)
        if isinstance(choice, np.ndarray) and choice.dtype == bool and choice.shape == (count,):
            return choice
        if isinstance(choice, str) or not hasattr(choice, "__iter__"):
            raise DataError(f"'{name}' must be a list of label keys. Got {shown(repr(choice))}.")
        if isinstance(choice, np.ndarray) and choice.dtype.kind in "biuf":
            if choice.ndim != 1 or choice.dtype.kind not in "iu":
                form = f"{choice.ndim}-d {choice.dtype}"
                raise DataError(f"'{name}' must be label keys or a 1-d array of label numbers. Got {form}.")
            outside = choice[(choice < 0) | (choice >= count)]
            if outside.size:
                raise DataError(f"'{name}': label {outside[0]} is not below the model's {count:,} labels.")
            numbers = choice
        else:
            numbers = self._known([str(key) for key in choice], f"label of '{name}'")
        mask = np.zeros(count, dtype=bool)
        mask[numbers] = True
        return mask

    def _known(self, keys: list[str], what: str) -> Labels:
        """The numbers of these keys; one that the model does not know is an error."""
        numbers = self.labels.ids(keys)
        if (numbers < 0).any():
            unknown = keys[int(np.argmax(numbers < 0))]
            close = nearest(unknown, self.labels.keys) or " Labels are meant by their keys."
            raise DataError(f"{what} '{shown(unknown)}' is not among the model's {len(self.labels):,} labels.{close}")
        return numbers

    def _candidates(self, candidates: Any, rows: int) -> Labels:
        """(n, c) label numbers, −1 as pads."""
        if isinstance(candidates, TopK):
            candidates = self._renumbered(candidates)
        if not isinstance(candidates, np.ndarray):
            candidates = self._numbered(candidates)
        numbers = np.asarray(candidates)
        if numbers.ndim != 2 or numbers.shape[0] != rows or numbers.dtype.kind not in "iu":
            raise DataError(f"candidates must be {rows} rows of label numbers. Got shape {numbers.shape}.")
        if numbers.size and int(numbers.max()) >= len(self.labels):
            raise DataError(f"label {int(numbers.max())} is not below the model's {len(self.labels):,} labels.")
        return numbers.astype(np.int64)

    def _numbered(self, lists: Sequence[Sequence[str]]) -> Labels:
        """Lists of keys as an (n, c) array; a key that the model does not know is an error."""
        rows = [list(row) for row in lists]
        width = max((len(row) for row in rows), default=0)
        numbers = np.full((len(rows), width), -1, dtype=np.int64)
        flat = self._known([str(key) for row in rows for key in row], "candidate")
        start = 0
        for i, row in enumerate(rows):
            numbers[i, : len(row)] = flat[start : start + len(row)]
            start += len(row)
        return numbers

    def _renumbered(self, answer: TopK) -> Labels:
        """The labels of another model's answer, or of one read from a file, under this model's numbers."""
        if answer.index is self.labels:
            return answer.labels
        filled = answer.labels >= 0
        used, places = np.unique(answer.labels[filled], return_inverse=True)
        numbers = np.full(answer.labels.shape, -1, dtype=np.int64)
        numbers[filled] = self._known(answer.index.strings("key", used), "candidate")[places]
        return numbers


def _padded(array: NDArray[Any], width: int, pad: float) -> NDArray[Any]:
    if array.shape[1] >= width:
        return array
    return np.pad(array, ((0, 0), (0, width - array.shape[1])), constant_values=pad)
