"""Rank-AE: documents and label sets meet in one space, from which labels are decoded and ranked."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import torch

from xmtc.artifact.store import State
from xmtc.core.errors import ConfigError, UnsupportedError
from xmtc.core.explanation import Explanation, TokenEvidence
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset
from xmtc.models.context import FitContext
from xmtc.models.neural import NeuralModel, WordNetworkSettings
from xmtc.nn.documents import DocumentReader
from xmtc.nn.encoders.base import Encoder
from xmtc.nn.encoders.lstm import LstmSettings
from xmtc.nn.encoders.rank_ae_encoder import ChannelSettings, FeatureBranch
from xmtc.nn.heads.autoencoder import AutoencoderSettings, LabelAutoencoder
from xmtc.nn.heads.base import Head
from xmtc.nn.members import MemberSpec
from xmtc.nn.training.loop import TrainingSettings
from xmtc.text.sequences import FIRST_WORD, PADDING, SequenceSettings, WordSequences
from xmtc.text.tfidf import TextSettings
from xmtc.text.weighted_bags import BagReader, Numbered, Weighing
from xmtc.text.word2vec import CorpusVectorSettings

MOST_WEIGHTS = 1 << 26
"""Weights from features straight to labels, at most; with moments and averages, training holds them nine times."""


@dataclass(frozen=True)
class RankAeSequenceSettings(SequenceSettings):
    """How text becomes a sequence of words."""

    of = "sequence"


@dataclass(frozen=True)
class RankAeLstmSettings(LstmSettings):
    """A bidirectional LSTM over the words; a search leaves it alone, as most models of this kind have none."""

    of = "lstm"
    searched = False


@dataclass(frozen=True)
class RankAeSettings(WordNetworkSettings):
    """Settings of rank_ae."""

    vectors: str = "random"
    """Word vectors to start from: 'random' draws them, a file, or, with words in order, 'corpus' trains them."""
    reads: Literal["bag", "sequence"] = "bag"
    """What is read of a document: its bag of weighed words or features, or its words in order, by an LSTM."""
    columns: Weighing = "given"
    """Weights of a feature matrix: as given, or times the idf of the column. Text is weighed by tf-idf."""
    most_features: int = 1000
    """Features of a bag that are read, the heaviest ones."""
    corpus: CorpusVectorSettings = field(default_factory=lambda: CorpusVectorSettings(width=256))
    """How vectors are trained on the corpus; `width` holds for random ones too."""
    text: TextSettings = field(default_factory=TextSettings)
    """How text becomes a bag, where bags are read."""
    sequence: RankAeSequenceSettings = field(default_factory=RankAeSequenceSettings)
    """How text becomes a sequence of words, where those are read."""
    lstm: RankAeLstmSettings = field(default_factory=RankAeLstmSettings)
    """The LSTM that reads sequences."""
    encoder: ChannelSettings = field(default_factory=ChannelSettings)
    """From words to the code of a document."""
    head: AutoencoderSettings = field(default_factory=AutoencoderSettings)
    """From labels to the code of a label set, and from codes to labels."""
    training: TrainingSettings = field(
        default_factory=lambda: TrainingSettings(
            epochs=16, learning_rate=3e-3, warmup_steps=50, decay_from=0.0, clip=0.0, skipped_words=0.1
        )
    )
    """How the network is trained."""

    of = "rank_ae"

    def check(self) -> None:
        super().check()
        self.require_range("most_features", 1, 1_000_000)
        in_order = self.reads == "sequence"
        self.require("vectors", in_order or self.vectors != "corpus", "'random' or a file where reads = 'bag'")
        if in_order and self.head.straight:
            raise ConfigError("'head.straight' of rank_ae takes a bag. Use reads = 'bag', or head.straight = false.")
        if self.head.straight and self.head.decode_from == "label":
            raise ConfigError(
                "'head.straight' of rank_ae is learnt from documents. Use head.decode_from = 'both' or 'feature'."
            )


class RankAe(NeuralModel):
    """A ranking autoencoder: documents and their label sets get codes in one space, from which labels are decoded.

    Rank-AE. A document is the sum of its word vectors times tf-idf, each word choosing the channels that count; texts
    and feature matrices alike.
    """

    name = "rank_ae"
    Config = RankAeSettings
    capabilities = frozenset({"text", "features", "explain", "score_labels"})
    less_memory = "Lower training.batch_size, most_features, corpus.width, or the sizes in encoder and head."
    ablations: ClassVar = {
        "no-attention": {"encoder.attention": False},
        "bce": {"head.loss": "bce"},
        "published-sums": {"head.ranking.reduction": "sum"},
        "label-sets-alone": {"head.decode_from": "label", "head.straight": False, "head.follow": False},
        "documents-alone": {"head.decode_from": "feature"},
        "no-dropout": {"encoder.dropout": 0.0, "head.dropout": 0.0, "training.skipped_words": 0.0},
    }
    _reader: BagReader | WordSequences

    @property
    def _in_order(self) -> bool:
        return bool(self.config.reads == "sequence")

    def _encoder(self, width: int) -> Encoder:
        return FeatureBranch(width, self.config.encoder, self.config.lstm if self._in_order else None)

    def _head(self, labels: int, width: int) -> Head:
        straight = self._reader.size - FIRST_WORD if self.config.head.straight else 0
        if straight * labels > MOST_WEIGHTS:
            raise ConfigError(
                f"'head.straight' of rank_ae would take {straight:,} × {labels:,} weights. Use head.straight = false, "
                "or fewer features."
            )
        return LabelAutoencoder(labels, width, self.config.head, self.config.encoder.activation, straight)

    def _spec(self, runtime: Runtime) -> MemberSpec:
        return replace(super()._spec(runtime), bag_to_head=self.config.head.straight)

    # ---- reading

    def _fit_reader(self, train: Dataset, run: FitContext) -> tuple[DocumentReader, Numbered]:
        config = self.config
        if not self._in_order:
            if not train.has_text and config.vectors != "random":
                raise UnsupportedError("columns of a matrix are no words, which have vectors. Use vectors = 'random'.")
            return BagReader.fit(train, config.text, config.columns, config.most_features, run.runtime, run.progress)
        if not train.has_text:
            raise UnsupportedError("a feature matrix has no words in order. Use reads = 'bag'.")
        return WordSequences.fit(train, config.sequence, run.runtime, run.progress)

    def _restored_reader(self, state: State) -> DocumentReader:
        if self._in_order:
            return WordSequences.from_state(self.config.sequence, state)
        return BagReader.from_state(self.config.text, self.config.most_features, state)

    # ---- explaining

    def _explain(self, text: str, label: int, score: float) -> Explanation:
        """How much of each word gets through, which is the same whatever the label.

        Of a bag, the sum of its channel weights times the weight of the word; of a sequence, the sum above the least of
        the text, as all words weigh the same there.
        """
        tokens, weights = self._let_through(text)
        if isinstance(self._reader, WordSequences):
            spans = self._reader.spans(text)
            found = [(word.start, word.end, weight) for word, weight in zip(spans, weights.tolist(), strict=False)]
        else:
            assert self._reader.features.tfidf is not None
            by_feature = dict(zip((tokens - FIRST_WORD).tolist(), weights.tolist(), strict=True))
            occurrences = self._reader.features.tfidf.occurrences(text)
            found = [(start, end, by_feature[f]) for f, start, end in occurrences if f in by_feature]
        total = sum(weight for _, _, weight in found) or 1.0
        shares: dict[tuple[int, int], float] = {}
        for start, end, weight in found:  # several features may be the same stretch
            shares[start, end] = shares.get((start, end), 0.0) + weight / total
        evidence = [TokenEvidence(text[start:end], start, end, share) for (start, end), share in shares.items()]
        evidence.sort(key=lambda item: (-item.weight, item.start))
        return Explanation("tokens", text, self.labels.name(label), score, tuple(evidence), shares=True)

    @torch.no_grad()
    def _let_through(self, text: str) -> tuple[torch.Tensor, torch.Tensor]:
        """(T,) the words of a text, and how much of each gets through, in the mean of all members."""
        _, tokens, weights = self._document(text)
        found = []
        for network in (member.network for member in self._members):
            assert isinstance(network.encoder, FeatureBranch)
            found.append(network.encoder.attention(network.embedded(tokens, weights), tokens != PADDING)[0])
        mean = torch.stack(found).mean(0)
        if weights is not None:
            return tokens[0], mean * weights[0].abs()
        return tokens[0], mean - mean.min() if mean.max() > mean.min() else mean
