"""Run the commands of pages and refresh the output they quote: .venv/bin/python tools/refresh_readme.py [PAGE…]

Commands are the lines of `sh` blocks. A `text` block directly after one quotes what the last command prints on a
terminal of 80 columns; a line `…` in it stands for any number of lines. A block with a file name after its language,
such as `toml suite.toml`, is written to that file. `xmtc serve` runs in the background until the end of the page.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ADDRESS = "127.0.0.1:8000"  # of `xmtc serve` in the pages; the commands run on a free port
GAP = "…"


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: its language, the file name after it, and where its text begins and ends."""

    language: str
    file: str
    text: str
    start: int
    end: int

    def commands(self) -> list[str]:
        """The lines of a `sh` block, with continued lines joined and comments left out."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [line for line in lines if line.strip() and not line.startswith("#")]


@dataclass(frozen=True)
class Done:
    """What a command printed, and its exit status."""

    command: str
    status: int
    out: str
    err: str


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a Markdown page, in order."""
    found = re.finditer(r"^```(\w*)[ ]?(\S*)\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    return [Block(*match.group(1, 2, 3), *match.span(3)) for match in found]


def quoted_output(page: str) -> list[tuple[str, Block]]:
    """Each command whose output the page quotes, with the block that quotes it."""
    pairs = zip(blocks(page), blocks(page)[1:], strict=False)
    return [
        (first.commands()[-1], second)
        for first, second in pairs
        if (first.language, second.language) == ("sh", "text") and page[first.end : second.start] == "```\n\n```text\n"
    ]


class Shell:
    """Runs the commands of one page in a folder. Commands in `finished` have run before and are not repeated."""

    def __init__(self, folder: Path, finished: Mapping[str, Done] | None = None) -> None:
        self.folder = folder
        self.finished = dict(finished or {})
        scripts = str(Path(sys.executable).parent)
        source = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
        self.environment = {
            **os.environ,
            "PATH": os.pathsep.join([scripts, os.environ["PATH"]]),
            "PYTHONPATH": source,
            "XMTC_CACHE": "off",
            "NO_COLOR": "1",
            "TERM": "dumb",
        }
        self.server: subprocess.Popen[str] | None = None
        self.address = ADDRESS

    def run(self, command: str, *, timeout: float = 300) -> Done:
        """Run a command; its standard output is a terminal, so that it prints what a person sees."""
        if command in self.finished:
            return self.finished[command]
        if shlex.split(command)[:2] == ["xmtc", "serve"]:
            return self._serve(command)
        import pty
        import termios

        ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (24, 80))
        with tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", command.replace(ADDRESS, self.address)],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=theirs,
                stderr=errors,
            )
            os.close(theirs)
            limit = threading.Timer(timeout, process.kill)
            limit.start()
            out = _read_all(ours)
            status = process.wait()
            limit.cancel()
            errors.seek(0)
            return Done(command, status, out, errors.read().decode())

    def _serve(self, command: str) -> Done:
        """Start a server on a free port, in place of the one that runs, and wait until it accepts requests."""
        self.close()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"127.0.0.1:{port}"
        arguments = [*shlex.split(command), "--port", str(port)]
        self.server = subprocess.Popen(
            arguments, cwd=self.folder, env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert self.server.stdout is not None
        line = self.server.stdout.readline()
        if not line:
            _, errors = self.server.communicate()
            return Done(command, self.server.returncode or 1, line, errors)
        return Done(command, 0, line.replace(self.address, ADDRESS), "")

    def close(self) -> None:
        """Stop the server, if one runs."""
        if self.server is not None:
            self.server.send_signal(signal.SIGTERM)
            self.server.communicate(timeout=30)
            self.server = None


def _read_all(terminal: int) -> str:
    """Everything that is written to a terminal until its last writer closes it."""
    parts = []
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # Linux: the other end is closed
            break
        if not part:
            break
        parts.append(part)
    os.close(terminal)
    return b"".join(parts).decode().replace("\r\n", "\n")


@contextmanager
def shell(folder: Path, finished: Mapping[str, Done] | None = None) -> Iterator[Shell]:
    """A `Shell` that stops its server at the end."""
    opened = Shell(folder, finished)
    try:
        yield opened
    finally:
        opened.close()


def run_page(page: str, here: Shell) -> Iterator[Done]:
    """Write the files of a page and run its commands, in order."""
    for block in blocks(page):
        if block.file:
            (here.folder / block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "sh":
            for command in block.commands():
                yield here.run(command)


def shortened(output: str, quoted: str) -> str:
    """The output, cut where the quoted one is cut."""
    lines = [line.rstrip() for line in output.strip("\n").splitlines()]
    if GAP not in quoted.splitlines():
        return "\n".join(lines) + "\n"
    before, after = quoted.split(f"{GAP}\n") if quoted.startswith(f"{GAP}\n") else quoted.split(f"\n{GAP}\n")
    first, last = (part.strip("\n").count("\n") + 1 if part.strip("\n") else 0 for part in (before, after))
    return "\n".join([*lines[:first], GAP, *lines[len(lines) - last :]]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path, default=[ROOT / "README.md"], metavar="PAGE")
    finished: dict[str, Done] = {}
    with tempfile.TemporaryDirectory() as folder:
        demo = Path(folder) / "demo"
        demo.mkdir()
        with shell(demo) as here:
            finished["xmtc demo"] = here.run("xmtc demo")
        for number, place in enumerate(parser.parse_args().pages):
            page = place.read_text(encoding="utf-8")
            inside = Path(folder) / f"page-{number}"
            shutil.copytree(demo, inside)
            began = time.perf_counter()
            with shell(inside, finished) as here:
                results = {done.command: done for done in run_page(page, here)}
            for done in results.values():
                if done.status:
                    print(f"{place}: {done.command}\n{done.err}", file=sys.stderr)
            for command, block in reversed(quoted_output(page)):
                page = page[: block.start] + shortened(results[command].out, block.text) + page[block.end :]
            place.write_text(page, encoding="utf-8")
            print(f"{place}: {len(results)} commands in {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
