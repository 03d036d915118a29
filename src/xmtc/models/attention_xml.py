"""AttentionXML: a bidirectional LSTM, label-wise attention, and a shared perceptron."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from xmtc.core.config import Choices, Settings
from xmtc.core.runtime import Runtime
from xmtc.models.attention_explain import LabelAttendingModel
from xmtc.models.neural import NeuralModel, NeuralSettings
from xmtc.nn.encoders.lstm import LstmSettings
from xmtc.nn.heads.base import Head
from xmtc.nn.heads.label_attention import LabelAttention
from xmtc.nn.heads.label_outputs import LabelOutputs
from xmtc.nn.members import FlatMember, MemberSpec, NeuralMember
from xmtc.nn.trees.member import TreeMember
from xmtc.nn.trees.training import TreeSettings, TreeSpec
from xmtc.text.sequences import WordSequences


@dataclass(frozen=True)
class AttentionSettings(Settings):
    """Label-wise attention and the shared perceptron."""

    hidden: Annotated[tuple[int, ...], Choices((256,), (512,), (512, 256))] = (256,)
    """Units of the perceptron's hidden layers."""
    outputs: Literal["shared", "label"] = "shared"
    """Output behind the attention: a perceptron shared by all labels ('shared'), or an output vector for each label."""
    tree: TreeSettings = field(default_factory=TreeSettings)
    """The label tree; without one, every label is scored."""

    of = "head"

    def check(self) -> None:
        sizes = self.hidden or (0,)
        self.require("hidden", min(sizes) >= 1 and max(sizes) <= 1 << 16, "a list of integers from 1 to 65,536")
        if self.tree.height:
            self.require("outputs", self.outputs == "shared", "'shared' with a label tree")


@dataclass(frozen=True)
class AttentionXmlSettings(NeuralSettings):
    """Settings of attention_xml."""

    encoder: LstmSettings = field(default_factory=LstmSettings)
    """The LSTM."""
    head: AttentionSettings = field(default_factory=AttentionSettings)
    """Label attention and perceptron."""

    of = "attention_xml"

    def check(self) -> None:
        super().check()
        self.correlation.check_tree(self.of, self.head.tree.height)


class AttentionXml(LabelAttendingModel):
    """AttentionXML: bidirectional LSTM with label-wise attention.

    Each label has its own attention over the words. Without a tree, it suits up to tens of thousands of labels;
    with `head.tree.height` ≥ 1, a shallow and wide label tree with one network per level, it suits up to millions. Each
    member has its own tree.
    """

    name = "attention_xml"
    Config = AttentionXmlSettings
    capabilities = frozenset({"text", "explain", "score_labels", "update", "export"})
    ablations: ClassVar = {
        **NeuralModel.ablations,
        "all-words": {"training.skipped_words": 0.0},
        "no-correlation": {"correlation.blocks": 0},
        "one-block": {"correlation.blocks": 1},
        "label-outputs": {"head.outputs": "label"},
    }

    _reader: WordSequences

    def _head(self, labels: int, width: int) -> Head:
        if self.config.head.outputs == "label":
            return LabelOutputs(labels, width)
        return LabelAttention(labels, width, self.config.head.hidden)

    @property
    def _member_type(self) -> type[NeuralMember[Any]]:
        return TreeMember if self.config.head.tree.height else FlatMember

    def _spec(self, runtime: Runtime) -> MemberSpec:
        return TreeSpec(
            **vars(super()._spec(runtime)),
            tree=self.config.head.tree,
            members=self.config.members,
            width=2 * self.config.encoder.units,
            hidden=self.config.head.hidden,
            min_df=min(2, int(self._reader.vocabulary.frequencies.max())),  # words of a single text are not informative
        )
