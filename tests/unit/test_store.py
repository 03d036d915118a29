"""The model folder: another library as the judge, and damage of every kind."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from safetensors.numpy import load_file, save_file

from xmtc.arrays import map_arrays, write_arrays
from xmtc.errors import DataError, ModelFormatError
from xmtc.store import State, read_folder, read_manifest, verify_folder, write_folder

ARRAYS = {
    "floats": np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4),
    "bytes": np.arange(5, dtype=np.uint8),
    "flags": np.array([True, False]),
    "large": np.array([[2**40]], dtype=np.int64),
    "small": np.arange(3, dtype=np.int16),
    "none": np.empty((0, 7), dtype=np.float64),
}


def manifest(**more: object) -> dict[str, object]:
    return {"model": "knn", "settings": {}, "labels": 1, "training": {}, **more}


def state() -> State:
    return State({"number": 1}, dict(ARRAYS), {"words": pa.table({"word": ["ä", "b"]})})


class TestSafetensors:
    def test_the_format_s_own_library_reads_ours(self, tmp_path: Path) -> None:
        with (tmp_path / "a.safetensors").open("wb") as stream:
            write_arrays(stream, ARRAYS, {"note": "x"})
        theirs = load_file(tmp_path / "a.safetensors")
        assert set(theirs) == set(ARRAYS)
        for name, array in ARRAYS.items():
            assert theirs[name].dtype == array.dtype
            np.testing.assert_array_equal(theirs[name], array)

    def test_we_read_what_the_format_s_own_library_writes(self, tmp_path: Path) -> None:
        save_file(ARRAYS, tmp_path / "a.safetensors", {"note": "x"})
        ours, metadata = map_arrays(tmp_path / "a.safetensors")
        assert metadata == {"note": "x"}
        for name, array in ARRAYS.items():
            assert ours[name].dtype == array.dtype
            np.testing.assert_array_equal(ours[name], array)

    def test_strided_arrays(self, tmp_path: Path) -> None:
        array = np.arange(12).reshape(3, 4)[:, ::2]
        with (tmp_path / "a.safetensors").open("wb") as stream:
            write_arrays(stream, {"a": array})
        np.testing.assert_array_equal(map_arrays(tmp_path / "a.safetensors")[0]["a"], array)

    def test_mapped_arrays_cannot_be_written_to(self, tmp_path: Path) -> None:
        with (tmp_path / "a.safetensors").open("wb") as stream:
            write_arrays(stream, ARRAYS)
        with pytest.raises(ValueError, match="read-only"):
            map_arrays(tmp_path / "a.safetensors")[0]["floats"][0, 0] = 1

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"\x00",
            (2**60).to_bytes(8, "little") + b"{}",
            (2).to_bytes(8, "little") + b"[]",
            (4).to_bytes(8, "little") + b"nope",
            (70).to_bytes(8, "little") + b'{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}'.ljust(70) + b"1234",
            (70).to_bytes(8, "little") + b'{"a":{"dtype":"X32","shape":[1],"data_offsets":[0,4]}}'.ljust(70) + b"1234",
            (70).to_bytes(8, "little") + b'{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}'.ljust(70) + b"1234",
        ],
    )
    def test_damage_is_an_error_of_ours(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "a.safetensors").write_bytes(content)
        with pytest.raises(ModelFormatError, match="not a readable safetensors file"):
            map_arrays(tmp_path / "a.safetensors")


class TestFolder:
    def test_round_trip(self, tmp_path: Path) -> None:
        write_folder(tmp_path / "m", manifest(), state())
        read, found = read_folder(tmp_path / "m")
        assert read["model"] == "knn"
        assert found.values == {"number": 1}
        assert found.tables["words"]["word"].to_pylist() == ["ä", "b"]
        for name, array in ARRAYS.items():
            np.testing.assert_array_equal(found.arrays[name], array)
        assert len(verify_folder(tmp_path / "m")) == 2

    def test_replacing_leaves_no_litter(self, tmp_path: Path) -> None:
        write_folder(tmp_path / "m", manifest(), state())
        (tmp_path / "m" / ".arrays.1234.part").write_bytes(b"from a save that died")
        (tmp_path / "m" / "notes.txt").write_text("the user's own")
        other = state()
        other.arrays["floats"] = np.zeros(2, dtype=np.float32)
        write_folder(tmp_path / "m", manifest(), other)
        names = sorted(path.name for path in (tmp_path / "m").iterdir())
        assert len(names) == 4
        assert "notes.txt" in names

    def test_two_saves_at_once_leave_a_whole_model(self, tmp_path: Path) -> None:
        def save(number: int) -> None:
            own = state()
            own.arrays["floats"] = np.full(50_000, number, dtype=np.float32)
            for _ in range(10):
                write_folder(tmp_path / "m", manifest(), own)

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(save, (1, 2)))
        assert len(verify_folder(tmp_path / "m")) == 2  # whoever saved last, the model is whole
        floats = read_folder(tmp_path / "m")[1].arrays["floats"]
        assert set(floats.tolist()) in ({1.0}, {2.0})
        assert len(list((tmp_path / "m").iterdir())) == 3

    def test_equal_content_has_equal_names(self, tmp_path: Path) -> None:
        for folder in ("a", "b"):
            write_folder(tmp_path / folder, manifest(), state())
        assert read_manifest(tmp_path / "a")["files"] == read_manifest(tmp_path / "b")["files"]

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda m: m.update(format=99), "format 99; this xmtc reads format 1"),
            (lambda m: m.pop("files"), "damaged"),
            (lambda m: m["files"]["arrays"].update(name="../../etc/passwd"), "strange file entry"),
            (lambda m: m["files"]["arrays"].update(name="./../../secret.part"), "strange file entry"),
            (lambda m: m["files"]["arrays"].update(bytes="many"), "strange file entry"),
            (lambda m: m.update(model=3), "no model name"),
        ],
    )
    def test_bad_manifest(self, tmp_path: Path, change: object, message: str) -> None:
        write_folder(tmp_path / "m", manifest(), state())
        content = json.loads((tmp_path / "m" / "model.json").read_text())
        change(content)  # type: ignore[operator]
        (tmp_path / "m" / "model.json").write_text(json.dumps(content))
        with pytest.raises(ModelFormatError, match=message):
            read_folder(tmp_path / "m")

    def test_not_a_folder_of_ours(self, tmp_path: Path) -> None:
        with pytest.raises(ModelFormatError, match="no such folder"):
            read_folder(tmp_path / "nowhere")
        with pytest.raises(ModelFormatError, match=r"no model\.json in it"):
            read_folder(tmp_path)
        (tmp_path / "model.json").write_text("{")
        with pytest.raises(ModelFormatError, match="damaged"):
            read_folder(tmp_path)

    def test_unwritable_place(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(DataError, match="cannot be made"):
            write_folder(tmp_path / "file" / "m", manifest(), state())

    @pytest.mark.long
    def test_a_large_folder_is_mapped_and_not_read(self, tmp_path: Path) -> None:
        """A gigabyte loads in under a second, and its bytes do not appear in the process's memory."""
        code = textwrap.dedent(
            """
            import sys, time, numpy as np
            from pathlib import Path
            from xmtc.store import State, read_folder, write_folder
            def resident():
                lines = Path("/proc/self/status").read_text().splitlines()
                return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024
            folder = Path(sys.argv[1])
            if sys.argv[2] == "write":
                big = np.zeros(1 << 28, dtype=np.float32)
                write_folder(folder, {"model": "knn", "settings": {}}, State(arrays={"big": big}))
            else:
                before, started = resident(), time.perf_counter()
                _, state = read_folder(folder)
                assert state.arrays["big"].shape == (1 << 28,)
                assert state.arrays["big"][12345] == 0
                print(time.perf_counter() - started, resident() - before)
            """
        )
        if not Path("/proc/self/status").exists():
            pytest.skip("needs /proc")
        for verb in ("write", "read"):
            command = [sys.executable, "-c", code, str(tmp_path / "m"), verb]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
        seconds, megabytes = map(float, done.stdout.split())
        assert seconds < 1.0
        assert megabytes < 50
