"""The models that the presets try, in order of expected benefit per second, with the reason for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow.compute as pc

from xmtc.core.config import changed, to_mapping
from xmtc.core.errors import install_command
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset
from xmtc.labels.name_documents import has_names
from xmtc.models.registry import MODELS, model_class

TERM_WEIGHTS = "text.idf", "text.idf_power"
MANY_LABELS = 8
"""Mean number of labels per document from which networks learn the mean of the labels of a document first."""
MEAN_TARGETS = {
    "neighbours": 100,
    "sharpness": 20.0,
    "direct": 0.6,
    "vectors.width": 100,
    "vectors.learning_rate": 0.05,
    "encoder.hidden": 1024,
    "encoder.dropout": 0.7,
    "encoder.spread": 0.15,
    "head.robust": 1.0,
    "head.contrast": 0.0,
    "head.decode": 0.0266,
    "head.scale": 5.0,
    "training.epochs": 40,
    "training.batch_size": 256,
    "training.learning_rate": 0.0107,
    "training.decay_from": 0.0,
    "training.averaging": "all",
    "training.average_from": 34,
    "training.clip": 0.0,
    "training.skipped_words": 0.3,
    "training.validation_size": 0,
}
"""Settings of dxml for documents with many labels."""

Preset = Literal["fast", "good", "best"]

SHORT_TEXT = 40
"""Mean number of words below which a text counts as short: its words are rare, and parts of words help."""
SAMPLE = 2000
"""Documents of which the length of texts is determined."""
FEW_FOR_NETWORKS = 50_000
"""Number of documents up to which networks are trained without a GPU."""
MANY_FOR_ATTENTION = 8000
"""Number of labels above which a label tree chooses those that get an attention."""
LEADING = 3
"""Number of candidates before the networks if there is a GPU; otherwise networks are the last."""


@dataclass(frozen=True)
class DataFacts:
    """What the choice of models depends on."""

    documents: int
    labels: int
    labels_per_document: float
    words: float | None
    """Mean number of words per text; None for feature matrices."""
    has_names: bool
    """Whether labels have names besides their keys, or keys that are words."""

    @classmethod
    def of(cls, documents: Dataset) -> DataFacts:
        """Describe a training set, its text by a sample."""
        assert documents.labels is not None
        assert documents.label_index is not None
        labels = int(np.count_nonzero(np.bincount(documents.labels.indices)))
        per_document = documents.labels.nnz / max(len(documents), 1)
        if not documents.has_text:
            return cls(len(documents), labels, per_document, None, False)
        places = np.unique(np.linspace(0, len(documents) - 1, min(SAMPLE, len(documents))).astype(np.int64))
        counts = pc.count_substring_regex(documents.take(places).text(), r"[\p{L}\p{M}\p{N}_]+")
        words = pc.mean(counts).as_py() or 0.0
        return cls(
            len(documents),
            labels,
            per_document,
            float(words),
            has_names(documents.label_index) or _has_words(documents),
        )

    @property
    def is_short(self) -> bool:
        """Whether the texts are short."""
        return self.words is not None and self.words < SHORT_TEXT


def gpu_is_used(runtime: Runtime) -> bool:
    """Whether networks would be trained on a GPU."""
    if not MODELS.entries["dxml"].available:
        return False
    from xmtc.nn.device import chosen_device

    return chosen_device(runtime).type == "cuda"


def _has_words(documents: Dataset) -> bool:
    """Whether most keys consist of letters, so that they may occur in texts."""
    assert documents.label_index is not None
    keys = documents.label_index.table["key"]
    are_words = pc.match_substring_regex(keys, r"^[\p{L}\p{M}]{2,}([-_ ][\p{L}\p{M}]+)*$")
    return bool((pc.mean(are_words).as_py() or 0.0) > 0.5)


@dataclass(frozen=True)
class Candidate:
    """A model with settings to try."""

    name: str
    """Name on the leaderboard and of the member's folder."""
    model: str
    settings: Mapping[str, Any]
    """Settings that differ from the defaults, as dotted names."""
    reason: str
    seed: int = 0
    """Added to the random seed."""
    needs: str = field(default="", compare=False)
    """The reason why it cannot be trained here, if any."""

    def plain_settings(self) -> dict[str, Any]:
        """All settings, to create the model with."""
        kind = model_class(self.model)
        return to_mapping(changed(kind.Config(), dict(self.settings)))


def candidates(
    facts: DataFacts, preset: Preset, first: Candidate, has_gpu: bool, encoder: Path | None = None
) -> list[Candidate]:
    """All models that a preset may train, the first choice first; `encoder` is the folder of a pretrained encoder."""
    found = [first]
    for each in _candidates(facts, preset, first, has_gpu, encoder):
        if all((each.model, each.settings, each.seed) != (other.model, other.settings, other.seed) for other in found):
            found.append(each)
    return [_checked(each, facts, has_gpu) for each in found]


def _checked(candidate: Candidate, facts: DataFacts, has_gpu: bool) -> Candidate:
    """State why a candidate cannot be trained here."""
    entry = MODELS.entries[candidate.model]
    needs = ""
    if not entry.available:
        needs = f"needs PyTorch: {install_command(entry.extra or 'torch')}"
    elif entry.extra is not None and facts.documents > FEW_FOR_NETWORKS and not has_gpu:
        needs = f"needs a GPU for more than {FEW_FOR_NETWORKS:,} documents"
    return Candidate(candidate.name, candidate.model, candidate.settings, candidate.reason, candidate.seed, needs)


def _candidates(
    facts: DataFacts, preset: Preset, first: Candidate, has_gpu: bool, encoder: Path | None
) -> Iterator[Candidate]:
    if facts.words is None:
        usual = list(_of_features(facts, first.settings.get("columns") == "idf"))
    else:
        usual = list(_of_texts(facts, {name: first.settings[name] for name in TERM_WEIGHTS if name in first.settings}))
    networks = list(_networks_for_texts(facts, has_gpu, encoder) if preset == "best" else ())
    leading = LEADING if has_gpu else len(usual)
    yield from [*usual[:leading], *networks, *usual[leading:]]


def _of_texts(facts: DataFacts, weights: Mapping[str, Any]) -> Iterator[Candidate]:
    """`weights` are the settings of term weights that the preset fast has chosen."""
    characters, pairs = {"text.char_ngrams": (3, 5)}, {"text.word_ngrams": 2}
    rich = {**(characters if facts.is_short else pairs), **weights}
    what = "character n-grams" if facts.is_short else "word pairs"
    yield Candidate("knn", "knn", weights, "votes of similar documents, strong for rare labels and near-duplicates")
    if facts.has_names:
        yield Candidate("lexical", "lexical", {}, "finds names of labels in the text, also of labels without documents")
    yield Candidate("one_vs_all-rich", "one_vs_all", rich, f"one classifier per label, on words and {what}")
    yield Candidate("parabel", "parabel", {}, "label tree on single words")
    yield Candidate("parabel-idf", "parabel", {"text.idf": "plain"}, "label tree with lower weights of common words")
    if not facts.is_short:
        yield Candidate(
            "parabel-pairs", "parabel", {**pairs, "text.max_features": 400_000}, "label tree with word pairs"
        )
    yield Candidate("one_vs_all", "one_vs_all", {}, "one classifier per label, on single words")
    if facts.is_short:
        yield Candidate("knn-characters", "knn", characters, "votes of documents with similar spelling")
    yield Candidate("leml", "leml", {}, "one low-rank regression for all labels")
    yield Candidate("bonsai", "bonsai", {}, "shallow, unbalanced label trees")
    yield Candidate("sleec", "sleec", {}, "neighbours in an embedding of documents learnt from their labels")
    yield Candidate("dxml", "dxml", {}, "network that embeds documents near their labels")


def _of_features(facts: DataFacts, idf: bool) -> Iterator[Candidate]:
    """`idf` says whether the preset fast has found that lower weights of common features are better."""
    yield Candidate("knn", "knn", {}, "votes of similar documents, strong for rare labels")
    yield Candidate("one_vs_all", "one_vs_all", {}, "one classifier per label")
    yield Candidate("sleec", "sleec", {}, "neighbours in an embedding of documents learnt from their labels")
    if facts.labels_per_document >= MANY_LABELS:
        yield Candidate("dxml-means", "dxml", MEAN_TARGETS, "network that embeds documents at the mean of their labels")
    yield Candidate("dxml", "dxml", {}, "network that embeds documents near their labels")
    yield Candidate("rank_ae", "rank_ae", {}, "network with attention to features, trained to rank labels")
    if idf:
        yield Candidate("sleec-idf", "sleec", {"columns": "idf"}, "the same with lower weights of common features")
    yield Candidate("leml", "leml", {}, "one low-rank regression for all labels")
    if idf:
        yield Candidate("dxml-idf", "dxml", {"columns": "idf"}, "the network with lower weights of common features")
    yield Candidate("one_vs_all-logistic", "one_vs_all", {"loss": "logistic"}, "one logistic regression per label")
    yield Candidate("parabel", "parabel", {}, "label tree with default settings")


def _networks_for_texts(facts: DataFacts, has_gpu: bool, encoder: Path | None) -> Iterator[Candidate]:
    if facts.words is None:
        return
    if encoder is not None:
        yield Candidate("transformer", "transformer", {"encoder.path": str(encoder)}, "pretrained encoder, fine-tuned")
    if has_gpu or facts.documents <= FEW_FOR_NETWORKS // 2:
        name = "attention_xml" if facts.labels > MANY_FOR_ATTENTION else "attention_lstm"
        yield Candidate(name, name, {}, "network that reads the words in order")
        yield Candidate("rank_ae", "rank_ae", {}, "network with attention to words, trained to rank labels")
