"""Explanation: why a model gave a label, as one tagged type that every front end can show."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class TokenEvidence:
    """A stretch of the text and what it added to the label's score, or its share of the attention."""

    text: str
    start: int
    end: int
    weight: float


@dataclass(frozen=True)
class PathStep:
    """An edge on the way down the label tree: its probability, and a few of the labels below where it leads."""

    depth: int
    probability: float
    labels: tuple[str, ...]


@dataclass(frozen=True)
class NeighbourEvidence:
    """A training document near the text; `holds` says whether it has the label, `share` its part of the whole vote."""

    id: str
    snippet: str
    similarity: float
    holds: bool
    labels: tuple[str, ...]
    share: float = 0.0


@dataclass(frozen=True)
class AspectEvidence:
    """One of the sides that a document is seen from: what it added to the label's score, and its attention."""

    aspect: int
    weight: float
    attention: float


@dataclass(frozen=True)
class GroupEvidence:
    """A label that the model sees as related: what it added to the label's score, and its attention."""

    label: str
    weight: float
    attention: float = 0.0


@dataclass(frozen=True)
class MemberEvidence:
    """One model of several, its own score and its share of the answer."""

    model: str
    score: float
    share: float


Evidence = TokenEvidence | PathStep | NeighbourEvidence | AspectEvidence | GroupEvidence | MemberEvidence
Kind = Literal["tokens", "path", "neighbours", "groups", "members"]


@dataclass(frozen=True)
class Explanation:
    """Evidence of one kind for one label on one text, the strongest first (tokens in order of weight too)."""

    kind: Kind
    text: str
    label: str
    score: float
    evidence: tuple[Evidence, ...]
    constant: float = 0.0
    """What the model starts from before any evidence; with the weights of tokens it adds up to the margin.

    Of neighbours, what the label's own score adds to theirs.
    """
    path: tuple[PathStep, ...] = ()
    """The way down the label tree, where the model has one."""
    shares: bool = False
    """Whether the weights of tokens are shares of attention: where the model looks, neither for nor against."""

    def to_json(self) -> dict[str, Any]:
        """Plain values; a front end picks its view by `kind`."""
        return asdict(self)
