"""Public data sets of the field: what they are, where they lie, and which of their files to read.

The entries are in catalogue.toml: a table for each, with the fields of `DataSet`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from xmtc.core.errors import ConfigError, nearest, shown

ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2", ".zip")


@dataclass(frozen=True)
class RemoteFile:
    """One file at its source. Size and sum are as somebody has published them, None where nobody has."""

    url: str
    size: int | None = None
    sha256: str | None = None
    saved_as: str = ""
    """Its name here, where the address does not end in one."""
    by_hand: str = ""
    """What to click: `url` is then a page for a browser, and no plain request gets the file."""

    @property
    def name(self) -> str:
        return self.saved_as or PurePosixPath(unquote(urlsplit(self.url).path)).name

    @property
    def is_archive(self) -> bool:
        return self.name.endswith(ARCHIVES)


@dataclass(frozen=True)
class Lines:
    """Some lines of a file: the `first` so many, or the `last`."""

    first: int | None = None
    last: int | None = None


@dataclass(frozen=True)
class Tabbed:
    """JSONL from lines 'labels<TAB>text' or 'id<TAB>labels<TAB>text', with blanks between labels."""


@dataclass(frozen=True)
class Renamed:
    """JSONL from JSONL whose fields have other names: ours → theirs; several are joined by line ends."""

    fields: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Matched:
    """JSONL from a text a line and the rows of a matrix of labels, a file beside the texts."""

    labels: str


@dataclass(frozen=True)
class Numbered:
    """A label vocabulary from a name a line: line n, from 0, names column n of a matrix of labels, a file beside it."""

    labels: str


Making = Lines | Tabbed | Renamed | Matched | Numbered


@dataclass(frozen=True)
class Part:
    """One file to read in the end."""

    use: str
    """train, valid, test or labels."""
    source: str
    """The file among those fetched and unpacked, by its name; '*' stands for any characters."""
    file_format: str
    making: Making | None = None
    """How it is made from `source`; None: it is read as it lies there."""
    name: str = ""
    """What is made is called this."""


@dataclass(frozen=True)
class DataSet:
    """One entry of the catalogue."""

    name: str
    what: str
    train: int
    test: int
    """Documents; 0: no test file."""
    labels: int
    home: str
    """A page that tells more."""
    files: tuple[RemoteFile, ...]
    parts: tuple[Part, ...]
    content: str = "text"
    """text or features."""
    licence: str = ""
    """'' where the source does not say."""
    propensity: tuple[str, ...] = ()
    """What `evaluate` is told for figures that compare with published ones."""

    @property
    def by_hand(self) -> bool:
        return any(file.by_hand for file in self.files)


def _part(given: dict[str, Any]) -> Part:
    """A part as the file has it; one of its keys may say how it is made."""
    kinds: dict[str, Callable[..., Making]]
    kinds = {"lines": Lines, "tabbed": Tabbed, "matched": Matched, "numbered": Numbered}
    making: Making | None = next((kind(**given.pop(key)) for key, kind in kinds.items() if key in given), None)
    if "renamed" in given:
        making = Renamed({ours: tuple(theirs) for ours, theirs in given.pop("renamed").items()})
    return Part(making=making, **given)


def _read() -> dict[str, DataSet]:
    found = tomllib.loads(files("xmtc.data").joinpath("catalogue.toml").read_text(encoding="utf-8"))
    for name, entry in found.items():
        remote, parts = entry.pop("files"), entry.pop("parts")
        entry["propensity"] = tuple(entry.get("propensity", ()))
        found[name] = DataSet(
            name=name, files=tuple(RemoteFile(**each) for each in remote), parts=tuple(map(_part, parts)), **entry
        )
    return found


CATALOGUE = _read()


def find(name: str) -> DataSet:
    """An entry by its name, whatever the case."""
    if name.lower() not in CATALOGUE:
        raise ConfigError(
            f"no data set '{shown(name)}' in the catalogue.{nearest(name.lower(), CATALOGUE)} "
            "List them with: xmtc data get"
        )
    return CATALOGUE[name.lower()]
