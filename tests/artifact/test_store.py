"""The model folder: another library as the judge, and damage of every kind."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from safetensors.numpy import load_file, save_file

from xmtc.artifact import store
from xmtc.artifact.arrays import map_arrays, write_arrays
from xmtc.artifact.dependencies import Link
from xmtc.artifact.store import (
    State,
    read_folder,
    read_manifest,
    remove_folder,
    replace_part,
    sealed,
    verify_folder,
    write_folder,
)
from xmtc.core.errors import DataError, ModelFormatError

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

    def test_removing_a_model_keeps_other_files(self, tmp_path: Path) -> None:
        for folder in (tmp_path / "m", tmp_path / "mixed"):
            write_folder(folder, manifest(), state())
        (tmp_path / "mixed" / "notes.txt").write_text("the user's own")
        remove_folder(tmp_path / "m")
        remove_folder(tmp_path / "mixed")
        left = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*"))
        assert left == ["mixed", "mixed/notes.txt"]

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
            (lambda m: m.update(format=99), "format 99; this version of xmtc reads formats 1 to 2"),
            (lambda m: m.pop("files"), "damaged"),
            (lambda m: m["files"]["arrays"].update(name="../../etc/passwd"), "invalid file entry"),
            (lambda m: m["files"]["arrays"].update(name="./../../secret.part"), "invalid file entry"),
            (lambda m: m["files"]["arrays"].update(bytes="many"), "invalid file entry"),
            (lambda m: m.update(model=3), "no model name"),
        ],
    )
    def test_bad_manifest(self, tmp_path: Path, change: object, message: str) -> None:
        write_folder(tmp_path / "m", manifest(), state())
        content = json.loads((tmp_path / "m" / "model.json").read_text())
        change(content)  # type: ignore[operator]
        whole = content if content["format"] == 99 else sealed(content)
        (tmp_path / "m" / "model.json").write_text(json.dumps(whole))
        with pytest.raises(ModelFormatError, match=message):
            read_folder(tmp_path / "m")

    def test_not_a_folder_of_ours(self, tmp_path: Path) -> None:
        with pytest.raises(ModelFormatError, match="no such folder"):
            read_folder(tmp_path / "nowhere")
        with pytest.raises(ModelFormatError, match=r"not a model folder: model\.json is missing"):
            read_folder(tmp_path)
        (tmp_path / "model.json").write_text("{")
        with pytest.raises(ModelFormatError, match="damaged"):
            read_folder(tmp_path)

    def test_unwritable_place(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(DataError, match="cannot be created"):
            write_folder(tmp_path / "file" / "m", manifest(), state())

    @pytest.mark.long
    def test_a_large_folder_is_hashed_and_mapped(self, tmp_path: Path) -> None:
        """The bytes of a gigabyte are hashed, and do not stay in the memory of the process."""
        code = textwrap.dedent(
            """
            import hashlib, sys, time, numpy as np
            from pathlib import Path
            from xmtc.artifact.store import State, read_folder, write_folder
            def resident():
                lines = Path("/proc/self/status").read_text().splitlines()
                return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024
            folder = Path(sys.argv[1])
            if sys.argv[2] == "write":
                big = np.zeros(1 << 28, dtype=np.float32)
                write_folder(folder, {"model": "knn", "settings": {}}, State(arrays={"big": big}))
            else:
                before, started = resident(), time.process_time()
                _, state = read_folder(folder)
                assert state.arrays["big"].shape == (1 << 28,)
                assert state.arrays["big"][12345] == 0
                print(time.process_time() - started, resident() - before)
                plain, started, block = hashlib.sha256(), time.process_time(), bytes(1 << 20)
                for _ in range(1 << 10):
                    plain.update(block)
                print(time.process_time() - started)
            """
        )
        if not Path("/proc/self/status").exists():
            pytest.skip("needs /proc")
        for verb in ("write", "read"):
            command = [sys.executable, "-c", code, str(tmp_path / "m"), verb]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
        seconds, megabytes, hashing = map(float, done.stdout.split())
        assert seconds < 1.5 * hashing + 0.5  # of processor time
        assert megabytes < 50


def part(number: int = 1) -> State:
    return State({"number": number}, {"numbers": np.arange(number, dtype=np.float64)})


def known_files(folder: Path) -> dict[str, tuple[int, int]]:
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.iterdir()}


class TestParts:
    """What can be replaced by itself."""

    @pytest.fixture
    @staticmethod
    def folder(tmp_path: Path) -> Path:
        write_folder(tmp_path / "m", manifest(), state())
        return tmp_path / "m"

    def test_put_there_replaced_and_taken_away(self, folder: Path) -> None:
        first = known_files(folder)
        alone = (folder / "model.json").read_bytes()
        for number in (3, 5):
            replace_part(folder, "decisions", part(number), read_manifest(folder))
            _, found = read_folder(folder)
            assert found.parts["decisions"].values == {"number": number}
            np.testing.assert_array_equal(found.parts["decisions"].arrays["numbers"], np.arange(number))
            assert set(found.arrays) == set(ARRAYS)
            now = known_files(folder)
            assert len(now) == len(first) + 1
            assert {name: now[name] for name in first if name != "model.json"} == {
                name: found for name, found in first.items() if name != "model.json"
            }
        assert len(verify_folder(folder)) == 3
        replace_part(folder, "decisions", None, read_manifest(folder))
        assert (folder / "model.json").read_bytes() == alone
        assert set(known_files(folder)) == set(first)

    def test_nothing_to_take_away(self, folder: Path) -> None:
        alone = (folder / "model.json").read_bytes()
        replace_part(folder, "decisions", None, read_manifest(folder))
        assert (folder / "model.json").read_bytes() == alone

    def test_saved_with_the_model_is_the_same(self, folder: Path, tmp_path: Path) -> None:
        replace_part(folder, "decisions", part(), read_manifest(folder))
        write_folder(tmp_path / "n", manifest(), State(**{**vars(state()), "parts": {"decisions": part()}}))
        assert read_manifest(folder) == read_manifest(tmp_path / "n")

    def test_a_new_model_drops_it(self, folder: Path) -> None:
        replace_part(folder, "decisions", part(), read_manifest(folder))
        write_folder(folder, manifest(), state())
        assert not read_folder(folder)[1].parts
        assert not list(folder.glob("decisions-*"))

    def test_another_model_meanwhile(self, folder: Path) -> None:
        before = read_manifest(folder)
        write_folder(folder, manifest(training={"seed": 1}), state())
        with pytest.raises(DataError, match=r"another model was saved there in the meantime. Run the command again."):
            replace_part(folder, "decisions", part(), before)
        assert not read_folder(folder)[1].parts
        assert len(list(folder.iterdir())) == 3

    def test_a_kill_before_the_last_rename_leaves_the_old_part(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        replace_part(folder, "decisions", part(3), read_manifest(folder))

        def dying(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(store, "write_json", dying)
            with pytest.raises(KeyboardInterrupt):
                replace_part(folder, "decisions", part(4), read_manifest(folder))
        assert read_folder(folder)[1].parts["decisions"].values == {"number": 3}
        assert len(list(folder.glob("decisions-*"))) == 2
        replace_part(folder, "decisions", part(5), read_manifest(folder))
        assert len(list(folder.glob("decisions-*"))) == 1  # what was left is swept up

    def test_at_once_one_is_refused_or_both_are_done(self, folder: Path) -> None:
        def put(number: int) -> bool:
            try:
                replace_part(folder, "decisions", part(number), read_manifest(folder))
            except DataError:
                return False
            return True

        with ThreadPoolExecutor(2) as pool:
            done = list(pool.map(put, range(1, 21)))
        assert any(done)
        assert len(verify_folder(folder)) == 3
        assert len(list(folder.iterdir())) == 4

    def test_damage(self, folder: Path) -> None:
        replace_part(folder, "decisions", part(3), read_manifest(folder))
        (path,) = folder.glob("decisions-*")
        whole = path.read_bytes()
        path.write_bytes(whole[:-1] + b"?")
        with pytest.raises(ModelFormatError, match="content does not match its hash"):
            verify_folder(folder)
        path.write_bytes(whole[:-1])
        with pytest.raises(ModelFormatError, match=r"decisions-\w+.safetensors: \d+ bytes, expected \d+"):
            read_folder(folder)
        path.unlink()
        with pytest.raises(ModelFormatError, match=r"decisions-\w+.safetensors: missing"):
            read_folder(folder)

    @pytest.mark.parametrize("parts", [{"decisions": 3}, {"other": {}}, ["decisions"], 3])
    def test_bad_manifest(self, folder: Path, parts: object) -> None:
        replace_part(folder, "decisions", part(), read_manifest(folder))
        content = json.loads((folder / "model.json").read_text())
        (folder / "model.json").write_text(json.dumps({**content, "parts": parts}))
        with pytest.raises(ModelFormatError, match="damaged"):
            read_folder(folder)


def linked(folder: Path, copied: bool, *paths: Path) -> None:
    links = {str(number): Link.to(path, copied=copied) for number, path in enumerate(paths)}
    write_folder(folder, manifest(), State(links=links))


class TestLinks:
    """Other models and files that a model is made of."""

    @pytest.fixture
    @staticmethod
    def member(tmp_path: Path) -> Path:
        write_folder(tmp_path / "member", manifest(), state())
        return tmp_path / "member"

    @pytest.fixture
    @staticmethod
    def file(tmp_path: Path) -> Path:
        (tmp_path / "answers.jsonl").write_text("{}")
        return tmp_path / "answers.jsonl"

    def test_referenced(self, tmp_path: Path, member: Path, file: Path) -> None:
        linked(tmp_path / "m", False, member, file)
        found = read_folder(tmp_path / "m")[1].links
        assert [found[name].path for name in ("0", "1")] == [member, file]
        assert not any(link.copied for link in found.values())
        assert len(list((tmp_path / "m").iterdir())) == 2

    def test_copied(self, tmp_path: Path, member: Path, file: Path) -> None:
        linked(tmp_path / "m", True, member, file)
        shutil.rmtree(member)
        file.unlink()
        (tmp_path / "m").rename(tmp_path / "elsewhere")
        found = read_folder(tmp_path / "elsewhere")[1].links
        assert all(link.copied for link in found.values())
        assert read_folder(found["0"].path)[1].values == {"number": 1}
        assert found["1"].path.read_text() == "{}"

    def test_a_copy_goes_with_the_model_that_needs_it(self, tmp_path: Path, member: Path, file: Path) -> None:
        linked(tmp_path / "m", True, member, file)
        replace_part(tmp_path / "m", "decisions", part(), read_manifest(tmp_path / "m"))
        again = read_folder(tmp_path / "m")[1]
        assert set(again.links) == {"0", "1"}
        write_folder(tmp_path / "m", manifest(), State(links={"0": again.links["0"]}))  # saved where it was loaded from
        assert len(list((tmp_path / "m").glob("linked-*"))) == 1
        assert read_folder(read_folder(tmp_path / "m")[1].links["0"].path)[1].values == {"number": 1}
        write_folder(tmp_path / "m", manifest(), state())
        assert not list((tmp_path / "m").glob("linked-*"))

    def test_the_same_content_under_two_names(self, tmp_path: Path, member: Path) -> None:
        shutil.copytree(member, tmp_path / "twin")
        linked(tmp_path / "m", True, member, tmp_path / "twin")
        assert len({link.path for link in read_folder(tmp_path / "m")[1].links.values()}) == 1

    def test_moved_together(self, tmp_path: Path, member: Path) -> None:
        (tmp_path / "here").mkdir()
        shutil.move(member, tmp_path / "here" / "member")
        linked(tmp_path / "here" / "m", False, tmp_path / "here" / "member")
        (tmp_path / "here").rename(tmp_path / "there")
        assert read_folder(tmp_path / "there" / "m")[1].links["0"].path == tmp_path / "there" / "member"

    def test_moved_alone(self, tmp_path: Path, member: Path) -> None:
        linked(tmp_path / "m", False, member)
        (tmp_path / "far" / "away").mkdir(parents=True)
        shutil.move(tmp_path / "m", tmp_path / "far" / "away" / "m")
        assert read_folder(tmp_path / "far" / "away" / "m")[1].links["0"].path == member

    def test_something_else_beside_it_is_passed_over(self, tmp_path: Path, member: Path) -> None:
        linked(tmp_path / "m", False, member)
        (tmp_path / "far").mkdir()
        shutil.move(tmp_path / "m", tmp_path / "far" / "m")
        write_folder(tmp_path / "far" / "member", manifest(settings={"k": 7}), state())
        assert read_folder(tmp_path / "far" / "m")[1].links["0"].path == member

    @pytest.mark.parametrize(
        "change",
        [
            lambda member, _: write_folder(member, manifest(settings={"k": 1}), state()),
            lambda member, _: replace_part(member, "decisions", part(), read_manifest(member)),
            lambda member, _: (member / "model.json").unlink(),
            lambda _, file: file.write_text("{} "),
        ],
    )
    def test_changed(self, tmp_path: Path, member: Path, file: Path, change: Callable[[Path, Path], object]) -> None:
        linked(tmp_path / "m", False, member, file)
        change(member, file)
        with pytest.raises(ModelFormatError) as caught:
            read_folder(tmp_path / "m")
        assert "has changed since" in str(caught.value)
        assert "calibration counts as a change. Restore it, or train" in str(caught.value)
        with pytest.raises(ModelFormatError, match="has changed since"):
            verify_folder(tmp_path / "m")

    def test_how_long_training_took_is_no_change(self, tmp_path: Path, member: Path) -> None:
        linked(tmp_path / "m", False, member)
        write_folder(member, manifest(training={"seconds": 9}), state())
        assert read_folder(tmp_path / "m")[1].links["0"].path == member

    def test_a_part_that_is_taken_away_again_is_no_change(self, tmp_path: Path, member: Path) -> None:
        linked(tmp_path / "m", False, member)
        replace_part(member, "decisions", part(), read_manifest(member))
        replace_part(member, "decisions", None, read_manifest(member))
        assert read_folder(tmp_path / "m")[1].links["0"].path == member

    def test_missing(self, tmp_path: Path, member: Path) -> None:
        linked(tmp_path / "m", False, member)
        shutil.rmtree(member)
        with pytest.raises(ModelFormatError) as caught:
            read_folder(tmp_path / "m")
        assert str(caught.value).startswith(f"{member}: missing, but {tmp_path / 'm'} depends on it. Restore it")
        linked(tmp_path / "c", True, tmp_path / "m" / "model.json")
        (copy,) = (tmp_path / "c").glob("linked-*")
        shutil.rmtree(copy)
        with pytest.raises(ModelFormatError, match=r"missing, but .* depends on it"):
            read_folder(tmp_path / "c")

    def test_changed_before_it_is_copied(self, tmp_path: Path, file: Path) -> None:
        link = Link.to(file, copied=True)
        file.write_text("other")
        with pytest.raises(DataError, match="changed since it was read"):
            write_folder(tmp_path / "m", manifest(), State(links={"0": link}))
        assert not list((tmp_path / "m").iterdir())

    def test_a_model_is_not_made_of_itself(self, tmp_path: Path, member: Path) -> None:
        with pytest.raises(DataError, match="would overwrite a folder that the model depends on"):
            linked(member, False, member)
        assert read_folder(member)[1].values == {"number": 1}

    def test_nothing_but_files_and_known_folders_is_hashed(self, tmp_path: Path, member: Path, file: Path) -> None:
        """A link to a device or to any folder would be read for as long as there is something to read."""
        linked(tmp_path / "m", False, member, file)
        found = read_manifest(tmp_path / "m")
        for place in ("/dev/zero", "/", "/" + "x" * 5000, "a\0b"):
            found["links"]["1"] = {"path": place, "content": "0" * 64}
            (tmp_path / "m" / "model.json").write_text(json.dumps(sealed(found)))
            with pytest.raises(ModelFormatError, match=r"missing, but|has changed since|too long"):
                read_folder(tmp_path / "m")

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes")
    def test_a_pipe_in_place_of_a_file(self, tmp_path: Path, member: Path) -> None:
        path = member / read_manifest(member)["files"]["arrays"]["name"]
        path.unlink()
        os.mkfifo(path)
        with pytest.raises(ModelFormatError, match="not a regular file"):
            read_folder(member)

    def test_many_ways_to_one_model(self, tmp_path: Path, member: Path, file: Path) -> None:
        """Each of 18 models depends on the next one twice: 2 ** 18 ways, and each model is verified once."""
        before = member
        for number in range(18):
            write_folder(tmp_path / str(number), manifest(), State(links={"0": Link.to(before), "1": Link.to(before)}))
            before = tmp_path / str(number)
        assert len(verify_folder(before)) == 18 + 2
        for number in range(18, 22):
            linked(tmp_path / str(number), False, tmp_path / str(number - 1))
        with pytest.raises(ModelFormatError, match="depend on each other"):
            verify_folder(tmp_path / "21")

    @pytest.mark.parametrize("copied", [True, False])
    def test_verify_goes_through_links(self, tmp_path: Path, member: Path, file: Path, copied: bool) -> None:
        linked(tmp_path / "m", copied, member, file)
        names = [name for name, _ in verify_folder(tmp_path / "m")]
        assert sum(name.startswith("member/") for name in names) == 2
        assert names[-1] == "answers.jsonl"
        inner = read_folder(tmp_path / "m")[1].links["0"].path
        path = inner / read_manifest(inner)["files"]["arrays"]["name"]
        path.write_bytes(path.read_bytes()[:-1] + b"?")
        with pytest.raises(ModelFormatError, match="content does not match its hash"):
            verify_folder(tmp_path / "m")

    @pytest.mark.parametrize(
        "entry",
        [
            {"path": "/x"},
            {"path": 3, "content": "0"},
            {"content": "0", "copied": "linked-0123456789abcdef/.."},
            {"content": "0", "copied": "../secret"},
            {"content": 0, "path": "/x"},
            3,
        ],
    )
    def test_strange_links(self, tmp_path: Path, member: Path, entry: object) -> None:
        content = json.loads((member / "model.json").read_text())
        (member / "model.json").write_text(json.dumps({**content, "links": {"0": entry}}))
        with pytest.raises(ModelFormatError, match="damaged"):
            read_folder(member)

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read anything")
    def test_a_file_that_cannot_be_read(self, tmp_path: Path, file: Path) -> None:
        linked(tmp_path / "m", False, file)
        file.chmod(0)
        with pytest.raises(DataError, match=r"answers\.jsonl"):
            read_folder(tmp_path / "m")
