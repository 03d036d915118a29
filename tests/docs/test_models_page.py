"""docs/models.md says what the settings say."""

from __future__ import annotations

from pathlib import Path

from tools.make_docs import TARGET, page


def test_page_is_up_to_date() -> None:
    assert Path(TARGET).read_text(encoding="utf-8") == page(), "run: .venv/bin/python tools/make_docs.py"
