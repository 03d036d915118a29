"""The options of every command that reads documents, written once, and what is said of lines that were left out."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xmtc.cli.common import check_choice, tell
from xmtc.core.errors import DataError

if TYPE_CHECKING:
    from xmtc.data.records import ReadOptions

MOST_SHOWN = 10
SEPARATORS = {"tab": "\t", "space": " ", "comma": ",", "semicolon": ";"}

Labels = Annotated[Path | None, typer.Option(help="Label names: JSONL, TSV, SKOS or a list.", metavar="FILE")]
NotInLabels = Annotated[str, typer.Option(metavar="refuse|drop", help="Labels that are not in --labels.")]
Language = Annotated[str | None, typer.Option(help="Language of the names in a SKOS file.", metavar="CODE")]


def takes(name: str, made: Callable[..., Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command that takes `name` the command-line options of the function that makes it."""
    own = inspect.signature(made, eval_str=True).parameters

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)

        def run(**given: Any) -> None:
            mine = {option: given.pop(option) for option in own}
            command(**given, **{name: made(**mine)})

        kept = [parameter for option, parameter in signature.parameters.items() if option != name]
        run.__signature__ = signature.replace(parameters=[*kept, *own.values()])  # type: ignore[attr-defined]
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        run.__annotations__ = {}  # the signature has them
        return run

    return decorate


def reads_documents(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command that takes `options` the command-line options that they are made of."""

    @functools.wraps(command)
    def run(*, options: ReadOptions, **given: Any) -> None:
        try:
            command(**given, options=options)
        except DataError as error:
            if not str(error).startswith("-:"):
                raise
            raise DataError(f"standard input{str(error).removeprefix('-')}") from None
        _tell_notes(options)  # a mistake gets one line, and nothing before it

    return takes("options", read_options)(run)


def read_options(
    *,
    file_format: Annotated[
        str | None,
        typer.Option("--format", help="Format of the documents (default: told by name and content).", metavar="NAME"),
    ] = None,
    text_field: Annotated[
        str | None, typer.Option(help="Fields that hold the text, such as title,body.", metavar="NAME,…")
    ] = None,
    label_field: Annotated[str | None, typer.Option(help="Field that holds the labels.", metavar="NAME")] = None,
    id_field: Annotated[str | None, typer.Option(help="Field that holds the document id.", metavar="NAME")] = None,
    label_separator: Annotated[
        str, typer.Option(help="What parts labels in a cell of a table; also: tab, space, comma.", metavar="S")
    ] = ";",
    on_bad_line: Annotated[
        str, typer.Option(help="Lines that cannot be read: stop there, or skip and list them.", metavar="refuse|skip")
    ] = "refuse",
) -> Any:  # ReadOptions, which is imported when a command runs
    """The options as readers take them."""
    from xmtc.data.records import BadLines, ReadOptions

    check_choice("--on-bad-line", on_bad_line, ("refuse", "skip"))
    fields = [name.strip() for name in (text_field or "").split(",") if name.strip()]
    return ReadOptions(
        file_format=file_format,
        text_fields=fields or None,
        label_field=label_field,
        id_field=id_field,
        label_separator=SEPARATORS.get(label_separator, label_separator),
        bad_lines=BadLines(on_bad_line == "skip"),
    )


def _tell_notes(options: ReadOptions) -> None:
    """What a user should know, how many lines were skipped, and the first of them, to standard error."""
    messages = options.bad_lines.messages
    for note in dict.fromkeys(options.notes):
        tell(f"note: {note}")
    if not messages:
        return
    tell(f"skipped {len(messages):,} bad {'line' if len(messages) == 1 else 'lines'}:")
    for message in messages[:MOST_SHOWN]:
        tell(f"  {message}")
    if len(messages) > MOST_SHOWN:
        tell(f"  … and {len(messages) - MOST_SHOWN:,} more")
