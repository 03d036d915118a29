"""Predictions on their way out: JSONL, TSV, Parquet or a table; to a file at once or not at all."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from xmtc.cli.show import ranking
from xmtc.core.errors import ConfigError, nearest
from xmtc.core.files import plain_name, replace_file
from xmtc.data.topk import TopK, write_parquet

FORMATS = ("jsonl", "tsv", "parquet", "table")
ENDINGS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".tsv": "tsv", ".parquet": "parquet", ".txt": "table", "": "jsonl"}


def chosen_format(given: str | None, output: Path | None) -> str:
    """What was asked for; else what the file's name says; else a table for a person and JSONL for a pipe."""
    if given is not None:
        if given not in FORMATS:
            raise ConfigError(
                f"--output-format must be one of {', '.join(FORMATS)}. Got '{given}'.{nearest(given, FORMATS)}"
            )
        if given == "parquet" and output is None:
            raise ConfigError("--output-format parquet needs a file. Add --output FILE.")
        return given
    if output is not None:
        suffix = Path(plain_name(output)).suffix
        if suffix not in ENDINGS:
            known = ", ".join(ending for ending in ENDINGS if ending)
            raise ConfigError(f"{output}: the ending says no known form. Use one of {known}, or --output-format.")
        return ENDINGS[suffix]
    return "table" if sys.stdout.isatty() else "jsonl"


def write_answers(answers: Iterable[TopK], output: Path | None, form: str) -> int:
    """Write batches as they come; returns the number of documents."""
    if output is None:
        return _write_text(answers, sys.stdout.buffer, form)
    with replace_file(output) as stream:
        return write_parquet(answers, stream) if form == "parquet" else _write_text(answers, stream, form)


def _write_text(answers: Iterable[TopK], stream: IO[bytes], form: str) -> int:
    count = 0
    for answer in answers:
        stream.write(_text(answer, form, first=count == 0).encode())
        stream.flush()
        count += len(answer)
    return count


def _text(answer: TopK, form: str, first: bool) -> str:
    if form == "table":
        return ranking(answer) + "\n"
    if form == "tsv":
        head = "id\trank\tkey\tname\tscore\n" if first else ""
        return head + "".join(
            f"{_cell(row['id'])}\t{rank}\t{_cell(label['key'])}\t{_cell(label['name'])}\t{label['score']}\n"
            for row in answer.rows()
            for rank, label in enumerate(row["labels"], start=1)
        )
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in answer.rows())


def _cell(text: str) -> str:
    """A TSV cell: tabs and line ends inside become blanks."""
    return " ".join(text.split("\t")).replace("\n", " ").replace("\r", " ")
