"""Request types: what a verb takes, as a frozen dataclass from which command-line options are derived.

A field with an `Option` or `Argument` beside its type is one of the command, too; the sentence under it is the help.
A field whose type is a request is a group of options. Other fields are not on the command line.
"""

from __future__ import annotations

import dataclasses
import typing
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal

from xmtc.core.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class Argument:
    """A positional argument of a command."""

    metavar: str


@dataclasses.dataclass(frozen=True)
class Option:
    """An option of a command; `names` where it is not called as the field is."""

    metavar: str | None = None
    names: str | None = None


class BaseRequest:
    """Base of all requests: values of `Literal` fields are checked here, everything else in `check`."""

    def __post_init__(self) -> None:
        for name, choices in choices_of(type(self)).items():
            value = getattr(self, name)
            if value is not None and value not in choices:
                raise ConfigError(f"{option_name(type(self), name)} must be {' or '.join(choices)}. Got '{value}'.")
        self.check()

    def check(self) -> None:
        """Refuse values that do not go together, in one line with the remedy."""


@dataclasses.dataclass(frozen=True)
class RequestField:
    """A field of a request with what its declaration says."""

    name: str
    kind: Any
    """Its type without None."""
    optional: bool
    """Whether it may be None."""
    mark: Argument | Option | None

    @property
    def choices(self) -> tuple[str, ...]:
        return typing.get_args(self.kind) if typing.get_origin(self.kind) is Literal else ()


def request_fields(request: type[BaseRequest]) -> tuple[RequestField, ...]:
    """The fields of a request type, in the order of their declaration."""
    return _request_fields(typing.cast("Any", request))


@cache
def _request_fields(request: Any) -> tuple[RequestField, ...]:
    hints = typing.get_type_hints(request, include_extras=True)
    found = []
    for each in dataclasses.fields(request):
        kind, mark = hints[each.name], None
        if typing.get_origin(kind) is typing.Annotated:
            kind, mark = typing.get_args(kind)
        members = typing.get_args(kind) if typing.get_origin(kind) in (UnionType, typing.Union) else (kind,)
        kinds = [member for member in members if member is not NoneType]
        found.append(RequestField(each.name, kinds[0], NoneType in members, mark))
    return tuple(found)


def choices_of(request: type[BaseRequest]) -> dict[str, tuple[str, ...]]:
    """Field → the words it may be, of the fields that are one of a few words."""
    return {each.name: each.choices for each in request_fields(request) if each.choices}


def option_name(request: type[BaseRequest], name: str) -> str:
    """What a field is called on the command line, for messages."""
    field = next(each for each in request_fields(request) if each.name == name)
    if isinstance(field.mark, Option):
        return (field.mark.names or f"--{name.replace('_', '-')}").partition("/")[0]
    return field.mark.metavar if isinstance(field.mark, Argument) else f"'{name}'"


def require_suffix(path: Path | None, *suffixes: str, what: str) -> None:
    """Refuse an output file whose name does not end as its content demands; `what` such as "pictures are SVG"."""
    if path is not None and path.suffix.lower() not in suffixes:
        raise ConfigError(f"{path}: {what}. Let the name end in {suffixes[0]}.")
