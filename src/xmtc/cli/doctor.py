"""`xmtc doctor`: versions, hardware and pretrained encoders, for bug reports."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from typing import Annotated, Any

import typer

from xmtc import __version__
from xmtc.cli.common import check_writable, counted, make_runtime
from xmtc.cli.options import takes_request
from xmtc.cli.output import JsonOutput, echo, note
from xmtc.core.encoders import FoundEncoder, find_encoders
from xmtc.core.errors import ConfigError, install_command, shown

NOT_FOR_USERS = frozenset({"dev", "all"})
"""Extras that are not listed: tools of developers, and all others together."""


@takes_request
def doctor(
    output: JsonOutput,
    compile_kernels: Annotated[
        bool,
        typer.Option("--compile", help="Compile the kernels of all models that need no extra now, not on first use."),
    ] = False,
) -> None:
    """Show versions, hardware, optional packages, and pretrained encoders that are found."""
    from xmtc.cli.text_table import table

    check_writable(output.path)
    if compile_kernels:
        _compile_kernels()
    rows, result = report()
    text = table(["xmtc doctor", ""], rows)
    echo("\n".join(text.splitlines()[2:]))
    output.write(result)


def _compile_kernels() -> None:
    from xmtc.cli.progress import terminal_progress
    from xmtc.core.compile_ahead import compile_all, missing, purposes
    from xmtc.core.kernel_cache import kernel_folder

    runtime = make_runtime()
    if kernel_folder() is None:
        raise ConfigError("no folder for compiled kernels can be written. Set NUMBA_CACHE_DIR to a folder of your own.")
    with terminal_progress().task("compiling kernels", total=len(missing(purposes()))) as task:
        count = compile_all(runtime.threads, task.advance)
    note(f"{kernel_folder()}: {counted(count, 'kernel')} compiled")


def report() -> tuple[list[tuple[str, str]], dict[str, Any]]:
    """(name, value) pairs to print, and the same for JSON."""
    from xmtc.core.runtime import available_threads

    required, extras = requirements()
    machine = {
        "xmtc": __version__,
        "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        "cores": f"{available_threads()} of {os.cpu_count()} usable",
        "memory": _memory(),
        "GPU": _gpu(),
        "neural models": _neural(),
    }
    packages = {name: _version(name) for name in required}
    rows = [*machine.items(), *((name, version or "missing") for name, version in packages.items())]
    found: dict[str, Any] = {}
    for extra, names in extras.items():
        versions = {name: _version(name) for name in names}
        missing = [name for name, version in versions.items() if version is None]
        installed = [f"{name} {version}" for name, version in versions.items() if version is not None]
        hint = f"missing {', '.join(missing)}; install with: {install_command(extra)}" if missing else ""
        rows.append((f"extra [{extra}]", hint or ", ".join(installed)))
        found[extra] = {"installed": not missing, "packages": versions, "install": install_command(extra)}
    encoders = find_encoders()
    rows += [(f"encoder {each.name}", _encoder(each)) for each in encoders]
    result = {name.replace(" ", "_").lower(): value for name, value in machine.items()}
    listed = [{**each._asdict(), "folder": str(each.folder)} for each in encoders]
    return rows, {**result, "packages": packages, "extras": found, "encoders": listed}


def _encoder(found: FoundEncoder) -> str:
    if found.problem:
        return f"cannot be used: {found.problem} ({found.folder})"
    size = f"{found.size / 1e6:,.0f} MB"
    return f"{found.kind}, {counted(found.layers, 'layer')}, {found.width} wide, {size} ({found.folder})"


def requirements() -> tuple[list[str], dict[str, list[str]]]:
    """The packages that xmtc requires, and those of each extra, from the metadata of the installed package."""
    from importlib import metadata  # slow to import

    required: list[str] = []
    extras: dict[str, list[str]] = {}
    try:
        lines = metadata.requires("xmtc") or []
    except metadata.PackageNotFoundError:
        return required, extras
    for line in lines:
        requirement, _, marker = line.partition(";")
        platform_marker = re.search(r"sys_platform\s*(==|!=)\s*[\"'](\w+)[\"']", marker)
        if platform_marker and (platform_marker[1] == "==") != (platform_marker[2] == sys.platform):
            continue
        name = re.split(r"[\s<>=!~\[(;]", requirement.strip(), maxsplit=1)[0]
        extra = re.search(r"extra\s*==\s*[\"']([\w-]+)[\"']", marker)
        if extra is None:
            required.append(name)
        elif extra[1] not in NOT_FOR_USERS:
            extras.setdefault(extra[1], []).append(name)
    return required, extras


def _version(name: str) -> str | None:
    """The version of an installed package; None if it is missing."""
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _memory() -> str:
    try:
        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return "unknown"
    return f"{pages * size / 2**30:.1f} GiB"


def _gpu() -> str:
    """The GPUs that nvidia-smi reports, so that no GPU library has to be loaded."""
    if shutil.which("nvidia-smi") is None:
        return "none found"
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return "nvidia-smi does not respond"
    return "; ".join(line.strip() for line in answer.splitlines() if line.strip()) or "none found"


def _neural() -> str:
    """The device that neural models use; torch is imported to query it."""
    if importlib.util.find_spec("torch") is None:
        return f"not available: torch is missing; install with: {install_command('torch')}"
    try:
        import torch

        devices = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    except (ImportError, OSError, RuntimeError) as error:
        return f"torch {_version('torch')} cannot be loaded: {shown(' '.join(str(error).split()), 120)}"
    found = ", ".join(f"cuda:{number} {name}" for number, name in enumerate(devices)) or "the CPU (no CUDA device)"
    return f"torch {torch.__version__} on {found}"
