"""Render HTML pages from the templates in `templates/`; each is self-contained and loads no external files."""

from __future__ import annotations

import base64
import hashlib
import unicodedata
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from xmtc.views.theme import DARK, LIGHT, css_variables


def render(template: str, **values: Any) -> str:
    """Render a template; all values except Markup are escaped."""
    return _environment().get_template(template).render(values)


def script(*names: str) -> tuple[Markup, str]:
    """Combine JavaScript files into one script with its own scope; returns it and its Content-Security-Policy hash."""
    loader = _environment().loader
    assert loader is not None
    sources = [loader.get_source(_environment(), name)[0] for name in names]
    text = '"use strict";\n(() => {\n' + "".join(sources) + "})();\n"
    return Markup(text), base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("xmtc.views"),
        autoescape=True,
        finalize=_printable,
        keep_trailing_newline=True,
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters["several"] = several
    environment.globals.update(light=Markup(css_variables(LIGHT)), dark=Markup(css_variables(DARK)))
    return environment


def several(count: int, thing: str) -> str:
    """A count with its noun: 1 label, 2,000 labels."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def _printable(value: Any) -> Any:
    """Replace control characters, which HTML does not allow, by a visible character."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    kept = (char if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cs") else "\ufffd" for char in value)
    return "".join(kept)
