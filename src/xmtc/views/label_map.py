"""The labels of a model on a plane, as one HTML page that needs nothing else: no font, no request to anywhere."""

from __future__ import annotations

import base64
import hashlib
import json
import unicodedata
from collections.abc import Sequence
from html import escape
from string import Template
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xmtc.labels.layout import REGIONS, LabelMap
from xmtc.views.label_map_controls import CONTROLS
from xmtc.views.label_map_drawing import DRAWING

SCRIPT = f'"use strict";\n(() => {{{DRAWING}{CONTROLS}}})();\n'

LONGEST = 160
"""Letters of a name or a key that the page holds."""

# Told apart with and without red-green blindness, and at least 3 : 1 against the paper.
LIGHT = ("#0c79e5", "#e46e00", "#127c52", "#c973c8", "#675413", "#190a88", "#63153e", "#868d94")
DARK = ("#7494d7", "#de7000", "#3ac589", "#ffc8ff", "#f4f058", "#5065ed", "#c2254a", "#8a939c")

_STYLE = Template("""
*{box-sizing:border-box}
:root{color-scheme:light dark;--ink:#1c2126;--faint:#59626b;--line:#dfe3e7;--edge:#7f8891;--paper:#ffffff;
--tint:#f5f7f9;--link:#1f5c9e;$light}
@media(prefers-color-scheme:dark){:root{--ink:#e8ebee;--faint:#a3acb5;--line:#323940;--edge:#77818b;--paper:#14181c;
--tint:#1e2429;--link:#7fb4f0;$dark}}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
[hidden]{display:none!important}
main{display:grid;grid-template:"top" auto "stage" min(62vh,110vw) "rest" auto/minmax(0,1fr)}
header{grid-area:top;padding:1rem 1rem .75rem;position:relative}
h1{font-size:1.35rem;line-height:1.25;margin:0 0 .25rem}
h2{font-size:1.05rem;line-height:1.3;margin:0 0 .25rem}
h1,h2,p,li{overflow-wrap:anywhere}
p{margin:.25rem 0}
.faint,.note{color:var(--faint)}
.small{font-size:.875rem}
label{display:block;font-weight:600;font-size:.9rem;margin:.75rem 0 .25rem}
kbd{font:inherit;font-size:.85em;border:1px solid var(--edge);border-radius:.2rem;padding:0 .3rem}
input{width:100%;font:inherit;color:inherit;background:var(--paper);border:1px solid var(--edge);border-radius:.3rem;
padding:.5rem .65rem}
ul,ol{list-style:none;margin:0;padding:0}
.find{position:relative}
#suggestions{position:absolute;z-index:3;left:0;right:0;top:100%;max-height:min(24rem,50vh);overflow:auto;
background:var(--paper);border:1px solid var(--edge);border-radius:.3rem;box-shadow:0 .3rem 1rem #0004}
#suggestions li,#rest button{display:flex;gap:.5rem;align-items:baseline;width:100%;padding:.42rem .6rem}
#suggestions li{cursor:pointer}
#suggestions [aria-selected=true],#rest button:hover{background:var(--tint)}
#suggestions [aria-selected=true]{outline:2px solid var(--link);outline-offset:-2px}
.name{flex:1;min-width:0;overflow-wrap:anywhere}
.note{font-variant-numeric:tabular-nums;font-size:.875rem}
.swatch{flex:none;width:.7rem;height:.7rem;border-radius:50%}
#found{min-height:1.35rem}
#stage{grid-area:stage;position:relative;overflow:hidden;border:solid var(--line);border-width:1px 0}
canvas{position:absolute;inset:0;width:100%;height:100%;touch-action:none;cursor:grab}
canvas:active{cursor:grabbing}
#tools{position:absolute;right:.6rem;bottom:.6rem;display:flex;gap:.35rem}
#tools button{min-width:2.75rem;height:2.75rem;font:inherit;font-size:1.05rem;color:inherit;background:var(--paper);
border:1px solid var(--edge);border-radius:.3rem;cursor:pointer;padding:0 .6rem}
#tip{position:absolute;z-index:2;pointer-events:none;width:max-content;max-width:min(19rem,calc(100% - 8px));
background:var(--paper);border:1px solid var(--edge);border-radius:.3rem;padding:.5rem .7rem;font-size:.875rem;
line-height:1.4;box-shadow:0 .2rem .8rem #0004}
#tip strong{display:block;overflow-wrap:anywhere}
#tip p{margin:.1rem 0}
#tip li{display:flex;gap:.75rem}
#rest{grid-area:rest;padding:0 .4rem 2rem}
#rest section{padding:1rem 0 .25rem}
#rest section+section{border-top:1px solid var(--line);margin-top:.75rem}
#rest h2,#rest p,#sizes{padding:0 .6rem}
#rest button{font:inherit;color:inherit;text-align:start;background:none;border:0;border-radius:.3rem;cursor:pointer}
#rest button[aria-pressed=true]{background:var(--tint);box-shadow:inset 3px 0 var(--link)}
#rest #more{color:var(--link)}
#sizes li{display:flex;gap:.6rem;align-items:center;min-height:1.7rem}
.dot{background:var(--faint);border-radius:50%;margin:0 .2rem}
:focus-visible{outline:2px solid var(--link);outline-offset:2px}
canvas:focus-visible,#rest button:focus-visible{outline-offset:-2px}
.unseen{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
@media(min-width:56rem){main{height:100vh;grid-template:"top stage" auto "rest stage" minmax(0,1fr)/22rem minmax(0,1fr)}
#rest{overflow:auto}#stage{border-width:0 0 0 1px}header{border-bottom:1px solid var(--line)}}
""")

_BODY = Template("""
<main>
<header>
<h1>$title</h1>
<p class="faint small">$extent</p>
<label for="search">Find a label <span class="faint small">(press <kbd>/</kbd>)</span></label>
<div class="find">
<input id="search" type="search" autocomplete="off" spellcheck="false" role="combobox" aria-expanded="false"
aria-controls="suggestions" aria-autocomplete="list" aria-describedby="found">
<ul id="suggestions" role="listbox" aria-label="Labels found" hidden></ul>
</div>
<p id="found" class="faint small" role="status"></p>
</header>
<div id="stage">
<canvas id="map" tabindex="0" role="application" aria-label="Map of labels. Arrow keys move, plus and minus zoom,
0 shows everything, Enter chooses the label in the middle. All labels are in the lists beside it, too."></canvas>
<div id="tools">
<button id="closer" type="button" aria-label="Zoom in">+</button>
<button id="farther" type="button" aria-label="Zoom out">−</button>
<button id="everything" type="button">All</button>
</div>
<div id="tip" hidden></div>
</div>
<div id="rest">
<noscript><p>The map is drawn by a script within this file. Allow scripts to see it.</p></noscript>
<section aria-label="The chosen label">
<p id="hint" class="faint small">Point at a label, or choose one, to see what is near to it.</p>
<div id="about" hidden>
<h2 id="about-name" dir="auto"></h2>
<p id="about-facts" class="small" dir="auto"></p>
<p id="about-head" class="faint small"></p>
<ol id="about-near"></ol>
</div>
<p id="said" class="unseen" role="status"></p>
</section>
<section aria-labelledby="view-head">
<h2 id="view-head">In view</h2>
<p class="faint small"><span id="view-count" role="status"></span>$order</p>
<ol id="view"></ol>
<button id="more" type="button" hidden>Show more</button>
</section>
<section aria-labelledby="regions-head">
<h2 id="regions-head">Regions</h2>
<p class="faint small">Colours are parts of the map, told by their $region_names. Choose one to see it alone.</p>
<ul id="regions"></ul>
</section>
<section aria-labelledby="reading-head">
<h2 id="reading-head">How to read this</h2>
<p class="small">Each point is a label. Labels that the model holds to be alike stand together; how far apart distant
groups are says little, and neither do the directions. The nearest labels are those with the largest cosine of the
model’s own vectors, so that one of them may stand elsewhere on the map.</p>
$sizes
<p class="small">Drag or use the arrow keys to move, the wheel, two fingers or <kbd>+</kbd> and <kbd>−</kbd> to zoom,
<kbd>0</kbd> to see everything.</p>
</section>
</div>
</main>
""")


def page(shown: LabelMap) -> str:
    """The whole page."""
    script = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{script}'; base-uri 'none'"
    title = escape(_clean(shown.title))
    style = _STYLE.substitute(light=_variables(LIGHT), dark=_variables(DARK))
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            f"<title>{title}</title>",
            f"<style>{style}</style>",
            "</head>",
            "<body>",
            _BODY.substitute(title=title, **_words(shown)).strip(),
            f'<script id="data" type="application/json">{_json(_content(shown))}</script>',
            f"<script>{SCRIPT}</script>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _variables(palette: Sequence[str]) -> str:
    return ";".join(f"--region-{number}:{colour}" for number, colour in enumerate(palette))


def _words(shown: LabelMap) -> dict[str, str]:
    """What the page says about the model and its labels."""
    count, everything = len(shown.names), len(shown.names) + shown.left_out
    labels = f"{count:,} label{'' if count == 1 else 's'}"
    if shown.left_out:
        labels = f"The {count:,} most frequent of {everything:,} labels"
    known = shown.documents is not None
    return {
        "extent": f"{labels} of a {escape(_clean(shown.model))} model, by the vectors it keeps of them.",
        "order": ", the most frequent first, with their training documents" if known else "",
        "region_names": "most frequent labels" if known else "first labels",
        "sizes": '<p class="small">Larger points have more training documents:</p>\n<ul id="sizes" class="small"></ul>'
        if known
        else "",
    }


def _content(shown: LabelMap) -> dict[str, Any]:
    """All labels, the most frequent first, in little room: what the script reads."""
    count = len(shown.names)
    documents = np.zeros(count, dtype=np.int64) if shown.documents is None else np.asarray(shown.documents)
    order = np.argsort(-documents, kind="stable")
    rank = np.empty(count, dtype=np.int64)
    rank[order] = np.arange(count)
    names = [_clean(shown.names[label].strip() or shown.keys[label]) for label in order]
    keys = [_clean(shown.keys[label]) for label in order]
    other_keys = ["" if key == name else key for key, name in zip(keys, names, strict=True)]
    regions = np.where(shown.regions < 0, REGIONS, shown.regions)[order]
    # A label without a vector is near to none, which the page is told by its own number.
    near = np.where(shown.regions[order, None] < 0, np.arange(count)[:, None], rank[shown.near[order]])
    wide = count > 1 << 16
    return {
        "names": names,
        "keys": other_keys if any(other_keys) else None,
        "places": _packed(_quantised(shown.places[order]), "<u2"),
        "documents": None if shown.documents is None else _packed(np.minimum(documents[order], 2**32 - 1), "<u4"),
        "regions": _packed(regions, "u1"),
        "width": int(shown.near.shape[1]),
        "wide": wide,
        "near": _packed(near, "<u4" if wide else "<u2"),
        "cosines": _packed(np.rint(100 * np.clip(shown.cosines[order], -1, 1)), "i1"),
    }


def _quantised(places: NDArray[np.float32]) -> NDArray[np.float64]:
    """Places as whole numbers below 2¹⁶, as wide as high; the smaller extent in the middle."""
    if not len(places):
        return np.zeros((0, 2))
    low, high = places.min(axis=0).astype(np.float64), places.max(axis=0).astype(np.float64)
    extent = max(float((high - low).max()), 1e-9)
    return np.asarray(np.rint(65535 * np.clip((places - (low + high) / 2) / extent + 0.5, 0, 1)))


def _packed(numbers: NDArray[Any], kind: str) -> str:
    return base64.b64encode(np.ascontiguousarray(numbers).astype(kind).tobytes()).decode()


def _json(content: dict[str, Any]) -> str:
    """JSON that cannot end the script that it stands in."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    for char in ("<", ">", "&", "\u2028", "\u2029"):
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def _clean(text: str) -> str:
    """Text of others on one line, not too long; control characters and halves of characters become visible."""
    line = " ".join(text[: 4 * LONGEST].split())
    line = line if len(line) <= LONGEST else line[: LONGEST - 1].rstrip() + "…"
    return "".join("\ufffd" if unicodedata.category(char) in ("Cc", "Cs") else char for char in line)
