"""Shell completion: names of models, recipes, suites and data sets, and the scripts that shells load."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from xmtc.cli.command import DETECT, SHELLS
from xmtc.core.errors import ConfigError
from xmtc.core.request import Completion

VARIABLE = "_XMTC_COMPLETE"
"""The environment variable with which a shell asks for completions."""


def _models() -> list[str]:
    from xmtc.workflows.names import model_names

    return model_names()


def _recipes() -> list[str]:
    from xmtc.recipes import shipped

    return shipped()


def _suites() -> list[str]:
    import xmtc.experiments

    folder = Path(xmtc.experiments.__file__).parent / "shipped"  # not through `suites`, which loads NumPy
    return sorted(path.stem for path in folder.glob("*.toml"))


def _datasets() -> list[str]:
    from xmtc.workflows.names import dataset_names

    return dataset_names()


_NAMES: dict[Completion, Callable[[], list[str]]] = {
    "models": _models,
    "recipes": _recipes,
    "suites": _suites,
    "datasets": _datasets,
}


def completer(names: Completion | tuple[str, ...]) -> Callable[[str], list[str]]:
    """A function that completes a word with the given names."""

    def complete(incomplete: str) -> list[str]:
        known = _NAMES[names]() if isinstance(names, str) else names
        return [name for name in known if name.startswith(incomplete)]

    return complete


def metavar_choices(metavar: str | None) -> tuple[str, ...]:
    """The literal values in a metavar such as auto|cpu|cuda|cuda:N."""
    words = (metavar or "").split("|")
    return tuple(word for word in words if word and word == word.lower()) if len(words) > 1 else ()


def _shell(given: str) -> str:
    """The shell that was given, or the one xmtc runs in."""
    shell = _typer()._get_shell_name() if given == DETECT else given
    if shell not in SHELLS:
        why = "cannot detect a supported shell" if given == DETECT else f"no completion for the shell '{given}'"
        raise ConfigError(f"{why}. Choose one of: {', '.join(SHELLS[:4])}.")
    return str(shell)


def _typer() -> Any:
    """The completion module of typer, which does not declare its functions as public."""
    return importlib.import_module("typer.completion")


def show_completion(given: str | None) -> None:
    """Print the completion script of a shell."""
    if given is None:
        return
    print(_typer().get_completion_script(prog_name="xmtc", complete_var=VARIABLE, shell=_shell(given)), flush=True)
    raise typer.Exit


def install_completion(given: str | None) -> None:
    """Write the completion script to the place where the shell looks for it."""
    if given is None:
        return
    shell, path = _typer().install(shell=_shell(given), prog_name="xmtc", complete_var=VARIABLE)
    print(f"{path}: {shell} completion installed. Restart the shell to use it.", flush=True)
    raise typer.Exit


def run_completion(app: typer.Typer) -> None:
    """Answer a shell that asks for completions, and exit."""
    from typer._completion_classes import completion_init

    completion_init()
    app(prog_name="xmtc")
