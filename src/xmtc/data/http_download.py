"""Getting one file over HTTP: what broke off goes on where it was, and a server's odd answers become words."""

from __future__ import annotations

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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast
from urllib.parse import urlsplit

from xmtc import __version__
from xmtc.core.errors import ConfigError, DataError, shown
from xmtc.core.files import write_json, writing
from xmtc.core.progress import Progress
from xmtc.data.archives import bytes_task

TIMEOUT = 30.0
"""Seconds without a byte after which a connection counts as broken."""
PAUSES = (1.0, 2.0, 4.0, 8.0)
"""Seconds before each new attempt; an attempt that brought something starts the row again."""
_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})
_BLOCK = 1 << 18


class _BrokenError(Exception):
    """A connection that was refused for now or broke off: worth another attempt."""


class _NoHostError(_BrokenError):
    """Most likely no network at all: not worth waiting for, unless something has come before."""


class _NoRangeError(_BrokenError):
    """The server has another file than the one that was begun."""


def checked_address(url: str) -> str:
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


def download(url: str, part: Path, size: int | None, progress: Progress, home: str) -> bool:
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
                discard(part)
                raise DataError(f"{url}: {total:,} bytes in place of {size:,}. The file there has changed: see {home}.")
            _check_space(part, (total or 0) - start)
            _receive(response, url, part, start, total, progress)
    except _NoRangeError:
        discard(part)
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


def discard(part: Path) -> None:
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
    validator_now = headers.get("ETag" if memory.validator.startswith('"') else "Last-Modified", memory.validator)
    if validator_now != memory.validator or (found[2] != "*" and memory.total not in (None, int(found[2]))):
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
    with writing(part):
        stream = part.open("ab" if start else "wb")
    with stream:
        if not start:
            write_json(_beside(part), {"url": url, "validator": _validator(response), "total": total})
        have = start
        with bytes_task(progress, f"fetching {part.name.removesuffix('.part')}", total) as task:
            task.add(start)
            while block := _next_block(response):
                with writing(part):
                    stream.write(block)
                have += len(block)
                task.add(len(block))
        with writing(part):
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
