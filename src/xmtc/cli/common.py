"""What the commands share: output, checks, and the machine they run on."""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
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
    typer.Option(help="Where neural models run; auto takes CUDA where there is one.", metavar="auto|cpu|cuda|cuda:N"),
]


def echo(text: str) -> None:
    """To standard output."""
    print(text, flush=True)


def echo_error(text: str) -> None:
    """To standard error: what a person wants to know and a pipe does not."""
    print(text, file=sys.stderr, flush=True)


def command_group(name: str, sentence: str) -> typer.Typer:
    """A group of commands, such as `xmtc data …`; without a command it prints its help."""
    group = typer.Typer(name=name, help=sentence, add_completion=False, rich_markup_mode=None)

    @group.callback(invoke_without_command=True)
    def show_help(context: typer.Context) -> None:
        if context.invoked_subcommand is None:
            echo(context.get_help())

    return group


def counted(count: object, noun: str) -> str:
    """A count with its noun, such as '1 label' or '2,000 labels'."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def terminal_width() -> int | None:
    """Columns of the terminal; None where standard output is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def make_runtime(
    threads: int | None = None, seed: int = 0, *, device: str = "auto", precision: str = "auto"
) -> Runtime:
    """The machine as the command line sees it: all cores, and a cache for tokens unless XMTC_CACHE is 'off'.

    Under torchrun, which says so in RANK and WORLD_SIZE, it is one of the processes of a run.
    """
    from xmtc.core.runtime import Runtime, available_threads

    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # else torch's threads wait for each other by spinning
    _load_numba()
    place = os.environ.get("XMTC_CACHE") or str(Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "xmtc")
    cache = None if place == "off" else Path(place).expanduser()
    usable = available_threads() if threads is None else threads
    together = os.environ if "TORCHELASTIC_RUN_ID" in os.environ else {}
    return Runtime(
        device=device,
        threads=usable,
        precision=precision,
        rank=int(together.get("RANK", 0)),
        world_size=int(together.get("WORLD_SIZE", 1)),
        seed=seed,
        cache=cache,
    )


def _load_numba() -> None:
    """Load numba, but not scipy.linalg, where it looks for BLAS: no kernel uses it, and it takes its time."""
    blocked = "scipy.linalg" not in sys.modules
    if blocked:
        sys.modules["scipy.linalg"] = None  # type: ignore[assignment]
    try:
        with contextlib.suppress(ImportError):
            importlib.import_module("numba.np.arraymath")
    finally:
        if blocked:
            del sys.modules["scipy.linalg"]


def check_choice(option: str, given: str, choices: tuple[str, ...]) -> None:
    """One of a few words, or a line that names them."""
    if given not in choices:
        raise ConfigError(f"{option} must be {' or '.join(choices)}. Got '{given}'.")


def check_writable(path: Path | None, *sources: str | Path | None) -> None:
    """Refuse a place that cannot be written to, or that is read, before the work is done, not after it."""
    if path is None:
        return
    for source in sources:
        if source is not None and path.exists() and Path(source).exists() and path.samefile(source):
            raise DataError(f"{path}: is the file that is read. Choose another name for what is written.")
    if (path.parent / "model.json").is_file() and path.suffix in (".json", ".safetensors", ".arrow") and path.exists():
        raise DataError(f"{path}: is part of a model. Choose another name for what is written.")
    if path.is_dir():
        raise DataError(f"{path}: is a folder. Name a file to write to.")
    if not path.parent.is_dir():
        raise DataError(f"{path}: there is no folder {path.parent}. Make it first.")
    if not os.access(path.parent, os.W_OK):
        raise DataError(f"{path}: cannot be written there. Choose another place.")
