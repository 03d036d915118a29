"""Command-line options from request types: a command takes a request, and its fields become the options."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

import typer

from xmtc.cli.common import echo_error, make_runtime
from xmtc.core.config import field_docs
from xmtc.core.errors import DataError
from xmtc.core.request import Argument, BaseRequest, Option, RequestField, request_fields
from xmtc.workflows.data_requests import ReadingOptions

if TYPE_CHECKING:
    from xmtc.core.runtime import Runtime

MOST_SHOWN = 10
"""Skipped lines that are listed."""

AnyRequest = TypeVar("AnyRequest", bound=BaseRequest)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine(BaseRequest):
    """The machine that a command runs on."""

    threads: Annotated[int | None, Option("N")] = None
    """CPU threads (default: all)."""
    device: Annotated[str, Option("auto|cpu|cuda|cuda:N")] = "auto"
    """Where neural models run; auto takes CUDA where there is one."""

    def runtime(self) -> Runtime:
        return make_runtime(**vars(self))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingMachine(Machine):
    """The machine that models are trained on."""

    precision: Annotated[str, Option("auto|float32|bfloat16")] = "auto"
    """Arithmetic of neural models; auto takes bfloat16 on CUDA."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SeededMachine(TrainingMachine):
    """The machine that one model is trained on, and its random numbers."""

    seed: Annotated[int, Option("N")] = 0
    """Seed of all randomness."""


class Partial(Generic[AnyRequest]):
    """A request of which the command itself gives the fields that are no options: `request(test=…)`."""

    def __init__(self, kind: type[AnyRequest], given: dict[str, Any]) -> None:
        self._kind, self.given = kind, given

    def __call__(self, **fields: Any) -> AnyRequest:
        return self._kind(**self.given, **fields)


def takes_request(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter of a command that is a request type by the options that the request is made of."""
    signature = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    requests: dict[str, type[BaseRequest]] = {}
    partial: set[str] = set()
    for name, parameter in signature.parameters.items():
        kind = parameter.annotation
        if typing.get_origin(kind) is Partial:
            (kind,) = typing.get_args(kind)
            partial.add(name)
        if isinstance(kind, type) and issubclass(kind, BaseRequest):
            requests[name] = kind
            parameters += option_parameters(kind)
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    def run(**given: Any) -> None:
        values = {name: _field_values(kind, given) for name, kind in requests.items()}
        made = {
            name: Partial(kind, values[name]) if name in partial else kind(**values[name])
            for name, kind in requests.items()
        }
        try:
            command(**given, **made)
        except DataError as error:
            if not str(error).startswith("-:"):
                raise
            raise DataError(f"standard input{str(error).removeprefix('-')}") from None
        for fields in values.values():
            if isinstance(reading := fields.get("reading"), ReadingOptions):
                _show_notes(reading)  # a mistake gets one line, and nothing before it

    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, command.__module__
    return run


def option_parameters(request: type[BaseRequest]) -> list[inspect.Parameter]:
    """The options and arguments that the fields of a request, and of its groups, stand for."""
    docs, defaults = field_docs(request), {each.name: each.default for each in dataclasses.fields(request)}  # type: ignore[arg-type]
    found = []
    for field in request_fields(request):
        if _is_request(field.kind):
            found += option_parameters(field.kind)
        elif field.mark is not None:
            found.append(_parameter(field, defaults[field.name], " ".join(docs.get(field.name, "").split())))
    return found


def _is_request(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseRequest)


def _parameter(field: RequestField, default: Any, sentence: str) -> inspect.Parameter:
    kind, optional = field.kind, field.optional
    if field.choices:
        kind = str  # the request itself refuses other words, in one line
    elif typing.get_origin(kind) is tuple:
        kind = list[typing.get_args(kind)[0]]  # type: ignore[misc]
        if default is not dataclasses.MISSING:
            optional, default = True, None
    if isinstance(field.mark, Argument):
        info: Any = typer.Argument(metavar=field.mark.metavar, help=sentence)
    else:
        assert isinstance(field.mark, Option)
        names = [field.mark.names] if field.mark.names else []
        if kind is bool and default is False:
            names = [f"--{field.name.replace('_', '-')}"]  # a flag without its opposite
        info = typer.Option(*names, metavar=field.mark.metavar or "|".join(field.choices) or None, help=sentence)
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if default is dataclasses.MISSING else default,
        annotation=Annotated[kind | None if optional else kind, info],
    )


def _field_values(request: type[BaseRequest], given: dict[str, Any]) -> dict[str, Any]:
    """Values for the fields of a request, taken out of what was given on the command line."""
    values: dict[str, Any] = {}
    for field in request_fields(request):
        if _is_request(field.kind):
            values[field.name] = field.kind(**_field_values(field.kind, given))
        elif field.mark is not None:
            value = given.pop(field.name)
            values[field.name] = tuple(value or ()) if typing.get_origin(field.kind) is tuple else value
    return values


def _show_notes(reading: ReadingOptions) -> None:
    """Notes on what was read, and the first of the lines that were skipped, to standard error."""
    messages = reading.options.bad_lines.messages
    for note in dict.fromkeys(reading.options.notes):
        echo_error(f"note: {note}")
    if not messages:
        return
    echo_error(f"skipped {len(messages):,} bad {'line' if len(messages) == 1 else 'lines'}:")
    for message in messages[:MOST_SHOWN]:
        echo_error(f"  {message}")
    if len(messages) > MOST_SHOWN:
        echo_error(f"  … and {len(messages) - MOST_SHOWN:,} more")
