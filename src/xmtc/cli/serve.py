"""`xmtc serve`: saved models behind HTTP, and a page for people. Everything heavy is imported inside the command."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from xmtc.cli.common import Device, echo, echo_error, make_runtime
from xmtc.core.errors import ConfigError, DataError, MissingExtraError
from xmtc.server.limits import KEY


def serve(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR…", help="Model folders; the first is the default.")],
    host: Annotated[
        str, typer.Option(help="Address to listen at; 0.0.0.0 lets other machines in.", metavar="ADDRESS")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes one that is free.", metavar="N")] = 8000,
    workers: Annotated[int, typer.Option(help="Processes that answer; models are mapped once.", metavar="N")] = 1,
    api_key_file: Annotated[
        Path | None,
        typer.Option(help=f"File with the key that requests must have (or the variable {KEY}).", metavar="FILE"),
    ] = None,
    hostname: Annotated[
        list[str] | None,
        typer.Option(help="Another name it is reached by, as behind a proxy; may be repeated.", metavar="NAME"),
    ] = None,
    feedback: Annotated[
        Path | None, typer.Option(help="Folder for feedback (default: beside each model).", metavar="FOLDER")
    ] = None,
    max_body: Annotated[int, typer.Option(help="MiB of a request, at most.", metavar="N")] = 32,
    max_texts: Annotated[int, typer.Option(help="Texts of a request, at most.", metavar="N")] = 1_000,
    max_characters: Annotated[int, typer.Option(help="Characters of a text, at most.", metavar="N")] = 1_000_000,
    max_k: Annotated[int, typer.Option(help="Labels of each text, at most.", metavar="N")] = 1_000,
    queue: Annotated[int, typer.Option(help="Texts that wait for a model, at most.", metavar="N")] = 10_000,
    timeout: Annotated[float, typer.Option(help="Seconds for a request.", metavar="S")] = 30.0,
    window: Annotated[
        float, typer.Option(help="Milliseconds that a text waits for others to be tagged with it.", metavar="MS")
    ] = 2.0,
    log: Annotated[bool, typer.Option("--log", help="A line for each request on standard error.")] = False,
    threads: Annotated[
        int | None, typer.Option(help="CPU threads of each process (default: its share).", metavar="N")
    ] = None,
    device: Device = "auto",
) -> None:
    """Answer over HTTP, with a page to tag texts on."""
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise MissingExtraError('serve needs FastAPI. Install it with: pip install "xmtc[server]".') from None
    if feedback is not None and not feedback.is_dir():
        raise DataError(f"{feedback}: no such folder. Make it first.")
    key = _read_key(api_key_file)
    make_runtime(threads, device=device)  # checks both, and sets the process up as other commands do

    from xmtc.server.limits import Limits
    from xmtc.server.processes import ServeConfig
    from xmtc.server.processes import serve as run

    limits = Limits(max_body << 20, max_texts, max_characters, max_k, queue, timeout, window / 1000)
    order = ServeConfig(
        [str(folder) for folder in folders],
        host,
        port,
        workers,
        threads,
        device,
        limits,
        key,
        hostname or [],
        None if feedback is None else str(feedback),
        log,
    )
    if not order.is_local and key is None:
        echo_error(f"anybody who reaches {host} can use this service. Set {KEY}, or name a file with --api-key-file.")
    run(order, echo, echo_error)


def _read_key(path: Path | None) -> str | None:
    """The key from a file or the environment, never from the command line, which others on the machine can read."""
    if path is None:
        given = os.environ.get(KEY, "").strip()
        where = KEY
    else:
        try:
            given = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            what = error.strerror if isinstance(error, OSError) else "not UTF-8"
            raise DataError(f"{path}: the key cannot be read ({what}). Write it into a file of one line.") from None
        where = str(path)
        if not given:
            raise ConfigError(f"{path}: there is no key in it. Write one on its first line.")
    if not given:
        return None
    if not given.isascii() or not given.isprintable() or " " in given or len(given) < 8:
        raise ConfigError(f"{where}: a key is at least 8 ASCII characters without spaces. Choose another.")
    return given
