"""Commands and options that README.md and the pages in docs/ mention exist; docs/command-line.md lists all commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from tools.refresh_readme import blocks

from xmtc.cli.main import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMAND_LINE = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
CLI: Any = typer.main.get_command(app)
FOREIGN = {"--nproc-per-node", "--output"}  # of torchrun; a former name
OPTION = re.compile(r"--?[a-zA-Z][\w-]*")


def options(command: Any) -> set[str]:
    """The options of a command, with their aliases."""
    names = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    return {name for name in names if name.startswith("-")} | {"--help", "-h"}


def every_option() -> set[str]:
    """The options of all commands together."""

    def below(command: Any) -> Iterator[Any]:
        yield command
        for other in getattr(command, "commands", {}).values():
            yield from below(other)

    return {name for command in below(CLI) for name in options(command)}


def mistakes(line: str) -> list[str]:
    """What is wrong with a line that begins with `xmtc`: an unknown command, or an option that the command lacks."""
    words = shlex.split(line.replace("\\|", "|"), comments=True)[1:]
    commands = [CLI]
    while words and hasattr(commands[0], "commands") and not words[0].startswith(("-", "…")):
        choices = commands[0].commands
        unknown = [word for word in words[0].split("|") if word not in choices]
        if unknown:
            return [f"no command {word}" for word in unknown]
        commands = [choices[word] for word in words.pop(0).split("|")]
    given = [word.partition("=")[0] for word in words[: words.index("|") if "|" in words else None]]
    found = [word for word in given if OPTION.fullmatch(word)]
    return [f"no option {word}" for word in found if not any(word in options(command) for command in commands)]


def command_lines(page: str) -> list[str]:
    """Lines of code blocks, and inline code, that begin with `xmtc` and a command or an option."""
    inside = [line for block in blocks(page) for line in block.text.replace("\\\n", " ").splitlines()]
    prose = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    inline = [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", prose)]
    return [line for line in (*inside, *inline) if re.match(r"xmtc [a-z-]", line)]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_commands_exist_and_have_the_options_given(path: Path) -> None:
    wrong = {line: mistakes(line) for line in command_lines(path.read_text(encoding="utf-8"))}
    assert {line: found for line, found in wrong.items() if found} == {}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_options_in_the_text_exist(path: Path) -> None:
    code = re.findall(r"`([^`\n]+)`", path.read_text(encoding="utf-8"))
    named = {word.partition("=")[0] for text in code for word in text.split() if OPTION.match(word) and word[1] == "-"}
    assert {word for word in named if re.match(OPTION, word)[0] not in every_option() | FOREIGN} == set()


def rows() -> dict[str, str]:
    """The table of commands: what is in the first cell, and its row."""
    table = COMMAND_LINE.partition("| command |")[2].partition("\n\n")[0].splitlines()[2:]
    return {row.split("`")[1].replace("\\|", "|"): row for row in table}


def test_every_command_is_in_the_table() -> None:
    listed = {}
    for usage in rows():
        name, _, rest = usage.removeprefix("xmtc ").partition(" ")
        listed[name] = set(rest.split(" ")[0].split("|")) if hasattr(CLI.commands.get(name), "commands") else set()
    assert listed == {name: set(getattr(command, "commands", ())) for name, command in CLI.commands.items()}


def test_options_in_the_table_are_those_of_the_command() -> None:
    for usage, row in rows().items():
        name = usage.split()[1]
        first = getattr(CLI.commands[name], "commands", {})
        known = options(next(iter(first.values())) if first else CLI.commands[name])
        assert set(re.findall(r"(?<=`)--[a-z0-9-]+", row)) <= known, usage


def test_a_wrong_command_is_seen() -> None:
    assert mistakes("xmtc train data.jsonl --out DIR -h") == []
    assert mistakes("xmtc data describe|head FILE") == []
    assert mistakes("xmtc trian data.jsonl") == ["no command trian"]
    assert mistakes("xmtc data look FILE") == ["no command look"]
    assert mistakes("xmtc train data.jsonl --ouput=DIR -z") == ["no option --ouput", "no option -z"]
    assert mistakes("xmtc --verson") == ["no option --verson"]
    page = "Use `xmtc train X\n--to Y`, or `xmtc`.\n\n```\nxmtc serve \\\n  DIR\n```\n"
    assert command_lines(page) == ["xmtc serve    DIR", "xmtc train X --to Y"]
