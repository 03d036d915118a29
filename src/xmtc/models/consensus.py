"""Consensus: an ensemble of trained models, or of files with their predictions."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from xmtc.artifact import store
from xmtc.artifact.dependencies import Link
from xmtc.artifact.saved_state import SavedState
from xmtc.artifact.store import State
from xmtc.core.config import Choices, Range, Settings, changed
from xmtc.core.errors import ConfigError, DataError, ModelFormatError, XmtcError
from xmtc.core.explanation import Explanation, MemberEvidence
from xmtc.core.progress import Progress, silent
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Csr, Dataset, align_labels, as_dataset
from xmtc.data.label_index import LabelIndex
from xmtc.data.topk import TopK
from xmtc.decisions import combining
from xmtc.decisions.calibration import Calibration
from xmtc.decisions.combining import FIRST, Answer, Gathered, Learnt
from xmtc.decisions.decision_rules import DEPTH, decide
from xmtc.decisions.thresholds import hits_among
from xmtc.metrics import ndcg
from xmtc.models import base
from xmtc.models.base import Labels, Mask, Model, Scores
from xmtc.models.context import FitContext
from xmtc.models.ensemble_members import (
    FileMember,
    Member,
    ModelMember,
    answer_batches,
    calibrated,
    check_labels_known,
    linked,
)
from xmtc.models.label_selection import padded
from xmtc.models.stacking import OutOfFold, StackedTrees, stacking_rows
from xmtc.models.update import Change, Request, carry_out

MOST_MEMBERS = 1000
"""Maximum number of models and files of predictions that loading a consensus may open."""
_loading: ContextVar[list[int] | None] = ContextVar("loading", default=None)


@dataclass(frozen=True)
class ConsensusSettings(Settings):
    """Settings of consensus."""

    members: tuple[str, ...] = ()
    """Model folders, or files of predictions with document ids."""
    combine: Annotated[Literal["learnt", "stacked", "noisy-or", "average"], Choices()] = "learnt"
    """Combination: weights learnt on the validation set, boosted trees learnt on it, noisy-or 1 − Π(1 − p) as
    published, or the average."""
    weights: tuple[float, ...] = ()
    """Weights of the average, one per member; equal if empty."""
    calibrate: Annotated[Literal["isotonic", "platt", "none"], Choices()] = "isotonic"
    """Calibration of the members' scores on the validation set before they are combined."""
    depth: Annotated[int, Range(10, 100, log=True)] = 50
    """Number of labels that each member proposes per document."""
    complete: bool = False
    """Have each member score the labels proposed by others; otherwise these count as 0."""
    copy: bool = False
    """Copy the members into the model folder; otherwise they are referenced and must not change."""

    of = "consensus"

    def check(self) -> None:
        self.require("weights", not self.weights or self.combine == "average", "empty unless combine=average")
        fit = not self.weights or (
            min(self.weights) >= 0 < max(self.weights) and len(self.weights) == len(self.members)
        )
        self.require("weights", fit, "numbers ≥ 0, one per member, at least one > 0")
        self.require_range("depth", 1)


class Consensus(Model):
    """Ensemble of trained models: learnt weights, stacked trees, noisy-or or average.

    It is trained on the validation set. Members are model folders of any kind or files of predictions; they are not
    changed.
    """

    name = "consensus"
    Config = ConsensusSettings
    capabilities = frozenset({"text", "features", "explain", "score_labels", "update"})

    _members: list[Member]
    _links: list[Link]
    _combination: Learnt | StackedTrees | None
    """What was learnt on the validation set; None for noisy-or and average."""
    _out_of_fold: OutOfFold | None = None
    """During training on out-of-fold predictions: these."""
    _fold_counts: NDArray[np.int64]
    _copies: tempfile.TemporaryDirectory[str] | None = None
    """Temporary folder of updated members, until they are saved."""
    _documents: int
    """Largest number of training documents of a member; 0 if unknown."""

    def made_of(self) -> list[Path]:
        return [Path(place) for place in self.config.members]

    def _fit(self, train: Dataset, valid: Dataset | None, run: FitContext) -> None:
        if not self.config.members:
            example = """--set 'members=["a", "b"]'"""
            raise ConfigError(f"consensus has no members. Pass model folders or files of predictions: {example}")
        if valid is not None:
            raise ConfigError("consensus is trained on the validation set only. Pass it as TRAIN, without --valid.")
        train = base.complete_documents(train, "consensus")
        places = [place.resolve() for place in self.made_of()]
        if len(set(places)) < len(places):
            twice = next(place for place in places if places.count(place) > 1)
            raise ConfigError(f"'members' of consensus must be distinct. Got {twice} twice.")
        self._open([linked(place, self.config.copy) for place in self.made_of()])
        self._check_ids(train)
        self._number(self._joined())
        for member in self._members:
            check_labels_known(member, train)
        self.label_counts, self._documents = self._counts()
        truth, _ = align_labels(train, self.labels)
        try:
            out_of_fold = self._out_of_fold
            if out_of_fold is not None:
                self._fold_counts = out_of_fold.numbered_counts(self.labels)
            answers = (
                self._answers_to(train, run)
                if out_of_fold is None
                else out_of_fold.numbered_answers(self.labels, self.config.depth)
            )
            self._settle(train, truth, answers)
        except XmtcError:
            self._labels = None
            self._forget(run)  # so that a corrected retry does not reuse them
            raise

    def _settle(self, train: Dataset, truth: Csr, answers: Sequence[Answer]) -> None:
        """Calibrate the members and learn their weights from their predictions."""
        if self.config.calibrate != "none":
            for member, (labels, scores) in zip(self._members, answers, strict=True):
                member.calibration = calibrated(self.config.calibrate, member.name, labels, scores, truth)
        self._combination = self._learn(train, answers, truth)
        self.facts = self._measured(train, answers, truth)

    def fit_out_of_fold(
        self,
        documents: Dataset,
        out_of_fold: OutOfFold,
        *,
        runtime: Runtime | None = None,
        progress: Progress = silent,
    ) -> TopK:
        """Learn the combination from out-of-fold predictions for documents that the members were trained on.

        The members are models trained on all documents; the predictions are of models with the same settings that were
        trained without the documents they are for. Scores are calibrated and a threshold is tuned on the result.
        Returns the combined predictions for the documents.
        """
        self._out_of_fold = out_of_fold
        try:
            self.fit(documents, runtime=runtime, progress=progress)
            labels, scores = self._together(out_of_fold.numbered_answers(self.labels, self.config.depth), DEPTH)
            truth, _ = align_labels(documents, self.labels)
            together = TopK(labels, scores, self.labels)
            self.decisions = decide(together, truth, method="isotonic", threshold="global", counts=self.label_counts)
        finally:
            self._out_of_fold = None
        return together.relabelled(labels, self.decisions.probabilities(scores))

    def _open(self, links: list[Link]) -> None:
        self._links = links
        places = [link.path for link in links]
        short = [place.name for place in places]
        names = [str(place) if short.count(place.name) > 1 else place.name for place in places]
        self._members = [
            ModelMember(name, place, self.runtime) if store.is_model(place) else FileMember(name, place)
            for name, place in zip(names, places, strict=True)
        ]

    def _check_ids(self, documents: Dataset) -> None:
        """Require ids: without them, a file of predictions would match the first document with its own document '0'."""
        if documents.ids is not None:
            return
        for member in self._members:
            if isinstance(member, FileMember):
                raise DataError(
                    f"{member.name}: is a file of predictions that matches documents by id, but these documents have "
                    "none. Add ids, or train again with the member's model folder."
                )

    def _checked(self, dataset: Dataset, trained: bool = False) -> Dataset:
        checked = super()._checked(dataset, trained)
        if trained:
            self._check_ids(checked)
        return checked

    def _joined(self) -> LabelIndex:
        """The labels of all members by key. Models come first, because files may lack label names."""
        first, *others = sorted(self._members, key=lambda member: isinstance(member, FileMember))
        joined = first.labels
        for member in others:
            joined = joined.joined(member.labels)
        if not len(joined):
            raise DataError("no member has any labels. Check the files of predictions.")
        return joined

    def _number(self, labels: LabelIndex) -> None:
        self._labels = labels
        for member in self._members:
            member.number(labels)

    def _counts(self) -> tuple[NDArray[np.int64], int]:
        """(L,) training documents of each label, the maximum over the members, and their total number."""
        counts, documents = np.zeros(len(self.labels), dtype=np.int64), 0
        for member in self._members:
            known = member.counted()
            if known is not None:
                counts[member.shared] = np.maximum(counts[member.shared], known[0])
                documents = max(documents, known[1])
        return counts, documents

    @property
    def uses_label_names(self) -> bool:
        members: list[Member] = getattr(self, "_members", [])
        return any(isinstance(member, ModelMember) and member.model.uses_label_names for member in members)

    @property
    def adds_unseen_labels(self) -> bool:
        return any(isinstance(member, ModelMember) and member.model.adds_unseen_labels for member in self._members)

    def counted(self) -> tuple[NDArray[np.int64], int] | None:
        return (self.label_counts, self._documents) if self._documents else None

    def _update(self, change: Change, run: FitContext) -> None:
        """Update each member and copy it into the model; the combination weights are kept.

        The original member folders are not changed.
        """
        assert change.new.labels is not None
        rejected = change.new.rejected
        occurring = np.unique(change.new.decided().indices)
        new = replace(
            change.new,
            labels=change.new.labels[:, occurring],
            label_index=change.labels.index.take(occurring),
            rejected=None if rejected is None else rejected[:, occurring],
        )
        vocabulary = change.vocabulary
        if vocabulary is not None:  # without labels that are retired or merged, which a member may not know
            others = self.labels.ids(vocabulary.table["key"].combine_chunks()) < 0
            rest = vocabulary.take(np.flatnonzero(others))
            vocabulary = vocabulary.take(np.flatnonzero(~others)).with_ancestors(rest)
        place = tempfile.TemporaryDirectory(prefix="xmtc-")  # until they are saved
        links = []
        for number, member in enumerate(self._members):
            member.check_update()
            assert isinstance(member, ModelMember)
            became = change.labels.numbers[member.shared]
            keys = member.labels.keys
            merge = {
                key: self.labels.key(label)
                for key, label in zip(keys, became.tolist(), strict=True)
                if label >= 0 and self.labels.key(label) != key
            }
            retire = [key for key, label in zip(keys, became.tolist(), strict=True) if label < 0]
            own = FitContext(run.runtime, run.progress, run.workspace.inner(f"member-{number}"))
            updated = carry_out(
                member.model,
                Request(new, retire=retire, merge=merge, is_validated=False, vocabulary=vocabulary),
                own,
            )
            folder = Path(place.name) / str(number) / Path(member.name).name
            updated.save(folder)
            links.append(Link.to(folder, copied=True))
        calibrations = [member.calibration for member in self._members]
        self._copies = place  # deleted when no longer referenced
        self.config = changed(self.config, {"copy": True})
        self._open(links)
        for member, calibration in zip(self._members, calibrations, strict=True):
            member.calibration = calibration
        self._number(self.labels)
        self._documents += len(change.new) if self._documents else 0

    def _answers_to(self, documents: Dataset, run: FitContext) -> list[Answer]:
        """Each member's best labels; those computed before an interruption are loaded from the workspace."""
        answers = []
        for part, member in zip(self._parts(), self._members, strict=True):
            if run.workspace.has(part):
                arrays, _ = run.workspace.load(part)
                answers.append((arrays["labels"], arrays["scores"]))
                continue
            found: list[Answer] = []
            with run.progress.task(f"predicting with {member.name}", total=len(documents)) as task:
                for batch in documents.batches(base.BATCH):
                    found.append(member.best(batch, self.config.depth, None))
                    task.advance(len(batch))
            labels, scores = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
            run.workspace.save(part, {"labels": labels, "scores": scores})
            answers.append((labels, scores))
        return answers

    def _parts(self) -> list[str]:
        """Workspace names of the members' predictions; label numbers depend on all members."""
        together = hashlib.blake2b("".join(link.content for link in self._links).encode(), digest_size=8).hexdigest()
        return [f"answers-{together}-{place}" for place in range(len(self._members))]

    def _forget(self, run: FitContext) -> None:
        for part in self._parts():
            if run.workspace.has(part):
                run.workspace.drop(part)

    def _learn(self, train: Dataset, answers: Sequence[Answer], truth: Csr) -> Learnt | StackedTrees | None:
        """Learn to combine the members from the first few labels of each.

        The others are easy negatives, and so numerous that they would dominate.
        """
        stacks = self.config.combine == "stacked"
        if not (stacks or self.config.combine == "learnt"):
            return None
        pairs: list[NDArray[Any]] = []
        hits, documents = [], []
        for place, part, batch in answer_batches(train, answers):
            first = combining.union([(labels[:, :FIRST], scores) for labels, scores in part])
            gathered, filled = self._gathered(batch, part, first), first >= 0
            frequency = self._frequency(first, place)
            pairs.append(
                stacking_rows(gathered, frequency, filled) if stacks else combining.design_matrix(gathered, frequency)
            )
            hits.append(hits_among(first, truth[place])[filled])
            documents.append(place.start + np.nonzero(filled)[0])
        rows, right = np.concatenate(pairs), np.concatenate(hits)
        if stacks:
            runtime = self.runtime
            return StackedTrees.fit(rows, right, np.concatenate(documents), runtime.seed, runtime.threads)
        return combining.learn(rows, right)

    def _measured(self, train: Dataset, answers: Sequence[Answer], truth: Csr) -> dict[str, float]:
        """nDCG@5 of each member and of the consensus on the documents it was trained on."""
        named = zip(self._members, answers, strict=True)
        measured = {f"nDCG@5 of {member.name}": ndcg(labels, truth, 5) for member, (labels, _) in named}
        measured["nDCG@5 together, as fitted"] = ndcg(self._together(answers, 5, train)[0], truth, 5)
        return {name: round(value, 4) for name, value in measured.items()}

    def _together(self, answers: Sequence[Answer], k: int, documents: Dataset | None = None) -> Answer:
        """The k best labels of the training documents, from the members' predictions for them."""
        found = []
        for place, part, batch in answer_batches(documents or len(answers[0][0]), answers):
            gathered = self._gathered(batch, part, None)
            labels, scores = combining.ranked(gathered.labels, self._combined(gathered, place), k)
            found.append((padded(labels, k, -1), padded(scores, k, -np.inf)))
        labels, scores = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
        return labels, scores

    def _predict(self, batch: Dataset, k: int, allowed: Mask | None) -> tuple[Labels, Scores]:
        answers = [member.best(batch, self.config.depth, allowed) for member in self._members]
        gathered = self._gathered(batch, answers, None)
        return combining.ranked(gathered.labels, self._combined(gathered), k)

    def _known_words(self, batch: Dataset) -> Mask | None:
        """Which documents have a word that a member knows; members that use no words do not count."""
        masks = [mask for member in self._members if (mask := member.known_words(batch)) is not None]
        return np.asarray(np.stack(masks).any(axis=0)) if masks else None

    def _score_labels(self, batch: Dataset, candidates: Labels) -> Scores:
        return self._combined(self._gathered_candidates(batch, candidates)).astype(np.float32)

    def _gathered_candidates(self, batch: Dataset, candidates: Labels) -> Gathered:
        """Scores of given labels: those among each member's best labels, and all others with `complete`."""
        answers = [member.best(batch, self.config.depth, None) for member in self._members]
        return self._gathered(batch, answers, candidates)

    def _gathered(self, batch: Dataset | None, answers: Sequence[Answer], labels: Labels | None) -> Gathered:
        read = [(found, member.chances(given)) for member, (found, given) in zip(self._members, answers, strict=True)]
        gathered = combining.gather(read, combining.union(read) if labels is None else labels)
        if self.config.complete and batch is not None:
            for place, member in enumerate(self._members):
                missing = np.where(gathered.held[place], -1, gathered.labels)
                given = member.chances(member.score_labels(batch, missing))
                scored = given > -np.inf
                gathered.chances[place][scored], gathered.held[place][scored] = given[scored], True
        return gathered

    def _combined(self, gathered: Gathered, place: slice | None = None) -> NDArray[np.float64]:
        """Probabilities (n, u); `place` are the documents if they are training documents."""
        if self._combination is not None:
            return self._combination(gathered, self._frequency(gathered.labels, place))
        if self.config.combine == "average":
            return combining.average(gathered.chances, self.config.weights)
        return combining.noisy_or(gathered.chances)

    def _frequency(self, labels: Labels, place: slice | None = None) -> NDArray[np.float64]:
        """(n, u) log(1 + training documents) of each label, without the fold of a training document."""
        if place is None or self._out_of_fold is None:
            counts = self.label_counts[labels]
        else:
            counts = self._fold_counts[self._out_of_fold.folds[place, None], labels]
        found: NDArray[np.float64] = np.log1p(counts)
        return found

    def _explain(self, text: str, label: int, score: float) -> Explanation:
        gathered = self._gathered_candidates(as_dataset([text]), np.array([[label]]))
        if self._combination is not None:
            shares = self._combination.shares(gathered, self._frequency(gathered.labels))[:, 0, 0]
        else:
            shares = combining.shares(gathered.chances, self.config.combine, self.config.weights)[:, 0, 0]
        shares = np.maximum(shares, 0.0)  # only contributions in favour of the label
        total = float(shares.sum()) or 1.0
        given = zip(self._members, gathered.chances[:, 0, 0].tolist(), (shares / total).tolist(), strict=True)
        evidence = [MemberEvidence(member.name, chance, share) for member, chance, share in given]
        evidence.sort(key=lambda member: -member.share)
        return Explanation("members", text, self.labels.name(label), score, tuple(evidence))

    def _state(self) -> State:
        kept = State(values={"documents": self._documents})
        if isinstance(self._combination, Learnt):
            kept.values["learnt"] = self._combination.values()
        elif self._combination is not None:
            kept.arrays.update({f"stacked.{name}": array for name, array in self._combination.state().items()})
        kept.values["calibrations"] = []
        for place, member in enumerate(self._members):
            calibration = member.calibration
            kept.values["calibrations"].append(None if calibration is None else calibration.values())
            if calibration is not None:
                kept.arrays.update({f"member.{place}.{name}": array for name, array in calibration.arrays().items()})
        kept.links = {f"member {place}": link for place, link in enumerate(self._links)}
        return kept

    def _restore(self, state: SavedState) -> None:
        with _counted(len(state.links)):
            self._open(list(state.links.values()))
        self._number(self.labels)
        calibrations = state.value("calibrations", list)
        if (count := len(self._members)) != len(self.config.members) or count != len(calibrations):
            raise ValueError(f"found {count} members, expected {len(self.config.members)}")
        for place, (member, values) in enumerate(zip(self._members, calibrations, strict=True)):
            part = state.part(f"member.{place}.")
            member.calibration = None if values is None else Calibration.restored(values, part)
        self._documents = state.value("documents", int, 0)
        self._combination = None
        if self.config.combine == "learnt":
            self._combination = Learnt.restored(state.value("learnt", dict), count)
        elif self.config.combine == "stacked":
            self._combination = StackedTrees.restored(state.part("stacked."), count, self.runtime.threads)


@contextmanager
def _counted(members: int) -> Iterator[None]:
    """Raise `ModelFormatError` if loading an ensemble of ensembles loads too many models."""
    outer = _loading.get()
    counts = outer if outer is not None else [0]
    counts[0] += members
    if counts[0] > MOST_MEMBERS:
        raise ModelFormatError(f"the consensus has more than {MOST_MEMBERS:,} members, counting those of its members.")
    token = _loading.set(counts)
    try:
        yield
    finally:
        _loading.reset(token)
