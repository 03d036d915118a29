"""Download one file over HTTP with retries and resume; unexpected server responses become error messages."""

from __future__ import annotations

import http.client
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
from xmtc.core.parsing import read_json
from xmtc.core.progress import Progress
from xmtc.data.archives import bytes_task

TIMEOUT = 30.0
"""Seconds without data after which a connection counts as broken."""
PAUSES = (1.0, 2.0, 4.0, 8.0)
"""Seconds before each retry; an attempt that received data resets the sequence."""
_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})
_BLOCK = 1 << 18


class _BrokenError(Exception):
    """A connection that was refused temporarily or lost: retry."""


class _NoHostError(_BrokenError):
    """The host was not found, probably for lack of a network: retry only if data was received before."""


class _NoRangeError(_BrokenError):
    """The file on the server differs from the partial download."""


def checked_address(url: str) -> str:
    """Return the URL if it is an http or https URL; otherwise raise `ConfigError`."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ConfigError(f"--mirror must be a URL such as https://example.org/data. Got '{shown(url)}'.")
    return url


class _Redirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if urlsplit(newurl).scheme not in ("http", "https"):
            raise DataError(
                f"{req.full_url}: redirects to '{shown(newurl)}', which is not http or https. Use --mirror."
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def download(url: str, part: Path, size: int | None, progress: Progress, home: str) -> bool:
    """Download `url` to `part`, retrying while data arrives; return whether a partial download was resumed."""
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
                times = f" ({failures} attempts)" if failures > 1 else ""
                remedy = "Run the same command again"
                resume = f" to resume: {part} has {reached:,} bytes" if reached else ""
                raise DataError(f"{url}: {error}{times}. {remedy}{resume}.") from None
            time.sleep(PAUSES[failures - 1])


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _attempt(url: str, part: Path, size: int | None, progress: Progress, home: str) -> bool:
    """Download the file with one request; return whether it resumed a partial download."""
    memory = _Memory.of(part, url)
    if memory.have and memory.have == memory.total:
        return True
    try:
        with _opened(url, memory, home) as response:
            start = _start(response, memory)
            total = _total(response, start)
            if size is not None and total is not None and total != size:
                discard(part)
                raise DataError(f"{url}: {total:,} bytes, expected {size:,}. The file has changed: see {home}.")
            _check_space(part, (total or 0) - start)
            _receive(response, url, part, start, total, progress)
    except _NoRangeError:
        discard(part)
        raise
    return start > 0


@dataclass(frozen=True)
class _Memory:
    """FILE.part.json: origin and version of the partial download FILE.part."""

    have: int = 0
    validator: str = ""
    """The server's identifier of this version of the file: a strong ETag, or a date."""
    total: int | None = None

    @classmethod
    def of(cls, part: Path, url: str) -> _Memory:
        """Load the state of a partial download; empty unless it is from the same URL and can be resumed."""
        try:
            content = read_json(_beside(part))
            have = part.stat().st_size
            if content["url"] == url and content["validator"]:
                return cls(have, str(content["validator"]), content["total"])
        except (OSError, ValueError, KeyError, TypeError):
            pass
        return cls()


def _beside(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def discard(part: Path) -> None:
    """Delete a partial download."""
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
            raise _NoRangeError("the server cannot resume the download") from None
        if error.code in _BUSY:
            raise _BrokenError(f"the server responded with {error.code} ({shown(str(error.reason))})") from None
        raise DataError(
            f"{url}: the server responded with {error.code} ({shown(str(error.reason))}). See {home}, or use --mirror."
        ) from None
    except urllib.error.URLError as error:
        raise _unreachable(url, error.reason) from None
    except http.client.InvalidURL:
        raise ConfigError(f"{shown(url, 200)}: not a valid URL. Correct --mirror.") from None
    except (OSError, http.client.HTTPException) as error:
        raise _unreachable(url, error) from None
    with response:
        yield cast("http.client.HTTPResponse", response)


def _unreachable(url: str, reason: object) -> Exception:
    if isinstance(reason, ssl.SSLCertVerificationError):
        return DataError(f"{url}: the certificate is not valid ({shown(reason.verify_message)}). Use --mirror.")
    if isinstance(reason, TimeoutError):
        return _BrokenError(f"no response within {TIMEOUT:g} s")
    if isinstance(reason, socket.gaierror):
        return _NoHostError(f"host not found, or no network ({reason.strerror})")
    words = reason.strerror if isinstance(reason, OSError) and reason.strerror else str(reason) or type(reason).__name__
    return _BrokenError(f"cannot be reached ({shown(words, 120)})")


def _start(response: http.client.HTTPResponse, memory: _Memory) -> int:
    """Return the offset at which the response starts: the requested one, or 0."""
    if response.status == 200:
        return 0
    headers = response.headers
    found = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", headers.get("Content-Range", ""))
    if response.status != 206 or found is None or not memory.have or int(found[1]) != memory.have:
        raise _NoRangeError(f"the server responded with {response.status} and a range that was not requested")
    validator_now = headers.get("ETag" if memory.validator.startswith('"') else "Last-Modified", memory.validator)
    if validator_now != memory.validator or (found[2] != "*" and memory.total not in (None, int(found[2]))):
        raise _NoRangeError("the file has changed on the server")
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
            f"{part.parent}: {needed / 1e6:,.0f} MB needed, {free / 1e6:,.0f} MB free. "
            "Free disk space or choose another folder with --out."
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
        with bytes_task(progress, f"downloading {part.name.removesuffix('.part')}", total) as task:
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
        raise _BrokenError("the connection was lost")


def _next_block(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read1(_BLOCK)
    except TimeoutError:
        raise _BrokenError(f"no data received for {TIMEOUT:g} s") from None
    except (OSError, http.client.HTTPException):
        raise _BrokenError("the connection was lost") from None
