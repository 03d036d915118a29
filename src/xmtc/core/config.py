"""Settings: one frozen dataclass per model is the single source for command line, TOML, model folder and docs."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import json
import sys
import textwrap
import tomllib
import types
import typing
import warnings
from abc import ABCMeta
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from xmtc.core.errors import ConfigError, XmtcWarning, nearest, shown
from xmtc.core.parsing import parse_toml

AnySettings = TypeVar("AnySettings", bound="Settings")


class _SettingsType(ABCMeta):
    """Metaclass that accepts former field names as keyword arguments."""

    def __call__(cls, *args: Any, **values: Any) -> Any:
        former = former_names(typing.cast("type[Settings]", cls))
        for name in former.keys() & values.keys():
            _warn_renamed(cls.of, name, former[name])  # type: ignore[attr-defined]
            values[former[name]] = values.pop(name)
        return super().__call__(*args, **values)


@dataclasses.dataclass(frozen=True)
class Settings(metaclass=_SettingsType):
    """Base of all settings: every field is checked against its type, then `check` validates the values."""

    of: ClassVar[str] = "settings"
    """Owner of the settings, as error messages name it."""
    searched: ClassVar[bool] = True
    """Whether a search uses the search spaces annotated on the fields."""

    def __post_init__(self) -> None:
        for name, kind in field_types(type(self)).items():
            object.__setattr__(self, name, _coerced(self, name, getattr(self, name), kind))
        self.check()

    def __getattr__(self, name: str) -> Any:
        """Look up a setting by its former name."""
        if name.startswith("_") or name not in (former := former_names(type(self))):
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return getattr(self, former[name])

    def check(self) -> None:
        """Reject invalid values; subclasses override this and call `require`."""

    def require(self, name: str, holds: bool, what: str) -> None:
        """Raise `ConfigError` unless `holds`; `what` completes the message "'name' of knn must be …"."""
        if not holds:
            raise ConfigError(f"'{name}' of {self.of} must be {what}. Got {as_written(getattr(self, name))}.")

    def require_range(self, name: str, low: float, high: float | None = None, *, open_low: bool = False) -> None:
        """Require a number within bounds; `open_low` excludes the lower bound itself."""
        value = getattr(self, name)
        kind = "an integer" if field_types(type(self))[name] is int else "a number"
        bounds = f"{'>' if open_low else '≥'} {low:g}" if high is None else f"from {low:g} to {high:g}"
        above = value > low if open_low else value >= low
        self.require(name, above and (high is None or value <= high), f"{kind} {bounds}")


@dataclasses.dataclass(frozen=True)
class Range:
    """Search space of a numeric setting, both ends included; written as Annotated[int, Range(1, 10)]."""

    low: float
    high: float
    log: bool = False
    """Whether to search on a logarithmic scale."""

    def __contains__(self, value: Any) -> bool:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and self.low <= value <= self.high

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}{', log scale' if self.log else ''}"


@dataclasses.dataclass(frozen=True, init=False)
class Choices:
    """Search space of a setting as a list of values; Choices() means all values of its bool or Literal type."""

    values: tuple[Any, ...]

    def __init__(self, *values: Any) -> None:
        object.__setattr__(self, "values", values)

    def __contains__(self, value: Any) -> bool:
        return value in self.values

    def __str__(self) -> str:
        return ", ".join(value if isinstance(value, str) else json.dumps(value) for value in self.values)


@dataclasses.dataclass(frozen=True)
class Alias:
    """A former name of a setting, which still works; written as Annotated[int, Alias("held_out")]."""

    name: str


def as_written(value: Any) -> str:
    """Format a value as a user would write it."""
    return f"'{shown(value)}'" if isinstance(value, str) else shown(value)


@cache
def field_types(cls: type[Settings]) -> dict[str, Any]:
    """Return the type of each field of a settings class, by field name."""
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


@functools.cache
def _module_classes(module: str) -> dict[str, ast.ClassDef]:
    """Parse the class definitions of a module; cached, so that its source is parsed once."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def _definition(cls: type) -> ast.ClassDef:
    if "." not in cls.__qualname__ and cls.__qualname__ in (written := _module_classes(cls.__module__)):
        return written[cls.__qualname__]
    return typing.cast(ast.ClassDef, ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0])


@cache
def former_names(cls: type[Settings]) -> dict[str, str]:
    """Return a mapping from former to current name for the renamed fields of a settings class."""
    hints = typing.get_type_hints(cls, include_extras=True)
    marks = ((name, mark) for name in field_types(cls) for mark in getattr(hints[name], "__metadata__", ()))
    return {mark.name: name for name, mark in marks if isinstance(mark, Alias)}


@cache
def _warn_renamed(owner: str, former: str, name: str) -> None:
    """Warn about a former name, once per process."""
    message = f"'{former}' of {owner} was renamed to '{name}'. The old name still works; please use the new one."
    warnings.warn(message, XmtcWarning, stacklevel=4)


def current_names(cls: type[Settings], values: Mapping[str, Any]) -> dict[str, Any]:
    """Translate former setting names, nested or dotted, to the current ones, as in models saved before a rename."""
    kinds, former = field_types(cls), former_names(cls)
    out: dict[str, Any] = {}
    for key, value in values.items():
        head, dot, rest = str(key).partition(".")
        head = former.get(head, head)
        kind = kinds.get(head)
        if isinstance(kind, type) and issubclass(kind, Settings):
            if isinstance(value, Mapping):
                value = current_names(kind, value)
            elif dot:
                rest = next(iter(current_names(kind, {rest: value})))
        out[head + dot + rest] = value
    return out


def field_docs(cls: type) -> dict[str, str]:
    """Return the docstring under each field on one line, read from the source of the class and its bases."""
    docs: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        for statement, following in itertools.pairwise(_definition(typing.cast(type, base)).body):
            if (
                isinstance(statement, ast.AnnAssign)
                and isinstance(statement.target, ast.Name)
                and isinstance(following, ast.Expr)
                and isinstance(following.value, ast.Constant)
            ):
                docs[statement.target.id] = " ".join(str(following.value.value).split())
    return docs


def field_spaces(cls: type[Settings]) -> dict[str, Range | Choices]:
    """Return the search space of each field annotated with one, by field name."""
    spaces: dict[str, Range | Choices] = {}
    kinds = field_types(cls) if cls.searched else {}
    for name, hint in typing.get_type_hints(cls, include_extras=True).items():
        for mark in getattr(hint, "__metadata__", ()) if name in kinds else ():
            if isinstance(mark, Range):
                spaces[name] = fitted(mark, kinds[name])
            elif isinstance(mark, Choices):
                spaces[name] = mark if mark.values else Choices(*named_values(kinds[name]))
    return spaces


def fitted(given: Range, kind: Any) -> Range:
    """Convert the ends of a range to the field's type; a float field also takes values between integer ends."""
    number = float if float in (kind, *typing.get_args(kind)) else int
    return Range(number(given.low), number(given.high), given.log)


def named_values(kind: Any) -> tuple[Any, ...]:
    """Return all values of a bool or Literal type; empty for other types."""
    if kind is bool:
        return (False, True)
    return typing.get_args(kind) if typing.get_origin(kind) is typing.Literal else ()


@dataclasses.dataclass(frozen=True)
class SettingRow:
    """One row of a settings table."""

    name: str
    kind: str
    default: Any
    sentence: str
    space: Range | Choices | None = None
    """Search space that `xmtc tune` uses; None if the setting is not tuned."""


def table(defaults: Settings, prefix: str = "") -> list[SettingRow]:
    """List all settings with dotted names, for `xmtc models NAME` and the docs."""
    rows: list[SettingRow] = []
    docs, spaces = field_docs(type(defaults)), field_spaces(type(defaults))
    for name, kind in field_types(type(defaults)).items():
        default = getattr(defaults, name)
        if isinstance(default, Settings):
            rows += table(default, f"{prefix}{name}.")
        else:
            rows.append(SettingRow(prefix + name, kind_name(kind), default, docs.get(name, ""), spaces.get(name)))
    return rows


def space(settings: Settings) -> dict[str, Range | Choices]:
    """Return the search space of each tunable setting by dotted name, including nested groups."""
    return {row.name: row.space for row in table(settings) if row.space is not None}


def field_type(settings: Settings, name: str) -> Any:
    """Return the type of a setting given by dotted name."""
    *groups, last = name.split(".")
    for group in groups:
        settings = getattr(settings, group)
    return field_types(type(settings))[last]


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested settings: {'text': {'min_df': 3}} → {'text.min_df': 3}."""
    out: dict[str, Any] = {}
    for name, value in settings.items():
        out |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return out


def kind_name(kind: Any) -> str:
    """Describe a type in words: 'integer', 'one of a, b'."""
    if typing.get_origin(kind) is typing.Literal:
        words = typing.get_args(kind)
        return ("one of " if len(words) > 1 else "") + ", ".join(words)
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return " or ".join(kind_name(part) for part in typing.get_args(kind))
    if typing.get_origin(kind) is tuple:
        return f"list of {kind_name(typing.get_args(kind)[0])}s"
    if isinstance(kind, type) and issubclass(kind, Settings):
        return "group of settings"
    names = {bool: "true or false", int: "integer", float: "number", str: "string", type(None): "none"}
    return names.get(kind, getattr(kind, "__name__", str(kind)))


def _coerced(owner: Settings, name: str, value: Any, kind: Any) -> Any:
    """Check a value against its field's type; lists become tuples and integers floats, nothing else is converted."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        if value in parts:
            return value
    elif origin in (typing.Union, types.UnionType):
        for part in parts:
            try:
                return _coerced(owner, name, value, part)
            except ConfigError:
                continue
    elif origin is tuple:
        if isinstance(value, (list, tuple)):
            done = tuple(_coerced(owner, name, item, parts[0]) for item in value)
            return value if done == value else done
    elif isinstance(kind, type) and issubclass(kind, Settings):
        if isinstance(value, Mapping):
            return changed(_default(type(owner), name), value)
        if isinstance(value, kind):
            return value
    elif kind is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        if abs(value) < 1e308:  # JSON cannot represent infinity and NaN
            return value if isinstance(value, float) else float(value)
    elif (kind is int and isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63) or (
        kind in (bool, str, type(None)) and isinstance(value, kind)
    ):
        return value
    words = kind_name(kind)
    article = "" if words.startswith(("one of", "true")) else "an " if words.startswith("integer") else "a "
    raise ConfigError(f"'{name}' of {owner.of} must be {article}{words}. Got {as_written(value)}.")


def _default(cls: type[Settings], name: str) -> Any:
    """Return a field's default; a partly set group keeps its owner's defaults for the rest."""
    field = next(field for field in dataclasses.fields(cls) if field.name == name)
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def from_mapping(cls: type[AnySettings], values: Mapping[str, Any]) -> AnySettings:
    """Create settings from nested or dotted keys; an unknown key is an error that suggests the closest known one."""
    known, former = field_types(cls), former_names(cls)
    plain: dict[str, Any] = {}
    for key, value in values.items():
        head, _, rest = str(key).partition(".")
        if head in former:
            _warn_renamed(cls.of, head, former[head])
            head = former[head]
        if head not in known:
            raise ConfigError(f"{cls.of} has no setting '{shown(head)}'.{_suggestion(cls, head)}")
        if rest or isinstance(value, Mapping):
            nested = known[head]
            if not (isinstance(nested, type) and issubclass(nested, Settings)):
                raise ConfigError(f"'{head}' of {cls.of} is a single value. Write {head}=VALUE.")
            branch = {rest: value} if rest else dict(value)
            plain[head] = {**plain.get(head, {}), **branch}
        else:
            plain[head] = value
    return cls(**plain)


def _suggestion(cls: type[Settings], name: str) -> str:
    """The setting that was probably meant: of this group, or of the same name in a group below."""
    known = field_types(cls)
    groups = [group for group, kind in known.items() if isinstance(kind, type) and issubclass(kind, Settings)]
    inside = [f"{group}.{name}" for group in groups if name in field_types(known[group])]
    found = f" Did you mean '{inside[0]}'?" if inside else nearest(name, known)
    return f"{found} See: xmtc models NAME"


def to_mapping(settings: Settings) -> dict[str, Any]:
    """Convert settings to nested plain values, ready for JSON and TOML."""
    out: dict[str, Any] = {}
    for name in field_types(type(settings)):
        value = getattr(settings, name)
        out[name] = (
            to_mapping(value) if isinstance(value, Settings) else list(value) if isinstance(value, tuple) else value
        )
    return out


def changed(settings: Settings, updates: Mapping[str, Any]) -> Any:
    """Return a copy of the settings with `updates`, given by dotted name, applied."""
    return from_mapping(type(settings), _merged(_shallow(settings), nested(updates)))


def _shallow(settings: Settings) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in field_types(type(settings))}


def _merged(base: Mapping[str, Any], updates: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(base)
    for key, value in updates.items():
        before = out.get(key)
        if isinstance(value, Mapping) and isinstance(before, Settings):
            out[key] = changed(before, value)
        elif isinstance(value, Mapping) and isinstance(before, Mapping):
            out[key] = _merged(before, value)
        else:
            out[key] = value
    return out


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Nest dotted settings: {'text.min_df': 3} → {'text': {'min_df': 3}}."""
    out: dict[str, Any] = {}
    for key, value in flat.items():
        *path, last = key.split(".")
        target = out
        for step in path:
            target = target.setdefault(step, {})
            if not isinstance(target, dict):
                raise ConfigError(f"'{step}' is given both as a value and as a group. Keep one of them.")
        target[last] = value
    return out


def merge(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Merge layers of settings; later layers take precedence: default < recipe < command line."""
    out: dict[str, Any] = {}
    for layer in layers:
        out = _merged(out, nested(layer))
    return out


def parse_assignments(assignments: Sequence[str]) -> dict[str, Any]:
    """Parse key=value pairs such as 'text.min_df=3'; values are TOML, bare words strings."""
    values: dict[str, Any] = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--set {assignment}: expected key=value, for example --set text.min_df=3.")
        try:
            values[key.strip()] = parse_toml(f"value = {text}", any_number=True)["value"]
        except tomllib.TOMLDecodeError:
            values[key.strip()] = text.strip()
        except ValueError as error:
            raise ConfigError(f"--set {shown(assignment)}: {error}. Correct the value.") from None
    return values


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file written by a user."""
    try:
        return parse_toml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}). Check the path.") from None
    except ValueError as error:
        raise ConfigError(f"{path}: invalid TOML ({error}). Correct the file.") from None


def read_recipe(path: Path) -> tuple[str | None, dict[str, Any]]:
    """Read a recipe: its model name, if given, and its settings."""
    content = read_toml(path)
    unknown = set(content) - {"model", "settings", "about"}
    if unknown:
        raise ConfigError(
            f"{path}: unknown key '{min(unknown)}'. A recipe contains model = \"NAME\" and a [settings] table."
        )
    model, settings = content.get("model"), content.get("settings", {})
    if not isinstance(settings, dict) or not (model is None or isinstance(model, str)):
        raise ConfigError(f"{path}: 'model' must be a string and 'settings' a table.")
    return model, settings
