"""The errors a user may see: each message is one line that says what, where and the remedy."""

from __future__ import annotations

import difflib
import numbers
from collections.abc import Collection


class XmtcError(Exception):
    """A mistake in what xmtc was given; the command line prints its message and exits with status 2."""


class XmtcWarning(FutureWarning):
    """Something that still works and should be changed: one line, like an error."""


class ConfigError(XmtcError, ValueError):
    """A setting that does not exist, or a value it cannot take."""


class DataError(XmtcError, ValueError):
    """A file or an array that cannot be read as documents or labels."""


class NotFittedError(XmtcError, RuntimeError):
    """A model that was asked before it was trained."""


class MissingExtraError(XmtcError, ImportError):
    """An optional dependency that is not installed."""


class ModelFormatError(XmtcError, ValueError):
    """A folder that is not a model folder, or one that was damaged."""


class RefusedError(XmtcError, RuntimeError):
    """Work that was done and not kept, because it would make things worse."""


class UnsupportedError(XmtcError, TypeError):
    """A thing this model cannot do, such as explaining or reading text."""


def check_positive(name: str, value: object) -> None:
    """Refuse a count, such as 'k', that is not an integer ≥ 1."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise ConfigError(f"'{name}' must be an integer ≥ 1. Got {shown(str(value))}.")


def shown(value: object, limit: int = 60) -> str:
    """A piece of someone's data as it goes into a message: on one line, printable and short."""
    text = value if isinstance(value, str) else repr(value)
    text = text if len(text) <= limit else text[: limit - 1] + "…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def nearest(word: str, known: Collection[str]) -> str:
    """' Did you mean …?' when a known word is close, otherwise ''."""
    if len(word) > 200:  # no slip of a finger
        return ""
    if len(known) > 20_000:  # comparing takes its time: look only where the likely slips leave a word
        known = [name for name in known if name[:1] == word[:1] and abs(len(name) - len(word)) <= 2]
    close = difflib.get_close_matches(word, list(known)[:200_000], n=1, cutoff=0.6)
    return f" Did you mean '{shown(close[0])}'?" if close else ""
