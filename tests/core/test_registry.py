"""The registry: built-in entries, entry points of other packages, and what happens where they are at odds."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from xmtc.core.errors import ConfigError, MissingExtraError, XmtcWarning
from xmtc.core.registry import EXTRAS, Entry, Registry

GROUP = "xmtc.test_things"


def install(folder: Path, package: str, points: dict[str, str], code: str = "") -> None:
    """A package as pip leaves it behind: a module, and its entry points."""
    info = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = [f"[{GROUP}]", *(f"{name} = {value}" for name, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    if code:
        (folder / f"{package.replace('-', '_')}.py").write_text(code)


def registry(**more: Any) -> Registry[Any]:
    builtin = {"join": Entry("os.path:join"), "far": Entry("os.path:split", extra="torch")}
    return Registry(GROUP, "thing", builtin, **more)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_builtin() -> None:
    things = registry()
    assert list(things) == ["join", "far"]
    assert things["join"]("a", "b") == "a/b"
    with pytest.raises(ConfigError, match=r"^no thing 'joni'\. Did you mean 'join'\? Available: join, far\.$"):
        things["joni"]


def test_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXTRAS, "torch", ("PyTorch", ("no_such_module",)))
    things = registry()
    assert "far" in things
    assert not things.entries["far"].available
    with pytest.raises(
        MissingExtraError, match=r'far needs PyTorch\. Install it with: pip install "xmtc\[torch\]" "torch==[\d.]+"$'
    ):
        things["far"]
    assert [name for name, _ in things.loadable()] == ["join"]


def test_a_plugin_is_imported_when_it_is_used(site: Path) -> None:
    install(site, "other-things", {"triple": "other_things:triple"}, "def triple(n): return 3 * n\n")
    things = registry()
    assert list(things) == ["join", "far", "triple"]
    assert things.plugins["triple"] == Entry("other_things:triple", package="other-things")
    assert "other_things" not in sys.modules
    assert things["triple"](2) == 6
    del sys.modules["other_things"]


def test_a_plugin_does_not_replace_what_is_built_in(site: Path) -> None:
    install(site, "greedy", {"join": "greedy:join"}, "def join(*parts): return 'mine'\n")
    things = registry()
    with pytest.warns(
        XmtcWarning, match=r"the thing 'join' of the package greedy is ignored: xmtc has a built-in thing"
    ):
        assert list(things) == ["join", "far"]
    with warnings.catch_warnings(action="error"):  # said once
        assert things["join"]("a", "b") == "a/b"
    assert "greedy" not in sys.modules


def test_two_plugins_of_one_name(site: Path) -> None:
    install(site, "one", {"same": "one:x", "mine": "one:x"}, "x = 1\n")
    install(site, "two", {"same": "two:x"}, "x = 2\n")
    things = registry()
    assert things["mine"] == 1
    with pytest.raises(ConfigError, match=r"'same' is provided by (one and two|two and one)\. Uninstall"):
        things["same"]
    assert [name for name, _ in things.loadable() if name in things.plugins] == ["mine"]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import no_such_module\n", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("x = \n", "SyntaxError"),
        ("raise RuntimeError('one\\ntwo')\n", "RuntimeError: one"),
        ("", "AttributeError"),
        ("class x: name = 'another'\n", "its 'name' is 'another'"),
        ("x = 3\n", "has no 'name'"),
    ],
)
def test_a_broken_plugin_breaks_nothing_else(site: Path, code: str, reason: str) -> None:
    install(site, "broken-things", {"x": "broken_things:x"}, code or "y = 1\n")
    things = registry(required=("name",))
    with warnings.catch_warnings(action="error"):
        assert list(things) == ["join", "far", "x"]
        assert things["join"]("a", "b") == "a/b"
        assert "x" not in dict(things.loadable())
    with pytest.raises(ConfigError) as caught:
        things["x"]
    message = str(caught.value)
    assert message.startswith("the thing 'x' of the package broken-things cannot be used (")
    assert reason in message
    assert message.endswith("Update broken-things, or uninstall it.")
    assert message.isprintable()
    sys.modules.pop("broken_things", None)
