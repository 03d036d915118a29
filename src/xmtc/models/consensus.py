"""Consensus: several models, or files of their predictions, that answer together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from xmtc import store
from xmtc.config import Settings
from xmtc.data.predictions import read_predictions
from xmtc.dataset import Csr, Dataset, LabelIndex, align_labels, as_dataset
from xmtc.decisions import combining
from xmtc.decisions.calibration import Calibration, Method, fit_calibration
from xmtc.decisions.combining import Answer, Gathered, Learnt
from xmtc.decisions.thresholds import hits_among
from xmtc.errors import ConfigError, DataError, shown
from xmtc.explanation import Explanation, MemberEvidence
from xmtc.links import Link
from xmtc.metrics import ndcg
from xmtc.models import base
from xmtc.models.base import Labels, Mask, Model, Run, Scores
from xmtc.runtime import Runtime
from xmtc.store import State


@dataclass(frozen=True)
class ConsensusSettings(Settings):
    """Settings of consensus."""

    members: tuple[str, ...] = ()
    """Model folders, and files of predictions that know documents by their ids."""
    combine: Literal["learnt", "noisy-or", "average"] = "learnt"
    """Weights learnt on the validation documents, 1 − Π(1 − p) as published, or the mean."""
    weights: tuple[float, ...] = ()
    """Of the average, one for each member; none means that all count alike."""
    calibrate: Literal["isotonic", "platt", "none"] = "isotonic"
    """How members' scores are made probabilities on the validation documents before they are combined."""
    depth: int = 50
    """Labels that each member puts forward for a document."""
    complete: bool = False
    """Whether members are asked about labels that only others put forward; otherwise these count 0 with them."""
    copy: bool = False
    """Whether the model folder holds copies of its members; otherwise they stay where they are and must not change."""

    of = "consensus"

    def check(self) -> None:
        self.require("members", len(set(self.members)) == len(self.members), "a list of different places")
        self.require("weights", not self.weights or self.combine == "average", "empty: they go with combine=average")
        fit = not self.weights or (
            min(self.weights) >= 0 < max(self.weights) and len(self.weights) == len(self.members)
        )
        self.require("weights", fit, "numbers ≥ 0, one for each member, one of them > 0")
        self.require_range("depth", 1)


class Member(ABC):
    """One of those who answer. Its labels have numbers of their own, and those that all members share."""

    calibration: Calibration | None = None

    def __init__(self, name: str, labels: LabelIndex) -> None:
        self.name, self.labels = name, labels

    def number(self, index: LabelIndex) -> None:
        """Find its labels among those of all, by key: no two members need number them alike."""
        self._shared = index.ids(self.labels.table["key"].combine_chunks())  # (own labels,)
        self._own = np.full(len(index), -1, dtype=np.int64)  # (L,) −1 for what it does not know
        self._own[self._shared] = np.arange(len(self._shared))

    def best(self, batch: Dataset, k: int, allowed: Mask | None) -> Answer:
        """The k best of its labels for each document, and their scores as it gives them."""
        mine = None if allowed is None else allowed[self._shared]
        if mine is not None and not mine.any():
            return np.full((len(batch), 0), -1, dtype=np.int64), np.empty((len(batch), 0), dtype=np.float32)
        labels, scores = self._best(batch, k, mine)
        return np.where(labels >= 0, self._shared[labels], -1), scores

    def score(self, batch: Dataset, labels: Labels) -> Scores:
        """(n, c) scores of given labels, −∞ where it does not know them."""
        known = np.where(labels >= 0, self._own[labels], -1)
        return self._score(batch, known)

    def chances(self, scores: Scores) -> Scores:
        """Scores as probabilities; pads stay."""
        if self.calibration is not None:
            return self.calibration.apply(scores)
        outside = (scores > 1) | ((scores < 0) & (scores > -np.inf))
        if outside.any():
            raise DataError(
                f"{self.name}: a score is {scores[outside][0]:.4g}, and probabilities are combined. "
                "Set calibrate=isotonic, or calibrate the member first: xmtc calibrate DIR VALID"
            )
        return scores

    @abstractmethod
    def _best(self, batch: Dataset, k: int, allowed: Mask | None) -> Answer:
        """Under its own numbers."""

    @abstractmethod
    def _score(self, batch: Dataset, labels: Labels) -> Scores:
        """Under its own numbers."""


class ModelMember(Member):
    """A model from its folder."""

    def __init__(self, name: str, path: Path, runtime: Runtime) -> None:
        self.model = Model.load(path, runtime)
        super().__init__(name, self.model.labels)

    def _best(self, batch: Dataset, k: int, allowed: Mask | None) -> Answer:
        answer = self.model.predict(batch, k, allow=allowed)
        return answer.labels, answer.scores

    def _score(self, batch: Dataset, labels: Labels) -> Scores:
        return self.model.score(batch, labels)


class FileMember(Member):
    """Predictions from a file, for the documents that it names and no others."""

    def __init__(self, name: str, path: Path) -> None:
        read = read_predictions(path)
        self._path, self._top = path, read.top
        super().__init__(name, read.top.index)
        self._rows = {document: row for row, document in enumerate(self._top.ids)}
        lines = [[str(row + first) for row in range(len(self._top))] for first in (0, 1)]
        if not read.has_ids or self._top.ids in lines:
            raise DataError(
                f"{path}: knows documents by their place in a file only, and other files have such places too. "
                "Give documents ids of their own and predict them again."
            )
        if len(self._rows) < len(self._top):
            twice = next(document for row, document in enumerate(self._top.ids) if self._rows[document] != row)
            raise DataError(f"{path}: document '{shown(twice)}' is there twice. Keep one of them.")

    def _best(self, batch: Dataset, k: int, allowed: Mask | None) -> Answer:
        labels, scores = self._of(batch)
        if allowed is not None:
            out = (labels < 0) | ~allowed[labels]
            order = np.argsort(out, axis=1, kind="stable")  # what is not allowed goes last
            labels = np.take_along_axis(np.where(out, -1, labels), order, axis=1)
            scores = np.take_along_axis(np.where(out, np.float32(-np.inf), scores), order, axis=1)
        return labels[:, :k], scores[:, :k]

    def _score(self, batch: Dataset, labels: Labels) -> Scores:
        """It knows what it holds: anything else is as if it did not know the label."""
        gathered = combining.gather([self._of(batch)], labels)
        return np.where(gathered.held[0], gathered.chances[0], -np.inf).astype(np.float32)

    def _of(self, batch: Dataset) -> Answer:
        ids = batch.document_ids()
        rows = np.array([self._rows.get(document, -1) for document in ids], dtype=np.int64)
        if (rows < 0).any():
            missing = shown(ids[int(np.argmin(rows))])
            raise DataError(
                f"{self._path}: no prediction for document '{missing}', and this member is a file. "
                "Train again with a file that has it too, or with the member's model folder."
            )
        return self._top.labels[rows], self._top.scores[rows]


class Consensus(Model):
    """Several models of any kind that answer together, by noisy-or, average or learnt weights.

    Trained on validation documents; members are model folders or files of predictions, and stay as they are.
    """

    name = "consensus"
    Config = ConsensusSettings
    can = frozenset({"text", "features", "explain", "score"})

    _members: list[Member]
    _links: list[Link]
    _learnt: Learnt | None
    _documents: int
    """That members were trained on, the most of them; 0 where none of them says."""

    def _fit(self, train: Dataset, valid: Dataset | None, run: Run) -> None:
        if not self.config.members:
            example = """--set 'members=["a", "b"]'"""
            raise ConfigError(f"consensus has no members. Name model folders or files of predictions: {example}")
        self._open([Link.to(Path(place), copied=self.config.copy) for place in self.config.members])
        joined = self._members[0].labels
        for member in self._members[1:]:
            joined = joined.joined(member.labels)
        self._number(joined)
        self.label_counts, self._documents = self._counts()
        truth, _ = align_labels(train, joined)
        check_shared(train, joined)
        answers = self._answers_to(train, run)
        if self.config.calibrate != "none":
            for member, (labels, scores) in zip(self._members, answers, strict=True):
                member.calibration = _calibrated(self.config.calibrate, member.name, labels, scores, truth)
        gathered = self._gathered(train, answers, None)
        self._learnt = None
        if self.config.combine == "learnt":
            hits = hits_among(gathered.labels, truth)
            self._learnt = combining.learn(answers, gathered, self._frequency(gathered.labels), hits)
        found, _ = _ranked(gathered.labels, self._combined(gathered), 5)
        named = zip(self._members, answers, strict=True)
        each = {f"nDCG@5 of {member.name}": ndcg(labels, truth, 5) for member, (labels, _) in named}
        self.facts = {name: round(value, 4) for name, value in {**each, "nDCG@5": ndcg(found, truth, 5)}.items()}

    def _open(self, links: list[Link]) -> None:
        self._links = links
        short = [link.path.name for link in links]
        names = [str(link.path) if short.count(link.path.name) > 1 else link.path.name for link in links]
        self._members = [
            ModelMember(name, link.path, self.runtime) if store.is_model(link.path) else FileMember(name, link.path)
            for name, link in zip(names, links, strict=True)
        ]

    def _number(self, labels: LabelIndex) -> None:
        self._labels = labels
        for member in self._members:
            member.number(labels)

    def _counts(self) -> tuple[NDArray[np.int64], int]:
        """(L,) training documents of each label, the most that a member had; and of all."""
        counts, documents = np.zeros(len(self.labels), dtype=np.int64), 0
        for member in self._members:
            known = member.model.counted() if isinstance(member, ModelMember) else None
            if known is not None:
                numbers = self.labels.ids(member.labels.table["key"].combine_chunks())
                counts[numbers] = np.maximum(counts[numbers], known[0])
                documents = max(documents, known[1])
        return counts, documents

    def counted(self) -> tuple[NDArray[np.int64], int] | None:
        return (self.label_counts, self._documents) if self._documents else None

    def _answers_to(self, documents: Dataset, run: Run) -> list[Answer]:
        """Each member's best labels; those that were found before an interruption are taken from the workspace."""
        answers = []
        for member, link in zip(self._members, self._links, strict=True):
            part = f"answers-{link.content[:16]}"
            if not run.workspace.has(part):
                found: list[Answer] = []
                with run.progress.task(f"asking {member.name}", total=len(documents)) as task:
                    for batch in documents.batches(base.BATCH):
                        found.append(member.best(batch, self.config.depth, None))
                        task.advance(len(batch))
                labels, scores = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
                run.workspace.save(part, {"labels": labels, "scores": scores})
            arrays, _ = run.workspace.load(part)
            answers.append((arrays["labels"], arrays["scores"]))
        return answers

    def _predict(self, batch: Dataset, k: int, allowed: Mask | None) -> tuple[Labels, Scores]:
        answers = [member.best(batch, self.config.depth, allowed) for member in self._members]
        gathered = self._gathered(batch, answers, None)
        return _ranked(gathered.labels, self._combined(gathered), k)

    def _score(self, batch: Dataset, candidates: Labels) -> Scores:
        return self._combined(self._asked(batch, candidates)).astype(np.float32)

    def _asked(self, batch: Dataset, candidates: Labels) -> Gathered:
        """What members say of given labels: what their best labels say, and beyond that only where all are asked."""
        answers = [member.best(batch, self.config.depth, None) for member in self._members]
        return self._gathered(batch, answers, candidates)

    def _gathered(self, batch: Dataset, answers: Sequence[Answer], labels: Labels | None) -> Gathered:
        read = [(found, member.chances(given)) for member, (found, given) in zip(self._members, answers, strict=True)]
        gathered = combining.gather(read, combining.union(read) if labels is None else labels)
        if self.config.complete:
            for place, member in enumerate(self._members):
                missing = np.where(gathered.held[place], -1, gathered.labels)
                given = member.chances(member.score(batch, missing))
                told = given > -np.inf
                gathered.chances[place][told], gathered.held[place][told] = given[told], True
        return gathered

    def _combined(self, gathered: Gathered) -> NDArray[np.float64]:
        if self._learnt is not None:
            return self._learnt(gathered, self._frequency(gathered.labels))
        if self.config.combine == "average":
            return combining.average(gathered.chances, self.config.weights)
        return combining.noisy_or(gathered.chances)

    def _frequency(self, labels: Labels) -> NDArray[np.float64]:
        """(n, u) the logarithm of one more than the training documents of each label."""
        found: NDArray[np.float64] = np.log1p(self.label_counts)[labels]
        return found

    def _explain(self, text: str, label: int, score: float) -> Explanation:
        gathered = self._asked(as_dataset([text]), np.array([[label]]))
        if self._learnt is not None:
            shares = self._learnt.shares(gathered)[:, 0, 0]
        else:
            shares = combining.shares(gathered.chances, self.config.combine, self.config.weights)[:, 0, 0]
        total = float(np.abs(shares).sum()) or 1.0
        given = zip(self._members, gathered.chances[:, 0, 0].tolist(), (shares / total).tolist(), strict=True)
        evidence = [MemberEvidence(member.name, chance, share) for member, chance, share in given]
        evidence.sort(key=lambda member: -member.share)
        return Explanation("members", text, self.labels.name(label), score, tuple(evidence))

    def _state(self) -> State:
        kept = State(values={"documents": self._documents})
        if self._learnt is not None:
            kept.values["learnt"] = self._learnt.values()
        kept.values["calibrations"] = []
        for place, member in enumerate(self._members):
            calibration = member.calibration
            kept.values["calibrations"].append(None if calibration is None else calibration.values())
            if calibration is not None:
                kept.arrays.update({f"member.{place}.{name}": array for name, array in calibration.arrays().items()})
        kept.links = {f"member {place}": link for place, link in enumerate(self._links)}
        return kept

    def _restore(self, state: State) -> None:
        self._open(list(state.links.values()))
        self._number(self.labels)
        if (count := len(self._members)) != len(self.config.members) or count != len(state.values["calibrations"]):
            raise ValueError(f"{count} members in place of {len(self.config.members)}")
        for place, (member, values) in enumerate(zip(self._members, state.values["calibrations"], strict=True)):
            start = f"member.{place}."
            arrays = {name.removeprefix(start): a for name, a in state.arrays.items() if name.startswith(start)}
            member.calibration = None if values is None else Calibration.restored(values, arrays)
        self._documents = int(state.values["documents"])
        learnt = self.config.combine == "learnt"
        self._learnt = Learnt.restored(state.values["learnt"], len(self._members)) if learnt else None


def _calibrated(method: Method, name: str, labels: Labels, scores: Scores, truth: Csr) -> Calibration:
    filled = labels >= 0
    try:
        return fit_calibration(method, scores[filled], hits_among(labels, truth)[filled])
    except DataError as error:
        raise DataError(f"{name}: {error}") from None


def _ranked(labels: Labels, chances: NDArray[np.float64], k: int) -> tuple[Labels, Scores]:
    """The k best of labels (n, u) that rise in every row; of equal chances the smaller number goes first."""
    order = np.argsort(np.where(labels >= 0, -chances, np.inf), axis=1, kind="stable")[:, :k]
    found = np.take_along_axis(labels, order, axis=1)
    given = np.where(found >= 0, np.take_along_axis(chances, order, axis=1), -np.inf)
    return found, given.astype(np.float32)


def check_shared(documents: Dataset, labels: LabelIndex) -> None:
    """Documents none of whose labels a member knows are in other words, not all wrong."""
    assert documents.label_index is not None
    if (labels.ids(documents.label_index.keys) < 0).all():
        raise DataError(
            f"no label of the documents is one of a member: '{shown(documents.label_index.key(0))}' there, "
            f"'{shown(labels.key(0))}' here. Use the same keys in both."
        )
