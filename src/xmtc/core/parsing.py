"""Parse JSON and TOML of unknown origin: depth and numbers are bounded, and every fault is a `ValueError`."""

from __future__ import annotations

import json
import math
import tomllib
from pathlib import Path
from typing import Any, NoReturn

MOST_LEVELS = 64
"""Maximum depth of nested lists and objects; deeper values exceed Python's stack in later steps."""
_MOST_DOTS = 2000
_INTEGERS = range(-(2**63), 2**64)
_TOO_DEEP = f"more than {MOST_LEVELS} nested levels"


def parse_json(content: str | bytes, *, any_number: bool = False) -> Any:
    """Parse JSON; raise `ValueError` for invalid JSON, deep nesting, and numbers beyond 64 bits.

    With `any_number`, infinite numbers, NaN and integers of up to 4,300 digits are accepted.
    """
    try:
        if any_number:
            value = json.loads(content)
        else:
            value = json.loads(content, parse_int=_integer, parse_float=_finite, parse_constant=_refuse)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    brackets = content.count("[") + content.count("{") if isinstance(content, str) else MOST_LEVELS + 1
    if brackets > MOST_LEVELS:
        _check_depth(value)
    return value


def read_json(path: Path, *, any_number: bool = False) -> Any:
    """Parse a JSON file as `parse_json` does; raise `OSError` if it cannot be read."""
    return parse_json(path.read_text(encoding="utf-8"), any_number=any_number)


def parse_toml(content: str, *, any_number: bool = False) -> dict[str, Any]:
    """Parse TOML; raise `ValueError` for invalid TOML, deep nesting, and numbers beyond 64 bits.

    With `any_number`, integers of any size are accepted.
    """
    if any(line.count(".") > _MOST_DOTS for line in content.splitlines()):
        raise ValueError(_TOO_DEEP)  # a key a.b.c…, for which tomllib needs quadratic memory
    try:
        value = tomllib.loads(content, parse_float=_toml_float)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    _check_depth(value, integers=not any_number)
    return value


def _integer(digits: str) -> int:
    if len(digits) > 20 or (number := int(digits)) not in _INTEGERS:
        raise ValueError(f"the number {_short(digits)} exceeds 64 bits")
    return number


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"the number {_short(digits)} exceeds 64 bits")
    return number


def _toml_float(digits: str) -> float:
    """Unlike JSON, TOML has words for infinity and NaN; whether they are allowed depends on the setting."""
    return float(digits) if digits.lstrip("+-") in ("inf", "nan") else _finite(digits.replace("_", ""))


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a JSON number")


def _short(digits: str) -> str:
    return digits if len(digits) <= 24 else digits[:20] + "…"


def _check_depth(value: Any, integers: bool = False) -> None:
    """Raise `ValueError` if containers are nested too deeply or, if asked, an integer exceeds 64 bits."""
    level, depth = [value], 0
    while level:
        inner: list[Any] = []
        for item in level:
            if isinstance(item, (dict, list)):
                if depth == MOST_LEVELS:
                    raise ValueError(_TOO_DEEP)
                inner += item.values() if isinstance(item, dict) else item
            elif integers and isinstance(item, int) and item not in _INTEGERS:
                raise ValueError("an integer exceeds 64 bits")
        level, depth = inner, depth + 1
