"""An explanation as an HTML page: the text with its words shaded, and the evidence in tables."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from html import escape

from xmtc.cli.shading import STEPS, Stretch, levels, stretches
from xmtc.cli.show import NOTHING, shortened
from xmtc.core.explanation import (
    AspectEvidence,
    Explanation,
    GroupEvidence,
    MemberEvidence,
    NeighbourEvidence,
    PathStep,
    TokenEvidence,
)

Scheme = dict[str, str | tuple[str, ...]]

LIGHT: Scheme = {
    "ink": "#1c2126",
    "faint": "#59626b",
    "paper": "#ffffff",
    "line": "#dfe3e7",
    "for": ("#e6eff8", "#cbdff1", "#a9cae8", "#84b3dd", "#609dd0"),
    "against": ("#fbebe2", "#f6d5c2", "#f0b99c", "#e79c76", "#dc8053"),
}
DARK: Scheme = {
    "ink": "#eceff1",
    "faint": "#a3adb6",
    "paper": "#15191d",
    "line": "#333a41",
    "for": ("#1b2b3a", "#1e3a54", "#214a6f", "#235b8b", "#2568a0"),
    "against": ("#37261d", "#4d2f20", "#673922", "#824323", "#984b22"),
}
MOST_ROWS = 20

_STYLE = """
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);
font:16px/1.6 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:46rem;margin:0 auto;padding:2.5rem 1.25rem 4rem}
h1{font-size:1.6rem;line-height:1.25;margin:0;overflow-wrap:anywhere}
h2{font-size:1rem;margin:2.25rem 0 .5rem}
p{margin:.25rem 0}
.faint,th,td.place,caption{color:var(--faint)}
.text{white-space:pre-wrap;overflow-wrap:anywhere;font-size:1.1rem;line-height:1.85;margin:1.5rem 0 1rem}
mark{color:inherit;background:none;border-radius:.2em;padding:.12em 0;
-webkit-box-decoration-break:clone;box-decoration-break:clone}
.legend{display:flex;flex-wrap:wrap;gap:.35rem 1.5rem;font-size:.85rem;color:var(--faint)}
.legend span{display:inline-flex;align-items:center;gap:.5rem}
.legend b{display:inline-flex}
.legend mark{display:inline-block;width:1.5rem;height:.8rem;padding:0;border-radius:0}
table{border-collapse:collapse;width:100%;font-size:.95rem}
th{text-align:left;font-weight:normal;font-size:.85rem}
th,td{padding:.3rem .9rem .3rem 0;border-bottom:1px solid var(--line);vertical-align:top;overflow-wrap:anywhere}
td.number,th.number{width:1%;text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap;overflow-wrap:normal}
th:last-child,td:last-child{padding-right:0}
td.bar{width:38%}
td.bar i{display:block;height:.7rem;margin-top:.41rem;border-radius:.2em}
table+p{margin-top:.75rem;font-size:.85rem}
td.place{white-space:nowrap;font-variant-numeric:tabular-nums}
@media(max-width:36rem){td.bar{width:18%}}
@media print{mark,td.bar i{-webkit-print-color-adjust:exact;print-color-adjust:exact}}
"""


def page(found: Explanation) -> str:
    """One HTML file that needs nothing else: no script, no font, no picture from elsewhere."""
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{_safe(shortened(found.label, 90))}: why this label</title>",
        f"<style>{_colours()}{_STYLE}</style>",
        "</head>",
        "<body>",
        "<main>",
        f'<h1 lang="" dir="auto">{_safe(found.label)}</h1>',
        f'<p class="faint">score {found.score:.4f}</p>',
        *_text(found),
        *_evidence_table(found),
    ]
    if len(found.path) > 1:
        parts += ["<h2>On the way down the tree that finds it most likely</h2>", *_path(found.path)]
    return "\n".join([*parts, "</main>", "</body>", "</html>", ""])


def _colours() -> str:
    light, dark = (_variables(scheme) for scheme in (LIGHT, DARK))
    shades = "".join(
        f".{name}{level}{{background:var(--{name}{level})}}"
        for name in ("for", "against")
        for level in range(1, STEPS + 1)
    )
    return f"\n:root{{color-scheme:light dark;{light}}}\n@media(prefers-color-scheme:dark){{:root{{{dark}}}}}\n{shades}"


def _variables(scheme: Scheme) -> str:
    pairs: list[tuple[str, str]] = []
    for name, colour in scheme.items():
        if isinstance(colour, str):
            pairs.append((name, colour))
        else:
            pairs += [(f"{name}{level}", shade) for level, shade in enumerate(colour, start=1)]
    return "".join(f"--{name}:{colour};" for name, colour in pairs)


def _safe(text: str) -> str:
    """Text between tags or in an attribute; control characters, which HTML has no place for, become visible."""
    shown = (char if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cs") else "\ufffd" for char in text)
    return escape("".join(shown))


def _look(level: int) -> str:
    return f"{'for' if level > 0 else 'against'}{abs(level)}"


def _text(found: Explanation) -> list[str]:
    """The whole text; what weighs anything tells its weight to the mouse."""
    if not found.text.strip():
        return ['<p class="faint">The text is empty.</p>']
    cut = stretches(found)
    shades = levels(cut)
    marked = []
    for stretch, level in zip(cut, shades, strict=True):
        words = _safe(found.text[stretch.start : stretch.end].replace("\r\n", "\n").replace("\r", "\n"))
        if stretch.parts:
            look = f' class="{_look(level)}"' if level else ""
            words = f'<mark{look} title="{_safe(_tip(stretch))}">{words}</mark>'
        marked.append(words)
    return [f'<div class="text" lang="" dir="auto">{"".join(marked)}</div>', *_legend(shades, found.shares)]


def _tip(stretch: Stretch) -> str:
    """The weight, and where several pieces of evidence overlap, what it is made of."""
    if len(stretch.parts) == 1:
        return f"{stretch.weight:+.4f}"
    parts = sorted(stretch.parts, key=lambda part: (part.end - part.start, part.start))
    return f"{stretch.weight:+.4f} = {', '.join(f'{part.text} {part.weight:+.4f}' for part in parts)}"


def _legend(shades: Sequence[int], shares: bool) -> list[str]:
    if not any(shades):
        return []
    weak, strong = ("little", "much") if shares else ("weak", "strong")
    sides = [(1, "attention" if shares else "speaks for the label")] if max(shades) > 0 else []
    if min(shades) < 0:
        sides.append((-1, "speaks against it"))
    told = []
    for sign, words in sides:
        ramp = "".join(f'<mark class="{_look(sign * level)}"></mark>' for level in range(1, STEPS + 1))
        told.append(f"<span>{words}: {weak} <b>{ramp}</b> {strong}</span>")
    return [f'<p class="legend">{"".join(told)}</p>']


def _evidence_table(found: Explanation) -> list[str]:
    if not found.evidence and not found.constant:
        return [f'<p class="faint">{NOTHING.capitalize()}.</p>']
    if found.kind == "tokens":
        title = "Where the model looks" if found.shares else "The strongest words"
        return [f"<h2>{title}</h2>", *_tokens(found)]
    if found.kind == "path":
        steps = [item for item in found.evidence if isinstance(item, PathStep)]
        return ["<h2>On the way down the tree</h2>", *_path(steps)]
    if found.kind == "neighbours":
        near = [item for item in found.evidence if isinstance(item, NeighbourEvidence)]
        rows = [
            [
                f"{item.similarity:.4f}",
                "yes" if item.holds else "no",
                f"{100 * item.share:.1f} %" if item.holds else "",
                item.id,
                item.snippet,
                ", ".join(item.labels),
            ]
            for item in near
        ]
        own = f'<p class="faint">{found.constant:.4f} of the score is the label\'s own, the rest is the vote.</p>'
        return [
            "<h2>The nearest training documents</h2>",
            *([own] if found.constant else []),
            *_table(["similarity", "has it", "share of the vote", "document", "text", "labels"], rows),
        ]
    if found.kind == "groups":
        return _groups(found)
    members = [item for item in found.evidence if isinstance(item, MemberEvidence)]
    rows = [[f"{item.score:.4f}", item.model, f"{100 * item.share:.0f} %"] for item in members]
    return ["<h2>The models behind it</h2>", *_table(["score", "model", "share of the answer"], rows)]


def _groups(found: Explanation) -> list[str]:
    """Aspects of the text, then related labels, under bars of one scale."""
    aspects = [item for item in found.evidence if isinstance(item, AspectEvidence)]
    groups = [item for item in found.evidence if isinstance(item, GroupEvidence)]
    peak = max([0.0, *(abs(item.weight) for item in aspects), *(abs(item.weight) for item in groups)])
    parts = []
    for title, what, rows in (
        ("Aspects of the text", "aspect", [(str(item.aspect), item.weight, item.attention) for item in aspects]),
        ("Related labels", "label", [(item.label, item.weight, item.attention) for item in groups]),
    ):
        if not rows:
            continue
        parts += [f"<h2>{title}</h2>", "<table>"]
        parts.append(f'<tr><th class="number">adds</th><th></th><th>{what}</th><th class="number">attention</th></tr>')
        for name, weight, attention in rows:
            parts.append(
                f'<tr><td class="number">{weight:+.4f}</td>{_bar(weight, peak)}'
                f'<td lang="" dir="auto">{_safe(name)}</td><td class="number">{100 * attention:.1f} %</td></tr>'
            )
        parts.append("</table>")
    return [*parts, '<p class="faint">What one adds: the score before the sigmoid, less what it is without it.</p>']


def _bar(weight: float, peak: float) -> str:
    """A cell with a bar as long as a weight, in the colour of its side."""
    length = 100 * abs(weight) / peak if peak else 0.0
    return f'<td class="bar"><i class="{_look(4 if weight > 0 else -4)}" style="width:{length:.1f}%"></i></td>'


def _tokens(found: Explanation) -> list[str]:
    """The strongest words for or against, with a bar as long as their weight."""
    tokens = [item for item in found.evidence if isinstance(item, TokenEvidence)]
    tokens.sort(key=lambda item: (-abs(item.weight), item.start))
    peak = max((abs(item.weight) for item in tokens), default=0.0)
    measure = "share" if found.shares else "weight"
    head = f'<tr><th class="number">{measure}</th><th></th><th>words</th><th>characters</th></tr>'
    parts = ["<table>", head]
    if found.constant:
        parts.append(
            f'<tr><td class="number">{found.constant:+.4f}</td><td class="bar"></td>'
            '<td class="faint" colspan="2">before any word is read</td></tr>'
        )
    for item in tokens[:MOST_ROWS]:
        parts.append(
            f'<tr><td class="number">{item.weight:+.4f}</td>{_bar(item.weight, peak)}'
            f'<td lang="" dir="auto">{_safe(item.text)}</td><td class="place">{item.start}–{item.end}</td></tr>'
        )
    parts.append("</table>")
    more = len(tokens) - MOST_ROWS
    return [*parts, f'<p class="faint">… and {more:,} more</p>'] if more > 0 else parts


def _path(steps: Iterable[PathStep]) -> list[str]:
    rows = [[f"{step.probability:.4f}", str(step.depth), ", ".join(step.labels)] for step in steps]
    return _table(["probability", "level", "labels below, the most frequent first"], rows)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table whose first column holds numbers."""

    def line(cells: Sequence[str], kind: str) -> str:
        looks = [' class="number"', *([' lang="" dir="auto"' if kind == "td" else ""] * (len(cells) - 1))]
        drawn = (f"<{kind}{look}>{_safe(cell)}</{kind}>" for look, cell in zip(looks, cells, strict=True))
        return f"<tr>{''.join(drawn)}</tr>"

    return ["<table>", line(header, "th"), *(line(row, "td") for row in rows), "</table>"]
