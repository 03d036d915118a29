"""Hashes are verified on the first load; a stamp spares the second, and never covers a changed file."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from xmtc.artifact import stamps, store
from xmtc.artifact.store import State, read_folder, read_manifest, write_folder
from xmtc.core.errors import ModelFormatError


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XMTC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of everything that is hashed with SHA-256."""
    sizes: list[int] = []
    original = hashlib.sha256

    class Counting:
        def __init__(self) -> None:
            self._hash = original()

        def update(self, data: memoryview) -> None:
            sizes.append(len(data))
            self._hash.update(data)

        def hexdigest(self) -> str:
            return self._hash.hexdigest()

    monkeypatch.setattr(store.hashlib, "sha256", Counting)
    return sizes


def write(folder: Path, seed: int = 0, old: bool = True) -> Path:
    """A folder with one array, as if written an hour ago unless `old` is false; return the array's file."""
    write_folder(folder, {"model": "m", "settings": {}}, State(arrays={"a": np.random.default_rng(seed).random(1000)}))
    if old:
        past = time.time() - 3600
        for path in folder.iterdir():
            os.utime(path, (past, past))
    return folder / read_manifest(folder)["files"]["arrays"]["name"]


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of the last change cannot be set back: accept files written just now."""
    monkeypatch.setattr(stamps, "SETTLED", -(10**12))


@pytest.mark.usefixtures("settled")
class TestStamps:
    def test_the_second_load_hashes_nothing(self, tmp_path: Path, cache: Path, hashed: list[int]) -> None:
        path = write(tmp_path / "m")
        hashed.clear()
        read_folder(tmp_path / "m")
        assert hashed == [path.stat().st_size]
        assert not list((tmp_path / "m").glob("*verified*"))
        assert len(list((cache / "verified").iterdir())) == 1
        read_folder(tmp_path / "m")
        assert len(hashed) == 1
        read_folder(tmp_path / "m", verify=True)
        assert len(hashed) == 2

    @pytest.mark.parametrize("change", ["in place", "replaced", "touched"])
    def test_a_change_is_hashed_again(self, change: str, tmp_path: Path, cache: Path, hashed: list[int]) -> None:
        path = write(tmp_path / "m")
        read_folder(tmp_path / "m")
        hashed.clear()
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        before = path.stat()
        if change == "in place":
            with path.open("r+b") as stream:
                stream.write(content)
        elif change == "replaced":
            (tmp_path / "other").write_bytes(content)
            os.replace(tmp_path / "other", path)
        if change == "touched":
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
            read_folder(tmp_path / "m")
        else:
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # the time of modification is as before
            with pytest.raises(ModelFormatError, match="content does not match its hash"):
                read_folder(tmp_path / "m")
        assert len(hashed) == 1

    @pytest.mark.parametrize(
        "damage",
        [
            lambda path: path.write_text("["),
            lambda path: path.write_text("[]"),
            lambda path: path.write_text("[" * 100_000),
            lambda path: path.write_text(json.dumps({"arrays": 3})),
            lambda path: path.unlink(),
        ],
    )
    def test_damaged_stamps_are_ignored(
        self, damage: Callable[[Path], None], tmp_path: Path, cache: Path, hashed: list[int]
    ) -> None:
        write(tmp_path / "m")
        read_folder(tmp_path / "m")
        (path,) = (cache / "verified").iterdir()
        damage(path)
        hashed.clear()
        read_folder(tmp_path / "m")
        assert len(hashed) == 1

    def test_a_copy_of_the_folder_is_hashed(self, tmp_path: Path, cache: Path, hashed: list[int]) -> None:
        """Stamps of a folder do not cover another model that takes its place."""
        write(tmp_path / "m")
        read_folder(tmp_path / "m")
        write(tmp_path / "n", seed=1)
        os.rename(tmp_path / "m", tmp_path / "gone")
        os.rename(tmp_path / "n", tmp_path / "m")
        hashed.clear()
        read_folder(tmp_path / "m")
        assert len(hashed) == 1

    @pytest.mark.parametrize("setting", ["off", "/proc/nowhere"])
    def test_without_a_cache(
        self, setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hashed: list[int]
    ) -> None:
        monkeypatch.setenv("XMTC_CACHE", setting)
        write(tmp_path / "m")
        hashed.clear()
        for _ in range(2):
            read_folder(tmp_path / "m")
        assert len(hashed) == 2

    def test_the_oldest_are_deleted(self, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(stamps, "MOST_FOLDERS", 3)
        for number in range(5):
            write(tmp_path / str(number))
            read_folder(tmp_path / str(number))
        assert len(list((cache / "verified").iterdir())) == 3


def test_a_file_written_just_now_gets_no_stamp(tmp_path: Path, cache: Path, hashed: list[int]) -> None:
    """Times of files are coarse: a second write within the same tick would keep them."""
    write(tmp_path / "m", old=False)
    hashed.clear()
    for _ in range(2):
        read_folder(tmp_path / "m")
    assert len(hashed) == 2
    assert not (cache / "verified").exists()
