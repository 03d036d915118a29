"""A training workspace: the finished parts and the log of a training that is not complete, beside its model folder."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xmtc.artifact.arrays import Later, Shapes, map_arrays, new_arrays, write_arrays
from xmtc.core.errors import ConfigError, DataError, ModelFormatError
from xmtc.core.files import locked, make_folder, replace_file, write_json

LOG = "log.jsonl"
LOG_SUFFIX = ".log.jsonl"
WORK_SUFFIX = ".work"


def log_beside(folder: Path) -> Path:
    """Where the log of a complete training lies: beside the model folder, which holds what answers are made of."""
    return _beside(folder, LOG_SUFFIX)


def _beside(folder: Path, suffix: str) -> Path:
    named = folder if folder.name not in ("", "..") else folder.resolve()  # '.' has no name of its own
    return named.with_name(named.name + suffix)


class Workspace:
    """Finished parts of an unfinished training, so that it can go on where it stopped.

    Without a folder the parts stay in memory. Each part is one safetensors file that appears whole or not at all.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._memory: dict[str, tuple[dict[str, NDArray[Any]], dict[str, Any]]] = {}

    @classmethod
    def beside(cls, folder: Path, suffix: str = WORK_SUFFIX) -> Path:
        """Where the workspace of a model folder lies."""
        return _beside(folder, suffix)

    def go_on_or_begin(self, fingerprint: Mapping[str, Any]) -> None:
        """Go on with what was started by the same fingerprint, or start, whatever was there."""
        try:
            self.begin(fingerprint, resume=True)
        except (ConfigError, DataError):
            self.begin(fingerprint, resume=False)

    def begin(self, fingerprint: Mapping[str, Any], resume: bool) -> None:
        """Start a training in this folder, or go on with the one that was started by the same fingerprint."""
        if self.folder is None:
            return
        path = self.folder / "training.json"
        if resume and not path.is_file() and any(self.folder.glob("*.safetensors")):
            raise DataError(f"{path}: missing, so nothing tells what was trained. Start over with --force.")
        if resume and path.is_file():
            try:
                before = dict(json.loads(path.read_text(encoding="utf-8")))
            except (ValueError, TypeError):
                raise DataError(f"{path}: damaged. Start over with --force.") from None
            for name, value in fingerprint.items():
                if before.get(name) != value:
                    raise ConfigError(
                        f"{self.folder}: was started with different {name}. "
                        "Give the same files and settings, or start over with --force."
                    )
            for left in self.folder.glob(".*.part"):  # of a write that was killed
                left.unlink(missing_ok=True)
            return
        self._empty()
        write_json(path, dict(fingerprint))

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Make the folder before anything is read, so that a training killed at any moment can be resumed.

        It is this process's alone: another that trains there is refused.
        """
        if self.folder is None:
            yield
            return
        self._make()
        with locked(self.folder, "another process is at work there. Wait for it, or choose another folder."):
            yield

    def _make(self) -> None:
        assert self.folder is not None
        make_folder(self.folder)

    def _empty(self) -> None:
        """An empty folder; one that is there stays the same, as it is locked."""
        self._make()
        assert self.folder is not None
        for path in self.folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def remove_if_nothing_finished(self) -> None:
        """After a mistake in the input: once it is mended, no unfinished training should be in the way."""
        if self.folder is not None and not any(self.folder.glob("*.safetensors")):
            self.remove()

    def inner(self, name: str) -> Workspace:
        """A workspace inside this one, for a training that is a part of this."""
        if self.folder is None:
            return Workspace()
        made = Workspace(self.folder / name)
        made._make()
        return made

    def has(self, name: str) -> bool:
        if self.folder is None:
            return name in self._memory
        return (self.folder / f"{name}.safetensors").is_file()

    def save(
        self, name: str, arrays: Mapping[str, NDArray[Any] | Later], values: Mapping[str, Any] | None = None
    ) -> None:
        """Keep one finished part."""
        if self.folder is None:
            self._remember(name, arrays, values)
            return
        with replace_file(self.folder / f"{name}.safetensors") as file:
            write_arrays(file, arrays, {"values": json.dumps(values or {})})

    def _remember(
        self, name: str, arrays: Mapping[str, NDArray[Any] | Later], values: Mapping[str, Any] | None
    ) -> None:
        # What is made may be a view of something that changes or that is large.
        kept = {key: array.materialise().copy() if isinstance(array, Later) else array for key, array in arrays.items()}
        self._memory[name] = (kept, dict(values or {}))

    def stream(
        self, name: str, arrays: Shapes, values: Mapping[str, Any] | None = None
    ) -> AbstractContextManager[dict[str, NDArray[Any]]]:
        """Zeros of these shapes and types to be written to in a block; they are a finished part if it ends well.

        With a folder they lie in a file, and may be larger than memory. Afterwards they are read with `map` or `load`:
        the dictionary is empty then.
        """
        if self.folder is None:
            return self._stream_to_memory(name, arrays, values)
        return self._stream_to_file(self.folder / f"{name}.safetensors", arrays, values)

    @contextmanager
    def _stream_to_memory(
        self, name: str, arrays: Shapes, values: Mapping[str, Any] | None
    ) -> Iterator[dict[str, NDArray[Any]]]:
        kept = {key: np.zeros(shape, kind) for key, (shape, kind) in arrays.items()}
        given = dict(kept)
        try:
            yield given
        finally:
            given.clear()
        self._remember(name, kept, values)

    @contextmanager
    def _stream_to_file(
        self, path: Path, arrays: Shapes, values: Mapping[str, Any] | None
    ) -> Iterator[dict[str, NDArray[Any]]]:
        failed: OSError | None = None
        try:
            with replace_file(path) as file, new_arrays(file, arrays, {"values": json.dumps(values or {})}) as given:
                try:
                    yield given
                except OSError as error:
                    failed = error
                    raise
        except DataError:
            if failed is not None:  # it came from the block, and does not say that this file cannot be written
                raise failed from None
            raise

    def drop(self, name: str) -> None:
        """Remove a part that something finished has taken the place of."""
        if self.folder is None:
            self._memory.pop(name, None)
        else:
            (self.folder / f"{name}.safetensors").unlink(missing_ok=True)

    def log(self, line: Mapping[str, Any]) -> None:
        """Add a line to the training's log; a run without a folder keeps none."""
        if self.folder is not None:
            with (self.folder / LOG).open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(line) + "\n")

    def load(self, name: str) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """A finished part."""
        arrays, values = self.map(name)
        if self.folder is None:
            return arrays, values
        # Copied: a mapping holds a file open, and there may be more parts than a process may have open files.
        return {key: array.copy() for key, array in arrays.items()}, values

    def map(self, name: str) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """A finished part whose arrays stay in their file, which is open as long as one of them is held."""
        if self.folder is None:
            return self._memory[name]
        try:
            arrays, metadata = map_arrays(self.folder / f"{name}.safetensors")
        except ModelFormatError as error:
            raise DataError(f"{error} Start over with --force.") from None
        return arrays, json.loads(metadata.get("values", "{}"))

    def keep_log(self, place: Path, replaces: bool) -> None:
        """Move the log of a complete training here; that of a model that it `replaces` goes, if there is none now."""
        if self.folder is not None and (self.folder / LOG).is_file():
            os.replace(self.folder / LOG, place)
        elif replaces:
            place.unlink(missing_ok=True)

    def remove(self) -> None:
        """The training is complete."""
        self._memory.clear()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


class FollowerWorkspace(Workspace):
    """The workspace of a process that follows another: it reads what the leader has finished, and writes nothing."""

    def begin(self, fingerprint: Mapping[str, Any], resume: bool) -> None:
        return

    @contextmanager
    def claimed(self) -> Iterator[None]:
        yield

    def remove_if_nothing_finished(self) -> None:
        return

    def has(self, name: str) -> bool:
        return name in self._memory or super().has(name)

    def save(
        self, name: str, arrays: Mapping[str, NDArray[Any] | Later], values: Mapping[str, Any] | None = None
    ) -> None:
        self._remember(name, arrays, values)

    def stream(
        self, name: str, arrays: Shapes, values: Mapping[str, Any] | None = None
    ) -> AbstractContextManager[dict[str, NDArray[Any]]]:
        return self._stream_to_memory(name, arrays, values)

    def drop(self, name: str) -> None:
        self._memory.pop(name, None)

    def log(self, line: Mapping[str, Any]) -> None:
        return

    def load(self, name: str) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        return self._memory[name] if name in self._memory else super().load(name)

    def map(self, name: str) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        return self._memory[name] if name in self._memory else super().map(name)

    def keep_log(self, place: Path, replaces: bool) -> None:
        return

    def remove(self) -> None:
        self._memory.clear()
