"""Every public class, function, method, option, argument and setting has a description."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import typer

import xmtc
from xmtc.cli.main import app
from xmtc.core.config import Settings, field_docs, table
from xmtc.core.request import BaseRequest, request_fields
from xmtc.models.registry import MODELS, available, model_class

BUILTIN = ("--help", "--install-completion", "--show-completion")  # described by typer


@cache
def modules() -> list[Any]:
    """The package and all its modules that can be imported with the installed extras."""
    names = [info.name for info in pkgutil.walk_packages(xmtc.__path__, "xmtc.")]
    found: list[Any] = [xmtc]
    for name in names:
        if not name.endswith("__main__"):
            try:
                found.append(importlib.import_module(name))
            except ImportError as error:
                if (error.name or "xmtc").startswith("xmtc"):
                    raise
    return found


def own(module: Any) -> Iterator[tuple[str, Any]]:
    """Public names that a module defines itself."""
    for name, value in vars(module).items():
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__:
            yield f"{module.__name__}.{name}", value


def function_of(member: Any) -> Any:
    """The function behind a property, cached property, class method, static method or compiled kernel; else None."""
    if isinstance(member, property):
        return member.fget
    for attribute in ("func", "__func__", "py_func"):
        if inspect.isfunction(inner := getattr(member, attribute, None)):
            return inner
    return member if inspect.isfunction(member) else None


def members(cls: type) -> Iterator[tuple[str, str]]:
    """Public methods and properties of a class, with their own or inherited description."""
    for name, value in vars(cls).items():
        if not name.startswith("_") and (function := function_of(value)) is not None:
            inherited = (inspect.getdoc(getattr(base, name, None)) for base in cls.__mro__[1:-1])
            yield name, function.__doc__ or next(filter(None, inherited), "")


def test_modules() -> None:
    assert len(modules()) > 250
    assert [module.__name__ for module in modules() if not (module.__doc__ or "").strip()] == []


def test_classes() -> None:
    found = [(name, thing) for module in modules() for name, thing in own(module) if inspect.isclass(thing)]
    assert len(found) > 300
    generated = "{}("  # a dataclass or a named tuple without a docstring describes itself by its signature
    missing = [n for n, c in found if not c.__doc__ or c.__doc__.startswith(generated.format(c.__name__))]
    assert missing == []


def test_functions() -> None:
    functions = [
        (name, thing)
        for module in modules()
        for name, thing in own(module)
        if not inspect.isclass(thing) and function_of(thing) is not None
    ]
    assert len(functions) > 500
    assert [name for name, thing in functions if not (function_of(thing).__doc__ or "").strip()] == []


def test_methods_and_properties() -> None:
    classes = [(name, thing) for module in modules() for name, thing in own(module) if inspect.isclass(thing)]
    found = [(f"{name}.{member}", text) for name, cls in classes for member, text in members(cls)]
    assert len(found) > 500
    assert [name for name, text in found if not text.strip()] == []


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command and group of the command line."""
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))


COMMANDS = dict(commands(typer.main.get_command(app)))


def is_sentence(text: str) -> bool:
    """Starts with an upper-case letter, a figure or code, and ends with a full stop."""
    return bool(text) and text.rstrip().endswith((".", ".)")) and not text[0].islower() and text[0] != " "


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: " ".join(("xmtc", *path)))
def test_commands_options_and_arguments(path: tuple[str, ...]) -> None:
    command = COMMANDS[path]
    wrong = [] if is_sentence(command.help or "") else [f"the command: {command.help!r}"]
    for parameter in command.params:
        if not set(parameter.opts) & set(BUILTIN) and not getattr(parameter, "hidden", False):
            text = getattr(parameter, "help", None) or ""
            if not is_sentence(text):
                wrong.append(f"{' '.join(parameter.opts)}: {text!r}")
    assert wrong == []


def subclasses(cls: type) -> set[type]:
    return {cls}.union(*(subclasses(inner) for inner in cls.__subclasses__()))


def test_requests() -> None:
    """The sentence under each field is the help of the option, and the description in Python."""
    assert modules()
    for request in subclasses(BaseRequest):
        if request.__module__.startswith("xmtc.") and dataclasses.is_dataclass(request):
            for field in request_fields(request):
                described = field.mark is None or is_sentence(field_docs(request).get(field.name, ""))
                assert described, f"{request.__name__}.{field.name}"


@pytest.mark.parametrize("name", list(MODELS))
def test_settings_of_models(name: str) -> None:
    if not available(name):
        pytest.skip("needs an extra that is not installed")
    rows = table(model_class(name).Config())
    wrong = [f"{row.name}: {row.sentence!r}" for row in rows if not is_sentence(row.sentence)]
    assert wrong == []


def test_fields_of_all_settings() -> None:
    """Also of the settings that no model has by default."""
    assert modules()
    missing = []
    for cls in subclasses(Settings):
        if cls.__module__.startswith("xmtc.") and dataclasses.is_dataclass(cls):
            documented = field_docs(cls)
            missing += [f"{cls.__name__}.{f.name}" for f in dataclasses.fields(cls) if not documented.get(f.name)]
    assert missing == []
