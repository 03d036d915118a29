"""Stamps of verified files in the user's cache, so that a file is hashed once and not on every load.

A stamp has the hash of a file and its size, times, inode and device. A file that is replaced or written to gets new
times, so it is hashed again. Stamps are never in the model folder: whoever writes a folder could write them too.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from xmtc.core.caches import cache_folder
from xmtc.core.errors import XmtcError
from xmtc.core.files import make_folder, write_json
from xmtc.core.parsing import read_json

SETTLED = 2 * 10**9
"""Nanoseconds after which another write to a file changes its times, on any common file system."""
MOST_FOLDERS = 1000
"""Folders with stamps; the oldest are deleted beyond that."""

Signature = tuple[int, ...]


def signature(status: os.stat_result) -> Signature:
    """What changes when a file is written to or replaced."""
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev


class Stamps:
    """The stamps of one model folder."""

    def __init__(self, folder: Path) -> None:
        cache = cache_folder()
        name = hashlib.blake2b(os.fsencode(folder.resolve()), digest_size=16).hexdigest()
        self._path = None if cache is None else cache / "verified" / f"{name}.json"
        self._known: Mapping[str, Any] = {}
        self._new: dict[str, tuple[str, Signature]] = {}
        self._is_changed = False
        if self._path is not None:
            with suppress(OSError, ValueError):
                read = read_json(self._path)
                self._known = read if isinstance(read, dict) else {}

    def covers(self, name: str, digest: str, held: Signature) -> bool:
        """Whether a file with this signature is known to have this hash; the stamp is kept."""
        known = self._known.get(name)
        if known != [digest, list(held)]:
            return False
        self._new[name] = digest, held
        return True

    def add(self, name: str, digest: str, held: Signature) -> None:
        """Record a verified file, unless it was written just now: a second write might not change its times."""
        if time.time_ns() - max(held[1], held[2]) > SETTLED:
            self._new[name] = digest, held
            self._is_changed = True

    def save(self) -> None:
        """Write new stamps; without a writable cache, the files are hashed again next time."""
        if self._path is None or not self._is_changed:
            return
        with suppress(OSError, XmtcError):
            make_folder(self._path.parent)
            write_json(self._path, {name: [digest, list(held)] for name, (digest, held) in self._new.items()})
            for path in _oldest(self._path.parent):
                path.unlink(missing_ok=True)


def _oldest(folder: Path) -> Iterator[Path]:
    """Stamp files beyond the maximum number, oldest first."""
    paths = [path for path in folder.iterdir() if path.suffix == ".json"]
    if len(paths) > MOST_FOLDERS:
        paths.sort(key=lambda path: path.stat().st_mtime)
        yield from paths[: len(paths) - MOST_FOLDERS]
