"""Matplotlib plots in a common style, as SVG (also for embedding in pages), PNG or PDF. Output is deterministic."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from xmtc.core.errors import ConfigError, shown
from xmtc.core.files import replace_file
from xmtc.views.svg import compact_svg, gid
from xmtc.views.theme import FAINT, PLOT_STYLE, check_matplotlib, colour, marker

try:
    import matplotlib
except ImportError:
    check_matplotlib()
    raise

# Other modules import these from here, so that the install hint above comes first.
from matplotlib.axes import Axes as Axes
from matplotlib.figure import Figure as Figure
from matplotlib.patches import Patch as Patch
from matplotlib.ticker import FuncFormatter as FuncFormatter
from matplotlib.ticker import LogLocator, NullLocator
from matplotlib.ticker import MaxNLocator as MaxNLocator
from matplotlib.transforms import Bbox as Bbox

_FORMATS = (".svg", ".png", ".pdf")


def check_plot_file(path: Path | None) -> None:
    """Refuse a file name whose extension is not a plot format."""
    if path is not None and path.suffix.lower() not in _FORMATS:
        raise ConfigError(f"{path}: unsupported plot format. Use the extension .svg, .png or .pdf.")


@contextmanager
def plot_style() -> Iterator[None]:
    """Apply the common style and ignore the user's matplotlib settings; usable as a decorator."""
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # an SVG is rendered with the viewer's fonts
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(PLOT_STYLE)
        yield


@dataclass(frozen=True)
class Plot:
    """A figure with its title and a text description for screen readers."""

    figure: Figure
    title: str
    description: str = ""

    def svg(self) -> str:
        """Render as an SVG element without ids, so that a page can contain several."""
        written = self._saved("svg", dict.fromkeys(("Creator", "Date", "Format", "Type")))
        width, height = (round(72 * inches) for inches in self.figure.get_size_inches())
        return compact_svg(written, width, height, self.title, self.description)

    def save(self, path: Path) -> None:
        """Write the plot to a file in the format of its extension."""
        kind = path.suffix.lower().removeprefix(".")
        content = self.svg().encode() if kind == "svg" else self._saved(kind, {"pdf": {"CreationDate": None}}.get(kind))
        with replace_file(path) as stream:
            stream.write(content)

    def _saved(self, kind: str, metadata: dict[str, None] | None) -> bytes:
        stream = BytesIO()
        with plot_style():
            self.figure.savefig(stream, format=kind, metadata=metadata, dpi=72 if kind == "svg" else 144)
        return stream.getvalue()


# ---- drawing helpers


def new_figure(width: int, height: int) -> Figure:
    """Create a figure; the size is in pixels."""
    return Figure(figsize=(width / 72, height / 72), layout="constrained")


def draw_points(
    axes: Axes, places: Sequence[tuple[float, float]], number: int, tips: Sequence[str], *, size: float, **look: Any
) -> None:
    """Draw the points of a series; in an SVG each has a tooltip."""
    default: dict[str, Any] = {"color": colour(number), "marker": marker(number), "kind": "point"}
    look = default | {"zorder": 3, "linewidth": 0} | look
    across, upright = [x for x, _ in places], [y for _, y in places]
    axes.scatter(across, upright, s=(2 * size) ** 2, gid=gid(look.pop("kind"), tips), **look)


def write_above(axes: Axes, words: str, height: int, **look: Any) -> None:
    """Write a line of text between the axes and their title, `height` pixels above the axes."""
    look = {"color": FAINT, "xycoords": "axes fraction", "textcoords": "offset points"} | look
    axes.annotate(words, (0, 1), (0, height), **look)


def add_legend(figure: Figure, axes: Axes, title: str, most_columns: int = 4) -> None:
    """Add title and legend above the axes, in as many columns as fit; the figure grows by their height."""
    handles, names = axes.get_legend_handles_labels()
    width, height = figure.get_size_inches()
    for columns in range(min(len(names), most_columns), 0, -1):
        legend = figure.legend(handles, names, loc="outside upper left", ncols=columns, title=title, alignment="left")
        legend.get_title().set(fontsize=13, fontweight="bold")
        box = legend.get_window_extent()
        if columns == 1 or box.width <= 72 * width - 8:
            break
        legend.remove()
    figure.set_size_inches(width, height + box.height / 72)


def logarithmic(axis: Any) -> None:
    """Set the ticks of a logarithmic axis at powers of ten, and at 2 and 5 times these if the axis is short."""
    low, high = sorted(axis.get_view_interval())
    axis.set_major_locator(LogLocator(10, subs=(1, 2, 5) if high < 300 * low else (1,), numticks=11))
    axis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axis.set_minor_locator(NullLocator())


def even_ticks(axis: Any, most: int = 7) -> None:
    """Set ticks at round numbers, formatted briefly."""
    axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))


def short(value: float) -> str:
    """Format an axis number: 0.05, 20, 1k."""
    return short_number(int(value)) if value >= 1000 else f"{value:.6g}"


def short_number(value: int) -> str:
    """Format an integer: 1, 10, 100, 1k, 2.5M."""
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if value >= size:
            return f"{float(f'{value / size:.3g}'):g}{letter}"
    return str(value)


def file_title(name: str) -> str:
    """Shorten a file name to fit on a line, keeping its end."""
    return shown(name if len(name) <= 48 else "…" + name[-47:])
