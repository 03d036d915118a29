"""`xmtc doctor`: what this machine has, in a form that fits into a bug report."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess

from xmtc import __version__
from xmtc.cli.common import echo
from xmtc.core.errors import shown

PACKAGES = ("numpy", "scipy", "numba", "pyarrow", "safetensors", "typer", "rich")
EXTRAS = {"skos": ("rdflib",), "torch": ("torch",)}


def doctor() -> None:
    """Print what this machine has: versions, memory, GPU."""
    for what, found in report():
        echo(f"{what:<16}{found}")


def report() -> list[tuple[str, str]]:
    """(what, found) pairs."""
    from xmtc.core.runtime import available_threads

    rows = [
        ("xmtc", __version__),
        ("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        ("cores", f"{available_threads()} of {os.cpu_count()} usable"),
        ("memory", _memory()),
        ("GPU", _gpu()),
        ("neural models", _neural()),
    ]
    rows += [(name, _version(name)) for name in PACKAGES]
    for extra, modules in EXTRAS.items():
        missing = [module for module in modules if importlib.util.find_spec(module) is None]
        rows.append((f"extra [{extra}]", f'missing; pip install "xmtc[{extra}]"' if missing else _versions(modules)))
    return rows


def _versions(modules: tuple[str, ...]) -> str:
    return ", ".join(f"{module} {_version(module)}" for module in modules)


def _version(name: str) -> str:
    from importlib import metadata  # takes its time

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "missing"


def _memory() -> str:
    try:
        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return "unknown"
    return f"{pages * size / 2**30:.1f} GiB"


def _gpu() -> str:
    """Asks the driver's own tool, so that no GPU library has to be loaded."""
    if shutil.which("nvidia-smi") is None:
        return "none found"
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return "none that answers"
    return "; ".join(line.strip() for line in answer.splitlines() if line.strip()) or "none found"


def _neural() -> str:
    """What they would run on; torch is loaded to ask it, and one that does not load is told, too."""
    if importlib.util.find_spec("torch") is None:
        return 'need torch, which is missing; pip install "xmtc[torch]"'
    try:
        import torch

        devices = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    except (ImportError, OSError, RuntimeError) as error:
        return f"torch {_version('torch')} does not work here: {shown(' '.join(str(error).split()), 120)}"
    found = ", ".join(f"cuda:{number} {name}" for number, name in enumerate(devices)) or "the CPU: torch sees no CUDA"
    return f"torch {torch.__version__} on {found}"
