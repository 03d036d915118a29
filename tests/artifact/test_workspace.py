"""The workspace: parts that last, trainings that go on or are refused."""

from __future__ import annotations

import os
import subprocess
import sys
import weakref
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

from xmtc.artifact.arrays import Later, Shapes
from xmtc.artifact.workspace import FollowerWorkspace, Workspace
from xmtc.core.errors import ConfigError, DataError, XmtcWarning

SHAPES: Shapes = {
    "flags": ((3,), np.bool_),
    "matrix": ((2, 3), "float32"),
    "none": ((0, 7), np.float16),
    "one": ((), np.dtype(np.int64)),
}


def workspaces(folder: Path) -> list[Workspace]:
    """On disk, in memory, and of a process that follows."""
    on_disk = Workspace(folder / "m.work")
    on_disk.begin({"seed": 1}, resume=False)
    return [on_disk, Workspace(), FollowerWorkspace(folder / "f.work")]


def write_half(work: Workspace, error: BaseException) -> None:
    with work.stream("part", SHAPES) as arrays:
        arrays["matrix"][0] = 1
        raise error


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("on_disk", [True, False])
def test_parts(tmp_path: Path, on_disk: bool) -> None:
    work = Workspace(tmp_path / "m.work" if on_disk else None)
    work.begin({"seed": 1}, resume=False)
    assert not work.has("level-0")
    work.save("level-0", {"a": np.arange(3)}, {"loss": 0.5})
    assert work.has("level-0")
    arrays, values = work.load("level-0")
    assert arrays["a"].tolist() == [0, 1, 2]
    assert values == {"loss": 0.5}
    work.remove()
    assert not work.has("level-0")
    assert not (tmp_path / "m.work").exists()


def test_resume_keeps_and_restart_forgets(tmp_path: Path) -> None:
    work = Workspace(tmp_path / "m.work")
    work.begin({"seed": 1}, resume=False)
    work.save("part", {"a": np.arange(3)})
    Workspace(tmp_path / "m.work").begin({"seed": 1}, resume=True)
    assert work.has("part")
    with pytest.raises(ConfigError, match="different seed"):
        Workspace(tmp_path / "m.work").begin({"seed": 2}, resume=True)
    Workspace(tmp_path / "m.work").begin({"seed": 1}, resume=False)
    assert not work.has("part")


def test_more_parts_than_open_files(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [int(number) for number in os.listdir("/dev/fd")]
    limit = max(taken) + 60
    count = limit - len(taken) + 50
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        work = Workspace(tmp_path / "m.work")
        work.begin({}, resume=False)
        for number in range(count):
            work.save(f"part-{number}", {"a": np.array([number])})
        parts = [work.load(f"part-{number}")[0]["a"] for number in range(count)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert np.concatenate(parts).tolist() == list(range(count))


def test_lies_beside_the_model() -> None:
    assert Workspace.beside(Path("some/model")) == Path("some/model.work")


def test_a_resumed_training_without_its_description_is_refused(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "model.work")
    workspace.begin({"seed": 1}, resume=False)
    workspace.save("part", {"numbers": np.arange(3)})
    (tmp_path / "model.work" / "training.json").unlink()
    with pytest.raises(DataError, match=r"training.json: missing, so the training cannot be resumed"):
        workspace.begin({"seed": 1}, resume=True)
    assert workspace.has("part")


@pytest.mark.parametrize("kind", range(3))
class TestStream:
    def test_what_is_written_is_what_is_read(self, tmp_path: Path, kind: int) -> None:
        work = workspaces(tmp_path)[kind]
        with work.stream("part", SHAPES, {"loss": 0.5}) as arrays:
            assert {name: (array.shape, array.dtype) for name, array in arrays.items()} == {
                name: (shape, np.dtype(kind)) for name, (shape, kind) in SHAPES.items()
            }
            assert not any(array.any() for array in arrays.values())
            arrays["matrix"][1] = [1, 2, 3]
            arrays["one"][()] = 2**40
            arrays["flags"][1] = True
            assert not work.has("part")
        assert work.has("part")
        for read, values in (work.load("part"), work.map("part")):
            assert values == {"loss": 0.5}
            assert {name: array.dtype for name, array in read.items()} == {
                n: np.dtype(k) for n, (_, k) in SHAPES.items()
            }
            assert read["matrix"].tolist() == [[0, 0, 0], [1, 2, 3]]
            assert read["one"].tolist() == 2**40
            assert read["flags"].tolist() == [False, True, False]
            assert read["none"].shape == (0, 7)

    def test_a_finished_part_is_out_of_reach(self, tmp_path: Path, kind: int) -> None:
        work = workspaces(tmp_path)[kind]
        with work.stream("part", SHAPES) as arrays:
            pass
        assert arrays == {}

    @pytest.mark.parametrize("shapes", [{}, {"none": ((3, 0), np.int32)}])
    def test_nothing_at_all(self, tmp_path: Path, kind: int, shapes: Shapes) -> None:
        work = workspaces(tmp_path)[kind]
        with work.stream("part", shapes):
            pass
        for read, _ in (work.load("part"), work.map("part")):
            assert {name: array.shape for name, array in read.items()} == {n: shape for n, (shape, _) in shapes.items()}

    @pytest.mark.parametrize(
        "error", [KeyboardInterrupt(), FileNotFoundError(2, "another file"), DataError("bad line")]
    )
    def test_an_error_leaves_nothing(self, tmp_path: Path, kind: int, error: BaseException) -> None:
        work = workspaces(tmp_path)[kind]
        with pytest.raises(type(error)) as raised:
            write_half(work, error)
        assert raised.value is error
        assert not work.has("part")
        assert files(tmp_path / "m.work") == ["training.json"]

    def test_an_error_leaves_the_part_before(self, tmp_path: Path, kind: int) -> None:
        work = workspaces(tmp_path)[kind]
        work.save("part", {"a": np.arange(3)})
        with pytest.raises(RuntimeError, match="bug"):
            write_half(work, RuntimeError("bug"))
        assert work.load("part")[0]["a"].tolist() == [0, 1, 2]


def test_a_stream_is_a_file_that_others_read(tmp_path: Path) -> None:
    work = workspaces(tmp_path)[0]
    with work.stream("part", SHAPES) as arrays:
        arrays["matrix"][:] = 3
    theirs = load_file(tmp_path / "m.work" / "part.safetensors")
    assert theirs["matrix"].tolist() == [[3, 3, 3], [3, 3, 3]]
    assert theirs["none"].shape == (0, 7)
    work.save("saved", theirs)
    saved = (tmp_path / "m.work" / "saved.safetensors").read_bytes()
    assert (tmp_path / "m.work" / "part.safetensors").read_bytes() == saved


def test_a_killed_stream_is_no_part(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path; from xmtc.artifact.workspace import Workspace\n"
        "work = Workspace(Path(sys.argv[1]))\n"
        "work.begin({'seed': 1}, resume=False)\n"
        "with work.stream('part', {'a': ((1000,), 'float32')}) as arrays:\n"
        "    arrays['a'][:500] = 1\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    folder = tmp_path / "m.work"
    subprocess.run([sys.executable, "-c", script, str(folder)], check=False)
    assert len(files(folder)) == 2  # training.json and what was being written
    work = Workspace(folder)
    assert not work.has("part")
    work.begin({"seed": 1}, resume=True)
    assert files(folder) == ["training.json"]
    (folder / ".part.safetensors.0a1b2c3d.part").write_bytes(b"half")
    work.remove_if_nothing_finished()
    assert not folder.exists()


def test_a_disk_without_room_is_told_before_anything_is_written(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    work = workspaces(tmp_path)[0]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        with (
            pytest.raises(DataError, match=r"part.safetensors: cannot be written \(File too large\). Free disk space"),
            work.stream("part", {"a": ((1 << 21,), np.uint8)}),
        ):
            pytest.fail("the block was entered")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert files(tmp_path / "m.work") == ["training.json"]


def test_a_system_that_cannot_reserve_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("os.posix_fallocate", raising=False)
    work = workspaces(tmp_path)[0]
    count = (1 << 21) + 5
    with work.stream("part", {"a": ((count,), np.uint8)}) as arrays:
        arrays["a"][-1] = 1
    read, _ = work.load("part")
    assert (read["a"].size, read["a"].sum(), read["a"][-1]) == (count, 1, 1)


def test_a_stream_without_a_folder_is_refused_in_words(tmp_path: Path) -> None:
    work = Workspace(tmp_path / "gone")
    with pytest.raises(DataError, match=r"part.safetensors: cannot be written"), work.stream("part", SHAPES):
        pass


def test_mapped_parts_are_not_copied_and_cannot_be_written_to(tmp_path: Path) -> None:
    work = workspaces(tmp_path)[0]
    work.save("part", {"a": np.arange(3)})
    array = work.map("part")[0]["a"]
    followed = FollowerWorkspace(tmp_path / "m.work").map("part")[0]["a"]
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1
    with (tmp_path / "m.work" / "part.safetensors").open("r+b") as stream:
        stream.seek(-8, 2)
        stream.write((9).to_bytes(8, "little"))
    assert array.tolist() == followed.tolist() == [0, 1, 9]


def test_one_flipped_bit_makes_a_part_unfinished(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    for streamed in (False, True):
        for place in [*map(int, rng.integers(0, 100, 9)), 0, -1, -8]:
            work = workspaces(tmp_path)[0]
            if streamed:
                with work.stream("part", {"a": ((30,), np.int64)}, {"loss": 0.5}) as arrays:
                    arrays["a"][:] = np.arange(30)
            else:
                work.save("part", {"a": np.arange(30)}, {"loss": 0.5})
            path = tmp_path / "m.work" / "part.safetensors"
            content = bytearray(path.read_bytes())
            content[place] ^= 1 << int(rng.integers(8))
            again = Workspace(tmp_path / "m.work")
            assert again.has("part")
            assert again.load("part")[0]["a"].tolist() == list(range(30))
            path.write_bytes(content)
            with pytest.raises(DataError, match=r"part.safetensors: .* Start over with --force."):
                FollowerWorkspace(tmp_path / "m.work").map("part")
            assert not FollowerWorkspace(tmp_path / "m.work").has("part")
            assert path.is_file()  # a follower deletes nothing
            with pytest.warns(XmtcWarning, match="part.safetensors: damaged, so this part is trained again."):
                assert not Workspace(tmp_path / "m.work").has("part")
            assert files(tmp_path / "m.work") == ["training.json"]


def test_a_part_without_its_checksum_is_unfinished(tmp_path: Path) -> None:
    work = workspaces(tmp_path)[0]
    work.save("part", {"a": np.arange(3)})
    (tmp_path / "m.work" / "part.checksum").unlink()
    with pytest.warns(XmtcWarning, match="trained again"):
        assert not Workspace(tmp_path / "m.work").has("part")


def test_a_damaged_part_cannot_be_mapped(tmp_path: Path) -> None:
    work = workspaces(tmp_path)[0]
    (tmp_path / "m.work" / "part.safetensors").write_bytes(b"half")
    with pytest.raises(DataError, match=r"not a readable safetensors file .* Start over with --force."):
        work.map("part")


def test_arrays_made_later_are_made_one_at_a_time(tmp_path: Path) -> None:
    work = workspaces(tmp_path)[0]
    before: list[weakref.ref[NDArray[Any]]] = []

    def make(number: int) -> NDArray[Any]:
        assert all(array() is None for array in before)
        array = np.full((2, 3), number, dtype=np.float32)
        before.append(weakref.ref(array))
        return array

    arrays = {str(number): Later((2, 3), np.float32, partial(make, number)) for number in range(4)}
    work.save("later", {**arrays, "now": np.arange(3)})
    assert len(before) == 4
    work.save("at once", {**{str(n): np.full((2, 3), n, dtype=np.float32) for n in range(4)}, "now": np.arange(3)})
    folder = tmp_path / "m.work"
    assert (folder / "later.safetensors").read_bytes() == (folder / "at once.safetensors").read_bytes()


@pytest.mark.parametrize("work", [Workspace(), FollowerWorkspace(Path("nowhere"))])
def test_arrays_made_later_are_copied_to_memory(work: Workspace) -> None:
    buffer = np.arange(3)
    work.save("part", {"a": Later((3,), np.int64, lambda: buffer)})
    buffer[:] = 7
    assert work.load("part")[0]["a"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("kind", range(3))
@pytest.mark.parametrize("array", [np.zeros(4), np.zeros(3, dtype=np.float32)])
def test_an_array_of_another_form_than_promised(tmp_path: Path, kind: int, array: NDArray[Any]) -> None:
    work = workspaces(tmp_path)[kind]
    with pytest.raises(ValueError, match=r"expected float64\[3\]"):
        work.save("part", {"a": Later((3,), "float64", lambda: array)})
    assert not work.has("part")
