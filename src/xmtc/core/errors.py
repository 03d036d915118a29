"""Errors shown to users. Each message is one line: what is wrong, where, and the remedy."""

from __future__ import annotations

import difflib
import numbers
from collections.abc import Collection

from xmtc.core.constants import TORCH_EXTRAS, TORCH_VERSION


class XmtcError(Exception):
    """Base of all errors caused by user input; the command line prints the message and exits with status 2."""


class XmtcWarning(FutureWarning):
    """A deprecated or questionable input that still works; the message is one line."""


class ConfigError(XmtcError, ValueError):
    """An unknown setting or an invalid value."""


class DataError(XmtcError, ValueError):
    """A file or an array that cannot be read or written as documents or labels."""


class NotFittedError(XmtcError, RuntimeError):
    """A model that was used before it was trained."""


class MissingExtraError(XmtcError, ImportError):
    """An optional dependency that is not installed."""


class ModelFormatError(XmtcError, ValueError):
    """A folder that is not a model folder, or a damaged one."""


class RefusedError(XmtcError, RuntimeError):
    """A result that was discarded because it would make the model worse."""


class UnsupportedError(XmtcError, TypeError):
    """An operation the model does not support, such as explaining or reading text."""


def install_command(extra: str) -> str:
    """The pip command that installs an extra of xmtc; pins PyTorch for extras that depend on it."""
    pinned = f' "torch=={TORCH_VERSION}"' if extra in TORCH_EXTRAS else ""
    return f'pip install "xmtc[{extra}]"{pinned}'


def reinstall_command(package: str) -> str:
    """The pip command that repairs an installed package."""
    return f"pip install --force-reinstall {package}"


def upgrade_command(package: str) -> str:
    """The pip command that installs the newest version of a package."""
    return f"pip install --upgrade {package}"


def missing_extra(what: str, extra: str) -> MissingExtraError:
    """The error for a missing optional dependency; `what` such as "plots need matplotlib"."""
    return MissingExtraError(f"{what}. Install it with: {install_command(extra)}")


def check_positive(name: str, value: object) -> None:
    """Refuse a count, such as 'k', that is not an integer ≥ 1."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise ConfigError(f"'{name}' must be an integer ≥ 1. Got {shown(str(value))}.")


def shown(value: object, limit: int = 60) -> str:
    """A user's value as it appears in a message: on one line, printable and short."""
    text = value if isinstance(value, str) else repr(value)
    text = text if len(text) <= limit else text[: limit - 1] + "…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def nearest(word: str, known: Collection[str]) -> str:
    """' Did you mean …?' if a known word is similar, otherwise ''."""
    if len(word) > 200:  # not a typing error
        return ""
    if len(known) > 20_000:  # comparing is slow: consider only likely typing errors
        known = [name for name in known if name[:1] == word[:1] and abs(len(name) - len(word)) <= 2]
    close = difflib.get_close_matches(word, list(known)[:200_000], n=1, cutoff=0.6)
    return f" Did you mean '{shown(close[0])}'?" if close else ""
