"""The examples of CONTRIBUTING.md as files."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"
LINES = [f"{words} #{label}" for label, words in (("spice", "salt and pepper"), ("metal", "iron and steel"))] * 6


def examples() -> dict[str, str]:
    """File name → content of every code block that begins with a comment that names a file."""
    blocks = re.findall(r"^```(?:python|toml)\n# (\S+)\n(.*?)^```$", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    return {Path(name).name: code for name, code in blocks}


def write_package(folder: Path) -> Path:
    """The package of "Publish it as a plug-in"."""
    inner = folder / "xmtc_examples"
    inner.mkdir(parents=True)
    (inner / "__init__.py").touch()
    for name, code in examples().items():
        (folder if name == "pyproject.toml" else inner).joinpath(name).write_text(code)
    return folder
