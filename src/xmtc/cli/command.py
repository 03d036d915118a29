"""The classes of `xmtc` and its commands: former option names, `--json [FILE]`, lazy imports, layout of the help."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from xmtc.core.errors import ConfigError, shown

RENAMED = {
    "--output": "--out",
    "--measure": "--metric",
    "--picture": "--plot",
    "--keep": "--save-metrics",
    "--apart": "--split-duplicates",
}
"""Former names of options, which still work → names."""
HELP_NAMES = {"help_option_names": ["-h", "--help"]}
SHELLS = ("bash", "zsh", "fish", "powershell", "pwsh")
DETECT = "detect"


class Command(TyperCommand):
    """A command of xmtc."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Rewrite former option names and `--json [FILE]`, then parse as usual."""
        own = {name for parameter in self.params for name in parameter.opts}
        args = [_current_name(word, own) for word in args]
        if "--json" in own and not ctx.resilient_parsing:
            args = join_json_values(args)
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The usage line: `[OPTIONS] TRAIN`, optional arguments in brackets."""
        arguments = [each for each in self.get_params(ctx) if each.param_type_name == "argument"]
        names = [_display_name(each) for each in arguments]
        pieces = [name if each.required else f"[{name}]" for each, name in zip(arguments, names, strict=True)]
        return ["[OPTIONS]", *pieces]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments by name, without their types, then options."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            if parameter.param_type_name == "argument":
                sections["Arguments"].append((_display_name(parameter), record[1]))
            else:
                sections["Options"].append((record[0].replace(" [=", "[="), record[1]))
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class LazyCommands(Mapping[str, Any]):
    """The commands of `xmtc` by name. The module that defines a command is imported when the command is used."""

    def __init__(self, modules: Mapping[str, str]) -> None:
        self._modules = modules
        self._made: dict[str, Any] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)

    def __getitem__(self, name: str) -> Any:
        """A command with its parameters, ready to run."""
        if name not in self._made:
            definition = self._definition(name)
            if not isinstance(definition, typer.Typer):
                app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
                app.command(name, cls=Command)(definition)
                definition = app
            self._made[name] = typer.main.get_command(definition)
        return self._made[name]

    def summary(self, name: str) -> str:
        """The first line of a command's help."""
        definition = self._definition(name)
        text = definition.info.help if isinstance(definition, typer.Typer) else inspect.getdoc(definition)
        return str(text).partition("\n")[0]

    def _definition(self, name: str) -> Any:
        """The group or the function that a module defines."""
        module = importlib.import_module(self._modules[name])
        return vars(module).get("app") or vars(module)[name]


class RootGroup(TyperGroup):
    """`xmtc` itself: --install-completion and --show-completion take the name of a shell or none.

    Its commands are those that the modules in `modules`, by command name, define.
    """

    modules: Mapping[str, str] = {}
    commands: Any

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = LazyCommands(self.modules)

    def format_commands(self, _: Any, formatter: Any) -> None:
        """List the commands without building their parameters."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.commands.summary(name)) for name in self.commands])

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Join a completion option and the shell that follows it."""
        if args and args[0] in ("--install-completion", "--show-completion"):
            shell = args[1:2] if args[1:2] and not args[1].startswith("-") else []
            args = [f"{args[0]}={shell[0] if shell else DETECT}", *args[1 + len(shell) :]]
        return super().parse_args(ctx, args)


def command_group(name: str, sentence: str) -> typer.Typer:
    """A group of commands, such as `xmtc data …`; without a command it prints its help."""
    group = typer.Typer(name=name, help=sentence, add_completion=False, rich_markup_mode=None)

    @group.callback(invoke_without_command=True)
    def show_help(context: typer.Context) -> None:
        if context.invoked_subcommand is None:
            print(context.get_help(), flush=True)

    return group


def _display_name(argument: Any) -> str:
    """The name of an argument in the help: its metavar."""
    return str(argument.metavar or argument.name.upper()).replace("…", "...")


def _current_name(word: str, own: set[str]) -> str:
    name, equals, value = word.partition("=")
    current = RENAMED.get(name)
    return word if current is None or name in own or current not in own else current + equals + value


def join_json_values(args: Sequence[str]) -> list[str]:
    """`--json FILE` as `--json=FILE`, and a lone `--json` as `--json=-`, standard output."""
    joined: list[str] = []
    rest = iter(args)
    for word in rest:
        if word == "--":
            return [*joined, word, *rest]
        if word != "--json":
            joined.append(word)
            continue
        following = next(rest, None)
        if following is None:
            joined.append("--json=-")
        elif following.startswith("-") and following != "-":
            joined += ["--json=-", *join_json_values([following, *rest])]
        else:
            joined.append(f"--json={_json_file(following)}")
    return joined


def _json_file(word: str) -> str:
    """The word after --json, if it can only be a file to write."""
    path = Path(word)
    if word == "-" or path.suffix.lower() == ".json" or str(path).startswith("/dev/"):
        return word
    if not path.exists() and (path.suffix or path.name != word):
        return word
    why = "an existing path" if path.exists() else "not the name of a JSON file"
    raise ConfigError(
        f"--json is followed by '{shown(word)}', {why}. Put --json last to print JSON, or write --json=FILE."
    )
