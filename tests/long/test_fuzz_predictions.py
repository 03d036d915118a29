"""Files of predictions, whatever their bytes: a sound ranking or a message of one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.formats import often
from tests.support.fuzzing import EDITS, mutated
from tests.support.predictions import BY_ORDER, NAMES, SOUP, WITH_IDS, check_sound_or_refused, our_parts
from xmtc.data.predictions import FORMATS

pytestmark = pytest.mark.long

WHOLE = [form for form in (*WITH_IDS, *BY_ORDER) if form is not our_parts]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("predictions")


@often(2000)
@given(st.sampled_from(NAMES), st.sampled_from([None, *FORMATS]), SOUP | st.binary(max_size=200))
def test_soup(folder: Path, name: str, file_format: str | None, content: bytes) -> None:
    (folder / name).write_bytes(content)
    check_sound_or_refused(folder / name, file_format)


@pytest.fixture(scope="module")
def whole(folder: Path) -> dict[str, bytes]:
    """A good file of each form, by the name that it is to bear."""
    found = {}
    for form in WHOLE:
        path = form(folder)
        found[f"{form.__name__}-{path.name}"] = path.read_bytes()
    return found


@often(3000)
@given(st.data(), EDITS, st.none() | st.sampled_from(FORMATS))
def test_mutated(folder: Path, whole: dict[str, bytes], data: st.DataObject, edits: list, kind: str | None) -> None:
    name = data.draw(st.sampled_from(sorted(whole)))
    (folder / name).write_bytes(mutated(whole[name], edits))
    check_sound_or_refused(folder / name, kind if data.draw(st.integers(0, 4)) == 0 else None)
