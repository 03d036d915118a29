"""`fetch`: download a public data set, verify and unpack it; interrupted downloads are resumed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import quote

from xmtc.core.errors import DataError, shown
from xmtc.core.files import locked, sync_folder, write_json
from xmtc.core.parsing import read_json
from xmtc.core.progress import Progress, silent
from xmtc.data.archives import Unpacked, begins_as, bytes_task, sweep, unpack
from xmtc.data.catalogue import DataSet, Part, RemoteFile, find
from xmtc.data.http_download import checked_address, discard, download

RECORD = "download.json"
UNPACKED = "files"


@dataclass(frozen=True)
class FetchedFile:
    """One downloaded file of a data set."""

    path: Path
    size: int
    sha256: str
    published: bool
    """Whether the file was verified against a published checksum."""
    how: str
    """'fetched', 'resumed', 'there' (already present), 'placed' (by hand) or 'used' (unpacked earlier and deleted)."""


@dataclass(frozen=True)
class Fetched:
    """A data set ready to read."""

    dataset: DataSet
    folder: Path
    files: tuple[FetchedFile, ...]
    parts: Mapping[str, Path]
    """train, valid, test, labels → file."""
    unpacked: Unpacked | None
    """Contents of the archive; None if it was unpacked earlier, or if there is none."""
    notes: tuple[str, ...]
    """Notes for the user."""


def fetch(
    dataset: str | DataSet, folder: str | Path, *, mirror: str | None = None, progress: Progress = silent
) -> Fetched:
    """Download the missing files of a catalogue data set to `folder`/NAME.

    `mirror` replaces everything before the file name in all URLs.
    """
    entry = dataset if isinstance(dataset, DataSet) else find(dataset)
    base = None if mirror is None else checked_address(mirror).rstrip("/")
    place = Path(folder) / entry.name
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{place}: cannot be created ({error.strerror}). Choose another folder with --out.") from None
    with locked(place, "another xmtc process is downloading to it. Wait, or choose another folder with --out."):
        return _Fetching(entry, place, base, progress).run()


class _Fetching:
    """The steps of one call of `fetch`."""

    def __init__(self, entry: DataSet, place: Path, mirror: str | None, progress: Progress) -> None:
        self.entry, self.place, self.mirror, self.progress = entry, place, mirror, progress
        self.record = _Record(place / RECORD)
        self.notes: list[str] = []

    def run(self) -> Fetched:
        sweep(self.place)
        files = tuple(self.obtain(remote) for remote in self.entry.files)
        for file in files:
            discard(_arriving(file.path))  # also if an earlier call was killed just after renaming the file
        origin = " ".join(file.sha256 for file in files)
        done = None
        archive = next((self.place / remote.name for remote in self.entry.files if remote.is_archive), None)
        if archive is not None and not self.is_unpacked(origin):
            try:
                done = unpack(archive, self.place / UNPACKED, self.progress)
            except DataError:
                self.record.forget(archive.name)  # do not verify later downloads against a broken archive
                raise
            self.record.unpacked = origin
            self.record.write()
            if done.left_out:
                self.notes.append(f"skipped links and devices: {shown(', '.join(done.left_out), 200)}")
        parts = {part.use: self.part(part, origin) for part in self.entry.parts}
        return Fetched(self.entry, self.place, files, parts, done, tuple(self.notes))

    # ---- files

    def obtain(self, remote: RemoteFile) -> FetchedFile:
        path = self.place / remote.name
        url = remote.url if self.mirror is None else f"{self.mirror}/{quote(remote.name)}"
        known = self.record.files.get(remote.name)
        expected = remote.sha256 or (known.sha256 if known else None)
        if path.is_file():
            digest = self.digest(path)
            if digest == expected:
                return FetchedFile(path, path.stat().st_size, digest, remote.sha256 is not None, "there")
            if expected is None or (remote.by_hand and self.mirror is None):
                return self.accept(remote, path, path, digest, url)
            self.notes.append(f"{path}: unexpected sha256 {digest}; the file was downloaded again")
        elif path.exists():
            raise DataError(f"{path}: exists and is not a file. Move it, or choose another folder with --out.")
        elif known is not None and self.is_spent(remote):
            return FetchedFile(path, known.size, known.sha256, remote.sha256 is not None, "used")
        elif remote.by_hand and self.mirror is None:
            raise DataError(
                f"{self.entry.name}: cannot be downloaded automatically. Open {remote.url} in a browser, "
                f"choose {remote.by_hand}, save the file as {path}, and run the same command again."
            )
        part = _arriving(path)
        resumed = download(url, part, remote.size, self.progress, self.entry.home)
        return self.accept(remote, part, path, self.digest(part), url, "resumed" if resumed else "fetched")

    def accept(
        self, remote: RemoteFile, arrived: Path, path: Path, digest: str, url: str, how: str = "placed"
    ) -> FetchedFile:
        """Verify a new file and give it its final name; delete an invalid download."""
        problem = self.problem(remote, arrived, digest, url, how)
        if problem is not None:
            if how != "placed":
                discard(arrived)
            raise DataError(problem)
        size = arrived.stat().st_size
        if how != "placed":
            try:
                os.replace(arrived, path)
            except OSError as error:
                raise DataError(f"{path}: cannot be written ({error.strerror}). Choose another folder.") from None
            sync_folder(path.parent)
        known = self.record.files.get(remote.name)
        if known is None or known.sha256 != digest:
            self.record.files[remote.name] = _Known(remote.url if how == "placed" else url, size, digest, _today())
            self.record.write()
            if remote.sha256 is None:
                self.notes.append(
                    f"{remote.name}: there is no published checksum to verify; the file's own checksum is now in "
                    f"{self.record.path} and later downloads are verified against it"
                )
        return FetchedFile(path, size, digest, remote.sha256 is not None, how)

    def problem(self, remote: RemoteFile, arrived: Path, digest: str, url: str, how: str) -> str | None:
        size = arrived.stat().st_size
        where, so = (arrived, "Delete it and") if how == "placed" else (url, "The download was deleted:")
        if remote.size is not None and size != remote.size:
            return f"{where}: {size:,} bytes, expected {remote.size:,}. {so} see {self.entry.home}."
        if remote.sha256 is not None and digest != remote.sha256:
            return f"{where}: sha256 {digest}, expected {remote.sha256}. {so} run the same command again."
        known = self.record.files.get(remote.name)
        if remote.sha256 is None and known is not None and digest != known.sha256:
            return (
                f"{where}: differs from the file downloaded on {known.date}: sha256 {digest}, expected {known.sha256}. "
                f"Delete {self.record.path} to accept the new file."
            )
        if not begins_as(remote.name, arrived):
            with arrived.open("rb") as stream:
                start = stream.read(40).decode(errors="replace")
            return (
                f"{where}: the content does not match the file name: it starts with '{shown(start, 40)}'. "
                f"{so} see {self.entry.home}, or use --mirror."
            )
        return None

    def digest(self, path: Path) -> str:
        digest, size = hashlib.sha256(), path.stat().st_size
        watched = self.progress if size > 500_000_000 else silent  # smaller files take too little time for a bar
        with path.open("rb") as stream, bytes_task(watched, f"verifying {path.name}", size) as task:
            while block := stream.read(1 << 20):
                digest.update(block)
                task.add(len(block))
        return digest.hexdigest()

    # ---- files derived from downloads

    def is_unpacked(self, origin: str) -> bool:
        if self.record.unpacked != origin:
            return False
        needed = [part for part in self.entry.parts if not self.is_made(part, origin)]
        return all(self.located(part) is not None for part in needed)

    def is_spent(self, remote: RemoteFile) -> bool:
        """Whether a file is no longer needed because all files derived from it exist."""
        files = self.record.files
        if any(other.name not in files for other in self.entry.files):
            return False
        if remote.sha256 not in (None, files[remote.name].sha256):
            return False
        origin = " ".join(files[other.name].sha256 for other in self.entry.files)
        if remote.is_archive:
            return self.is_unpacked(origin)
        return all(self.is_made(part, origin) for part in self.entry.parts if part.source == remote.name)

    def is_made(self, part: Part, origin: str) -> bool:
        return (
            part.making is not None and self.record.made.get(part.name) == origin and (self.place / part.name).is_file()
        )

    def part(self, part: Part, origin: str) -> Path:
        """Return the file to read; convert it first if necessary."""
        made = self.place / part.name
        if self.is_made(part, origin):
            then, now = self.record.sizes.get(part.name), made.stat().st_size
            if then not in (None, now):
                self.notes.append(
                    f"{made} has {now:,} bytes but had {then:,} when it was created: delete it to create it again"
                )
            return made
        source = self.located(part)
        if source is None:
            raise DataError(f"{self.place}: the download contains no {part.source}. See {self.entry.home} for changes.")
        if part.making is None:
            return source
        from xmtc.data.preparation import prepare

        self.notes += prepare(source, part.making, made, self.progress)
        self.record.made[part.name] = origin
        self.record.sizes[part.name] = made.stat().st_size
        self.record.write()
        return made

    def located(self, part: Part) -> Path | None:
        """Find a part's source; of several matches, the least nested one with the shortest name."""
        if any(part.source == remote.name for remote in self.entry.files):
            matches = [self.place / part.source]
        else:
            matches = [p for p in (self.place / UNPACKED).rglob("*") if fnmatchcase(p.name, part.source)]
        files = [path for path in matches if path.is_file()]
        return min(files, key=lambda path: (len(path.parts), len(path.name), path.name), default=None)


# ---- record of earlier calls


@dataclass(frozen=True)
class _Known:
    url: str
    size: int
    sha256: str
    date: str


@dataclass
class _Record:
    """download.json: what was downloaded from where, and the files derived from it."""

    path: Path
    files: dict[str, _Known] = field(default_factory=dict)
    unpacked: str = ""
    """Checksums of the downloads that were unpacked last."""
    made: dict[str, str] = field(default_factory=dict)
    """Derived file → checksums of its sources."""
    sizes: dict[str, int] = field(default_factory=dict)
    """Derived file → its size in bytes when it was created."""

    def __post_init__(self) -> None:
        if not self.path.exists():
            return
        try:
            content = read_json(self.path)
            self.files = {name: _Known(**entry) for name, entry in content["files"].items()}
            self.unpacked = str(content["unpacked"])
            self.made = dict(content["made"])
            self.sizes = dict(content.get("sizes", {}))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(
                f"{self.path}: damaged ({shown(str(error))}). Delete it; existing files are then accepted unverified."
            ) from None

    def write(self) -> None:
        content = {
            "files": {name: vars(known) for name, known in self.files.items()},
            "unpacked": self.unpacked,
            "made": self.made,
            "sizes": self.sizes,
        }
        write_json(self.path, content)

    def forget(self, name: str) -> None:
        self.files.pop(name, None)
        self.write()


def _arriving(path: Path) -> Path:
    """Return the name under which a file is downloaded."""
    return path.with_name(path.name + ".part")


def _today() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
