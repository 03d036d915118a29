"""`fetch`: a public data set on this disk, checked, unpacked and ready to read; what broke off goes on where it was."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import shutil
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, Any, cast
from urllib.parse import quote, urlsplit

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

from xmtc import __version__
from xmtc.data.archives import Unpacked, begins_as, bytes_task, sweep, unpack
from xmtc.data.catalogue import DataSet, Part, RemoteFile, find
from xmtc.errors import ConfigError, DataError, shown
from xmtc.files import replace_file, sync_folder
from xmtc.progress import Progress, silent

TIMEOUT = 30.0
"""Seconds without a byte after which a connection counts as broken."""
PAUSES = (1.0, 2.0, 4.0, 8.0)
"""Seconds before each new attempt; an attempt that brought something starts the row again."""
RECORD = "download.json"
UNPACKED = "files"
_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})
_BLOCK = 1 << 18


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
    base = None if mirror is None else _checked_address(mirror).rstrip("/")
    place = Path(folder) / entry.name
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{place}: cannot be made ({error.strerror}). Choose another place with --out.") from None
    with _alone(place):
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
        origin = " ".join(file.sha256 for file in files)
        done = None
        archive = next((self.place / remote.name for remote in self.entry.files if remote.is_archive), None)
        if archive is not None and not self.is_unpacked(origin):
            done = unpack(archive, self.place / UNPACKED, self.progress)
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
        part = path.with_name(path.name + ".part")
        resumed = _download(url, part, remote.size, self.progress, self.entry.home)
        return self.accept(remote, part, path, self.digest(part), url, "resumed" if resumed else "fetched")

    def accept(
        self, remote: RemoteFile, arrived: Path, path: Path, digest: str, url: str, how: str = "placed"
    ) -> FetchedFile:
        """Hold what arrived against what is known of it, and give it its name; what is wrong is removed."""
        problem = self.problem(remote, arrived, digest, url, how)
        if problem is not None:
            if how != "placed":
                _discard(arrived)
            raise DataError(problem)
        size = arrived.stat().st_size
        if how != "placed":
            try:
                os.replace(arrived, path)
            except OSError as error:
                raise DataError(f"{path}: cannot be written ({error.strerror}). Choose another place.") from None
            _discard(arrived)
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
            return made
        source = self.located(part)
        if source is None:
            raise DataError(
                f"{self.place}: no {part.source} in what was fetched. Look at {self.entry.home} what has changed."
            )
        if part.making is None:
            return source
        from xmtc.data.preparing import prepare

        self.notes += prepare(source, part.making, made, self.progress)
        self.record.made[part.name] = origin
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

    def __post_init__(self) -> None:
        if not self.path.exists():
            return
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
            self.files = {name: _Known(**entry) for name, entry in content["files"].items()}
            self.unpacked = str(content["unpacked"])
            self.made = dict(content["made"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(
                f"{self.path}: damaged ({shown(str(error))}). Delete it; files are then taken as they are."
            ) from None

    def write(self) -> None:
        content = {
            "files": {name: vars(known) for name, known in self.files.items()},
            "unpacked": self.unpacked,
            "made": self.made,
        }
        _write_json(self.path, content)


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    with replace_file(path) as stream:
        stream.write((json.dumps(content, indent=1) + "\n").encode())


def _today() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    """One call at a time in a folder, where the system can lock it."""
    if fcntl is None:
        yield
        return
    handle = os.open(place, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError(
                f"{place}: another xmtc is fetching into it. Wait for it, or choose another --out."
            ) from None
        except OSError:  # some network file systems know no locks
            pass
        yield
    finally:
        os.close(handle)


# ---- over the wire


class _BrokenError(Exception):
    """A connection that was refused for now or broke off: worth another attempt."""


class _NoHostError(_BrokenError):
    """Most likely no network at all: not worth waiting for, unless something has come before."""


class _NoRangeError(_BrokenError):
    """The server has another file than the one that was begun."""


def _checked_address(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ConfigError(f"--mirror must be an address such as https://example.org/data. Got '{shown(url)}'.")
    return url


class _Redirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if urlsplit(newurl).scheme not in ("http", "https"):
            raise DataError(f"{req.full_url}: sends on to '{shown(newurl)}', which is not http or https. Use --mirror.")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _download(url: str, part: Path, size: int | None, progress: Progress, home: str) -> bool:
    """Fetch `url` into `part`, in as many attempts as bring something; returns whether it went on with a part."""
    failures = 0
    most = _size(part)
    while True:
        try:
            return _attempt(url, part, size, progress, home)
        except _BrokenError as error:
            reached = _size(part)
            failures = 1 if reached > most else failures + 1
            most = max(most, reached)
            if failures > len(PAUSES) or (isinstance(error, _NoHostError) and not reached):
                times = f", {failures} times over" if failures > 1 else ""
                stays = f"{reached:,} bytes stay in {part}: run" if reached else "Run"
                raise DataError(f"{url}: {error}{times}. {stays} the same command again.") from None
            time.sleep(PAUSES[failures - 1])


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _attempt(url: str, part: Path, size: int | None, progress: Progress, home: str) -> bool:
    """One request; the file is whole when it returns, which says whether it began with what was there."""
    memory = _Memory.of(part, url)
    if memory.have and memory.have == memory.total:
        return True
    try:
        with _opened(url, memory, home) as response:
            start = _start(response, memory)
            total = _total(response, start)
            if size is not None and total is not None and total != size:
                _discard(part)
                raise DataError(f"{url}: {total:,} bytes in place of {size:,}. The file there has changed: see {home}.")
            _check_space(part, (total or 0) - start)
            _receive(response, url, part, start, total, progress)
    except _NoRangeError:
        _discard(part)
        raise
    return start > 0


@dataclass(frozen=True)
class _Memory:
    """FILE.part.json: what FILE.part is the beginning of."""

    have: int = 0
    validator: str = ""
    """What the server calls this version of the file: a strong ETag, or a date."""
    total: int | None = None

    @classmethod
    def of(cls, part: Path, url: str) -> _Memory:
        """Nothing, unless there is a part of this very address that the server can be asked to go on with."""
        try:
            content = json.loads(_beside(part).read_text(encoding="utf-8"))
            have = part.stat().st_size
            if content["url"] == url and content["validator"]:
                return cls(have, str(content["validator"]), content["total"])
        except (OSError, ValueError, KeyError, TypeError):
            pass
        return cls()


def _beside(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _discard(part: Path) -> None:
    for path in (part, _beside(part)):
        with suppress(OSError):
            path.unlink(missing_ok=True)


@contextmanager
def _opened(url: str, memory: _Memory, home: str) -> Iterator[http.client.HTTPResponse]:
    headers = {"User-Agent": f"xmtc/{__version__}", "Accept-Encoding": "identity"}
    if memory.have:
        headers |= {"Range": f"bytes={memory.have}-", "If-Range": memory.validator}
    opener = urllib.request.build_opener(_Redirects)
    try:
        response = opener.open(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and memory.have:
            raise _NoRangeError("the server has no such part of it") from None
        if error.code in _BUSY:
            raise _BrokenError(f"the server answers {error.code} ({shown(str(error.reason))})") from None
        raise DataError(
            f"{url}: the server answers {error.code} ({shown(str(error.reason))}). Look at {home}, or use --mirror."
        ) from None
    except urllib.error.URLError as error:
        raise _unreachable(url, error.reason) from None
    except http.client.InvalidURL:
        raise ConfigError(f"{shown(url, 200)}: not an address. Correct --mirror.") from None
    except (OSError, http.client.HTTPException) as error:
        raise _unreachable(url, error) from None
    with response:
        yield cast("http.client.HTTPResponse", response)


def _unreachable(url: str, reason: object) -> Exception:
    if isinstance(reason, ssl.SSLCertVerificationError):
        return DataError(f"{url}: the certificate does not hold ({shown(reason.verify_message)}). Use --mirror.")
    if isinstance(reason, TimeoutError):
        return _BrokenError(f"no answer within {TIMEOUT:g} s")
    if isinstance(reason, socket.gaierror):
        return _NoHostError(f"no such host, or no network ({reason.strerror})")
    words = reason.strerror if isinstance(reason, OSError) and reason.strerror else str(reason) or type(reason).__name__
    return _BrokenError(f"cannot be reached ({shown(words, 120)})")


def _start(response: http.client.HTTPResponse, memory: _Memory) -> int:
    """Where in the file the answer begins: where it was asked to, or at 0."""
    if response.status == 200:
        return 0
    headers = response.headers
    found = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", headers.get("Content-Range", ""))
    if response.status != 206 or found is None or not memory.have or int(found[1]) != memory.have:
        raise _NoRangeError(f"the server answers {response.status} with another part than was asked for")
    told = headers.get("ETag" if memory.validator.startswith('"') else "Last-Modified", memory.validator)
    if told != memory.validator or (found[2] != "*" and memory.total not in (None, int(found[2]))):
        raise _NoRangeError("the file has changed at its source")
    return memory.have


def _validator(response: http.client.HTTPResponse) -> str:
    tag = response.headers.get("ETag", "")
    return tag if tag.startswith('"') else response.headers.get("Last-Modified", "")


def _total(response: http.client.HTTPResponse, start: int) -> int | None:
    length = response.headers.get("Content-Length", "")
    return start + int(length) if length.isascii() and length.isdigit() else None


def _check_space(part: Path, needed: int) -> None:
    free = shutil.disk_usage(part.parent).free
    if needed > free:
        raise DataError(
            f"{part.parent}: {needed / 1e6:,.0f} MB to come, {free / 1e6:,.0f} MB free. "
            "Free space or choose another place with --out."
        )


def _receive(
    response: http.client.HTTPResponse, url: str, part: Path, start: int, total: int | None, progress: Progress
) -> None:
    with _writing(part):
        stream = part.open("ab" if start else "wb")
    with stream:
        if not start:
            _write_json(_beside(part), {"url": url, "validator": _validator(response), "total": total})
        have = start
        with bytes_task(progress, f"fetching {part.name.removesuffix('.part')}", total) as task:
            task.add(start)
            while block := _next_block(response):
                with _writing(part):
                    stream.write(block)
                have += len(block)
                task.add(len(block))
        with _writing(part):
            stream.flush()
            os.fsync(stream.fileno())
    if total is not None and have != total:
        raise _BrokenError("the connection breaks off")


def _next_block(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read1(_BLOCK)
    except TimeoutError:
        raise _BrokenError(f"nothing comes for {TIMEOUT:g} s") from None
    except (OSError, http.client.HTTPException):
        raise _BrokenError("the connection breaks off") from None


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{path}: cannot be written ({error.strerror}). Free space or choose another place with --out."
        ) from None
