"""Rank-AE: documents and label sets are encoded into one space, from which labels are decoded and ranked."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import torch

from xmtc.artifact.saved_state import SavedState
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
from xmtc.text.features import Weighing
from xmtc.text.sequences import FIRST_WORD, PADDING, SequenceSettings, WordSequences
from xmtc.text.tfidf import TextSettings
from xmtc.text.weighted_bags import BagReader, Numbered
from xmtc.text.word2vec import CorpusVectorSettings

MOST_WEIGHTS = 1 << 26
"""Maximum number of direct feature-to-label weights; training needs nine copies of them, with moments and averages."""


@dataclass(frozen=True)
class RankAeSequenceSettings(SequenceSettings):
    """Settings of the word sequences."""

    of = "sequence"


@dataclass(frozen=True)
class RankAeLstmSettings(LstmSettings):
    """A bidirectional LSTM over the words; not tuned, since most models of this kind do not use it."""

    of = "lstm"
    searched = False


@dataclass(frozen=True)
class RankAeSettings(WordNetworkSettings):
    """Settings of rank_ae."""

    vectors: str = "random"
    """Initial word vectors: 'random', the path of a file, or 'corpus', which trains them (with reads = 'sequence')."""
    reads: Literal["bag", "sequence"] = "bag"
    """Read documents as weighted bags of words or features ('bag'), or as word sequences with an LSTM ('sequence')."""
    columns: Weighing = "given"
    """Weighting of feature matrices: as given, or multiplied by idf. Text always uses tf-idf."""
    most_features: int = 1000
    """Maximum number of features per bag, those with the largest weights."""
    corpus: CorpusVectorSettings = field(default_factory=lambda: CorpusVectorSettings(width=256))
    """Training of word vectors on the corpus; `width` also applies to random vectors."""
    text: TextSettings = field(default_factory=TextSettings)
    """Settings of the tf-idf features, with reads = 'bag'."""
    sequence: RankAeSequenceSettings = field(default_factory=RankAeSequenceSettings)
    """Settings of the word sequences, with reads = 'sequence'."""
    lstm: RankAeLstmSettings = field(default_factory=RankAeLstmSettings)
    """The LSTM, with reads = 'sequence'."""
    encoder: ChannelSettings = field(default_factory=ChannelSettings)
    """The encoder from words to the code of a document."""
    head: AutoencoderSettings = field(default_factory=AutoencoderSettings)
    """The encoder from labels to the code of a label set, and the decoder from codes to labels."""
    training: TrainingSettings = field(
        default_factory=lambda: TrainingSettings(
            epochs=16, learning_rate=3e-3, warmup_steps=50, decay_from=0.0, clip=0.0, skipped_words=0.1
        )
    )
    """Training of the network."""

    of = "rank_ae"

    def check(self) -> None:
        super().check()
        self.require_range("most_features", 1, 1_000_000)
        in_order = self.reads == "sequence"
        self.require("vectors", in_order or self.vectors != "corpus", "'random' or a file with reads = 'bag'")
        if in_order and self.head.straight:
            raise ConfigError("'head.straight' of rank_ae requires reads = 'bag'. Set it, or head.straight = false.")
        if self.head.straight and self.head.decode_from == "label":
            raise ConfigError(
                "'head.straight' of rank_ae needs decoding from documents. Use head.decode_from = 'both' or 'feature'."
            )


class RankAe(NeuralModel):
    """Rank-AE: ranking autoencoder of documents and label sets.

    Documents and their label sets get codes in one space, from which labels are decoded. A document is the tf-idf
    weighted sum of its word vectors, with channel attention for each word. Accepts texts and feature matrices.
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
                f"'head.straight' of rank_ae would need {straight:,} × {labels:,} weights, which is too many. "
                "Use head.straight = false, or fewer features."
            )
        return LabelAutoencoder(labels, width, self.config.head, self.config.encoder.activation, straight)

    def _spec(self, runtime: Runtime) -> MemberSpec:
        return replace(super()._spec(runtime), bag_to_head=self.config.head.straight)

    # ---- reading

    def _fit_reader(self, train: Dataset, run: FitContext) -> tuple[DocumentReader, Numbered]:
        config = self.config
        if not self._in_order:
            if not train.has_text and config.vectors != "random":
                raise UnsupportedError("a feature matrix has no words to look up vectors for. Use vectors = 'random'.")
            return BagReader.fit(train, config.text, config.columns, config.most_features, run.runtime, run.progress)
        if not train.has_text:
            raise UnsupportedError("a feature matrix has no word order. Use reads = 'bag'.")
        return WordSequences.fit(train, config.sequence, run.runtime, run.progress)

    def _restored_reader(self, state: SavedState) -> DocumentReader:
        if self._in_order:
            return WordSequences.from_state(self.config.sequence, state)
        return BagReader.from_state(self.config.text, self.config.most_features, state)

    # ---- explanation

    def _explain(self, text: str, label: int, score: float) -> Explanation:
        """Contribution of each word to the document code, which is the same for all labels.

        For a bag, the sum of a word's channel weights times the weight of the word; for a sequence, the sum above the
        minimum of the text, since all words have the same weight.
        """
        tokens, weights = self._word_weights(text)
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
        for start, end, weight in found:  # several features may share a span
            shares[start, end] = shares.get((start, end), 0.0) + weight / total
        evidence = [TokenEvidence(text[start:end], start, end, share) for (start, end), share in shares.items()]
        evidence.sort(key=lambda item: (-item.weight, item.start))
        return Explanation("tokens", text, self.labels.name(label), score, tuple(evidence), shares=True)

    @torch.no_grad()
    def _word_weights(self, text: str) -> tuple[torch.Tensor, torch.Tensor]:
        """(T,) the words of a text, and the contribution of each, averaged over the members."""
        _, tokens, weights = self._document(text)
        found = []
        for network in (member.network for member in self._members):
            assert isinstance(network.encoder, FeatureBranch)
            found.append(network.encoder.attention(network.embedded(tokens, weights), tokens != PADDING)[0])
        mean = torch.stack(found).mean(0)
        if weights is not None:
            return tokens[0], mean * weights[0].abs()
        return tokens[0], mean - mean.min() if mean.max() > mean.min() else mean
