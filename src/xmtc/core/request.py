"""Request types: the parameters of a command as a frozen dataclass, from which command-line options are derived.

A field annotated with `Option` or `Argument` is on the command line; the docstring under it is the help text. A field
whose type is a request is a group of options. Other fields are not on the command line.
"""

from __future__ import annotations

import dataclasses
import typing
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal

from xmtc.core.errors import ConfigError

Completion = Literal["models", "recipes", "suites", "datasets"]
"""Sets of names that shell completion can offer."""


@dataclasses.dataclass(frozen=True)
class Argument:
    """A positional argument of a command."""

    metavar: str
    complete: Completion | None = None
    """Names offered by shell completion."""


@dataclasses.dataclass(frozen=True)
class Option:
    """An option of a command."""

    metavar: str | None = None
    names: str | None = None
    """Its name, unless it is that of the field."""
    short: str | None = None
    """Its short form, such as -o."""
    complete: Completion | None = None
    """Names offered by shell completion."""


class BaseRequest:
    """Base of all requests: checks the values of `Literal` fields; subclasses check everything else in `check`."""

    def __post_init__(self) -> None:
        for name, choices in choices_of(type(self)).items():
            value = getattr(self, name)
            if value is not None and value not in choices:
                raise ConfigError(f"{option_name(type(self), name)} must be {' or '.join(choices)}. Got '{value}'.")
        self.check()

    def check(self) -> None:
        """Raise an error for invalid or incompatible values."""


@dataclasses.dataclass(frozen=True)
class RequestField:
    """A field of a request and its declaration."""

    name: str
    kind: Any
    """Its type without None."""
    optional: bool
    """Whether it may be None."""
    mark: Argument | Option | None

    @property
    def choices(self) -> tuple[str, ...]:
        """The values a `Literal` field can have; empty for other types."""
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
    """Field → allowed values, for all `Literal` fields."""
    return {each.name: each.choices for each in request_fields(request) if each.choices}


def option_name(request: type[BaseRequest], name: str) -> str:
    """The name of a field on the command line, for messages."""
    field = next(each for each in request_fields(request) if each.name == name)
    if isinstance(field.mark, Option):
        return (field.mark.names or f"--{name.replace('_', '-')}").partition("/")[0]
    return field.mark.metavar if isinstance(field.mark, Argument) else f"'{name}'"


def require_suffix(path: Path | None, *suffixes: str, what: str) -> None:
    """Raise an error if an output file has the wrong extension; `what` such as "the map is an HTML page"."""
    if path is not None and path.suffix.lower() not in suffixes:
        raise ConfigError(f"{path}: {what}. Use a file name that ends in {suffixes[0]}.")
