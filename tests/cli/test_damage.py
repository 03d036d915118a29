"""A damaged model folder: every command that loads it says so in one line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import call, mistake
from xmtc.artifact.store import FORMAT, sealed

Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def folder(models: Path, tmp_path: Path) -> Path:
    shutil.copytree(models / "knn", tmp_path / "m")
    return tmp_path / "m"


def said_by_all(folder: Path, data: Path) -> str:
    """The line, which is the same whichever command finds the damage."""
    commands: list[list[object]] = [
        ["predict", folder, "--text", "x"],
        ["evaluate", folder, data / "test.jsonl"],
        ["compare", folder, data / "test.jsonl"],
        ["explain", folder, "--text", "x", "--label", "y"],
    ]
    lines = {mistake(*command) for command in commands}
    assert len(lines) == 1
    mistake("verify", folder)
    return lines.pop()


def parts(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name != "model.json")


@pytest.mark.parametrize("number", range(4))
class TestFiles:
    def test_cut_short(self, folder: Path, data: Path, number: int) -> None:
        path = parts(folder)[number]
        size = path.stat().st_size
        path.write_bytes(path.read_bytes()[: size // 2])
        said = said_by_all(folder, data)
        assert said == f"{path}: {size // 2:,} bytes, expected {size:,}. Copy or train the model again."

    def test_missing(self, folder: Path, data: Path, number: int) -> None:
        path = parts(folder)[number]
        path.unlink()
        assert said_by_all(folder, data).startswith(f"{path}: missing, so the folder is damaged.")

    def test_one_byte_changed(self, folder: Path, number: int) -> None:
        path = parts(folder)[number]
        content = bytearray(path.read_bytes())
        content[-len(content) // 3] ^= 1
        path.write_bytes(content)
        said = mistake("verify", folder)
        assert said == f"{path}: content does not match its hash. Copy or train the model again."

    def test_directory_overwritten(self, folder: Path, data: Path, number: int) -> None:
        """What says where things lie stands at the start of a safetensors file and at the end of an Arrow file."""
        path = parts(folder)[number]
        content, junk = path.read_bytes(), b"\xff" * 64
        path.write_bytes(junk + content[64:] if path.suffix == ".safetensors" else content[:-64] + junk)
        assert said_by_all(folder, data) == f"{path}: content does not match its hash. Copy or train the model again."


CHANGES: dict[str, tuple[Change, str]] = {
    "another format": (
        lambda m: m.update(format=99),
        "format 99; this version of xmtc reads formats 1 to 2. Use the version that wrote it.",
    ),
    "another format of another shape": (
        lambda m: (m.clear(), m.update(format=3)),
        "format 3; this version of xmtc reads",
    ),
    "no format": (lambda m: m.pop("format"), "damaged ('format' is missing). Copy or train the model again."),
    "no files": (lambda m: m.pop("files"), "damaged ('files' is missing)."),
    "no state": (lambda m: m.pop("state"), "damaged ('state' is missing)."),
    "state without its values": (lambda m: m["state"].clear(), "is missing. Copy or train the model again."),
    "a file elsewhere": (lambda m: m["files"]["arrays"].update(name="../x"), "damaged (invalid file entry"),
    "an unknown model": (lambda m: m.update(model="oracle"), "no model 'oracle'."),
    "an unknown setting": (lambda m: m["settings"].update(wisdom=3), "knn has no setting 'wisdom'."),
    "a bad setting": (lambda m: m["settings"].update(neighbours=-3), "'neighbours' of knn must be"),
}


class TestManifest:
    @pytest.mark.parametrize("name", CHANGES)
    def test_changed(self, folder: Path, data: Path, name: str) -> None:
        change, message = CHANGES[name]
        content = json.loads((folder / "model.json").read_text())
        change(content)
        (folder / "model.json").write_text(json.dumps(content))
        if content.get("format") == FORMAT:
            assert "damaged (its content does not match its hash)" in said_by_all(folder, data)
            (folder / "model.json").write_text(json.dumps(sealed(content)))
        assert message in said_by_all(folder, data)

    @pytest.mark.parametrize("content", [b"", b"{", b"[]", b"3", b"null", b"\xff\xfe\x00", b'{"format": 1'])
    def test_garbage(self, folder: Path, data: Path, content: bytes) -> None:
        (folder / "model.json").write_bytes(content)
        assert said_by_all(folder, data).startswith(f"{folder / 'model.json'}: damaged (")


def test_a_damaged_model_is_replaced_only_with_force(folder: Path, data: Path) -> None:
    (folder / "model.json").write_bytes(b"{")
    assert "already contains a model" in mistake("train", data / "train.jsonl", "--out", folder)
    call("train", data / "train.jsonl", "--model", "popularity", "--out", folder, "--force")
    call("verify", folder)
