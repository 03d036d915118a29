"""Lexical matching: labels whose names occur in a text, ranked by a learnt scorer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from xmtc.artifact.saved_state import SavedState
from xmtc.artifact.store import State
from xmtc.core.config import Range, Settings
from xmtc.core.errors import ModelFormatError
from xmtc.core.explanation import Explanation, FeatureEvidence
from xmtc.core.progress import Progress
from xmtc.data.dataset import Dataset, as_dataset
from xmtc.data.label_index import LabelIndex
from xmtc.decisions.calibration import sigmoid
from xmtc.decisions.thresholds import hits_among
from xmtc.lexical.boosted_trees import BoostedTrees
from xmtc.lexical.label_use import NameUse, add_use, label_features, padded_rows
from xmtc.lexical.match_types import FEATURES, KIND_OF_NAME, MATCH, SHARE_IN_TEXT
from xmtc.lexical.matching import Candidates, NameMatcher
from xmtc.lexical.names import names_of
from xmtc.lexical.persistence import matcher_state, restored_matcher
from xmtc.lexical.tree_training import BoostingSettings
from xmtc.models.base import Labels, Mask, Model, Scores
from xmtc.models.context import FitContext
from xmtc.models.persistence import MOST_DOCUMENTS
from xmtc.models.update import Change
from xmtc.nn.neighbours.name_vectors import NameEncoderSettings, NameVectors, NameVectorSettings
from xmtc.text.known_words import KnownWords
from xmtc.text.stemming import snowball_algorithm

MOST_COUNTED = 30_000
"""Training documents in which occurrences of names are counted."""
PRIOR = 2.0
"""Documents that count against a change of a label's scores in an update."""
MOST_OFFSET = 4.0
"""Largest change of a label's margin by updates."""
UNTRAINED = np.float32(3.0)
"""Largest margin of a scorer without trees; names that do not occur, or of which parts do not, have less."""
EXPLAINED = 8
"""Features listed in an explanation besides the match."""
LOGARITHMS = {"first position", "length of the text", "position of this word", "frequency"}
"""Features that are log(1 + n); explanations show n."""
MATCHES = ("none", "in one sentence, other endings", "in one sentence", "side by side, other endings", "side by side")
NAME_KINDS = ("preferred", "alternative", "preferred, without qualifier", "alternative, without qualifier")
"""Values of 'match' and 'kind of name' in words."""


@dataclass(frozen=True)
class LexicalSettings(Settings):
    """Settings of lexical."""

    candidates: Annotated[int, Range(50, 400, log=True)] = 200
    """Number of labels with the most similar names that are scored per document, besides those whose names occur."""
    language: str = ""
    """Language of texts and names for Snowball stemming, such as de; empty for light stemming of any language."""
    documents: int = 15_000
    """Maximum number of training documents of the scorer; statistics of label use come from the others."""
    hidden_labels: float = 0.4
    """Fraction of labels that look unused while the scorer is trained, so that it learns to judge unused ones."""
    word_vectors: str = ""
    """File of word vectors (GloVe or word2vec) that finds names of similar meaning; '' for none."""
    encoder: NameEncoderSettings = field(default_factory=NameEncoderSettings)
    """Pretrained encoder that finds names of similar meaning."""
    scorer: BoostingSettings = field(default_factory=BoostingSettings)
    """Boosted trees that score candidates."""

    of = "lexical"

    def check(self) -> None:
        self.require_range("candidates", 1, 10_000)
        self.require_range("documents", 10)
        self.require("hidden_labels", 0 <= self.hidden_labels <= 1, "a number from 0 to 1")
        self.require("word_vectors", not (self.word_vectors and self.encoder.path), "'' with an encoder")
        if self.language:
            snowball_algorithm(self.language)


class Lexical(Model):
    """Lexical matching with a learnt scorer.

    Candidates are the labels whose preferred or alternative name occurs in the text, and those whose name is similar to
    words of the text by character n-grams. Boosted trees score them by how the name matches, where, how often, by
    related labels that match, too, and by how the label was used in training. Labels without training documents are
    scored by their names alone.
    """

    name = "lexical"
    Config = LexicalSettings
    ablations: ClassVar = {"nothing-hidden": {"hidden_labels": 0.0}}
    capabilities = frozenset({"text", "explain", "score_labels", "update"})
    _matcher: NameMatcher
    _name_use: NameUse
    _label_features: NDArray[np.float32] | None = None
    _scorer: BoostedTrees
    _vectors: NameVectors | None = None
    _offsets: NDArray[np.float32]  # (L,) added to the margins, learnt in updates

    @property
    def uses_label_names(self) -> bool:
        return True

    def _fit(self, train: Dataset, valid: Dataset | None, run: FitContext) -> None:
        assert train.labels is not None
        assert train.label_index is not None
        order = np.random.default_rng(run.runtime.seed).permutation(len(train))
        count = min(self.config.documents, max(len(train) // 3, min(len(train), 2)))
        scored, others = train.take(np.sort(order[:count])), train.take(np.sort(order[count:][:MOST_COUNTED]))
        self._matcher = self._indexed(train.label_index, others if len(others) else scored, run)
        assert scored.labels is not None
        before = self.label_counts - np.bincount(scored.labels.indices, minlength=len(self.label_counts))
        names = self._counted(NameUse.none(len(before)), others, run)
        self._scorer = self._learnt(scored, before, names, run)
        self._name_use = self._counted(names, scored, run)
        self._offsets = np.zeros(len(before), dtype=np.float32)
        self._label_features, self._known = None, KnownWords()

    def _indexed(self, labels: LabelIndex, documents: Dataset, run: FitContext) -> NameMatcher:
        with run.progress.task("indexing label names", total=1) as task:
            matcher = NameMatcher.of(labels, self.config.language or None, self.config.candidates)
            task.advance()
        with run.progress.task("counting words", total=len(documents)) as task:
            matcher = matcher.with_rarity(documents.text(), run.runtime.threads, task.advance)
        self._vectors = None
        if self._vector_settings.is_used:
            self._vectors = NameVectors.fit(
                labels, self._vector_settings, run.runtime, run.progress, texts=documents.text()
            )
        matcher.vectors = self._vectors
        return matcher

    @property
    def _vector_settings(self) -> NameVectorSettings:
        return NameVectorSettings(word_vectors=self.config.word_vectors, encoder=self.config.encoder)

    def _counted(self, names: NameUse, documents: Dataset, run: FitContext) -> NameUse:
        """Count the documents in which names occur, and those with the label."""
        documents = documents.complete_documents()
        assert documents.labels is not None
        for rows, found in self._found(documents, "matching label names", run.progress, only_names=True):
            names = names.counted(found, documents.labels[rows])
        return names

    def _learnt(self, documents: Dataset, counts: NDArray[np.int64], names: NameUse, run: FitContext) -> BoostedTrees:
        """Train the scorer on documents that neither `counts` nor `names` include; a tenth decides when to stop."""
        hidden = np.random.default_rng([run.runtime.seed, 1]).random(len(counts)) < self.config.hidden_labels
        use = label_features(np.where(hidden, 0, counts), names)
        rows: list[NDArray[np.float32]] = []
        targets: list[NDArray[np.bool_]] = []
        held: list[NDArray[np.bool_]] = []
        for place, found in self._found(documents, "describing candidates", run.progress):
            part = documents.slice(place.start, place.stop)
            assert part.labels is not None
            right = hits_among(found.labels, part.labels)
            used = found.labels >= 0
            if part.partial is not None:  # labels that are neither accepted nor rejected are unknown
                decided = right if part.rejected is None else right | hits_among(found.labels, part.rejected)
                used &= decided | ~part.partial[:, None]
            rows.append(add_use(found, use)[used])
            targets.append(right[used])
            drawn = np.random.default_rng([run.runtime.seed, place.start]).random(len(part)) < 0.1
            held.append(np.broadcast_to(drawn[:, None], used.shape)[used])
        features, target, aside = np.concatenate(rows), np.concatenate(targets), np.concatenate(held)
        if not target.any():
            run.progress.say(
                "no label name occurs in or resembles the texts of its documents. "
                "Pass names in the language of the texts with --labels"
            )
        if not len(target):
            features, target, aside = np.zeros((1, len(FEATURES)), np.float32), np.array([False]), np.array([False])
        usable = target[aside].any() and target[~aside].any()
        valid = (features[aside], target[aside]) if usable else None
        if usable:
            features, target = features[~aside], target[~aside]
        scorer = BoostedTrees.fit(
            features,
            target,
            settings=self.config.scorer,
            valid=valid,
            seed=run.runtime.seed,
            threads=run.runtime.threads,
            progress=run.progress,
        )
        if target.any() and not scorer.trees:
            run.progress.say(
                "no feature tells right from wrong matches, so they are scored by how much of the name is in the text. "
                "Use more documents, or names in the language of the texts"
            )
        self.facts = {"trees": scorer.trees}
        return scorer

    def _found(
        self,
        documents: Dataset,
        what: str,
        progress: Progress,
        *,
        only_names: bool = False,
        wanted: Labels | None = None,
    ) -> Iterator[tuple[slice, Candidates]]:
        """Yield candidates of consecutive documents with their rows."""
        start, threads = 0, self.runtime.threads
        with progress.task(what, total=len(documents)) as task:
            for found in self._matcher.candidates(documents.text(), threads, wanted=wanted, only_names=only_names):
                rows = slice(start, start + len(found.labels))
                yield rows, found
                start = rows.stop
                task.advance(len(found.labels))

    def _scores(self, found: Candidates) -> NDArray[np.float32]:
        """(n, c) probabilities of candidates, −∞ as padding."""
        used = found.labels >= 0
        scores = np.full(found.labels.shape, -np.inf, dtype=np.float32)
        margins = self._margins(add_use(found, self._use)[used]) + self._offsets[found.labels[used]]
        scores[used] = sigmoid(margins.astype(np.float64))
        return scores

    def _margins(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """(n,) scores before the sigmoid. A scorer without trees knows only how many matches are right."""
        margins = self._scorer.margins(features)
        if self._scorer.trees:
            return margins
        doubts = (features[:, MATCH] == 0) + (1 - features[:, SHARE_IN_TEXT])  # none about names that occur
        lowered: NDArray[np.float32] = np.clip(margins, -UNTRAINED, UNTRAINED) - UNTRAINED * doubts
        return lowered

    @property
    def _use(self) -> NDArray[np.float32]:
        """(L, 2) features of how labels were used."""
        if self._label_features is None:
            self._label_features = label_features(self.label_counts, self._name_use)
        return self._label_features

    def _predict(self, batch: Dataset, k: int, allowed: Mask | None) -> tuple[Labels, Scores]:
        labels = np.full((len(batch), k), -1, dtype=np.int64)
        given = np.full((len(batch), k), -np.inf, dtype=np.float32)
        start = 0
        for found in self._matcher.candidates(batch.text(), self.runtime.threads, allowed=allowed):
            scores = self._scores(found)
            order = np.lexsort((found.labels, -scores))[:, :k]
            rows = slice(start, start + len(order))
            labels[rows, : order.shape[1]] = np.take_along_axis(found.labels, order, axis=1)
            given[rows, : order.shape[1]] = np.take_along_axis(scores, order, axis=1)
            start = rows.stop
        if allowed is None:
            self._known.remember(batch, labels[:, 0] >= 0)
        return labels, given

    def _score_labels(self, batch: Dataset, candidates: Labels) -> Scores:
        if not candidates.shape[1]:
            return np.empty(candidates.shape, dtype=np.float32)
        parts = [
            self._scores(found)
            for found in self._matcher.candidates(batch.text(), self.runtime.threads, wanted=candidates)
        ]
        return np.concatenate([np.empty((0, candidates.shape[1]), dtype=np.float32), *parts])

    def _known_words(self, batch: Dataset) -> Mask | None:
        known = self._known.get(batch)
        return self._predict(batch, 1, None)[0][:, 0] >= 0 if known is None else known

    def _update(self, change: Change, run: FitContext) -> None:
        """Index the names of all labels, count the new documents, and correct the scores of labels they decide on.

        The scorer is kept.
        """
        labels, numbers = change.labels.index, change.labels.numbers
        stay = np.flatnonzero(numbers >= 0)
        self._matcher = self._matcher.renewed(labels)
        if self._vectors is not None:
            self._vectors = self._vectors.renewed(labels, run.runtime, run.progress)
        self._matcher.vectors = self._vectors
        weights = np.maximum(change.counts_before[stay], 1)
        sums = np.bincount(numbers[stay], weights * self._offsets[stay], len(labels))
        totals = np.bincount(numbers[stay], weights, len(labels))
        offsets = (sums / np.maximum(totals, 1)).astype(np.float32)  # merged labels take their mean
        self._offsets = offsets
        self._name_use = self._name_use.relabelled(numbers, len(labels))
        self._label_features, self._known = None, KnownWords()
        steps = self._steps(change.new, run)
        self._name_use = self._counted(self._name_use, change.new, run)
        self._offsets = np.clip(offsets + steps, -MOST_OFFSET, MOST_OFFSET).astype(np.float32)
        self._label_features = None

    def _steps(self, documents: Dataset, run: FitContext) -> NDArray[np.float64]:
        """(L,) one Newton step of an offset per label on new documents, with a prior in favour of 0."""
        gradient, curvature = np.zeros(len(self._offsets)), np.full(len(self._offsets), PRIOR)
        for part in (documents.complete_documents(), documents.take(documents.partial_rows())):
            if not len(part):
                continue
            assert part.labels is not None
            wanted = None if part.partial is None else padded_rows(part.decided())
            for rows, found in self._found(part, "scoring new documents", run.progress, wanted=wanted):
                scores, used = self._scores(found), found.labels >= 0
                chances = scores[used].astype(np.float64)
                misses = hits_among(found.labels, part.labels[rows])[used] - chances
                np.add.at(gradient, found.labels[used], misses)
                np.add.at(curvature, found.labels[used], chances * (1 - chances))
        steps: NDArray[np.float64] = gradient / curvature
        return steps

    def _explain(self, text: str, label: int, score: float) -> Explanation:
        (found,) = self._matcher.candidates(as_dataset([text]).text(), 1, wanted=np.array([[label]]))
        row = add_use(found, self._use)[0, 0]
        weights = self._scorer.contributions(row)
        largest = np.argsort(-np.abs(weights), kind="stable")
        order = [MATCH, *largest[largest != MATCH][:EXPLAINED].tolist()]
        number = int(found.names[0, 0])
        names, place = names_of(self.labels, label), number - int(self._matcher.names.first[label])
        if place >= len(names):
            raise ModelFormatError("the index of label names does not fit the labels. Copy or train the model again.")
        matched = names[place]
        features = [
            FeatureEvidence(FEATURES[i], _shown(FEATURES[i], row[i]), float(weights[i]), _meaning(i, row[i], matched))
            for i in order
            if weights[i] or (i == MATCH and weights.any())
        ]
        others = np.delete(weights, order)
        if others.any():
            features.append(FeatureEvidence("all other features", None, float(others.sum())))
        words = self._matcher.matched_words(text, number)
        total = sum(word.weight for word in words)
        evidence = [replace(word, weight=word.weight / total * float(weights.sum())) for word in words if total]
        constant = float(self._margins(row[None])[0]) + float(self._offsets[label])
        if evidence:  # words of the text are like the name
            constant -= float(weights.sum())
        name = self.labels.name(label)
        return Explanation("tokens", text, name, score, tuple(evidence), constant, features=tuple(features))

    def _state(self) -> State:
        arrays = {f"matcher.{name}": array for name, array in matcher_state(self._matcher).items()}
        arrays.update({f"scorer.{name}": array for name, array in self._scorer.state().items()})
        arrays.update({f"names.{name}": array for name, array in self._name_use._asdict().items()})
        arrays["offsets"] = self._offsets
        kept = State(arrays=arrays) if self._vectors is None else self._vectors.state()
        kept.arrays.update(arrays)
        return kept

    def _restore(self, state: SavedState) -> None:
        labels = len(self.label_counts)
        language = self.config.language or None
        self._matcher = restored_matcher(state.part("matcher."), labels, language, self.config.candidates)
        settings = self._vector_settings
        self._vectors = NameVectors.restored(state, labels, settings, self.runtime) if settings.is_used else None
        self._matcher.vectors = self._vectors
        self._scorer = BoostedTrees.restored(state.part("scorer."), len(FEATURES))
        names = state.part("names.")
        self._name_use = NameUse(
            *(names.array(name, np.int64, (labels,), low=0, high=MOST_DOCUMENTS) for name in NameUse._fields)
        )
        self._offsets = state.array("offsets", np.float32, (labels,), low=-MOST_OFFSET, high=MOST_OFFSET + 1)
        self._label_features, self._known = None, KnownWords()


def _meaning(feature: int, value: np.float32, name: str) -> str:
    """The value of a feature in words if it is a code; `name` is the name that matched best."""
    if feature == MATCH:
        return f"{MATCHES[int(value)]}: {name}" if value else MATCHES[0]
    return f"{NAME_KINDS[int(value)]}: {name}" if feature == KIND_OF_NAME else ""


def _shown(feature: str, value: np.float32) -> float | None:
    if np.isnan(value):
        return None
    return round(float(np.expm1(np.float64(value)) if feature in LOGARITHMS else value), 4)
