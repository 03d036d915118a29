"""A fine-tuned pretrained transformer with a linear layer over all labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from xmtc.core.explanation import Explanation, TokenEvidence
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import as_dataset
from xmtc.models.attention_explain import AttendingModel
from xmtc.models.neural import NetworkSettings, UpdatableSettings
from xmtc.models.pretrained import PretrainedModel, attended_words
from xmtc.nn.encoders.base import Encoder
from xmtc.nn.encoders.transformer import TransformerSettings
from xmtc.nn.members import FlatMember, MemberSpec, NeuralMember
from xmtc.nn.training.loop import TrainingSettings
from xmtc.nn.trees.cascade import CascadeSettings, CascadeSpec, LevelVectors, Reading
from xmtc.nn.trees.cascade_member import CascadeMember
from xmtc.text.subwords import PieceSettings


@dataclass(frozen=True)
class TransformerModelSettings(UpdatableSettings, NetworkSettings):
    """Settings of transformer."""

    encoder: TransformerSettings = field(default_factory=TransformerSettings)
    """The pretrained encoder, and how it is fine-tuned."""
    head: CascadeSettings = field(default_factory=CascadeSettings)
    """Layers that labels are read from, and the label tree."""
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

    of = "transformer"


class TransformerModel(AttendingModel, PretrainedModel):
    """Pretrained Hugging Face encoder, fine-tuned, with a linear head.

    BERT, RoBERTa, DistilBERT, MiniLM, MPNet, ELECTRA and similar encoders, read from a folder, with attention pooling.
    For very many labels, the levels of a label tree read different layers of the encoder (`head.tree.height`), as in
    LightXML and CascadeXML. Saved models are self-contained.
    """

    name = "transformer"
    Config = TransformerModelSettings
    capabilities = frozenset({"text", "explain", "score_labels", "update"})
    less_memory = "Lower training.batch_size or text.max_tokens, or set encoder.checkpointing = true."
    ablations: ClassVar = {
        "frozen-encoder": {"encoder.rate": 0.0},
        "trained-pieces": {"frozen": False},
        "no-dropout": {"encoder.dropout": 0.0},
        "no-averaging": {"training.averaging": "none"},
    }

    @property
    def _pretrained(self) -> TransformerSettings:
        settings: TransformerSettings = self.config.encoder
        return settings

    def _encoder(self, width: int) -> Encoder:
        return self._level_vectors(self._reading(1)) if self.config.head.reads_layers else self._transformer()

    def _reading(self, levels: int) -> Reading:
        """What this many levels of a label tree read from the encoder."""
        assert self._backbone is not None
        return Reading.of(self.config.head, self._pretrained.dropout, levels, self._backbone)

    def _level_vectors(self, reading: Reading) -> LevelVectors:
        assert self._backbone is not None
        return LevelVectors(self._backbone.module(), self._pretrained, reading, self.config.head.pooling)

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
        """Shares of the words, and the path in the first label tree."""
        found = super()._explain(text, label, score)
        steps = self._members[0].steps(self._documents(as_dataset([text])), label)
        path = tuple(self._path_step(level, *step) for level, step in enumerate(steps, start=1))
        return replace(found, path=path)

    def _attended(self, text: str, shares: Sequence[float]) -> tuple[TokenEvidence, ...]:
        """Words with the attention weights of their subwords, largest first."""
        return attended_words(self._reader, text, shares)
