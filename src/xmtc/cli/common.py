"""Shared by the commands: common arguments, checks of output files, and the runtime."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xmtc.core.errors import ConfigError, DataError

if TYPE_CHECKING:
    from xmtc.core.runtime import Runtime

ModelFolder = Annotated[Path, typer.Argument(metavar="DIR", help="Model folder.")]
Threads = Annotated[int | None, typer.Option(help="CPU threads (default: all).", metavar="N")]
Device = Annotated[
    str,
    typer.Option(help="Device for neural models; auto uses CUDA if available.", metavar="auto|cpu|cuda|cuda:N"),
]


def counted(count: object, noun: str) -> str:
    """A count with its noun, such as '1 label' or '2,000 labels'."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def make_runtime(
    threads: int | None = None, seed: int = 0, *, device: str = "auto", precision: str = "auto"
) -> Runtime:
    """The runtime of a command: all cores, and a token cache unless XMTC_CACHE is 'off'.

    Under torchrun, rank and world size come from RANK and WORLD_SIZE.
    """
    from xmtc.core.caches import cache_folder
    from xmtc.core.runtime import Runtime, available_threads

    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # otherwise idle torch threads spin
    _load_numba()
    usable = available_threads() if threads is None else threads
    together = os.environ if "TORCHELASTIC_RUN_ID" in os.environ else {}
    return Runtime(
        device=device,
        threads=usable,
        precision=precision,
        rank=int(together.get("RANK", 0)),
        world_size=int(together.get("WORLD_SIZE", 1)),
        seed=seed,
        cache=cache_folder(),
    )


def _load_numba() -> None:
    """Load numba without packages that it imports for features that no kernel uses, which is slow.

    These are scipy.linalg for BLAS, and cffi.
    """
    blocked = [name for name in ("scipy.linalg", "cffi") if name not in sys.modules]
    sys.modules.update(dict.fromkeys(blocked))  # type: ignore[arg-type]
    try:
        for module in ("numba.np.arraymath", "numba.core.typing.cffi_utils"):
            with contextlib.suppress(ImportError):
                importlib.import_module(module)
    finally:
        for name in blocked:
            del sys.modules[name]


def check_choice(option: str, given: str, choices: tuple[str, ...]) -> None:
    """Raise an error unless the value is one of the choices."""
    if given not in choices:
        raise ConfigError(f"{option} must be {' or '.join(choices)}. Got '{given}'.")


def check_writable(path: Path | None, *sources: str | Path | None) -> None:
    """Raise an error before any work is done if an output file cannot be written or is one of the input files."""
    if path is None:
        return
    for source in sources:
        if source is not None and path.exists() and Path(source).exists() and path.samefile(source):
            raise DataError(f"{path}: is also an input file. Choose another output file.")
    if (path.parent / "model.json").is_file() and path.suffix in (".json", ".safetensors", ".arrow") and path.exists():
        raise DataError(f"{path}: is part of a model. Choose another output file.")
    if path.is_dir():
        raise DataError(f"{path}: is a folder. Choose a file name.")
    if not path.parent.is_dir():
        raise DataError(f"{path}: the folder {path.parent} does not exist. Create it first.")
    if not os.access(path.parent, os.W_OK):
        raise DataError(f"{path}: no permission to write to {path.parent}. Choose another folder.")
