"""What a model is made of and what lies elsewhere: other models and files, known again by content, or copied."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xmtc.core.errors import DataError, ModelFormatError
from xmtc.core.files import content_hash, sync_folder

MANIFEST = "model.json"
_COPY = re.compile(r"^linked-[0-9a-f]{16}/(?!\.\.?$)[^/\\]+$")


@dataclass(frozen=True)
class Link:
    """A model folder, a file or a folder of predictions that a model needs."""

    path: Path
    content: str
    """A hash. That of a model is of its model.json, which holds the hashes of its files."""
    copied: bool = False
    """Whether a saved model holds a copy of it."""

    @classmethod
    def to(cls, path: Path, *, copied: bool = False) -> Link:
        """A link to what lies there now."""
        link = cls(path.resolve(), content_of(path), copied)
        if copied and (path / MANIFEST).is_file():
            inner = json.loads((path / MANIFEST).read_text(encoding="utf-8")).get("links", {})
            if any("copied" not in entry for entry in inner.values()):
                raise DataError(f"{path}: is itself made of what lies elsewhere. Train it with --set copy=true first.")
        return link


def content_of(path: Path) -> str:
    """The hash that a link knows something by; how long a model was trained is no part of it."""
    if not (path / MANIFEST).is_file():
        return content_hash(path)
    text = (path / MANIFEST).read_bytes()
    with suppress(ValueError, AttributeError):
        manifest = json.loads(text)
        manifest.pop("training", None)
        text = json.dumps(manifest, sort_keys=True).encode()
    return hashlib.blake2b(text, digest_size=32).hexdigest()


def write_links(folder: Path, links: Mapping[str, Link]) -> dict[str, dict[str, Any]]:
    """The entries of a model's links; what is to be copied lies in the folder afterwards."""
    entries: dict[str, dict[str, Any]] = {}
    whole = folder.resolve()
    for name, link in links.items():
        if link.path == whole or (whole in link.path.parents and not link.copied):
            raise DataError(f"{folder}: would replace what it is made of. Choose another folder.")
        if content_of(link.path) != link.content:
            raise DataError(f"{link.path}: has changed since it was read. Train again when nobody writes to it.")
        if link.copied:
            entries[name] = {"copied": _copied(folder, link), "content": link.content}
            continue
        entries[name] = {"path": str(link.path), "content": link.content}
        with suppress(ValueError):  # there is no way from one drive to another
            entries[name]["relative"] = os.path.relpath(link.path, folder.resolve())
    return entries


def _copied(folder: Path, link: Link) -> str:
    place = f"linked-{link.content[:16]}"
    for there in (folder / place).glob("*"):
        if content_of(there) == link.content:  # perhaps under another name
            return f"{place}/{there.name}"
        shutil.rmtree(folder / place)  # a copy that was harmed
        break
    name = re.sub(r"[/\\]", "_", link.path.name)
    temporary = folder / f".linked.{secrets.token_hex(4)}.part"
    try:
        temporary.mkdir()
        if link.path.is_dir():
            shutil.copytree(link.path, temporary / name, ignore=shutil.ignore_patterns(".*.part"))
        else:
            shutil.copyfile(link.path, temporary / name)
        for path in temporary.rglob("*"):
            if path.is_file():
                with path.open("rb") as stream:
                    os.fsync(stream.fileno())
        if content_of(temporary / name) != link.content:
            raise DataError(f"{link.path}: changed while it was copied. Train again when nobody writes to it.")
        os.replace(temporary, folder / place)
        sync_folder(folder)
    except OSError as error:
        raise DataError(f"{link.path}: cannot be copied to {folder} ({error.strerror or error}).") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return f"{place}/{name}"


def check_entries(entries: Any) -> None:
    """Refuse what no save writes, with a ValueError, a TypeError or a KeyError."""
    for entry in dict(entries).values():
        if not isinstance(entry["content"], str) or not isinstance(entry.get("relative", ""), str):
            raise ValueError("strange link")
        if "copied" in entry and not _COPY.match(entry["copied"]):
            raise ValueError(f"strange link {entry['copied']!r}")
        if "copied" not in entry and not isinstance(entry["path"], str):
            raise ValueError(f"strange link {entry['path']!r}")


def read_links(folder: Path, entries: Mapping[str, Mapping[str, Any]]) -> dict[str, Link]:
    """The links of a model. What they lead to is looked for beside the folder first, then where it once was."""
    return {name: _found(folder, entry) for name, entry in entries.items()}


def _found(folder: Path, entry: Mapping[str, Any]) -> Link:
    if "copied" in entry:
        places = [folder / entry["copied"]]
    else:
        beside = [Path(os.path.normpath(folder.resolve() / entry["relative"]))] if "relative" in entry else []
        places = [*beside, Path(entry["path"])]
    there = [place for place in places if place.exists()]
    if not there:
        raise ModelFormatError(
            f"{places[-1]}: is not there, and {folder} is made of it. Put it back, or train again with --set copy=true."
        )
    for place in there:
        if content_of(place) == entry["content"]:
            return Link(place.resolve(), entry["content"], "copied" in entry)
    raise ModelFormatError(
        f"{there[0]}: has changed since {folder} was made of it, perhaps by calibrating. Put it back, or train again; "
        "--set copy=true keeps copies."
    )


def copies(entries: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """The names of the folders that hold copies."""
    return {entry["copied"].partition("/")[0] for entry in entries.values() if "copied" in entry}
