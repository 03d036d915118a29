"""Where commands print: text and JSON on standard output, notes and errors on standard error, and how wide."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from xmtc.core.request import BaseRequest, Option

PIPE_WIDTH = 80
"""Columns of tables if standard output is not a terminal."""
STDOUT = "-"


@dataclasses.dataclass
class _Mode:
    quiet: bool = False
    """Whether notes and progress are suppressed."""
    json_on_stdout: bool = False
    """Whether standard output is reserved for one JSON document."""


_mode = _Mode()


@contextmanager
def output_mode(*, quiet: bool, json_on_stdout: bool) -> Iterator[None]:
    """Apply --quiet and --json while a command runs."""
    before = dataclasses.replace(_mode)
    _mode.quiet, _mode.json_on_stdout = quiet, json_on_stdout
    try:
        yield
    finally:
        _mode.quiet, _mode.json_on_stdout = before.quiet, before.json_on_stdout


def is_quiet() -> bool:
    """Whether the command runs with --quiet."""
    return _mode.quiet


def echo(text: str) -> None:
    """Print results as text to standard output, unless JSON goes there."""
    if not _mode.json_on_stdout:
        print(text, flush=True)


def note(text: str) -> None:
    """Print a note to standard error, unless --quiet is given."""
    if not _mode.quiet:
        print(text, file=sys.stderr, flush=True)


def echo_error(text: str) -> None:
    """Print a warning or an error to standard error."""
    print(text, file=sys.stderr, flush=True)


def output_width() -> int:
    """Columns that printed text may use: those of the terminal, or 80."""
    return shutil.get_terminal_size((PIPE_WIDTH, 24)).columns if sys.stdout.isatty() else PIPE_WIDTH


@dataclasses.dataclass(frozen=True, kw_only=True)
class JsonOutput(BaseRequest):
    """The --json option of all commands that print results."""

    json_target: Annotated[str | None, Option("[=FILE]", "--json")] = None
    """Print JSON instead of text; with =FILE, print text and write JSON to FILE."""

    @property
    def on_stdout(self) -> bool:
        """Whether the JSON document goes to standard output."""
        return self.json_target == STDOUT

    @property
    def path(self) -> Path | None:
        """The file to write; None for standard output or without --json."""
        return None if self.json_target in (None, STDOUT) else Path(str(self.json_target))

    def write(self, result: Any) -> None:
        """Write the result of a command as strict JSON, if --json is given."""
        if self.json_target is None:
            return
        content = (json.dumps(strict(result), indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode(
            errors="replace"
        )
        if self.path is None:
            sys.stdout.flush()
            sys.stdout.buffer.write(content)
            sys.stdout.flush()
            return
        from xmtc.core.files import replace_file

        with replace_file(self.path) as stream:
            stream.write(content)


def strict(value: Any) -> Any:
    """A value as JSON can represent it: NaN and infinities become null, paths strings, NumPy numbers plain ones."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, Mapping):
        return {str(key): strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: strict(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if hasattr(value, "tolist"):  # NumPy scalars and arrays
        return strict(value.tolist())
    return str(value)


def snake_keys(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """The same mapping with '_' for blanks in its keys."""
    return {key.replace(" ", "_"): value for key, value in mapping.items()}
