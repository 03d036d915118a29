"""Common theme of plots and pages: colours, fonts and line styles."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from xmtc.core.errors import missing_extra

Scheme = dict[str, str | tuple[str, ...]]
"""CSS variables of a page: single colours, or numbered series of colours."""

# Shades from weak to strong; text in `ink` is readable on all of them. Region colours of the label map are
# distinguishable with red-green colour blindness and have a contrast of at least 3:1; the last one is for labels
# without a vector.
LIGHT: Scheme = {
    "ink": "#1c2126",
    "faint": "#59626b",
    "paper": "#ffffff",
    "tint": "#f5f7f9",
    "line": "#dfe3e7",
    "edge": "#7f8891",
    "link": "#1f5c9e",
    "for": ("#e6eff8", "#cbdff1", "#a9cae8", "#84b3dd", "#609dd0"),
    "against": ("#fbebe2", "#f6d5c2", "#f0b99c", "#e79c76", "#dc8053"),
    "region": ("#0c79e5", "#e46e00", "#127c52", "#c973c8", "#675413", "#190a88", "#63153e", "#868d94"),
}
DARK: Scheme = {
    "ink": "#eceff1",
    "faint": "#a3adb6",
    "paper": "#15191d",
    "tint": "#1e2429",
    "line": "#333a41",
    "edge": "#77818b",
    "link": "#8abcf2",
    "for": ("#1b2b3a", "#1e3a54", "#214a6f", "#235b8b", "#2568a0"),
    "against": ("#37261d", "#4d2f20", "#673922", "#824323", "#984b22"),
    "region": ("#7494d7", "#de7000", "#3ac589", "#ffc8ff", "#f4f058", "#5065ed", "#c2254a", "#8a939c"),
}

# Plots have a white background, also in dark pages.
FONT = "Helvetica, Arial, 'DejaVu Sans', sans-serif"
FILL, ACCENT = "#8fb3d9", "#a33b12"
INK, FAINT, GRID = "#222222", "#5c5c5c", "#e3e3e3"
COLOURS = ("#2f6db3", "#a33b12", "#3b8256", "#7a5aa8", "#9a7410", "#2b8592", "#b24a7d", "#5f6670")
DASHES: tuple[Any, ...] = ("solid", (0, (4, 1.7)), (0, (1.2, 1.7)), (0, (5, 1.7, 1.2, 1.7)))
"""Used in turn when the colours repeat."""
MARKERS = ("o", "s", "^", "D", "v")

PLOT_STYLE: dict[Any, Any] = {
    "figure.dpi": 72,  # a point is a pixel of the SVG
    "figure.constrained_layout.w_pad": 0.1,
    "figure.constrained_layout.h_pad": 0.08,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # used to measure text; the SVG names FONT, which is not wider
    "font.size": 11,
    "svg.fonttype": "none",
    "svg.hashsalt": "xmtc",
    "pdf.fonttype": 42,
    "text.color": INK,
    "text.parse_math": False,  # names may contain a $
    "axes.titlesize": 13,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
    "axes.labelsize": 12,
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "axes.edgecolor": INK,
    "axes.linewidth": 1.0,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "grid.color": GRID,
    "grid.linewidth": 1.0,
    "xtick.color": INK,
    "ytick.color": INK,
    "ytick.left": False,
    "xtick.major.size": 4,
    "xtick.major.width": 1.0,
    "xtick.minor.bottom": False,
    "lines.linewidth": 1.8,
    "lines.solid_joinstyle": "round",
    "legend.frameon": False,
    "legend.fontsize": 12,
    "legend.borderaxespad": 0,
    "legend.borderpad": 0.2,
    "legend.handlelength": 2.0,
    "legend.columnspacing": 1.2,
}


def check_matplotlib() -> None:
    """Raise if matplotlib is not installed; call this before any work is done."""
    if find_spec("matplotlib") is None:
        raise missing_extra("plots require matplotlib", "plots")


def colour(number: int) -> str:
    """Colour of series `number`."""
    return COLOURS[number % len(COLOURS)]


def dashes(number: int) -> Any:
    """Dash pattern of series `number`."""
    return DASHES[number // len(COLOURS) % len(DASHES)]


def marker(number: int) -> str:
    """Marker of series `number`."""
    return MARKERS[number % len(MARKERS)]


def css_variables(scheme: Scheme) -> str:
    """A scheme as CSS: `--ink:#1c2126;…`, series as `--for1:…`; regions are numbered from 0."""
    pairs: list[tuple[str, str]] = []
    for name, colours in scheme.items():
        if isinstance(colours, str):
            pairs.append((name, colours))
        else:
            first, dash = (0, "-") if name == "region" else (1, "")
            pairs += [(f"{name}{dash}{number}", shade) for number, shade in enumerate(colours, start=first)]
    return "".join(f"--{name}:{shade};" for name, shade in pairs)
