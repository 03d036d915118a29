"""`fetch`: a public data set on this disk, checked, unpacked and ready to read; what broke off goes on where it was."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import quote

from xmtc.core.errors import DataError, shown
from xmtc.core.files import locked, sync_folder, write_json
from xmtc.core.progress import Progress, silent
from xmtc.data.archives import Unpacked, begins_as, bytes_task, sweep, unpack
from xmtc.data.catalogue import DataSet, Part, RemoteFile, find
from xmtc.data.http_download import checked_address, discard, download

RECORD = "download.json"
UNPACKED = "files"


@dataclass(frozen=True)
class FetchedFile:
    """One file of a data set, as it lies here."""

    path: Path
    size: int
    sha256: str
    published: bool
    """Whether somebody has published the sum that it was held against."""
    how: str
    """fetched, resumed, there, placed (by hand) or used (unpacked earlier and gone since)."""


@dataclass(frozen=True)
class Fetched:
    """A data set ready to read."""

    dataset: DataSet
    folder: Path
    files: tuple[FetchedFile, ...]
    parts: Mapping[str, Path]
    """train, valid, test, labels → file."""
    unpacked: Unpacked | None
    """What came out of the archive; None if it was unpacked before, or if there is none."""
    notes: tuple[str, ...]
    """What the user should know."""


def fetch(
    dataset: str | DataSet, folder: str | Path, *, mirror: str | None = None, progress: Progress = silent
) -> Fetched:
    """Bring a data set of the catalogue into `folder`/NAME, as far as it is not there yet.

    `mirror` takes the place of everything before the file names in all addresses.
    """
    entry = dataset if isinstance(dataset, DataSet) else find(dataset)
    base = None if mirror is None else checked_address(mirror).rstrip("/")
    place = Path(folder) / entry.name
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{place}: cannot be made ({error.strerror}). Choose another place with --out.") from None
    with locked(place, "another xmtc is fetching into it. Wait for it, or choose another --out."):
        return _Fetching(entry, place, base, progress).run()


class _Fetching:
    """One call of `fetch`: what is done in which order."""

    def __init__(self, entry: DataSet, place: Path, mirror: str | None, progress: Progress) -> None:
        self.entry, self.place, self.mirror, self.progress = entry, place, mirror, progress
        self.record = _Record(place / RECORD)
        self.notes: list[str] = []

    def run(self) -> Fetched:
        sweep(self.place)
        files = tuple(self.obtain(remote) for remote in self.entry.files)
        for file in files:
            discard(_arriving(file.path))  # also of an earlier call, killed when the file had just got its name
        origin = " ".join(file.sha256 for file in files)
        done = None
        archive = next((self.place / remote.name for remote in self.entry.files if remote.is_archive), None)
        if archive is not None and not self.is_unpacked(origin):
            try:
                done = unpack(archive, self.place / UNPACKED, self.progress)
            except DataError:
                self.record.forget(archive.name)  # what cannot be unpacked is no measure for what comes next
                raise
            self.record.unpacked = origin
            self.record.write()
            if done.left_out:
                self.notes.append(f"left out, being links or devices: {shown(', '.join(done.left_out), 200)}")
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
            self.notes.append(f"{path}: was not what it should be (sha256 {digest}), and was fetched again")
        elif path.exists():
            raise DataError(f"{path}: is in the way. Move it, or choose another place with --out.")
        elif known is not None and self.is_spent(remote):
            return FetchedFile(path, known.size, known.sha256, remote.sha256 is not None, "used")
        elif remote.by_hand and self.mirror is None:
            raise DataError(
                f"{self.entry.name}: cannot be fetched by a plain request. Open {remote.url} in a browser, "
                f"choose {remote.by_hand}, save the file as {path}, and run the same command again."
            )
        part = _arriving(path)
        resumed = download(url, part, remote.size, self.progress, self.entry.home)
        return self.accept(remote, part, path, self.digest(part), url, "resumed" if resumed else "fetched")

    def accept(
        self, remote: RemoteFile, arrived: Path, path: Path, digest: str, url: str, how: str = "placed"
    ) -> FetchedFile:
        """Hold what arrived against what is known of it, and give it its name; what is wrong is removed."""
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
                raise DataError(f"{path}: cannot be written ({error.strerror}). Choose another place.") from None
            sync_folder(path.parent)
        known = self.record.files.get(remote.name)
        if known is None or known.sha256 != digest:
            self.record.files[remote.name] = _Known(remote.url if how == "placed" else url, size, digest, _today())
            self.record.write()
            if remote.sha256 is None:
                self.notes.append(
                    f"{remote.name}: no published checksum to hold it against; "
                    f"its own is now in {self.record.path}, and later runs are held against that"
                )
        return FetchedFile(path, size, digest, remote.sha256 is not None, how)

    def problem(self, remote: RemoteFile, arrived: Path, digest: str, url: str, how: str) -> str | None:
        size = arrived.stat().st_size
        where, so = (arrived, "Delete it and") if how == "placed" else (url, "What arrived was removed:")
        if remote.size is not None and size != remote.size:
            return f"{where}: {size:,} bytes in place of {remote.size:,}. {so} look for it at {self.entry.home}."
        if remote.sha256 is not None and digest != remote.sha256:
            return f"{where}: sha256 {digest} in place of {remote.sha256}. {so} run the same command again."
        known = self.record.files.get(remote.name)
        if remote.sha256 is None and known is not None and digest != known.sha256:
            return (
                f"{where}: not the file of {known.date}: sha256 {digest} in place of {known.sha256}. "
                f"Delete {self.record.path} to take the new one."
            )
        if not begins_as(remote.name, arrived):
            with arrived.open("rb") as stream:
                start = stream.read(40).decode(errors="replace")
            return (
                f"{where}: not what its name says, as it begins with '{shown(start, 40)}'. "
                f"{so} look at {self.entry.home}, or use --mirror."
            )
        return None

    def digest(self, path: Path) -> str:
        digest, size = hashlib.sha256(), path.stat().st_size
        watched = self.progress if size > 500_000_000 else silent  # below, it is done before a bar is read
        with path.open("rb") as stream, bytes_task(watched, f"checking {path.name}", size) as task:
            while block := stream.read(1 << 20):
                digest.update(block)
                task.add(len(block))
        return digest.hexdigest()

    # ---- what is made of them

    def is_unpacked(self, origin: str) -> bool:
        if self.record.unpacked != origin:
            return False
        needed = [part for part in self.entry.parts if not self.is_made(part, origin)]
        return all(self.located(part) is not None for part in needed)

    def is_spent(self, remote: RemoteFile) -> bool:
        """Whether a file is no longer needed, because all that was made of it is there."""
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
        """The file to read; it is made if it has to be and is not there."""
        made = self.place / part.name
        if self.is_made(part, origin):
            then, now = self.record.sizes.get(part.name), made.stat().st_size
            if then not in (None, now):
                self.notes.append(
                    f"{made} has {now:,} bytes and had {then:,} when it was made: delete it to make it again"
                )
            return made
        source = self.located(part)
        if source is None:
            raise DataError(
                f"{self.place}: no {part.source} in what was fetched. Look at {self.entry.home} what has changed."
            )
        if part.making is None:
            return source
        from xmtc.data.preparation import prepare

        self.notes += prepare(source, part.making, made, self.progress)
        self.record.made[part.name] = origin
        self.record.sizes[part.name] = made.stat().st_size
        self.record.write()
        return made

    def located(self, part: Part) -> Path | None:
        """Where a part's source lies: of several, the one in the fewest folders, with the shortest name."""
        if any(part.source == remote.name for remote in self.entry.files):
            found = [self.place / part.source]
        else:
            found = [p for p in (self.place / UNPACKED).rglob("*") if fnmatchcase(p.name, part.source)]
        files = [path for path in found if path.is_file()]
        return min(files, key=lambda path: (len(path.parts), len(path.name), path.name), default=None)


# ---- what is remembered of earlier calls


@dataclass(frozen=True)
class _Known:
    url: str
    size: int
    sha256: str
    date: str


@dataclass
class _Record:
    """download.json: what was fetched from where, and what was made of it."""

    path: Path
    files: dict[str, _Known] = field(default_factory=dict)
    unpacked: str = ""
    """The sums of what was unpacked last."""
    made: dict[str, str] = field(default_factory=dict)
    """File → the sums of what it was made from."""
    sizes: dict[str, int] = field(default_factory=dict)
    """File → the bytes that it had when it was made."""

    def __post_init__(self) -> None:
        if not self.path.exists():
            return
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
            self.files = {name: _Known(**entry) for name, entry in content["files"].items()}
            self.unpacked = str(content["unpacked"])
            self.made = dict(content["made"])
            self.sizes = dict(content.get("sizes", {}))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(
                f"{self.path}: damaged ({shown(str(error))}). Delete it; files are then taken as they are."
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
    """Where a file gathers until it is whole."""
    return path.with_name(path.name + ".part")


def _today() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
