"""Training workspace: finished parts and the log of an incomplete training, in a folder next to the model folder."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from xmtc.artifact.arrays import Later, Shapes, map_arrays, new_arrays, write_arrays
from xmtc.core.checksum import file_checksum
from xmtc.core.errors import ConfigError, DataError, ModelFormatError, XmtcWarning
from xmtc.core.files import locked, make_folder, replace_file, write_json
from xmtc.core.parsing import parse_json, read_json

LOG = "log.jsonl"
LOG_SUFFIX = ".log.jsonl"
WORK_SUFFIX = ".work"
SUM_SUFFIX = ".checksum"


def log_beside(folder: Path) -> Path:
    """Return the path of a model's training log, next to the model folder."""
    return _beside(folder, LOG_SUFFIX)


def _beside(folder: Path, suffix: str) -> Path:
    named = folder if folder.name not in ("", "..") else folder.resolve()  # '.' has no name
    return named.with_name(named.name + suffix)


class Workspace:
    """Finished parts of an incomplete training, from which it can be resumed.

    Without a folder the parts stay in memory. Each part is one safetensors file, written atomically, with its checksum
    in a file next to it. A part that does not match its checksum counts as not finished and is trained again.
    """

    owns_files = True
    """Whether this process deletes damaged parts."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._memory: dict[str, tuple[dict[str, NDArray[Any]], dict[str, Any]]] = {}
        self._verified: set[str] = set()  # parts that this process wrote or compared with their checksum

    @classmethod
    def beside(cls, folder: Path, suffix: str = WORK_SUFFIX) -> Path:
        """Return the path of the workspace of a model folder."""
        return _beside(folder, suffix)

    def go_on_or_begin(self, fingerprint: Mapping[str, Any]) -> None:
        """Resume a training started with the same fingerprint; otherwise start a new one."""
        try:
            self.begin(fingerprint, resume=True)
        except (ConfigError, DataError):
            self.begin(fingerprint, resume=False)

    def begin(self, fingerprint: Mapping[str, Any], resume: bool) -> None:
        """Start a training in this folder, or resume the one started with the same fingerprint."""
        if self.folder is None:
            return
        path = self.folder / "training.json"
        if resume and not path.is_file() and any(self.folder.glob("*.safetensors")):
            raise DataError(f"{path}: missing, so the training cannot be resumed. Start over with --force.")
        if resume and path.is_file():
            try:
                before = dict(read_json(path, any_number=True))
            except (ValueError, TypeError):
                raise DataError(f"{path}: damaged. Start over with --force.") from None
            for name, value in fingerprint.items():
                if before.get(name) != value:
                    raise ConfigError(
                        f"{self.folder}: was started with different {name}. "
                        "Use the same files and settings, or start over with --force."
                    )
            for left in self.folder.glob(".*.part"):  # remains of an interrupted write
                left.unlink(missing_ok=True)
            return
        self._empty()
        write_json(path, dict(fingerprint))

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Create and lock the folder before reading any data, so that a training killed at any time can be resumed.

        Another process that trains in the same folder gets an error.
        """
        if self.folder is None:
            yield
            return
        self._make()
        with locked(self.folder, "in use by another process. Wait for it to finish, or choose another folder."):
            yield

    def _make(self) -> None:
        assert self.folder is not None
        make_folder(self.folder)

    def _empty(self) -> None:
        """Empty the folder without replacing it, since it is locked."""
        self._make()
        assert self.folder is not None
        for path in self.folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def remove_if_nothing_finished(self) -> None:
        """Delete a workspace without finished parts, as after an input error, so that it does not block a new run."""
        if self.folder is not None and not any(self.folder.rglob("*.safetensors")):
            self.remove()

    def inner(self, name: str) -> Workspace:
        """Create a workspace inside this one, for a sub-training."""
        if self.folder is None:
            return Workspace()
        made = Workspace(self.folder / name)
        made._make()
        return made

    def has(self, name: str) -> bool:
        """Whether a part is finished and undamaged."""
        if self.folder is None:
            return name in self._memory
        path = self._path(name)
        if not path.is_file():
            return False
        if not self._is_whole(name):
            if self.owns_files:
                warnings.warn(f"{path}: damaged, so this part is trained again.", XmtcWarning, stacklevel=2)
                self.drop(name)
            return False
        return True

    def _path(self, name: str) -> Path:
        assert self.folder is not None
        return self.folder / f"{name}.safetensors"

    def _is_whole(self, name: str) -> bool:
        """Whether a part matches its checksum; read once in each process."""
        if name not in self._verified:
            path = self._path(name)
            try:
                if path.with_suffix(SUM_SUFFIX).read_text(encoding="utf-8") != file_checksum(path):
                    return False
            except (OSError, ValueError):
                return False
            self._verified.add(name)
        return True

    def _seal(self, name: str, file: IO[bytes]) -> None:
        """Write the checksum of a part before the part gets its final name."""
        file.flush()
        self._verified.add(name)
        sums = self._path(name).with_suffix(SUM_SUFFIX)
        sums.write_text(file_checksum(Path(file.name)), encoding="utf-8")

    def save(
        self, name: str, arrays: Mapping[str, NDArray[Any] | Later], values: Mapping[str, Any] | None = None
    ) -> None:
        """Save one finished part."""
        if self.folder is None:
            self._remember(name, arrays, values)
            return
        with replace_file(self._path(name)) as file:
            write_arrays(file, arrays, {"values": json.dumps(values or {})})
            self._seal(name, file)

    def _remember(
        self, name: str, arrays: Mapping[str, NDArray[Any] | Later], values: Mapping[str, Any] | None
    ) -> None:
        # Copied: the array may be a view of a larger array, or of one that changes later.
        held = {key: array.materialise().copy() if isinstance(array, Later) else array for key, array in arrays.items()}
        self._memory[name] = (held, dict(values or {}))

    def stream(
        self, name: str, arrays: Shapes, values: Mapping[str, Any] | None = None
    ) -> AbstractContextManager[dict[str, NDArray[Any]]]:
        """Create zero arrays to fill within the block; they become a finished part if the block succeeds.

        With a folder they are in a file and may exceed memory. The dictionary is emptied at the end; use `map` or
        `load` to read the arrays.
        """
        if self.folder is None:
            return self._stream_to_memory(name, arrays, values)
        return self._stream_to_file(name, arrays, values)

    @contextmanager
    def _stream_to_memory(
        self, name: str, arrays: Shapes, values: Mapping[str, Any] | None
    ) -> Iterator[dict[str, NDArray[Any]]]:
        created = {key: np.zeros(shape, kind) for key, (shape, kind) in arrays.items()}
        given = dict(created)
        try:
            yield given
        finally:
            given.clear()
        self._remember(name, created, values)

    @contextmanager
    def _stream_to_file(
        self, name: str, arrays: Shapes, values: Mapping[str, Any] | None
    ) -> Iterator[dict[str, NDArray[Any]]]:
        failed: OSError | None = None
        try:
            with replace_file(self._path(name)) as file:
                with new_arrays(file, arrays, {"values": json.dumps(values or {})}) as given:
                    try:
                        yield given
                    except OSError as error:
                        failed = error
                        raise
                self._seal(name, file)
        except DataError:
            if failed is not None:  # raised in the block, so not about writing this file
                raise failed from None
            raise

    def drop(self, name: str) -> None:
        """Delete a part that is no longer needed."""
        if self.folder is None:
            self._memory.pop(name, None)
        else:
            self._verified.discard(name)
            self._path(name).unlink(missing_ok=True)
            self._path(name).with_suffix(SUM_SUFFIX).unlink(missing_ok=True)

    def log(self, line: Mapping[str, Any]) -> None:
        """Append a line to the training log; without a folder there is no log."""
        if self.folder is not None:
            with (self.folder / LOG).open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(line) + "\n")

    def load(self, name: str) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Load a finished part into memory."""
        arrays, values = self.map(name)
        if self.folder is None:
            return arrays, values
        # Copied: mappings keep files open, and there may be more parts than the limit of open files.
        return {key: array.copy() for key, array in arrays.items()}, values

    def map(self, name: str) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Memory-map a finished part; its file stays open as long as one of the arrays is in use."""
        if self.folder is None:
            return self._memory[name]
        try:
            arrays, metadata = map_arrays(self._path(name))
        except ModelFormatError as error:
            raise DataError(f"{error} Start over with --force.") from None
        if not self._is_whole(name):
            raise DataError(f"{self._path(name)}: does not match its checksum. Start over with --force.")
        return arrays, parse_json(metadata.get("values", "{}"), any_number=True)

    def keep_log(self, place: Path, replaces: bool) -> None:
        """Move the log of a complete training to `place`; if there is none, delete the log of a replaced model."""
        if self.folder is not None and (self.folder / LOG).is_file():
            os.replace(self.folder / LOG, place)
        elif replaces:
            place.unlink(missing_ok=True)

    def remove(self) -> None:
        """Delete the workspace after training is complete."""
        self._memory.clear()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


class FollowerWorkspace(Workspace):
    """Workspace of a follower process: reads the parts finished by the leader process, and writes nothing."""

    owns_files = False

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
