"""Dependencies of a model on other models and files, identified by content hash or copied into its folder."""

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
from xmtc.core.parsing import parse_json, read_json
from xmtc.data.topk import ANSWERS

MANIFEST = "model.json"
DIGEST = "digest"
"""Key of the hash of model.json in model.json."""
LONGEST_PATH = 4096
"""Maximum length of a linked path, as on Linux."""
_COPY = re.compile(r"^linked-[0-9a-f]{16}/(?!\.\.?$)[^/\\]+$")


@dataclass(frozen=True)
class Link:
    """A model folder, a file or a folder of predictions that a model depends on."""

    path: Path
    content: str
    """Content hash; for a model, that of model.json, which contains the hashes of all other files."""
    copied: bool = False
    """Whether the model folder contains a copy."""

    @classmethod
    def to(cls, path: Path, *, copied: bool = False) -> Link:
        """Create a link to the current content of a path."""
        link = cls(path.resolve(), content_of(path), copied)
        if copied and (path / MANIFEST).is_file():
            inner = read_json(path / MANIFEST, any_number=True).get("links", {})
            if any("copied" not in entry for entry in inner.values()):
                raise DataError(f"{path}: itself depends on other folders. Train it with --set copy=true first.")
        return link


def content_of(path: Path) -> str:
    """Return the content hash used by links; facts about the training of a model are excluded."""
    if not (path / MANIFEST).is_file():
        return content_hash(path)
    text = (path / MANIFEST).read_bytes()
    with suppress(ValueError, AttributeError, TypeError):
        manifest = parse_json(text, any_number=True)
        for name in ("training", DIGEST):
            manifest.pop(name, None)
        text = json.dumps(manifest, sort_keys=True).encode()
    return hashlib.blake2b(text, digest_size=32).hexdigest()


def manifest_digest(manifest: Mapping[str, Any]) -> str:
    """Return the hash of the content of model.json, without the hash itself."""
    bare = {name: value for name, value in manifest.items() if name != DIGEST}
    text = json.dumps(bare, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=32).hexdigest()


def write_links(folder: Path, links: Mapping[str, Link]) -> dict[str, dict[str, Any]]:
    """Return the manifest entries of a model's links; copy the linked content into the folder if requested."""
    entries: dict[str, dict[str, Any]] = {}
    whole = folder.resolve()
    for name, link in links.items():
        if link.path == whole or (whole in link.path.parents and not link.copied):
            raise DataError(f"{folder}: would overwrite a folder that the model depends on. Choose another folder.")
        if content_of(link.path) != link.content:
            raise DataError(
                f"{link.path}: has changed since it was read. Train again when no other process is writing to it."
            )
        if link.copied:
            entries[name] = {"copied": _copied(folder, link), "content": link.content}
            continue
        entries[name] = {"path": str(link.path), "content": link.content}
        with suppress(ValueError):  # no relative path between two drives
            entries[name]["relative"] = os.path.relpath(link.path, folder.resolve())
    return entries


def _copied(folder: Path, link: Link) -> str:
    place = f"linked-{link.content[:16]}"
    for there in (folder / place).glob("*"):
        if content_of(there) == link.content:  # the name may differ
            return f"{place}/{there.name}"
        shutil.rmtree(folder / place)  # a damaged copy
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
            raise DataError(
                f"{link.path}: changed while it was being copied. Train again when no other process is writing to it."
            )
        os.replace(temporary, folder / place)
        sync_folder(folder)
    except OSError as error:
        raise DataError(
            f"{link.path}: cannot be copied to {folder} ({error.strerror or error}). Check disk space and permissions."
        ) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return f"{place}/{name}"


def check_entries(entries: Any) -> None:
    """Raise ValueError, TypeError or KeyError for invalid entries."""
    for entry in dict(entries).values():
        if not isinstance(entry["content"], str) or not isinstance(entry.get("relative", ""), str):
            raise ValueError("invalid link")
        if "copied" in entry and not _COPY.match(entry["copied"]):
            raise ValueError(f"invalid link {entry['copied']!r}")
        if "copied" not in entry and not isinstance(entry["path"], str):
            raise ValueError(f"invalid link {entry['path']!r}")
        if any(len(entry.get(name, "")) > LONGEST_PATH for name in ("copied", "path", "relative")):
            raise ValueError("a link is too long")


def read_links(folder: Path, entries: Mapping[str, Mapping[str, Any]]) -> dict[str, Link]:
    """Resolve the links of a model: by path relative to the folder first, then by absolute path."""
    return {name: _found(folder, entry) for name, entry in entries.items()}


def _found(folder: Path, entry: Mapping[str, Any]) -> Link:
    if "copied" in entry:
        places = [folder / entry["copied"]]
    else:
        beside = [Path(os.path.normpath(folder.resolve() / entry["relative"]))] if "relative" in entry else []
        places = [*beside, Path(entry["path"])]
    there = [place for place in places if os.path.lexists(place)]
    if not there:
        raise ModelFormatError(
            f"{places[-1]}: missing, but {folder} depends on it. Restore it, or train again with --set copy=true."
        )
    for place in there:
        if _is_linkable(place) and content_of(place) == entry["content"]:
            return Link(place.resolve(), entry["content"], "copied" in entry)
    raise ModelFormatError(
        f"{there[0]}: has changed since {folder}, which depends on it, was trained; calibration counts as a change. "
        f"Restore it, or train {folder} again with --set copy=true."
    )


def _is_linkable(place: Path) -> bool:
    """Whether this is a model, a file or a folder of predictions; nothing else is ever hashed, such as a device."""
    try:
        return place.is_file() or (place / MANIFEST).is_file() or (place / ANSWERS).is_file()
    except (OSError, ValueError):  # not a possible path
        return False


def copies(entries: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """Return the names of the folders with copies."""
    return {entry["copied"].partition("/")[0] for entry in entries.values() if "copied" in entry}
