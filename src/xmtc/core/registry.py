"""Registry of models, formats and metrics: built in or provided by plug-in packages, imported on first use."""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar

from xmtc.core.errors import ConfigError, XmtcError, XmtcWarning, missing_extra, nearest, shown

Item = TypeVar("Item")

EXTRAS = {
    "torch": ("PyTorch", ("torch",)),
    "onnx": ("onnx and onnxruntime", ("onnx", "onnxruntime")),
    "transformers": ("transformers and PyTorch", ("torch", "transformers", "tokenizers")),
}
"""Extra → its name in messages, and the modules it installs."""


@dataclass(frozen=True)
class Entry:
    """Where a registered object is defined, and what it requires."""

    target: str
    """Import path of the object, as module:attribute."""
    extra: str | None = None
    """Extra of xmtc that the object requires."""
    preference: int = -1
    """The entry with the highest preference is the default; an entry with a negative one never is."""
    package: str = "xmtc"
    """The installed package that provides it; several, joined by 'and', if they conflict."""
    conflict: bool = False
    """Whether several packages provide this name."""

    @property
    def attribute(self) -> str:
        """Name of the object in its module."""
        return self.target.rpartition(":")[2]

    @property
    def available(self) -> bool:
        """Whether the extra is installed."""
        return self.extra is None or all(importlib.util.find_spec(module) for module in EXTRAS[self.extra][1])


class Registry(Collection[str], Generic[Item]):
    """Mapping from name to object. Other packages add objects through the entry points of one group.

    A plug-in cannot replace a built-in object. A broken plug-in is reported when its name is used.
    """

    def __init__(self, group: str, noun: str, builtin: Mapping[str, Entry], required: tuple[str, ...] = ()) -> None:
        self.group, self.noun = group, noun
        self.builtin = dict(builtin)
        self._required = required
        """Attributes that each object must have; its `name`, if any, must be the registered name."""

    @cached_property
    def plugins(self) -> dict[str, Entry]:
        """Entries provided by other packages, looked up once per process."""
        found: dict[str, Entry] = {}
        for point in sorted(entry_points(group=self.group), key=lambda point: point.name):
            package = point.dist.name if point.dist else point.module
            if point.name in self.builtin:
                warnings.warn(
                    f"the {self.noun} '{shown(point.name)}' of the package {package} is ignored: xmtc has a built-in "
                    f"{self.noun} with that name. Rename it in {package}.",
                    XmtcWarning,
                    stacklevel=2,
                )
                continue
            other = found.get(point.name)
            if other is None:
                found[point.name] = Entry(point.value, package=package)
            elif package not in other.package.split(" and ") or point.value != other.target:
                found[point.name] = Entry(other.target, package=f"{other.package} and {package}", conflict=True)
        return found

    @property
    def entries(self) -> dict[str, Entry]:
        """All entries, the built-in ones first."""
        return {**self.builtin, **self.plugins}

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, name: object) -> bool:
        return name in self.builtin or name in self.plugins

    def __getitem__(self, name: str) -> Item:
        """Import and return the object."""
        entry = self.builtin.get(name) or self.plugins.get(name)
        if entry is None:
            raise ConfigError(f"no {self.noun} '{shown(name)}'.{nearest(name, self)} Available: {', '.join(self)}.")
        if entry.conflict:
            raise ConfigError(
                f"the {self.noun} '{name}' is provided by {entry.package}. Uninstall all but one of these packages."
            )
        if entry.extra is not None and not entry.available:
            title = EXTRAS[entry.extra][0]
            raise missing_extra(f"{name} needs {title}", entry.extra)
        return self._load_builtin(entry) if name in self.builtin else self._load_plugin(name, entry)

    def loadable(self) -> Iterator[tuple[str, Item]]:
        """Yield (name, object) for all importable entries; skip broken plug-ins and those with missing extras."""
        for name in self:
            try:
                item = self[name]
            except XmtcError:
                continue
            yield name, item

    def _load_builtin(self, entry: Entry) -> Item:
        module, _, attribute = entry.target.partition(":")
        item: Item = getattr(importlib.import_module(module), attribute)
        return item

    def _load_plugin(self, name: str, entry: Entry) -> Item:
        try:
            item: Any = self._load_builtin(entry)
        except XmtcError:
            raise
        except Exception as error:  # a plug-in may raise anything
            raise self._broken(name, entry, f"{type(error).__name__}: {error}") from error
        missing = [each for each in self._required if not hasattr(item, each)]
        if missing:
            raise self._broken(name, entry, f"{entry.target} has no '{missing[0]}'")
        own = getattr(item, "name", name)
        if own != name:
            raise self._broken(name, entry, f"its 'name' is '{shown(own)}'")
        checked: Item = item
        return checked

    def _broken(self, name: str, entry: Entry, reason: str) -> ConfigError:
        return ConfigError(
            f"the {self.noun} '{name}' of the package {entry.package} cannot be used ({shown(reason, 160)}). "
            f"Update {entry.package}, or uninstall it."
        )
