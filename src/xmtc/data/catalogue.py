"""Catalogue of public data sets: description, download URLs, and files to read.

The entries are in catalogue.toml: one table per data set, with the fields of `DataSet`.
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
    """One file to download. Size and checksum are None unless published."""

    url: str
    size: int | None = None
    sha256: str | None = None
    saved_as: str = ""
    """Local file name, if the URL does not end in one."""
    by_hand: str = ""
    """What to choose on the web page `url`, if the file cannot be downloaded automatically."""

    @property
    def name(self) -> str:
        """Local file name."""
        return self.saved_as or PurePosixPath(unquote(urlsplit(self.url).path)).name

    @property
    def is_archive(self) -> bool:
        """Whether the file is a tar or zip archive, by its name."""
        return self.name.endswith(ARCHIVES)


@dataclass(frozen=True)
class Lines:
    """The `first` or the `last` lines of a file."""

    first: int | None = None
    last: int | None = None


@dataclass(frozen=True)
class Tabbed:
    """JSONL from lines 'labels<TAB>text' or 'id<TAB>labels<TAB>text', with spaces between labels."""


@dataclass(frozen=True)
class Renamed:
    """JSONL from JSONL with other field names (new → old); several fields are joined by line ends."""

    fields: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Matched:
    """JSONL from one text per line and the rows of a label matrix in the same folder."""

    labels: str


@dataclass(frozen=True)
class Numbered:
    """Label vocabulary from one name per line; line n, from 0, names column n of a label matrix in the same folder."""

    labels: str


Making = Lines | Tabbed | Renamed | Matched | Numbered


@dataclass(frozen=True)
class Part:
    """One file of a data set to read."""

    use: str
    """train, valid, test or labels."""
    source: str
    """Name of the downloaded or unpacked file; '*' matches any characters."""
    file_format: str
    making: Making | None = None
    """Conversion from `source`; None if the file is read as it is."""
    name: str = ""
    """Name of the converted file."""


@dataclass(frozen=True)
class DataSet:
    """One entry of the catalogue."""

    name: str
    what: str
    train: int
    test: int
    """Number of documents; 0 if there is no test file."""
    labels: int
    home: str
    """Home page."""
    files: tuple[RemoteFile, ...]
    parts: tuple[Part, ...]
    content: str = "text"
    """text or features."""
    licence: str = ""
    """'' if the source states none."""
    propensity: tuple[str, ...] = ()
    """Options of `evaluate` for propensity-scored metrics comparable with published ones."""

    @property
    def by_hand(self) -> bool:
        """Whether a file must be downloaded manually."""
        return any(file.by_hand for file in self.files)


def _part(given: dict[str, Any]) -> Part:
    """Create a part from its catalogue entry; one of the keys may specify a conversion."""
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
    """Return a catalogue entry by name, ignoring case."""
    if name.lower() not in CATALOGUE:
        raise ConfigError(
            f"no data set '{shown(name)}' in the catalogue.{nearest(name.lower(), CATALOGUE)} "
            "List them with: xmtc data get"
        )
    return CATALOGUE[name.lower()]
