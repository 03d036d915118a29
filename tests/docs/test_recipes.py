"""Every shipped recipe says what it is for, and all it sets is taken."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from xmtc import recipes
from xmtc.core.config import flat, read_recipe, to_mapping
from xmtc.models.registry import available, model_class

NAMES = recipes.shipped()


@pytest.mark.parametrize("name", NAMES)
def test_its_settings_are_those_of_the_model(name: str) -> None:
    path = recipes.find_recipe(name)
    model, settings = read_recipe(path)
    assert model == path.stem.partition("-")[0]  # a variant is named behind a hyphen
    if not available(model):
        pytest.skip(f"{model} needs an extra")
    taken: dict[str, Any] = flat(to_mapping(model_class(model)(**settings).config))
    for key, value in flat(settings).items():
        assert taken[key] == value, key


@pytest.mark.parametrize("name", NAMES)
def test_it_says_what_it_is_for(name: str) -> None:
    about = tomllib.loads(recipes.find_recipe(name).read_text(encoding="utf-8"))["about"]
    assert about.endswith(".")
    assert "\n" not in about
