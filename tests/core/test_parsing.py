"""JSON and TOML of unknown origin: every fault is a ValueError with a short message."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from xmtc.core.parsing import MOST_LEVELS, parse_json, parse_toml, read_json

DEEP = MOST_LEVELS + 1


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "[" * 100_000 + "]" * 100_000,
        "[" * DEEP + "]" * DEEP,
        '{"a":' * DEEP + "1" + "}" * DEEP,
        '[{"a":' * DEEP + "1" + "}]" * DEEP,
        "9" * 5000,
        '{"a": ' + "-" + "9" * 5000 + "}",
        "[1,",
        "",
    ],
)
@pytest.mark.parametrize("any_number", [False, True])
@pytest.mark.parametrize("as_bytes", [False, True])
def test_json_faults_are_value_errors(text: str, any_number: bool, as_bytes: bool) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parse_json(text.encode() if as_bytes else text, any_number=any_number)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("text", ["1e999", "-1e999", "NaN", "Infinity", "-Infinity", str(2**64), str(-(2**63) - 1)])
def test_numbers_beyond_64_bits_only_if_asked(text: str) -> None:
    with pytest.raises(ValueError, match=r"64 bits|not a JSON number"):
        parse_json(f'{{"a": [{text}]}}')
    assert repr(parse_json(text, any_number=True)) == repr(json.loads(text))


@pytest.mark.parametrize(
    "value",
    [[0, -1, 1.5, 2**64 - 1, -(2**63), 1e308, True, None], {"a": {"b": ["[" * 200]}}, [[]] * 200, "{" * 200],
)
def test_valid_json_is_unchanged(value: object, tmp_path: Path) -> None:
    path = tmp_path / "value.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    assert read_json(path) == read_json(path, any_number=True) == parse_json(path.read_bytes()) == value


def test_the_deepest_allowed_json() -> None:
    text = "[" * MOST_LEVELS + "]" * MOST_LEVELS
    assert parse_json(text) == json.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 100_000,
        "a = " + "[" * DEEP + "]" * DEEP,
        "a" + ".a" * 100_000 + " = 1",
        "a" + ".a" * DEEP + " = 1",
        "[a" + ".a" * DEEP + "]",
        "a = " + "9" * 5000,
        f"a = {2**64}",
        "a = 0x" + "f" * 5000,
        "a = 1e999",
        "a = ",
    ],
)
def test_toml_faults_are_value_errors(text: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parse_toml(text)
    assert len(str(caught.value)) < 200


def test_valid_toml_is_unchanged() -> None:
    values = parse_toml('a = inf\nb = 1_000.5\nc = [1, 2.5e-3, true, 1979-05-27]\n[d.e]\nf = "' + "." * 500 + '"')
    assert (values["a"], values["b"], values["c"][:3]) == (float("inf"), 1000.5, [1, 0.0025, True])
    assert values["d"]["e"]["f"] == "." * 500
