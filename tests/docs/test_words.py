"""Wording: phrases that readers had to read twice are not in the package, the README or the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUFFIXES = {".py", ".toml", ".html", ".js", ".css", ".md", ".json", ".svg"}
EXAMPLES = ("demo_topics", "demo_grammar.toml")
"""The texts of the demo corpus, which imitate what people write."""
FILES = sorted(
    path
    for path in (
        *(ROOT / "src" / "xmtc").rglob("*"),
        *(ROOT / "docs").rglob("*"),
        *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")),
    )
    if path.suffix in SUFFIXES and not set(path.parts) & set(EXAMPLES)
)

PHRASES = [
    "a baseline that reads nothing",
    "what you get where you name none",
    "documents to make choices on",
    "what the best is the best at",
    "labels that go",
    "what parts labels in a cell",
    "saved models need the folder no more",
    "training went astray",
    "the loss is no number any more",
    "cannot be had",
    "one that dies is started anew",
    "one that hangs is not noticed",
    "a file that a setting names is known by its name alone",
    "documents are a part of the folder",
    "beside what answers need",
    "does not share out what there is",
    "beside: no other",
    "this visit",
    ">kept<",
]
"""Each has an established term; for example, 'documents to make choices on' are a validation set."""

HABITS = {
    r"\banew\b": "again",
    r"\bastray\b": "a word for what happened",
    r"\bis no number\b": "is not a number",
    r"\bare no probabilities\b": "are not probabilities",
    r"\bcan be had\b": "is available",
    r"\b(?:a|an|one) (?:text|document|object|label|name|record) a line\b": "one text per line",
    r"\bmade-up\b": "synthetic",
    r"\b(?:go|goes|went) on\b": "continue, resume",
    r"\ba share of\b": "a fraction of, a part of",
    r"\bbut for\b": "except",
    r"\bis asked\b": "who does what",
    r"\bwhere there (?:is|are) (?:one|none)\b": "if available, if there is none",
    r"\b(?:go|goes) with --": "requires --, can only be used with --",
    r"\b(?:is|are) named twice\b": "is given twice",
    r"\bnamed for two things\b": "used for two outputs",
    r"\bnothing to learn from\b": "nothing to update",
    r"\bthe best here\b": "the default",
    r"\bat the latest\b": "a time",
    r"\bby their own\b": "plain wording",
    r"\bwhat becomes of\b": "plain wording",
    r"\bwhat is made of\b": "plain wording",
    r"\bspeaks? for\b": "indicates, contributes to",
    r"\bwhole or not at all\b": "atomically",
    r"\bno known (?:form|format)\b": "an unsupported format",
    r"\bin its place\)": "plain wording",
}
"""Patterns, and what to write instead."""


def plain(text: str) -> str:
    """Lower case, on one line: strings, comments and quotations that span several lines are joined."""
    text = re.sub(r"[\"']\s*\n\s*[rf]*[\"']", "", text)
    text = re.sub(r"\n\s*(?:#|//|\*|>)+ ?", "\n", text)
    return " ".join(text.replace("`", "").split()).lower()


TEXTS = {path: plain(path.read_text(encoding="utf-8")) for path in FILES}


def places(pattern: str) -> list[str]:
    found = []
    for path, text in TEXTS.items():
        for match in re.finditer(pattern, text):
            around = text[max(0, match.start() - 40) : match.end() + 40]
            found.append(f"{path.relative_to(ROOT).as_posix()}: …{around}…")
    return found


def test_what_is_read() -> None:
    assert {path.suffix for path in FILES} >= {".py", ".toml", ".html", ".js", ".md"}
    assert len(FILES) > 300
    split = 'raise Error(\n    "the loss is no "\n    f"number any more"\n)\n# one that hangs is\n# not `noticed`\n'
    assert all(phrase in plain(split) for phrase in ("the loss is no number any more", "one that hangs is not noticed"))


@pytest.mark.parametrize("phrase", PHRASES)
def test_no_phrase_is_left(phrase: str) -> None:
    assert places(re.escape(phrase)) == []


@pytest.mark.parametrize("pattern", HABITS)
def test_no_habit_is_left(pattern: str) -> None:
    assert places(pattern) == [], f"Write: {HABITS[pattern]}."
