"""Recipes: settings evaluated on a data set, shipped as <dataset>/<model>.toml or <dataset>/<model>-<variant>.toml."""

from __future__ import annotations

from pathlib import Path

from xmtc.core.errors import ConfigError, nearest

FOLDER = Path(__file__).parent


def shipped() -> list[str]:
    """Return the names of the shipped recipes, such as 'cooking/one_vs_all'."""
    return sorted(str(path.relative_to(FOLDER).with_suffix("")) for path in FOLDER.glob("*/*.toml"))


def find_recipe(name: str | Path) -> Path:
    """Find a recipe file by path, or a shipped one by name."""
    path = Path(name)
    if path.is_file():
        return path
    bundled = (FOLDER / path).with_suffix(".toml")
    if str(path.with_suffix("")) in shipped():
        return bundled
    raise ConfigError(f"no recipe '{name}'.{nearest(str(name), shipped())} Pass a TOML file or one of: {_listed()}.")


def _listed() -> str:
    return ", ".join(shipped()) or "none shipped"
