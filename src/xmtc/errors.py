"""The errors a user may see: each message is one line that says what, where and the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class XmtcError(Exception):
    """A mistake in what xmtc was given; the command line prints its message and exits with status 2."""


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


class UnsupportedError(XmtcError, TypeError):
    """A thing this model cannot do, such as explaining or reading text."""


def nearest(word: str, known: Iterable[str]) -> str:
    """' Did you mean …?' when a known word is close, otherwise ''."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" Did you mean '{close[0]}'?" if close else ""
