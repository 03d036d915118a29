"""Opening and writing files: compressed by content, in blocks of whole lines, whole or not at all."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.packing import SUFFIXES, pack
from xmtc.core import files as files_module
from xmtc.core.errors import DataError, shown
from xmtc.core.files import first_bytes, locked, open_bytes, plain_name, read_blocks, replace_file

TEXT = "".join(f"line {number}: größer als {number * number}\n" for number in range(3000)).encode()


@pytest.mark.parametrize(
    ("name", "plain"),
    [("Train.JSONL.xz", "train.jsonl"), ("a/b.txt", "b.txt"), ("labels.tsv.gz", "labels.tsv"), ("x.zst", "x")],
)
def test_plain_name(name, plain):
    assert plain_name(name) == plain


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("size", [1, 100, 1 << 22])
def test_blocks_join_to_the_file_and_end_at_line_ends(tmp_path, suffix, size):
    content = TEXT[:2000] + b"no line end"
    blocks = list(read_blocks(pack(tmp_path / f"a{suffix}", content), size))
    assert b"".join(blocks) == content
    assert all(block.endswith(b"\n") for block in blocks[:-1])
    assert all(blocks)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_compression_is_told_by_content(tmp_path, suffix):
    packed = pack(tmp_path / f"a{suffix}", TEXT)
    misnamed = packed.rename(tmp_path / "misnamed.txt")
    with open_bytes(misnamed) as stream:
        assert stream.read() == TEXT


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_first_bytes_begin_the_file(tmp_path, suffix):
    start = first_bytes(pack(tmp_path / f"a{suffix}", TEXT), 500)
    assert start
    assert TEXT.startswith(start)
    assert len(start) <= 500


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_line_without_end(tmp_path, suffix, monkeypatch):
    """An archive of a few bytes can hold a line that fills the memory."""
    path = pack(tmp_path / f"a{suffix}", b"short\n" + bytes(3 << 20))
    assert sum(map(len, read_blocks(path, 1000))) == 6 + (3 << 20)
    monkeypatch.setattr("xmtc.core.files.MOST_LINE", 1 << 20)
    with pytest.raises(DataError, match="a line has more than 1,048,576 bytes"):
        list(read_blocks(path, 1000))
    monkeypatch.setattr("xmtc.core.files._MOST_LOOKED_AT", 1 << 10)
    assert first_bytes(path, 100) == b"short\n"
    assert len(first_bytes(pack(tmp_path / f"b{suffix}", bytes(1 << 20)), 100)) < 5000


@pytest.mark.parametrize("start", [b"BZh", b"BZhang wrote this\n", b"BZh9 words\n", b"BZ"])
def test_a_text_that_begins_as_an_archive_does(tmp_path, start):
    path = tmp_path / "a.txt"
    path.write_bytes(start)
    assert b"".join(read_blocks(path)) == start


def test_several_compressed_members_are_one_file(tmp_path):
    for suffix in SUFFIXES[1:]:
        one = pack(tmp_path / f"one{suffix}", b"first\n").read_bytes()
        two = pack(tmp_path / f"two{suffix}", b"second\n").read_bytes()
        both = tmp_path / f"both{suffix}"
        both.write_bytes(one + two)
        assert b"".join(read_blocks(both)) == b"first\nsecond\n", suffix


@pytest.mark.parametrize("suffix", SUFFIXES[1:])
@pytest.mark.parametrize("damage", ["cut", "flip"])
def test_damaged_archive(tmp_path, suffix, damage):
    path = pack(tmp_path / f"a{suffix}", random.Random(0).randbytes(1000).hex().encode() * 50)
    packed = bytearray(path.read_bytes())
    if damage == "cut":
        packed = packed[: len(packed) // 2]
    else:
        for at in range(6, 26):
            packed[at] ^= 0xFF
    path.write_bytes(packed)
    with pytest.raises(DataError) as caught:
        list(read_blocks(path))
    message = str(caught.value)
    assert message.startswith(f"{path}: damaged or truncated (")
    assert message.endswith("Download or create the file again.")
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, "no such file"),
        (lambda path: path.mkdir(), "is a folder"),
        (lambda path: os.mkfifo(path), "is not a regular file"),
    ],
)
def test_what_is_not_a_file(tmp_path, make, words):
    path = tmp_path / "thing"
    make(path)
    with pytest.raises(DataError) as caught:
        list(read_blocks(path))
    assert str(caught.value).startswith(f"{path}: {words}")


def test_a_name_the_system_refuses(tmp_path):
    for name in ("x" * 5000, "a\0b"):
        with pytest.raises(DataError, match="Check the path"):
            list(read_blocks(tmp_path / name))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission(tmp_path):
    path = tmp_path / "locked"
    path.write_bytes(b"x")
    path.chmod(0)
    with pytest.raises(DataError, match="cannot be opened"):
        list(read_blocks(path))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_replace_file_writes_what_its_name_says(tmp_path, suffix):
    path = tmp_path / f"out.txt{suffix}"
    with replace_file(path) as stream:
        stream.write(TEXT[:100])
        stream.flush()
        stream.write(TEXT[100:])
        assert not path.exists()
    reference = {".gz": gzip.decompress, ".xz": lzma.decompress, ".bz2": bz2.decompress}
    if suffix == ".zst":
        assert pa.CompressedInputStream(pa.OSFile(str(path)), "zstd").read() == TEXT
    else:
        assert reference.get(suffix, bytes)(path.read_bytes()) == TEXT
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_replace_file_keeps_the_old_file_when_the_block_fails(tmp_path, suffix):
    path = tmp_path / f"out{suffix}"
    path.write_bytes(b"old")

    def fail() -> None:
        with replace_file(path) as stream:
            stream.write(b"new")
            raise KeyError("in the middle")

    with pytest.raises(KeyError):
        fail()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("place", ["missing/out", "folder"])
def test_replace_file_where_nothing_can_be_written(tmp_path, place):
    (tmp_path / "folder").mkdir()
    with pytest.raises(DataError) as caught, replace_file(tmp_path / place) as stream:
        stream.write(b"x")
    assert str(caught.value).startswith(f"{tmp_path / place}: cannot be written (")
    assert os.listdir(tmp_path) == ["folder"]


def test_shown_is_one_printable_short_line():
    assert shown("plain words, größer") == "plain words, größer"
    awkward = "a\nb\rc\x85d\u2028e\ud800f\x00\x1b[31m"
    assert shown(awkward).isprintable()
    assert shown(awkward).encode()  # half a surrogate pair cannot be encoded
    assert len(shown("x" * 1000)) == 60
    assert shown(["a"]) == "['a']"


def test_links_are_followed_and_pipes_written_to(tmp_path: Path) -> None:
    real, link = tmp_path / "real.jsonl", tmp_path / "link.jsonl"
    real.write_text("old")
    link.symlink_to(real)
    with replace_file(link) as stream:
        stream.write(b"new")
    assert link.is_symlink()
    assert real.read_text() == "new"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
        with replace_file(pipe) as stream:
            stream.write(b"through the pipe")
        assert reader.communicate(timeout=10)[0] == b"through the pipe"
    assert pipe.is_fifo()


# ---- locks

HOLD = """
import sys, time
from pathlib import Path
from xmtc.core.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_folder_is_one_process_at_a_time_and_free_again_when_that_dies(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder)
    with subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        for place in (folder, tmp_path / "link"):
            with (
                pytest.raises(DataError, match=rf"^{place}: somebody is there\. Wait\.$"),
                locked(place, "somebody is there. Wait."),
            ):
                pass
        assert not any(folder.iterdir()), "what checks a folder for other files sees none"
        holder.kill()
    with locked(folder, "somebody is there. Wait."):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "link"], "no lock file stays"


def test_who_is_not_refused_waits(tmp_path):
    entered = []

    def enter() -> None:
        with locked(tmp_path / "folder"):
            entered.append("second")

    with locked(tmp_path / "folder"):
        waiting = threading.Thread(target=enter)
        waiting.start()
        waiting.join(0.3)
        entered.append("first")
    waiting.join()
    assert entered == ["first", "second"]


def test_a_lock_can_be_taken_by_many_in_turn(tmp_path):
    """The file goes with each release, and still no two hold the lock at once."""
    inside, most = [0], [0]

    def enter() -> None:
        for _ in range(20):
            with locked(tmp_path):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                inside[0] -= 1

    threads = [threading.Thread(target=enter) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]


@pytest.mark.parametrize("everywhere", [False, True])
def test_where_no_lock_file_can_lie_beside(tmp_path, monkeypatch, everywhere):
    """A machine's temporary folder stands in; where nothing can be locked, work goes on."""
    real = files_module.FileLock.acquire

    def refused(lock, *arguments, **named):
        if everywhere or Path(lock.lock_file).parent == tmp_path:
            raise PermissionError(13, "Permission denied")
        return real(lock, *arguments, **named)

    monkeypatch.setattr(files_module.FileLock, "acquire", refused)
    with locked(tmp_path / "folder", "busy. Wait."):
        if everywhere:
            with locked(tmp_path / "folder", "busy. Wait."):
                pass
        else:
            with pytest.raises(DataError, match=r"busy\. Wait\."), locked(tmp_path / "folder", "busy. Wait."):
                pass
    assert not any(tmp_path.iterdir())
