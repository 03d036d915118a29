"""One document a line: plain text, fastText's labelled lines, and texts with their labels in a file beside them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from xmtc.core.errors import DataError, shown
from xmtc.core.files import COMPRESSED, decode_line, read_blocks, replace_file
from xmtc.data.dataset import Dataset
from xmtc.data.records import ReadOptions, Records
from xmtc.data.writing import OneLine, from_line, label_lists

Parsed = tuple[str, list[str] | None]  # a text and its labels
Line = TypeVar("Line")

_BLANKS = " \t\v\f\0"
_HEAD = re.compile(rf"(?:__label__[^{_BLANKS}]*(?:[ \t\f\0]|(?=\v)|$))*")
_LABEL = re.compile(rf"(?:^|[{_BLANKS}])__label__([^{_BLANKS}]*)")
_FASTTEXT_PARTS = " \t\n\v\f\r\0"
_WHITE_SPACE = "".join(chr(code) for code in range(0x3001) if chr(code).isspace()) + "\ufeff"


def numbered_lines(path: str | Path) -> Iterator[list[tuple[int, bytes]]]:
    """(line number, line) of a file, a block at a time."""
    number = 0
    for block in read_blocks(path):
        lines = block.removesuffix(b"\n").split(b"\n")
        yield list(enumerate(lines, start=number + 1))
        number += len(lines)


def read_each(
    blocks: Iterable[list[tuple[int, Line]]], options: ReadOptions, parse: Callable[[int, Line], Parsed | None]
) -> Iterator[Records]:
    """Documents that are a line each; `parse` makes text and labels of a line, or None of one to pass over."""
    for block in blocks:
        lines: list[int] = []
        texts: list[str] = []
        labels: list[list[str]] = []
        labelled = False
        for number, line in block:
            try:
                parsed = parse(number, line)
            except DataError as error:
                options.bad_lines.add(error)
                continue
            if parsed is None:
                continue
            lines.append(number)
            texts.append(parsed[0])
            labels.append(parsed[1] or [])
            labelled |= parsed[1] is not None
        yield Records(
            ids=[str(number - 1) for number in lines],
            lines=lines,
            fields={"text": pa.array(texts, pa.string())},
            label_counts=[len(row) for row in labels] if labelled else None,
            label_keys=[key for row in labels for key in row],
        )


def read_text(path: str | Path, options: ReadOptions) -> Iterator[Records]:
    """One document a line; an empty line is an empty document, so that answers stay in step with lines."""
    return read_each(numbered_lines(path), options, lambda number, line: (decode_line(line, path, number), None))


# ---- fastText


def is_fasttext(start: bytes) -> bool:
    return re.search(rb"(?:^|[ \t\n])__label__[^ \t\n]", start) is not None


def read_fasttext(path: str | Path, options: ReadOptions) -> Iterator[Records]:
    """'__label__a __label__b the text': labels may stand anywhere in the line, a line without any has none."""

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
            raise DataError(f"{path}:{number}: a label is empty. Write its name right after __label__.")
        return from_line(text), labels

    return read_each(numbered_lines(path), options, parse)


def write_fasttext(dataset: Dataset, path: Path, lossy: bool = False) -> int:
    fit, names = OneLine(path, "fasttext", lossy), {}  # type: OneLine, dict[str, str]
    with replace_file(path) as stream:
        for batch in dataset.batches(1024):
            rows = zip(batch.document_ids(), batch.text().to_pylist(), label_lists(batch), strict=True)
            for document, text, keys in rows:
                before, line = fit.changed, fit.text(text, document)
                if "__label__" in line and _LABEL.search(line):
                    fit.changed = before  # a text counts once
                    fit.lose(f"the text of document '{shown(document)}' holds a word that begins with __label__")
                    while "__label__" in line:  # taking one out can put another together
                        line = line.replace("__label__", "label")
                labels = "".join(f"__label__{fit.key(key, _FASTTEXT_PARTS, names)} " for key in keys)
                stream.write(f"{labels}{line}\n".encode())
    return fit.changed


# ---- texts and labels in two files, line by line


def labels_beside(path: str | Path) -> Path | None:
    """The label file of 'train_raw_texts.txt' or 'train_texts.txt': 'train_labels.txt', compressed or not."""
    endings = "|".join(map(re.escape, COMPRESSED))
    found = re.fullmatch(rf"(.*?)(?:_raw)?_texts\.txt(?:{endings})*", Path(path).name, re.IGNORECASE | re.DOTALL)
    if found is None:
        return None
    plain = Path(path).with_name(f"{found[1]}_labels.txt")
    packed = [plain.with_name(plain.name + ending) for ending in COMPRESSED]
    return next((place for place in (plain, *packed) if place.is_file()), plain)


def read_attentionxml(path: str | Path, options: ReadOptions) -> Iterator[Records]:
    """One text a line, and as many lines of labels, blanks between them, in the file beside."""
    labels_path = labels_beside(path)
    if labels_path is None:
        raise DataError(f"{path}: not of the form NAME_texts.txt or NAME_raw_texts.txt. Rename it.")
    if not labels_path.exists():
        if options.labelled:
            raise DataError(f"{path}: there is no {labels_path.name} with the labels beside it. Add it.")
        yield from read_each(
            numbered_lines(path), options, lambda number, line: (from_line(decode_line(line, path, number)), None)
        )
        return

    def parse(number: int, lines: tuple[bytes, bytes]) -> Parsed:
        text, labels = lines
        return from_line(decode_line(text, path, number)), decode_line(labels, labels_path, number).split()

    yield from read_each(_pairs(path, labels_path), options, parse)


def _pairs(texts: str | Path, labels: Path) -> Iterator[list[tuple[int, tuple[bytes, bytes]]]]:
    """Lines of two files side by side; they must be equally many."""
    others = (line for block in numbered_lines(labels) for line in block)
    for block in numbered_lines(texts):
        beside = list(islice(others, len(block)))
        if len(beside) < len(block):
            raise DataError(f"{labels}: ends before line {block[len(beside)][0]} of {texts}. Give each text a line.")
        yield [(number, (text, line)) for (number, text), (_, line) in zip(block, beside, strict=True)]
    extra = next(others, None)
    if extra is not None:
        raise DataError(f"{labels}:{extra[0]}: no such line in {texts}. Give each text one line of labels.")


def write_attentionxml(dataset: Dataset, path: Path, lossy: bool = False) -> int:
    labels_path = labels_beside(path)
    if labels_path is None:
        raise DataError(f"{path}: name it NAME_texts.txt or NAME_raw_texts.txt; labels go to NAME_labels.txt.")
    fit, names = OneLine(path, "attentionxml", lossy), {}  # type: OneLine, dict[str, str]
    with replace_file(labels_path) as keys_stream, replace_file(path) as stream:
        for batch in dataset.batches(1024):
            rows = zip(batch.document_ids(), batch.text().to_pylist(), label_lists(batch), strict=True)
            for document, text, keys in rows:
                stream.write(fit.text(text, document).encode() + b"\n")
                written = " ".join(fit.key(key, _WHITE_SPACE, names) for key in keys)
                keys_stream.write(written.encode() + b"\n")
    return fit.changed
