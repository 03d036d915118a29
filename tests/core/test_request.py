"""Request types: fields, choices and messages."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pytest

from xmtc.core.errors import ConfigError, DataError, check_positive
from xmtc.core.files import check_output_folder
from xmtc.core.request import Argument, BaseRequest, Option, option_name, request_fields, require_suffix


@dataclass(frozen=True, kw_only=True)
class Group(BaseRequest):
    colour: Annotated[Literal["red", "blue"] | None, Option(names="--paint")] = None
    """Which colour."""


@dataclass(frozen=True, kw_only=True)
class Sample(BaseRequest):
    source: Annotated[Path, Argument("FILE")]
    kind: Annotated[Literal["a", "b"], Option()] = "a"
    count: Annotated[int, Option("N")] = 1
    hidden: int = 0
    group: Group = field(default_factory=Group)

    def check(self) -> None:
        if self.count < 0:
            raise ConfigError("too few.")


def test_fields_as_declared() -> None:
    fields = {each.name: each for each in request_fields(Sample)}
    assert fields["source"].mark == Argument("FILE")
    assert fields["kind"].choices == ("a", "b")
    assert fields["count"].kind is int
    assert fields["hidden"].mark is None
    assert fields["group"].kind is Group
    (colour,) = request_fields(Group)
    assert colour.optional
    assert colour.choices == ("red", "blue")


def test_bad_words_are_refused_under_the_name_of_the_option() -> None:
    with pytest.raises(ConfigError, match=r"^--kind must be a or b\. Got 'c'\.$"):
        Sample(source=Path("x"), kind="c")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^--paint must be red or blue\. Got 'x'\.$"):
        Group(colour="x")  # type: ignore[arg-type]
    assert option_name(Sample, "source") == "FILE"
    assert option_name(Sample, "hidden") == "'hidden'"


def test_the_own_check_runs_too() -> None:
    with pytest.raises(ConfigError, match="too few"):
        Sample(source=Path("x"), count=-1)


def test_requests_are_frozen_and_keyword_only() -> None:
    request = Sample(source=Path("x"))
    with pytest.raises(FrozenInstanceError):
        request.count = 2  # type: ignore[misc]
    with pytest.raises(TypeError):
        Sample(Path("x"))  # type: ignore[misc]


def test_endings_of_output_files() -> None:
    require_suffix(None, ".svg", what="pictures are SVG")
    require_suffix(Path("a.SVG"), ".svg", what="pictures are SVG")
    with pytest.raises(ConfigError, match=r"^a\.png: pictures are SVG\. Use a file name that ends in \.svg\.$"):
        require_suffix(Path("a.png"), ".svg", what="pictures are SVG")


@pytest.mark.parametrize("value", [0, -1, 1.5, "3", True, None])
def test_counts(value: object) -> None:
    check_positive("k", np.int64(3))
    with pytest.raises(ConfigError, match=r"^'k' must be an integer ≥ 1\. Got .*\.$"):
        check_positive("k", value)


def test_output_folders(tmp_path: Path) -> None:
    check_output_folder(tmp_path / "new")
    check_output_folder(tmp_path)
    (tmp_path / "own.txt").touch()
    check_output_folder(tmp_path, lambda path: path.name == "own.txt")
    with pytest.raises(DataError, match=r"contains other files \('own\.txt'\)\. Choose a new or empty folder\.$"):
        check_output_folder(tmp_path)
    with pytest.raises(DataError, match=r"is a file\. Pass a folder for the parts\.$"):
        check_output_folder(tmp_path / "own.txt", use="for the parts")
    with pytest.raises(DataError, match=r"is a file\. Pass a folder\.$"):
        check_output_folder(tmp_path / "own.txt")
