"""Pretrained encoders on this machine. Only their configuration and the headers of their files are read.

Places: the folders in XMTC_ENCODERS (encoders, or folders of encoders, separated as in PATH), `encoders` in the cache
folder of xmtc, and the cache of the Hugging Face hub.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from xmtc.core.caches import cache_folder
from xmtc.core.errors import DataError, shown
from xmtc.core.parsing import read_json

PLACES = "XMTC_ENCODERS"
"""Environment variable with folders of encoders."""
FORGOTTEN = ("_name_or_path", "auto_map", "dtype", "torch_dtype", "transformers_version")
"""Configuration entries that are not used: the original path, code to run, and the data type of the file."""
LONGEST_HEADER = 100 << 20
"""Maximum size of the header of a safetensors file."""


class FoundEncoder(NamedTuple):
    """A pretrained encoder; its numbers are 0 where the configuration does not have them."""

    name: str
    folder: Path
    kind: str
    layers: int
    width: int
    size: int
    """Size of the weights in bytes."""
    problem: str
    """Why it cannot be used, empty if it can."""


def find_encoders() -> list[FoundEncoder]:
    """All encoders found, by place; of two with the same name, the first is used."""
    found: dict[str, FoundEncoder] = {}
    for name, folder in _named_folders():
        if name not in found:
            found[name] = _described(name, folder)
    return list(found.values())


def encoder_folder(given: str) -> Path:
    """The folder of an encoder, given by its path or by the name of an encoder that was found.

    An encoder of the Hugging Face cache has the name owner/name, and also the name alone.
    """
    if Path(given).exists():
        return Path(given)
    for name, folder in _named_folders():
        if given in (name, name.rpartition("/")[2]):
            return folder
    return Path(given)


def read_encoder_config(folder: Path) -> dict[str, Any]:
    """Read config.json, after checking that the folder is complete."""
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder. Pass the folder of a pretrained encoder, or a name: xmtc doctor")
    for name in ("config.json", "tokenizer.json"):
        if not (folder / name).is_file():
            raise DataError(f"{folder}: {name} is missing. Pass the folder of a pretrained encoder.")
    if not any(folder.glob("*.safetensors")):
        if any(folder.glob("*.bin")):
            raise DataError(f"{folder}: the weights are pickled, which is unsafe to load. Convert them to safetensors.")
        raise DataError(f"{folder}: the weights (*.safetensors) are missing. Copy the folder again.")
    try:
        config = read_json(folder / "config.json", any_number=True)
        kind = config["model_type"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder / 'config.json'}: invalid ({shown(error)}). Copy the folder again.") from None
    if config.get("is_encoder_decoder") or config.get("is_decoder"):
        what = "an encoder-decoder" if config.get("is_encoder_decoder") else "a decoder"
        raise DataError(f"{folder}: this is {what} ({shown(kind)}). Use an encoder, such as BERT.")
    return {name: value for name, value in config.items() if name not in FORGOTTEN}


def _named_folders() -> Iterator[tuple[str, Path]]:
    """Names and folders that may be encoders, in the order of the places."""
    given = [Path(part).expanduser() for part in os.environ.get(PLACES, "").split(os.pathsep) if part]
    cache = cache_folder()
    for place in [*given, *([] if cache is None else [cache / "encoders"])]:
        if (place / "config.json").is_file():
            yield place.name, place
            continue
        for folder in _folders(place):
            if any((folder / name).is_file() for name in ("config.json", "tokenizer.json")):
                yield folder.name, folder
    for repository in _folders(_hub()):
        if repository.name.startswith("models--"):
            snapshot = _snapshot(repository)
            if snapshot is not None and (snapshot / "config.json").is_file():
                yield repository.name.removeprefix("models--").replace("--", "/"), snapshot


def _folders(place: Path) -> list[Path]:
    try:
        return sorted(path for path in place.iterdir() if path.is_dir())
    except OSError:
        return []


def _hub() -> Path:
    """The cache of the Hugging Face hub."""
    home = os.environ.get("HF_HOME") or str(Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "huggingface")
    return Path(os.path.expanduser(os.environ.get("HF_HUB_CACHE") or str(Path(home) / "hub")))


def _snapshot(repository: Path) -> Path | None:
    """The snapshot of the branch main in a cached repository, otherwise the latest one."""
    snapshots = _folders(repository / "snapshots")
    try:
        main = repository / "snapshots" / (repository / "refs" / "main").read_text(encoding="utf-8").strip()
        if main in snapshots:
            return main
    except (OSError, ValueError):
        pass
    return max(snapshots, key=lambda path: path.stat().st_mtime, default=None)


def _described(name: str, folder: Path) -> FoundEncoder:
    config: dict[str, Any] = {}
    size = 0
    try:
        config = read_encoder_config(folder)
        size = sum(_checked_size(file) for file in sorted(folder.glob("*.safetensors")))
        problem = ""
    except DataError as error:
        problem = str(error).removeprefix(f"{folder}: ").removeprefix(f"{folder}{os.sep}")
    kind = config.get("model_type", "")
    layers = _number(config, "num_hidden_layers", "n_layers", "num_layers")
    return FoundEncoder(
        shown(name), folder, shown(kind), layers, _number(config, "hidden_size", "dim", "d_model"), size, problem
    )


def _number(config: dict[str, Any], *names: str) -> int:
    return next((config[name] for name in names if type(config.get(name)) is int), 0)


def _checked_size(file: Path) -> int:
    """The size of a safetensors file; raise `DataError` if it ends before its last tensor."""
    try:
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            header = json.loads(stream.read(length)) if length <= LONGEST_HEADER else {}
        size = file.stat().st_size
        ends = [int(entry["data_offsets"][1]) for name, entry in header.items() if name != "__metadata__"]
        is_complete = bool(ends) and size == 8 + length + max(ends)
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        is_complete = False
    if not is_complete:
        raise DataError(f"{file}: incomplete or damaged. Copy it again.")
    return size
