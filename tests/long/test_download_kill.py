"""A download killed at any moment: the next call goes on with it, and what is there in the end is whole."""

from __future__ import annotations

import io
import json
import random
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

LINES = 15_404
CODE = """
import sys
from xmtc.data.downloads import fetch
print(fetch("cooking", sys.argv[1], mirror=sys.argv[2]).files[0].how)
"""

COUNTED = """
import os, sys
from pathlib import Path
from xmtc.data import archives, downloads, preparation
left = int(sys.argv[3])
place = str(Path(sys.argv[1]).resolve())
def watch(event, details):
    global left
    changes = event in ("os.rename", "os.remove", "os.mkdir", "os.rmdir") or (event == "open" and details[2] & 3)
    if not changes or not isinstance(details[0], str | Path) or not str(details[0]).startswith(place):
        return
    left -= 1
    if left < 0:
        os._exit(9)
sys.addaudithook(watch)
downloads.fetch("cooking", sys.argv[1], mirror=sys.argv[2])
"""
"""Dies before the change of the file system of that number."""


class SlowServer:
    """One archive, a little at a time, with ranges."""

    def __init__(self) -> None:
        words = random.Random(0)
        self.lines = [f"__label__a {words.randbytes(200).hex()}" for _ in range(LINES)]
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            content = ("\n".join(self.lines) + "\n").encode()
            member = tarfile.TarInfo("cooking.stackexchange.txt")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        self.content = packed.getvalue()
        self.pause = 0.01
        self.starts: list[int] = []
        self.url = ""

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        start = int(handler.headers.get("Range", "bytes=0-").removeprefix("bytes=").removesuffix("-"))
        self.starts.append(start)
        size = len(self.content)
        handler.send_response(206 if start else 200)
        handler.send_header("ETag", '"one"')
        handler.send_header("Content-Length", str(size - start))
        if start:
            handler.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
        handler.end_headers()
        try:
            for at in range(start, size, 100_000):
                handler.wfile.write(self.content[at : at + 100_000])
                time.sleep(self.pause)
        except OSError:  # whoever asked is dead
            return


@pytest.fixture
def server() -> Iterator[SlowServer]:
    slow = SlowServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            slow.answer(self)

        def log_message(self, *words: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        slow.url = f"http://127.0.0.1:{http.server_port}"
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield slow
        finally:
            http.shutdown()
            thread.join()


def start(folder: Path, server: SlowServer, code: str = CODE, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, str(folder), server.url, *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def assert_whole(place: Path, server: SlowServer) -> None:
    assert (place / "train.txt").read_text().splitlines() == server.lines[:12_404]
    assert (place / "test.txt").read_text().splitlines() == server.lines[-3_000:]
    assert (place / "cooking.stackexchange.tar.gz").read_bytes() == server.content
    found = sorted(path.name for path in place.iterdir())
    assert found == ["cooking.stackexchange.tar.gz", "download.json", "files", "test.txt", "train.txt"]
    assert list(json.loads((place / "download.json").read_text())["made"]) == ["train.txt", "test.txt"]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_killed_while_fetching(tmp_path: Path, server: SlowServer, how: signal.Signals) -> None:
    part = tmp_path / "cooking" / "cooking.stackexchange.tar.gz.part"
    have = 0
    for _ in range(4):
        process = start(tmp_path, server)
        until = time.monotonic() + 60
        while (not part.exists() or part.stat().st_size <= have + 200_000) and time.monotonic() < until:
            assert process.poll() is None, process.communicate()
            time.sleep(0.002)
        process.send_signal(how)
        process.communicate(timeout=60)
        assert process.returncode != 0
        assert part.stat().st_size > have, "what had arrived was lost"
        have = part.stat().st_size
        assert server.content.startswith(part.read_bytes())
    server.pause = 0.0
    said, errors = start(tmp_path, server).communicate(timeout=60)
    assert said.strip() == "resumed", errors
    assert server.starts[0] == 0
    assert server.starts == sorted(server.starts), "each call went on where the one before was killed"
    assert server.starts[-1] == have
    assert_whole(tmp_path / "cooking", server)


def test_killed_at_any_moment(tmp_path: Path, server: SlowServer) -> None:
    """While it fetches, checks, unpacks or writes: after the kill, one call makes everything whole.

    The kills wait for a number of files, not for a time: a busy machine may be slower at any moment.
    """
    server.pause = 0.005
    chance = random.Random(1)
    stages: set[tuple[str, ...]] = set()
    for number in range(25):
        folder = tmp_path / str(number)
        place = folder / "cooking"
        process = start(folder, server)
        files, rest = number % 5 + 1, number // 5 * chance.uniform(0.0, 0.01)
        while process.poll() is None and (not place.exists() or len(list(place.iterdir())) < files):
            time.sleep(0.001)
        time.sleep(rest)
        process.kill()
        process.communicate(timeout=60)
        found = sorted(path.name for path in place.iterdir()) if place.exists() else []
        stages.add(tuple("hidden" if name.startswith(".") else name for name in found))
        for name in ("train.txt", "test.txt"):
            if (place / name).exists():
                wanted = server.lines[:12_404] if name == "train.txt" else server.lines[-3_000:]
                assert (place / name).read_text().splitlines() == wanted, "half a file under a whole name"
        _, errors = start(folder, server).communicate(timeout=60)
        assert errors == ""
        assert_whole(place, server)
    assert len(stages) >= 3, f"the kills did not fall on different stages: {stages}"


def test_killed_before_every_change_of_the_file_system(tmp_path: Path, server: SlowServer) -> None:
    server.pause = 0.0
    stages: list[list[str]] = []
    for number in range(100):
        folder = tmp_path / str(number)
        process = start(folder, server, COUNTED, str(number))
        _, errors = process.communicate(timeout=60)
        assert errors == ""
        place = folder / "cooking"
        if process.returncode == 0:
            break
        assert process.returncode == 9
        stages.append(sorted(path.name for path in place.iterdir()) if place.exists() else [])
        _, errors = start(folder, server).communicate(timeout=60)
        assert errors == ""
        assert_whole(place, server)
    assert_whole(place, server)
    archive = "cooking.stackexchange.tar.gz"
    assert [archive, f"{archive}.part.json"] in stages, "between the archive's getting its name and the sweeping up"
    assert [archive, "download.json", "files", "train.txt"] in stages
