"""AttentionXML's corpus format: one text per line, and one line of labels for each in a second file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from xmtc.core.errors import DataError
from xmtc.core.files import COMPRESSED, decode_line, replace_file
from xmtc.data.dataset import Dataset
from xmtc.data.format import FileHead, Format
from xmtc.data.lines import Parsed, numbered_lines, read_each
from xmtc.data.records import ReadOptions, Records
from xmtc.data.writing import OneLine, documents, from_line

_WHITE_SPACE = "".join(chr(code) for code in range(0x3001) if chr(code).isspace()) + "\ufeff"


def labels_beside(path: str | Path) -> Path | None:
    """Return the label file of 'train_raw_texts.txt' or 'train_texts.txt': 'train_labels.txt', compressed or not."""
    endings = "|".join(map(re.escape, COMPRESSED))
    found = re.fullmatch(rf"(.*?)(?:_raw)?_texts\.txt(?:{endings})*", Path(path).name, re.IGNORECASE | re.DOTALL)
    if found is None:
        return None
    plain = Path(path).with_name(f"{found[1]}_labels.txt")
    packed = [plain.with_name(plain.name + ending) for ending in COMPRESSED]
    return next((place for place in (plain, *packed) if place.is_file()), plain)


def read_attentionxml(path: str | Path, options: ReadOptions) -> Iterator[Records]:
    """Read one text per line, and as many lines of space-separated labels from the label file."""
    labels_path = labels_beside(path)
    if labels_path is None:
        raise DataError(f"{path}: the file name is not NAME_texts.txt or NAME_raw_texts.txt. Rename the file.")
    if not labels_path.exists():
        if options.labelled:
            raise DataError(f"{path}: no label file {labels_path.name} in the same folder. Add it.")
        yield from read_each(
            numbered_lines(path), options, lambda number, line: (from_line(decode_line(line, path, number)), None)
        )
        return

    def parse(number: int, lines: tuple[bytes, bytes]) -> Parsed:
        text, labels = lines
        return from_line(decode_line(text, path, number)), decode_line(labels, labels_path, number).split()

    yield from read_each(_pairs(path, labels_path), options, parse)


def _pairs(texts: str | Path, labels: Path) -> Iterator[list[tuple[int, tuple[bytes, bytes]]]]:
    """Yield pairs of lines of two files, which must have the same number of lines."""
    others = (line for block in numbered_lines(labels) for line in block)
    for block in numbered_lines(texts):
        beside = list(islice(others, len(block)))
        if len(beside) < len(block):
            raise DataError(
                f"{labels}: no labels for line {block[len(beside)][0]} of {texts}. Write one line of labels per text."
            )
        yield [(number, (text, line)) for (number, text), (_, line) in zip(block, beside, strict=True)]
    extra = next(others, None)
    if extra is not None:
        raise DataError(f"{labels}:{extra[0]}: no matching line in {texts}. Write one line of labels per text.")


def write_attentionxml(dataset: Dataset, path: Path, lossy: bool = False) -> int:
    """Write NAME_texts.txt and NAME_labels.txt; return the number of lossy replacements."""
    labels_path = labels_beside(path)
    if labels_path is None:
        raise DataError(
            f"{path}: the file name is not NAME_texts.txt or NAME_raw_texts.txt. Rename the file; labels are written "
            "to NAME_labels.txt."
        )
    fit, names = OneLine(path, "attentionxml", lossy), {}  # type: OneLine, dict[str, str]
    with replace_file(labels_path) as keys_stream, replace_file(path) as stream:
        for document, text, keys in documents(dataset):
            stream.write(fit.text(text, document).encode() + b"\n")
            written = " ".join(fit.key(key, _WHITE_SPACE, names) for key in keys)
            keys_stream.write(written.encode() + b"\n")
    return fit.changed


def _is_attentionxml(head: FileHead) -> bool:
    """Whether the name matches and the label file exists."""
    beside = None if head.is_pipe else labels_beside(head.path)
    return beside is not None and beside.is_file()


ATTENTIONXML = Format(
    name="attentionxml",
    description="NAME_texts.txt and NAME_labels.txt",
    read=read_attentionxml,
    write=write_attentionxml,
    sniff=_is_attentionxml,
    part_name="{}_texts.txt",
    endings=("_texts.txt",),
    labels_beside=labels_beside,
)
