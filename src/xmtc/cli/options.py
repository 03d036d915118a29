"""Derive command-line options from request types: the fields of a request become the options of a command."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

import typer

from xmtc.cli.common import make_runtime
from xmtc.cli.completion import completer, metavar_choices
from xmtc.cli.output import JsonOutput, echo_error, note, output_mode
from xmtc.core.config import field_docs
from xmtc.core.errors import DataError
from xmtc.core.request import Argument, BaseRequest, Option, RequestField, request_fields
from xmtc.workflows.data_requests import ReadingOptions

if TYPE_CHECKING:
    from xmtc.core.runtime import Runtime

MOST_SHOWN = 10
"""Skipped lines that are listed."""
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Do not print progress or notes to standard error.")]

AnyRequest = TypeVar("AnyRequest", bound=BaseRequest)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine(BaseRequest):
    """The machine that a command runs on."""

    threads: Annotated[int | None, Option("N")] = None
    """CPU threads (default: all)."""
    device: Annotated[str, Option("auto|cpu|cuda|cuda:N")] = "auto"
    """Device for neural models; auto uses CUDA if available."""

    def runtime(self) -> Runtime:
        """The runtime for these options."""
        return make_runtime(**vars(self))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingMachine(Machine):
    """The machine that models are trained on."""

    precision: Annotated[str, Option("auto|float32|bfloat16")] = "auto"
    """Floating-point precision of neural models; auto uses bfloat16 on CUDA."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SeededMachine(TrainingMachine):
    """The machine that one model is trained on, and the random seed."""

    seed: Annotated[int, Option("N")] = 0
    """Random seed."""


class Partial(Generic[AnyRequest]):
    """A request that the command completes with the fields that are not options: `request(test=…)`."""

    def __init__(self, kind: type[AnyRequest], given: dict[str, Any]) -> None:
        self._kind, self.given = kind, given

    def __call__(self, **fields: Any) -> AnyRequest:
        return self._kind(**self.given, **fields)


def takes_request(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter of a command that is a request type with the options of the request, and add --quiet."""
    signature = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    last: list[inspect.Parameter] = []
    requests: dict[str, type[BaseRequest]] = {}
    partial: set[str] = set()
    for name, parameter in signature.parameters.items():
        kind = parameter.annotation
        if typing.get_origin(kind) is Partial:
            (kind,) = typing.get_args(kind)
            partial.add(name)
        if isinstance(kind, type) and issubclass(kind, BaseRequest):
            requests[name] = kind
            (last if kind is JsonOutput else parameters).extend(option_parameters(kind))
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
    last.append(inspect.Parameter("quiet", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Quiet))
    parameters += last

    def run(*, quiet: bool, **given: Any) -> None:
        values = {name: _field_values(kind, given) for name, kind in requests.items()}
        made = {
            name: Partial(kind, values[name]) if name in partial else kind(**values[name])
            for name, kind in requests.items()
        }
        json_on_stdout = any(isinstance(each, JsonOutput) and each.on_stdout for each in made.values())
        with output_mode(quiet=quiet, json_on_stdout=json_on_stdout):
            try:
                command(**given, **made)
            except DataError as error:
                if not str(error).startswith("-:"):
                    raise
                raise DataError(f"standard input{str(error).removeprefix('-')}") from None
            for fields in values.values():
                if isinstance(reading := fields.get("reading"), ReadingOptions):
                    _show_notes(reading)  # after the command, so that an error is the only line printed

    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, command.__module__
    return run


def option_parameters(request: type[BaseRequest]) -> list[inspect.Parameter]:
    """The options and arguments for the fields of a request and of its groups."""
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
        kind = str  # the request itself rejects other values
    elif typing.get_origin(kind) is tuple:
        kind = list[typing.get_args(kind)[0]]  # type: ignore[misc]
        if default is not dataclasses.MISSING:
            optional, default = True, None
    if isinstance(field.mark, Argument):
        complete = completer(field.mark.complete) if field.mark.complete else None
        info: Any = typer.Argument(metavar=field.mark.metavar, help=sentence, autocompletion=complete)
    else:
        assert isinstance(field.mark, Option)
        names = [field.mark.names] if field.mark.names else []
        if not names and (field.mark.short or (kind is bool and default is False)):  # a flag without --no-…
            names = [f"--{field.name.replace('_', '-')}"]
        if field.mark.short:
            names.append(field.mark.short)
        metavar = field.mark.metavar or "|".join(field.choices) or None
        offered = field.mark.complete or field.choices or metavar_choices(metavar)
        info = typer.Option(
            *names, metavar=metavar, help=sentence, autocompletion=completer(offered) if offered else None
        )
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if default is dataclasses.MISSING else default,
        annotation=Annotated[kind | None if optional else kind, info],
    )


def _field_values(request: type[BaseRequest], given: dict[str, Any]) -> dict[str, Any]:
    """The values for the fields of a request, removed from the command-line values `given`."""
    values: dict[str, Any] = {}
    for field in request_fields(request):
        if _is_request(field.kind):
            values[field.name] = field.kind(**_field_values(field.kind, given))
        elif field.mark is not None:
            value = given.pop(field.name)
            values[field.name] = tuple(value or ()) if typing.get_origin(field.kind) is tuple else value
    return values


def _show_notes(reading: ReadingOptions) -> None:
    """Print notes on the files that were read, and the first skipped lines."""
    messages = reading.options.bad_lines.messages
    for line in dict.fromkeys(reading.options.notes):
        note(f"note: {line}")
    if not messages:
        return
    echo_error(f"skipped {len(messages):,} bad {'line' if len(messages) == 1 else 'lines'}:")
    for message in messages[:MOST_SHOWN]:
        echo_error(f"  {message}")
    if len(messages) > MOST_SHOWN:
        echo_error(f"  … and {len(messages) - MOST_SHOWN:,} more")
