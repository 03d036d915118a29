"""fastText format: '__label__a __label__b the text', one document per line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from xmtc.core.errors import DataError, shown
from xmtc.core.files import decode_line, replace_file
from xmtc.data.dataset import Dataset
from xmtc.data.format import FileHead, Format
from xmtc.data.lines import Parsed, numbered_lines, read_each
from xmtc.data.records import ReadOptions, Records
from xmtc.data.writing import OneLine, documents, from_line

_ENDINGS = (".ft",)
_BLANKS = " \t\v\f\0"
_HEAD = re.compile(rf"(?:__label__[^{_BLANKS}]*(?:[ \t\f\0]|(?=\v)|$))*")
_LABEL = re.compile(rf"(?:^|[{_BLANKS}])__label__([^{_BLANKS}]*)")
_FASTTEXT_PARTS = " \t\n\v\f\r\0"


def _is_fasttext(head: FileHead) -> bool:
    return bool(re.search(rb"(?:^|[ \t\n])__label__[^ \t\n]", head.start)) or head.name.endswith(_ENDINGS)


def read_fasttext(path: str | Path, options: ReadOptions) -> Iterator[Records]:
    """Read lines '__label__a __label__b the text'; labels may be anywhere in the line, or missing."""

    def parse(number: int, line: bytes) -> Parsed:
        text = decode_line(line, path, number)
        if "__label__" not in text:
            return from_line(text), []
        head = _HEAD.match(text)
        start = head.end() if head else 0
        labels, text = _LABEL.findall(text[:start]), text[start:]
        if "__label__" in text:
            labels, text = labels + _LABEL.findall(text), _LABEL.sub("", text)
        if "" in labels:
            raise DataError(f"{path}:{number}: a label is empty. Write its name directly after __label__.")
        return from_line(text), labels

    return read_each(numbered_lines(path), options, parse)


def write_fasttext(dataset: Dataset, path: Path, lossy: bool = False) -> int:
    """Write one line per document, labels first; return the number of lossy replacements."""
    fit, names = OneLine(path, "fasttext", lossy), {}  # type: OneLine, dict[str, str]
    with replace_file(path) as stream:
        for document, text, keys in documents(dataset):
            before, line = fit.changed, fit.text(text, document)
            if "__label__" in line and _LABEL.search(line):
                fit.changed = before  # count each text once
                fit.lose(f"the text of document '{shown(document)}' contains a word that starts with __label__")
                while "__label__" in line:  # removing one occurrence can form another
                    line = line.replace("__label__", "label")
            labels = "".join(f"__label__{fit.key(key, _FASTTEXT_PARTS, names)} " for key in keys)
            stream.write(f"{labels}{line}\n".encode())
    return fit.changed


FASTTEXT = Format(
    name="fasttext",
    description="__label__a __label__b text",
    read=read_fasttext,
    write=write_fasttext,
    sniff=_is_fasttext,
    part_name="{}.txt",
    endings=_ENDINGS,
)
