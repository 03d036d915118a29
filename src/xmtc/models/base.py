"""The base class of all models: fit, update, predict, score, explain, save and load.

A model implements `_fit`, `_predict` and `_score_labels`, and provides its state as arrays and JSON; it never opens
files.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.artifact.workspace import Workspace
from xmtc.core.constants import Redundant
from xmtc.core.errors import ConfigError, DataError, UnsupportedError, check_positive, shown
from xmtc.core.explanation import Explanation, PathStep
from xmtc.core.kernel_cache import work_time
from xmtc.core.progress import Progress, silent
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Csr, Dataset, align_labels, as_dataset
from xmtc.data.label_index import LabelIndex
from xmtc.data.matrices import is_plain_row
from xmtc.data.topk import TopK, join_masks
from xmtc.data.vocabularies import with_replacements
from xmtc.decisions.calibration import Method
from xmtc.decisions.decision_rules import DEPTH, Decisions, decide
from xmtc.decisions.thresholds import Kind, Measure, Thresholds, fixed, select_labels
from xmtc.labels.redundancy import Irredundant
from xmtc.models import label_selection
from xmtc.models.context import FitContext
from xmtc.models.label_selection import Choice, allowed_labels, candidate_labels
from xmtc.models.persistence import DECISIONS as DECISIONS
from xmtc.models.replay import sample
from xmtc.models.sklearn_api import SklearnModel
from xmtc.models.update import MARGIN, Change, Request, as_trained, carry_out, nothing_new
from xmtc.models.update import complete_documents as complete_documents
from xmtc.models.vocabulary import Vocabulary, new_vocabulary, training_labels, vocabulary_facts
from xmtc.onnx.graph import OnnxExport

Labels = label_selection.Labels
Mask = label_selection.Mask
Scores = NDArray[np.float32]

PLACES = 5
"""Default number of labels per document."""
BATCH = 16_384
"""Documents predicted at once; the result does not depend on it."""
LABELS_SHOWN = 3
"""Labels that represent a node of a label tree in an explanation."""


class Model(SklearnModel):
    """Base class of all models.

    Settings are keyword arguments, nested or joined: Knn(neighbours=20, text={"min_df": 1}) or text__min_df=1.
    """

    capabilities: ClassVar[frozenset[str]]
    """A subset of "text", "features", "explain", "update", "score_labels", "export"."""
    ablations: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Ablations: name → settings that switch off a part, or restore the published form."""

    # ---- implemented by each model

    @abstractmethod
    def _fit(self, train: Dataset, valid: Dataset | None, run: FitContext) -> None:
        """Train on `train`, which has labels; `valid`, if given, is for choosing hyperparameters."""

    @abstractmethod
    def _predict(self, batch: Dataset, k: int, allowed: Mask | None) -> tuple[Labels, Scores]:
        """(n, k) labels and scores, best first, −1 and −∞ as padding.

        `allowed` (L,) masks the labels that may be returned, None for all; k is at most their number. The result is the
        full ranking without the other labels: labels that are not allowed never displace allowed ones.
        """

    @abstractmethod
    def _score_labels(self, batch: Dataset, candidates: Labels) -> Scores:
        """(n, c) scores of given labels, equal to those of `_predict`; negative entries are ignored."""

    def _known_words(self, batch: Dataset) -> Mask | None:
        """(n,) which documents have a word or feature that the model knows; None if the model uses neither.

        Called after `_predict` or `_score_labels` on the same batch, whose features need not be computed again.
        """
        return None

    def _update(self, change: Change, run: FitContext) -> None:
        """Train on new documents; `labels` and `label_counts` are already those after the update.

        The model is a shallow copy: attributes must be replaced, never changed in place.
        """
        raise UnsupportedError(f"{self.name} cannot be updated.")

    def _explain(self, text: str, label: int, score: float) -> Explanation:
        raise UnsupportedError(f"{self.name} cannot explain its predictions.")

    def _path_step(self, depth: int, probability: float, below: Labels) -> PathStep:
        """A step to a node of a label tree, represented by the most frequent labels below it."""
        often = below[np.argsort(-self.label_counts[below], kind="stable")[:LABELS_SHOWN]]
        return PathStep(depth, probability, tuple(self.labels.name(int(label)) for label in often))

    def label_vectors(self) -> NDArray[np.float32]:
        """(L, d) a vector for each label; similar labels have similar vectors, of any length."""
        raise UnsupportedError(f"{self.name} has no label vectors. Use dxml or leml.")

    # ---- public methods

    def to_onnx(self) -> OnnxExport:
        """The trained model as an ONNX graph, with what reads texts for it."""
        able = "Models that can are marked 'export' in: xmtc models"
        raise UnsupportedError(f"{self.name} cannot be exported to ONNX. {able}")

    def made_of(self) -> list[Path]:
        """Other models and files that the settings refer to and that training reads."""
        return []

    def fit(
        self,
        documents: Any,
        labels: Any = None,
        *,
        rejected: Any = None,
        complete: Any = None,
        valid: Any = None,
        vocabulary: Vocabulary | None = None,
        runtime: Runtime | None = None,
        progress: Progress = silent,
        workspace: Workspace | None = None,
    ) -> Self:
        """Train on documents (a Dataset, texts, or a feature matrix) and their labels (lists, or a 0/1 matrix).

        `rejected` has labels known to be wrong, in the form of `labels`. `complete` is a boolean, or one for each
        document: False if labels that are not listed are unknown, the default with `rejected`. Validation uses complete
        documents only. `vocabulary` is a file or a `LabelIndex` with all labels; those without training documents are
        dropped unless the model `uses_label_names`.
        """
        started = work_time()
        train = self._checked(as_dataset(documents, labels, rejected, complete))
        train, listed = training_labels(train, vocabulary, self.uses_label_names)
        if train.labels is None or train.label_index is None:
            raise DataError("training requires labels. Pass one list of labels per document.")
        if train.labels.nnz == 0:
            raise DataError("no document has a label. Check the label field.")
        self._labels, self.decisions, self.history = None, Decisions(), []
        self.runtime = runtime or Runtime()
        self.label_counts = np.bincount(train.labels.indices, minlength=train.labels.shape[1]).astype(np.int64)
        checked_valid = None if valid is None else self._valid(valid, train.label_index)
        self._fit(train, checked_valid, FitContext(self.runtime, progress, workspace or Workspace()))
        if self._labels is None:  # unless the model has set its own labels
            self._labels = train.label_index
        self.training = {
            "documents": len(train),
            "seed": self.runtime.seed,
            "seconds": round(work_time() - started, 3),
            "input": "text" if train.has_text else "features",
            **({} if train.features is None or train.has_text else {"features": int(train.features.shape[1])}),
            **({"found": self.facts} if self.facts else {}),
            **vocabulary_facts(listed, self.labels, self.label_counts),
        }
        self.remember(sample(train, self.kept_for_replay, self.runtime.seed))
        return self

    def update(
        self,
        documents: Any = None,
        labels: Any = None,
        *,
        rejected: Any = None,
        complete: Any = None,
        valid: Any = None,
        replay: Any = None,
        retire: Iterable[str] = (),
        merge: Mapping[str, str] | None = None,
        vocabulary: Vocabulary | None = None,
        margin: float = MARGIN,
        force: bool = False,
        runtime: Runtime | None = None,
        progress: Progress = silent,
        workspace: Workspace | None = None,
    ) -> Self:
        """Train on new documents, which may have new labels, without retraining on the old ones.

        `rejected` and `complete` are as in `fit`: labels known to be wrong, and whether all other labels are wrong.
        `retire` has the keys of labels to remove, `merge` maps keys of labels to the keys they are merged into.
        `vocabulary`, a file or a `LabelIndex`, updates names and hierarchy of the labels; its new labels are added if
        the model `adds_unseen_labels`, that is, if it was trained on label names. Labels of the documents that the file
        marks as replaced are exchanged for their replacements.
        `replay` has earlier training documents; by default, those stored in the model (`keep_replay`). The update is
        validated by nDCG@5 on `valid`, or on held-out new documents: if it drops by more than `margin`, the update is
        refused and the model stays unchanged, unless `force` is set.
        """
        if isinstance(retire, str):
            raise DataError(f"'retire' must be a list of label keys. Got a string; write [{retire!r}].")
        retire, merge = list(retire), dict(merge or {})
        learns = documents is not None or retire or merge
        if not learns and vocabulary is None:
            raise DataError("nothing to update: pass new documents, labels to retire or merge, or a vocabulary.")
        if "update" not in self.capabilities and (learns or self.uses_label_names):
            able = "Models that can are marked 'update' in: xmtc models"
            raise UnsupportedError(f"{self.name} cannot be updated. {able}")
        _ = self.labels  # raises NotFittedError
        current = new_vocabulary(documents, vocabulary)

        def read(given: Any, what: str) -> Dataset:
            dataset = self._checked(as_dataset(*given) if isinstance(given, tuple) else as_dataset(given))
            if current is not None:
                dataset = with_replacements(dataset, current)
            return as_trained(dataset, self.training, what)

        request = Request(
            nothing_new(self.training) if documents is None else read((documents, labels, rejected, complete), "new"),
            None if valid is None else read(valid, "validation"),
            None if replay is None else read(replay, "replayed"),
            retire,
            merge,
            margin,
            force,
            vocabulary=None if current is None else current.index,
        )
        run = FitContext(runtime or self.runtime, progress, workspace or Workspace())
        self.__dict__.update(vars(carry_out(self, request, run)))
        return self

    def learn(self, change: Change, run: FitContext) -> None:
        """`_update` and all label counts; called by `carry_out` on a copy."""
        assert change.new.labels is not None
        labels, before = change.labels, self.label_counts
        counts = np.bincount(change.new.labels.indices, minlength=len(labels.index)).astype(np.int64)
        stay = np.flatnonzero(labels.numbers >= 0)
        np.add.at(counts, labels.numbers[stay], before[stay])
        counts = np.minimum(counts, change.documents_before + len(change.new))  # merged labels may overlap
        self.facts = dict(self.facts)
        self.runtime, self._labels, self.label_counts = run.runtime, labels.index, counts
        self.decisions = self.decisions.relabelled(labels.kept, len(labels.index))
        self._update(change, run)
        self.training = {**self.training, "documents": change.documents_before + len(change.new)}
        self.training.pop("vocabulary", None)
        self.training |= vocabulary_facts(change.vocabulary, self.labels, counts)

    def rename(self, change: Change) -> None:
        """Renew names and hierarchy of the labels; called by `carry_out` on a copy."""
        self._labels = change.labels.index
        self.training = {**self.training, **vocabulary_facts(change.vocabulary, self.labels, self.label_counts)}

    def ask(self, documents: Dataset, k: int) -> tuple[Labels, Scores]:
        """The k best labels of each document and their raw scores, before calibration."""
        answer = self._ranked(documents, k, None, None, silent)
        return answer.labels, answer.scores

    def predict(
        self,
        documents: Any,
        k: int | None = None,
        *,
        threshold: float | str | None = None,
        allow: Choice | None = None,
        deny: Choice | None = None,
        candidates: Any = None,
        hierarchy: Redundant = "keep",
        progress: Progress = silent,
    ) -> TopK:
        """The k best labels of each document, 5 by default.

        With `threshold`, a set of labels of any size: those of the 50 best with at least this score, or, with "auto",
        those selected by the rule that `calibrate` tuned; at most k if k is given, and among the k best if k exceeds
        50; none for documents without a known word (`TopK.known_words`). A k beyond the number of labels is reduced to
        it. `allow` restricts the result to these labels, `deny` excludes labels. `candidates` has labels for each
        document, in any form that `score_labels` accepts: only these are scored and ranked, including those with score
        0. `hierarchy` "narrowest" leaves out a label if a narrower one has at least half its score, "broadest" if a
        broader one has.
        """
        labels = self.labels
        if k is not None:
            check_positive("k", k)
        plain = threshold is allow is deny is candidates is None and hierarchy == "keep"
        if plain and is_plain_row(documents, self.feature_count):
            return self._of_row(documents, int(k or PLACES))
        dataset = self._checked(as_dataset(documents), trained=True)
        rule = None if threshold is None else self.rule(threshold)
        allowed = allowed_labels(labels, allow, deny)
        given_labels = None if candidates is None else candidate_labels(labels, candidates, len(dataset))
        wide = int(k or PLACES)
        if threshold is not None:
            wide = max(int(k or 0), self.set_depth(threshold), 0 if given_labels is None else given_labels.shape[1])
        only = Irredundant.of(labels, hierarchy)
        rank = partial(self._decided, allowed=allowed, progress=progress)
        if only is None or rule is not None:
            answer = rank(dataset, wide, candidates=given_labels)
        else:
            answer = only.ranked(rank, dataset, wide, allowed, given_labels)
        answer = answer.named(dataset.document_ids())
        if rule is None:
            return answer
        sets = select_labels(answer, rule.choose(answer.labels, answer.scores))
        sets = sets if only is None else only.reduced(sets, k)
        return sets if k is None else sets.first(int(k))

    def _ranked(
        self, dataset: Dataset, k: int, allowed: Mask | None, candidates: Labels | None, progress: Progress
    ) -> TopK:
        """Rank labels in batches, (n, min(k, L)); scores are raw, before calibration."""
        k = min(k, len(self.labels))
        most = k if allowed is None else min(k, int(np.count_nonzero(allowed)))
        numbers = [np.empty((0, k), dtype=np.int64)]
        scores = [np.empty((0, k), dtype=np.float32)]
        known: list[Mask | None] = []
        with progress.task("predicting", total=len(dataset)) as task:
            for start, batch in zip(range(0, len(dataset), BATCH), dataset.batches(BATCH), strict=True):
                if candidates is None:
                    found, given = self._predict(batch, most, allowed)
                else:
                    found, given = self._best_of(batch, most, candidates[start : start + BATCH], allowed)
                numbers.append(label_selection.padded(found, k, -1))
                scores.append(label_selection.padded(given, k, -np.inf))
                known.append(self._known_words(batch))
                task.advance(len(batch))
        return TopK(np.concatenate(numbers), np.concatenate(scores), self.labels, None, join_masks(known))

    def _decided(
        self, dataset: Dataset, k: int, allowed: Mask | None, candidates: Labels | None, progress: Progress
    ) -> TopK:
        """`_ranked` with the scores that are returned, calibrated if the model is."""
        ranked = self._ranked(dataset, k, allowed, candidates, progress)
        return ranked.relabelled(ranked.labels, self.decisions.probabilities(ranked.scores))

    def known_words(self, documents: Any) -> Mask | None:
        """(n,) whether each document has a word or feature that the model knows; None if the model uses neither."""
        dataset = self._checked(as_dataset(documents), trained=True)
        return join_masks([self._known_words(batch) for batch in dataset.batches(BATCH)])

    def rule(self, threshold: float | str) -> Thresholds:
        """The rule that selects sets of labels: a fixed threshold, or "auto" for the tuned one."""
        if threshold != "auto":
            if isinstance(threshold, (str, bool)):
                raise ConfigError(f"'threshold' must be a number or 'auto'. Got {shown(repr(threshold))}.")
            if self.decisions.calibration is not None and not 0 <= threshold <= 1:
                raise ConfigError(f"'threshold' must be from 0 to 1, since scores are probabilities. Got {threshold}.")
            return fixed(threshold)
        if self.decisions.thresholds is None:
            raise ConfigError("this model has no tuned threshold. Tune one with: xmtc calibrate DIR VALID")
        return self.decisions.thresholds

    def set_depth(self, threshold: float | str) -> int:
        """Number of labels per document from which a set is selected, unless k is larger."""
        return self.decisions.depth if threshold == "auto" else max(DEPTH, self.decisions.depth)

    def calibrate(
        self,
        documents: Any,
        labels: Any = None,
        *,
        method: Method | None = "isotonic",
        threshold: Kind | None = "global",
        measure: Measure | None = None,
        k: int = DEPTH,
        progress: Progress = silent,
    ) -> Self:
        """Calibrate scores to probabilities on validation documents, and tune the rule that selects label sets.

        `method` is isotonic or platt; None keeps the scores. `threshold` is global (one for all labels), label (one for
        each) or document (the best set of each document); None tunes none. `measure` is the F1 to optimise: micro,
        macro or document. The k best labels of each document are used; documents with unknown labels are left out.
        """
        dataset = self._checked(as_dataset(documents, labels), trained=True)
        if dataset.labels is None or dataset.label_index is None:
            raise DataError("calibration requires labels. Pass one list of labels per document.")
        dataset = complete_documents(dataset, "calibration")
        check_positive("k", k)
        answer = self._ranked(dataset, min(int(k), len(self.labels)), None, None, progress)
        truth, _ = align_labels(dataset, self.labels)
        known = self.counted()
        counts = None if known is None else known[0]
        self.decisions = decide(answer, truth, method=method, threshold=threshold, measure=measure, counts=counts)
        return self

    def tag(self, document: Any, k: int = 5) -> list[tuple[str, float]]:
        """(name, score) of the k best labels of one document, a text or one row of a feature matrix.

        Equivalent to `predict` with less overhead, for callers that have one document at a time.
        """
        if isinstance(document, np.ndarray) and document.ndim == 1:
            document = document[None, :]
        if not isinstance(document, (str, np.ndarray)) and not sp.issparse(document):
            kind = type(document).__name__
            raise DataError(f"'tag' takes one text or one feature row. Got {kind}. Use predict for several.")
        if not is_plain_row(document, self.feature_count) or isinstance(k, bool) or not isinstance(k, int) or k < 1:
            answer = self.predict([document] if isinstance(document, str) else document, k)
            if len(answer) != 1:
                raise DataError(f"'tag' takes one document. Got {len(answer):,}. Use predict for several.")
            return answer.pairs()[0]
        found, given = self._tag(document, min(k, len(self.labels)))
        names = self.labels.strings("name", found)
        return list(zip(names, self.decisions.probabilities(given).tolist(), strict=True))

    def _of_row(self, row: Csr, k: int) -> TopK:
        """`predict` for one plain feature row, with little overhead."""
        k = min(k, len(self.labels))
        found, given = self._tag(row, k)
        labels, scores = np.full((1, k), -1, dtype=np.int64), np.full((1, k), -np.inf, dtype=np.float32)
        labels[0, : len(found)] = found
        scores[0, : len(found)] = self.decisions.probabilities(given)
        return TopK(labels, scores, self.labels, None, self._known_words(Dataset(features=row)))

    def _tag(self, row: Csr, k: int) -> tuple[Labels, Scores]:
        """Labels and scores of one feature row, best first, without padding."""
        found, given = self._predict(as_dataset(row), k, None)
        filled = found[0] >= 0
        return found[0, filled], given[0, filled]

    def score_labels(self, documents: Any, candidates: Any) -> Scores:
        """(n, c) scores of given labels: an (n, c) array of label numbers padded with −1, a TopK, or lists of keys."""
        dataset = self._checked(as_dataset(documents), trained=True)
        numbers = candidate_labels(self.labels, candidates, len(dataset))
        parts = [
            self._score_labels(batch, numbers[start : start + BATCH])
            for start, batch in zip(range(0, len(dataset), BATCH), dataset.batches(BATCH), strict=True)
        ]
        scores = np.concatenate(parts) if parts else np.empty(numbers.shape, dtype=np.float32)
        return self.decisions.probabilities(np.where(numbers >= 0, scores, np.float32(-np.inf)).astype(np.float32))

    def _best_of(self, batch: Dataset, k: int, candidates: Labels, allowed: Mask | None) -> tuple[Labels, Scores]:
        """The best k of each row's candidates; duplicates count once."""
        numbers = np.maximum(np.sort(candidates, axis=1), -1)  # ascending, so that a stable sort by score orders ties
        numbers[:, 1:][numbers[:, 1:] == numbers[:, :-1]] = -1
        if allowed is not None:
            numbers[~allowed[numbers]] = -1  # −1 indexes the last label, and stays −1 either way
        scores = np.where(numbers >= 0, self._score_labels(batch, numbers), np.float32(-np.inf))
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        found, given = np.take_along_axis(numbers, order, axis=1), np.take_along_axis(scores, order, axis=1)
        return found, given.astype(np.float32)

    def explain(self, text: str, label: str | int) -> Explanation:
        """Explain the score of a label (given by key, name or number) for a text."""
        if "explain" not in self.capabilities:
            able = "Models that can are marked 'explain' in: xmtc models"
            raise UnsupportedError(f"{self.name} cannot explain its predictions. {able}")
        if not isinstance(text, str):
            raise DataError(f"'explain' takes one text. Got {type(text).__name__}.")
        number = int(label) if isinstance(label, (int, np.integer)) else self.labels.find(label)
        if not 0 <= number < len(self.labels):
            raise DataError(f"label number {number} is out of range: the model has {len(self.labels):,} labels.")
        document = as_dataset([text])
        score = float(self.score_labels(document, np.array([[number]]))[0, 0])
        known = self.known_words(document)
        return replace(self._explain(text, number, score), known_words=known is None or bool(known[0]))

    # ---- checks

    def _checked(self, dataset: Dataset, trained: bool = False) -> Dataset:
        """Return the dataset if this model can read it. Documents with both text and features are read as text."""
        if trained:
            _ = self.labels
        if dataset.has_text and "text" in self.capabilities:
            return dataset
        if dataset.features is not None and "features" in self.capabilities:
            return replace(dataset, fields={}) if dataset.has_text else dataset
        given, taken = ("text", "features") if dataset.has_text else ("features", "text")
        raise UnsupportedError(f"{self.name} takes {taken}, not {given}. List what each model takes with: xmtc models")

    def _valid(self, valid: Any, index: LabelIndex) -> Dataset:
        dataset = self._checked(as_dataset(*valid) if isinstance(valid, tuple) else as_dataset(valid))
        if dataset.labels is None or dataset.label_index is None:
            raise DataError("validation requires labels. Pass one list of labels per document.")
        dataset = complete_documents(dataset, "validation")
        labels, _ = align_labels(dataset, index)
        return replace(dataset, labels=labels[:, : len(index)], label_index=index)
