"""Calls of the command line within the process of a test: `call`, and `mistake` for the line that an error prints."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pytest

from xmtc.cli.main import main


@dataclass(frozen=True)
class Done:
    """How a command ended and what it said."""

    status: int
    out: str
    err: str

    def lines(self) -> list[Any]:
        """Standard output as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


def call(*arguments: object, stdin: str | bytes = "", ok: bool = True) -> Done:
    """`xmtc …` without a new process. An error that is no user's mistake comes out as it is and fails the test."""
    given = stdin.encode() if isinstance(stdin, str) else stdin
    streams = {name: io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for name in ("stdout", "stderr")}
    streams["stdin"] = io.TextIOWrapper(io.BufferedReader(io.BytesIO(given)), encoding="utf-8")  # type: ignore[arg-type]
    with mock.patch.multiple(sys, argv=["xmtc", *map(str, arguments)], **streams), pytest.raises(SystemExit) as ended:
        main()
    said = []
    for name in ("stdout", "stderr"):
        streams[name].flush()
        said.append(streams[name].buffer.getvalue().decode())  # type: ignore[attr-defined]
    done = Done(int(ended.value.code or 0), *said)
    if ok:
        assert done.status == 0, done.err
    return done


def mistake(*arguments: object, stdin: str | bytes = "") -> str:
    """The one line that a user's mistake gets."""
    done = call(*arguments, stdin=stdin, ok=False)
    assert done.status == 2, done
    assert done.err.startswith("xmtc: "), done.err
    assert done.err.count("\n") == 1, done.err
    assert done.err.endswith("\n")
    return done.err.removeprefix("xmtc: ").rstrip("\n")
