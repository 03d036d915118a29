"""A fine-tuned pretrained transformer with label attention, or with a linear layer over a document vector."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from xmtc.artifact.saved_state import SavedState
from xmtc.core.config import changed
from xmtc.core.explanation import Explanation, TokenEvidence
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import text_column
from xmtc.models.attention_explain import AttendingModel, label_shares
from xmtc.models.neural import CORRELATION_ABLATIONS, NetworkSettings, UpdatableSettings
from xmtc.models.pretrained import PretrainedModel, attended_words
from xmtc.nn.encoders.base import Encoder
from xmtc.nn.encoders.transformer import Transformer, TransformerSettings, TransformerStates
from xmtc.nn.heads.base import Head, LinearHead
from xmtc.nn.heads.correlation import CorrelationSettings
from xmtc.nn.heads.label_outputs import LabelOutputs
from xmtc.nn.members import FlatMember, MemberSpec, NeuralMember
from xmtc.nn.neighbours.sentence_encoder import SentenceEncoder
from xmtc.nn.training.loop import TrainingSettings
from xmtc.nn.trees.cascade import CascadeSettings, CascadeSpec, LevelVectors, Reading
from xmtc.nn.trees.cascade_member import CascadeMember
from xmtc.text.sequences import FIRST_WORD
from xmtc.text.subwords import PieceReader, PieceSettings

POOLED_LAYER = "0.encoder.layer.weight"
"""Array that only models with a pooled document vector have."""


@dataclass(frozen=True)
class TransformerHeadSettings(CascadeSettings):
    """What labels are read from, and the label tree."""

    kind: Literal["label_attention", "pooled"] = "label_attention"
    """Without a tree and with `levels_from = "auto"`: attention and an output vector for each label, or one vector of a
    document by attention pooling ('pooled')."""


@dataclass(frozen=True)
class TransformerModelSettings(UpdatableSettings, NetworkSettings):
    """Settings of transformer."""

    encoder: TransformerSettings = field(default_factory=TransformerSettings)
    """The pretrained encoder, and how it is fine-tuned."""
    head: TransformerHeadSettings = field(default_factory=TransformerHeadSettings)
    """Output layer: label attention, chosen layers of the encoder, a label tree."""
    text: PieceSettings = field(default_factory=PieceSettings)
    """Settings of the subword sequences."""
    frozen: bool = True
    """Freeze the subword embeddings."""
    training: TrainingSettings = field(
        default_factory=lambda: TrainingSettings(
            epochs=10, batch_size=32, learning_rate=1e-3, warmup_steps=200, decay_from=0.0
        )
    )
    """Training of the network."""

    correlation: CorrelationSettings = field(default_factory=CorrelationSettings)
    """Correlation blocks (CorNet)."""

    of = "transformer"

    def check(self) -> None:
        super().check()
        self.correlation.check_tree(self.of, self.head.tree.height)


class TransformerModel(AttendingModel, PretrainedModel):
    """Pretrained Hugging Face encoder, fine-tuned, with attention and output vectors of each label.

    Encoders are read from a folder: BERT, RoBERTa, DistilBERT, MiniLM, MPNet, ELECTRA, DeBERTa, ModernBERT and similar.
    For very many labels, the levels of a label tree read different layers of the encoder (`head.tree.height`), as in
    LightXML and CascadeXML. Saved models are self-contained.
    """

    name = "transformer"
    Config = TransformerModelSettings
    capabilities = frozenset({"text", "explain", "score_labels", "update", "export"})
    less_memory = "Lower training.batch_size or text.max_tokens, or set encoder.checkpointing = true."
    ablations: ClassVar = {
        "frozen-encoder": {"encoder.rate": 0.0},
        "trained-pieces": {"frozen": False},
        "no-dropout": {"encoder.dropout": 0.0},
        "no-averaging": {"training.averaging": "none"},
        "pooled": {"head.kind": "pooled"},
        "first-states": {"head.levels_from": "last"},
        **CORRELATION_ABLATIONS,
        "no-correlation": {"correlation.blocks": 0},
    }

    _windows = 64

    @property
    def _pretrained(self) -> TransformerSettings:
        settings: TransformerSettings = self.config.encoder
        return settings

    def _encoder(self, width: int) -> Encoder:
        assert self._backbone is not None
        if self.config.head.reads_layers:
            return self._level_vectors(self._reading(1))
        kind = TransformerStates if self._has_label_attention else Transformer
        return kind(self._backbone.module(), self._pretrained, self.config.text.max_tokens)

    @property
    def _has_label_attention(self) -> bool:
        return self.config.head.kind == "label_attention" and not self.config.head.reads_layers

    def _head(self, labels: int, width: int) -> Head:
        return (LabelOutputs if self._has_label_attention else LinearHead)(labels, width)

    def _restore(self, state: SavedState) -> None:
        """Folders written before `head.kind` existed have the layer behind attention pooling."""
        if self._has_label_attention and state.has(POOLED_LAYER):
            self.config = changed(self.config, {"head.kind": "pooled"})
        super()._restore(state)

    def _reading(self, levels: int) -> Reading:
        """What this many levels of a label tree read from the encoder."""
        assert self._backbone is not None
        encoder = self._pretrained
        count = encoder.layers or self._backbone.layers
        return Reading.of(self.config.head, encoder.dropout, levels, count, self._backbone.width)

    def _level_vectors(self, reading: Reading) -> LevelVectors:
        assert self._backbone is not None
        given = self._backbone.module(), self._pretrained, self.config.text.max_tokens
        return LevelVectors(*given, reading, self.config.head.pooling)

    @property
    def _member_type(self) -> type[NeuralMember[Any]]:
        return CascadeMember if self.config.head.tree.height else FlatMember

    def _spec(self, runtime: Runtime) -> MemberSpec:
        spec, head = super()._spec(runtime), self.config.head
        if not head.tree.height:
            return spec
        return CascadeSpec(
            **vars(spec),
            tree=head.tree,
            members=self.config.members,
            head_settings=head,
            reading=self._reading,
            vectors=self._level_vectors,
        )

    def _explain(self, text: str, label: int, score: float) -> Explanation:
        """Weights of the words, averaged over the members: by the label's attention, or for all labels alike.

        With a label tree, also the path in the first one.
        """
        documents, tokens, _ = self._document(text)
        if not self._has_label_attention:
            steps = self._members[0].steps(documents, label)
            path = tuple(self._path_step(level, *step) for level, step in enumerate(steps, start=1))
            return replace(super()._explain(text, label, score), path=path)
        evidence = self._attended(text, label_shares(self._members, tokens, label))
        return Explanation("tokens", text, self.labels.name(label), score, evidence, shares=True)

    def sentence_encoder(self, max_tokens: int) -> SentenceEncoder:
        """Its encoder for whole texts of up to this number of subwords: the mean of the last states."""
        network, backbone, reader = self._members[0].network, self._backbone, self._reader
        assert backbone is not None
        own = PieceReader(reader.content, min(max_tokens, reader.max_tokens), reader.pieces)
        words = network.table.detach()[FIRST_WORD:].clone()
        return SentenceEncoder(backbone, deepcopy(network.encoder.pretrained), words, own, "mean", self.runtime)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(n, d) mean of the encoder's states over the subwords of each text, scaled to unit length."""
        return self.sentence_encoder(self.config.text.max_tokens).embed(text_column(texts))

    def _attended(self, text: str, shares: Sequence[float]) -> tuple[TokenEvidence, ...]:
        """Words with the attention weights of their subwords, largest first."""
        return attended_words(self._reader, text, shares)
