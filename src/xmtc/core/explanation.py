"""Explanation: why a model assigned a label, as one tagged type that every front end can display."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class TokenEvidence:
    """A text span and its contribution to the label's score, or its attention weight."""

    text: str
    start: int
    end: int
    weight: float


@dataclass(frozen=True)
class PathStep:
    """An edge on the path down the label tree: its probability, and some of the labels below its child node."""

    depth: int
    probability: float
    labels: tuple[str, ...]


@dataclass(frozen=True)
class NeighbourEvidence:
    """A training document similar to the text; `holds`: whether it has the label, `share`: fraction of all votes."""

    id: str
    snippet: str
    similarity: float
    holds: bool
    labels: tuple[str, ...]
    share: float = 0.0


@dataclass(frozen=True)
class AspectEvidence:
    """One aspect of a document: its contribution to the label's score, and its attention weight."""

    aspect: int
    weight: float
    attention: float


@dataclass(frozen=True)
class GroupEvidence:
    """A label the model treats as related: its contribution to the label's score, and its attention weight."""

    label: str
    weight: float
    attention: float = 0.0


@dataclass(frozen=True)
class MemberEvidence:
    """One member of an ensemble: its own score and its contribution to the combined score."""

    model: str
    score: float
    share: float


@dataclass(frozen=True)
class FeatureEvidence:
    """A feature of a match, its value (None if it does not apply), and its contribution to the label's score."""

    feature: str
    value: float | None
    weight: float
    meaning: str = ""
    """The value in words if it is a code, otherwise empty."""

    def shown_value(self) -> str:
        """The value in words or with up to four digits, – if the feature does not apply."""
        if self.value is None:
            return "–"
        return self.meaning or f"{self.value:.4g}"


Evidence = TokenEvidence | PathStep | NeighbourEvidence | AspectEvidence | GroupEvidence | MemberEvidence
Kind = Literal["tokens", "path", "neighbours", "groups", "members"]


@dataclass(frozen=True)
class Explanation:
    """Evidence of one kind for one label of one text, strongest first (tokens too are ordered by weight)."""

    kind: Kind
    text: str
    label: str
    score: float
    evidence: tuple[Evidence, ...]
    constant: float = 0.0
    """Score without any evidence (bias); together with the token weights and `text_vector` it adds up to the margin.

    For neighbours: the contribution of the label's own score.
    """
    path: tuple[PathStep, ...] = ()
    """Path down the label tree; empty if the model has no tree."""
    shares: bool = False
    """Whether token weights are attention weights, which show where the model attends and carry no sign."""
    features: tuple[FeatureEvidence, ...] = ()
    """Features of the match; empty unless the model matches label names."""
    text_vector: float = 0.0
    """Contribution of the vector of the whole text; 0 unless the model has dense features."""
    known_words: bool = True
    """Whether the text has a word that the model knows; otherwise the score does not depend on the text."""

    def to_json(self) -> dict[str, Any]:
        """Convert to plain values; front ends select a view by `kind`."""
        return asdict(self)
