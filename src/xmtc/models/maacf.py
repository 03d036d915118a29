"""MAACF+: aspects of a document and groups of related labels attend to each other; a network scores each pair."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from xmtc.artifact.saved_state import SavedState
from xmtc.artifact.store import State
from xmtc.core.explanation import AspectEvidence, Explanation, GroupEvidence
from xmtc.data.dataset import Dataset
from xmtc.labels.groups import label_groups
from xmtc.linear.top_scores import best_of_rows
from xmtc.models.base import Labels, Mask, Scores
from xmtc.models.candidate_tree import CandidateSettings, Proposer
from xmtc.models.context import FitContext
from xmtc.models.neural import WordNetworkSettings
from xmtc.models.pretrained import PretrainedModel
from xmtc.nn.device import chosen_device, cpu_threads, memory_errors
from xmtc.nn.encoders.base import Encoder
from xmtc.nn.encoders.multi_encoder import Aspects, AspectSettings
from xmtc.nn.encoders.transformer import TransformerSettings
from xmtc.nn.heads.base import Head
from xmtc.nn.heads.collaborative import Added, CollaborativeHead, CollaborativeSettings
from xmtc.nn.training.loop import TrainingSettings
from xmtc.text.sequences import SequenceSettings
from xmtc.text.tfidf import TextSettings
from xmtc.text.word2vec import CorpusVectorSettings

GROUPS = "groups"
MANY = 50_000
"""Number of labels above which 'auto' uses a candidate tree, on machines without a GPU."""


@dataclass(frozen=True)
class MaacfSettings(WordNetworkSettings):
    """Settings of maacf."""

    groups: int = 2
    """Number of related labels in each label's group, by co-occurrence; 0 disables groups."""
    corpus: CorpusVectorSettings = field(default_factory=lambda: CorpusVectorSettings(width=256))
    """Training of word vectors on the corpus; `width` also applies to random vectors."""
    text: SequenceSettings = field(default_factory=SequenceSettings)
    """Settings of the word sequences; a transformer has its own tokeniser and uses only max_tokens."""
    encoder: AspectSettings = field(default_factory=AspectSettings)
    """The encoders of a document's aspects."""
    head: CollaborativeSettings = field(default_factory=CollaborativeSettings)
    """Scoring of document–label pairs."""
    candidates: CandidateSettings = field(default_factory=CandidateSettings)
    """Which labels are scored."""
    training: TrainingSettings = field(
        default_factory=lambda: TrainingSettings(epochs=20, warmup_steps=100, decay_from=0.3)
    )
    """Training of the network."""

    of = "maacf"

    def check(self) -> None:
        super().check()
        self.require_range("groups", 0, 1000)


class Maacf(PretrainedModel):
    """MAACF+: multi-aspect document encoders with label groups.

    Several encoders (convolutions, LSTMs with attention, or pretrained transformers) represent aspects of a document,
    each label is represented together with related labels, and a network scores every pair. With too many labels
    for that, a linear tree proposes the labels to score.
    """

    name = "maacf"
    Config = MaacfSettings
    capabilities = frozenset({"text", "explain", "score_labels"})
    less_memory = "Lower training.batch_size, text.max_tokens, head.negatives, or the sizes in encoder and head."
    ablations: ClassVar = {
        "self-attention": {"head.attention": "self"},  # MCF+
        "one-aspect": {"encoder.aspects": 1},  # ACF+
        "no-groups": {"groups": 0},
        "groups-of-5": {"groups": 5},
        "one-layer": {"head.layers": 1},
        "three-layers": {"head.layers": 3},
        "no-product": {"head.product": False},
        "bpr": {"head.loss": "bpr"},
        "bpr-uniform": {"head.loss": "bpr", "head.hard": 0.0},
        "published": {"head.loss": "bpr", "head.negatives": 8, "head.product": False},
        "no-averaging": {"training.averaging": "none"},
    }
    _groups: NDArray[np.int32]
    _proposer: Proposer | None = None

    # ---- the network

    @property
    def _pretrained(self) -> TransformerSettings | None:
        settings: AspectSettings = self.config.encoder
        return settings.transformer if settings.kind == "transformer" else None

    def _encoder(self, width: int) -> Encoder:
        settings: AspectSettings = self.config.encoder
        return Aspects([self._aspect(width) for _ in range(settings.aspects)])

    def _aspect(self, width: int) -> Encoder:
        settings: AspectSettings = self.config.encoder
        return self._transformer() if settings.kind == "transformer" else settings.chosen.build(width)

    def _head(self, labels: int, width: int) -> Head:
        aspects = self.config.encoder.aspects
        return CollaborativeHead(labels, aspects, width // aspects, torch.from_numpy(self._groups), self.config.head)

    # ---- training

    def _fit(self, train: Dataset, valid: Dataset | None, run: FitContext) -> None:
        assert train.labels is not None
        self._groups = label_groups(train.labels, self.config.groups, run.progress, threads=run.runtime.threads)
        super()._fit(train, valid, run)
        self._proposer = None
        if self._wants_candidates:
            self._propose(train, valid, run)

    @property
    def _wants_candidates(self) -> bool:
        kind = self.config.candidates.kind
        if kind == "auto":
            return bool(self.config.head.layers > 2 or len(self.label_counts) > MANY)
        return bool(kind == "tree")

    @property
    def _words(self) -> TextSettings:
        """Tf-idf settings of the candidate tree."""
        return TextSettings(min_df=self.config.text.min_df, lowercase=self.config.text.lowercase)

    @property
    def _uses_tree(self) -> bool:
        """Whether to use the candidate tree: with two layers, a GPU scores all labels as fast."""
        slow = self.config.head.layers > 2 or chosen_device(self.runtime).type == "cpu"
        return bool(slow or self.config.candidates.kind == "tree")

    def _propose(self, train: Dataset, valid: Dataset | None, run: FitContext) -> None:
        """Train the candidate tree, and measure its recall."""
        runtime, count = run.runtime, self.config.candidates.count
        if valid is not None and len(valid):
            watched, learnt = valid, train
        else:
            order = np.random.default_rng([runtime.seed, 5]).permutation(len(train))
            held = min(self.config.training.validation_size, len(train) // 10)
            watched, learnt = train.take(np.sort(order[:held])), train.take(np.sort(order[held:]))
        self._proposer = Proposer.fit(learnt, self._words, run)
        if watched.labels is not None and watched.labels.nnz:
            recall = self._proposer.recall(watched, watched.labels, count, runtime)
            self.facts[f"recall of {count:,} candidates"] = f"{100 * recall:.2f} %"

    # ---- prediction

    def _predict(self, batch: Dataset, k: int, allowed: Mask | None) -> tuple[Labels, Scores]:
        """Rank all labels or, if that is slow, those that the candidate tree proposes."""
        if self._proposer is None or not self._uses_tree:
            return super()._predict(batch, k, allowed)
        count = min(max(self.config.candidates.count, k), len(self.label_counts))
        candidates = self._proposer.best(batch, count, allowed, self.runtime)
        with cpu_threads(self.runtime.threads), memory_errors(self.less_memory):
            scores = self._candidate_scores(self._documents(batch), candidates)
        held = candidates >= 0
        indptr = np.concatenate([[0], np.cumsum(held.sum(1))]).astype(np.int64)
        return best_of_rows(indptr, candidates[held].astype(np.int32), scores[held], k)

    # ---- saving

    def _state(self) -> State:
        state = super()._state()
        state.arrays[GROUPS] = self._groups
        if self._proposer is not None:
            kept = self._proposer.state()
            state.values |= kept.values
            state.arrays |= kept.arrays
            state.tables |= kept.tables
        return state

    def _restore(self, state: SavedState) -> None:
        labels = len(self.label_counts)
        self._groups = np.array(state.array(GROUPS, np.int32, (labels, self.config.groups), low=-1, high=labels))
        super()._restore(state)
        self._proposer = Proposer.from_state(state, self._words, labels)

    # ---- explanation

    @torch.no_grad()
    def _explain(self, text: str, label: int, score: float) -> Explanation:
        """Contributions of the aspects and of the related labels to the score, averaged over the members."""
        _, tokens, _ = self._document(text)
        found = [self._carried(member.network, tokens, label) for member in self._members]
        aspects = np.mean([each.aspects for each in found], axis=0)  # (n, 2)
        sides = [AspectEvidence(number, float(added), float(share)) for number, (share, added) in enumerate(aspects, 1)]
        around = []
        for place, (member, _, _) in enumerate(found[0].group):
            share, added = np.mean([each.group[place][1:] for each in found], axis=0)
            around.append(GroupEvidence(self.labels.name(member), float(added), float(share)))
        sides.sort(key=lambda side: -side.weight)
        around.sort(key=lambda other: -other.weight)
        return Explanation("groups", text, self.labels.name(label), score, (*sides, *around))

    @staticmethod
    def _carried(network: Any, tokens: torch.Tensor, label: int) -> Added:
        assert isinstance(network.head, CollaborativeHead)
        network.eval()
        return network.head.added(network.encode(tokens)[0], label)
