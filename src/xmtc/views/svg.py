"""Compact the SVG that matplotlib writes and remove its ids, so that a page can contain many plots.

An artist with gid `kind|tip` becomes an element of class `kind` with the tip as its title, which browsers show as a
tooltip. An artist with several shapes has one tip per shape.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import accumulate, zip_longest
from xml.etree.ElementTree import Element, SubElement, fromstring, tostring

from xmtc.core.errors import shown
from xmtc.views.theme import FONT, INK

_NAMESPACE = "http://www.w3.org/2000/svg"
_TIP_SEPARATOR = "\u2028"  # not printable, so no tip contains it
_NUMBER, _FRACTION = re.compile(r"-?\d+(?:\.\d+)?"), re.compile(r"-?\d+\.\d+")
_GAPS = re.compile(r"\s*([A-Za-z])\s*")
_PLACES = ("x", "y", "width", "height", "transform")
_ROOT_STYLE = {"font-family": None, "stroke-linejoin": None, "stroke-linecap": None, "font-size": "11px", "fill": INK}


def gid(kind: str, tips: Sequence[str] = ()) -> str:
    """The gid that gives an artist a class and tooltips for its shapes."""
    return f"{kind}|{_TIP_SEPARATOR.join(shown(tip, 500) for tip in tips)}"


def compact_svg(written: bytes, width: int, height: int, title: str, description: str) -> str:
    """Convert SVG written by matplotlib to a compact SVG of the given size in pixels."""
    root = fromstring(written)
    drawn = _sheet(width, height, title)
    drawn.attrib |= {"font-family": FONT, "font-size": "11px", "fill": INK, "stroke-linejoin": "round"}
    if description:
        SubElement(drawn, "desc").text = shown(description, 10_000)
    symbols = {each.get("id", ""): each for each in root.iter() if each.get("id")}
    for child in root:
        _add(child, drawn, symbols)
    return tostring(drawn, encoding="unicode").replace(" />", "/>") + "\n"


def stacked(images: Sequence[str]) -> str:
    """Combine several SVG images into one, stacked vertically."""
    drawn = [fromstring(each) for each in images]
    for each in (node for root in drawn for node in root.iter()):
        each.tag = each.tag.rpartition("}")[2]
    tops = [0, *accumulate(int(each.get("height", "")) for each in drawn)]
    titles = " and ".join(each.findtext("title") or "" for each in drawn)
    root = _sheet(max(int(each.get("width", "")) for each in drawn), tops[-1], titles)
    for each, top in zip(drawn, tops, strict=False):
        each.set("y", str(top))
        root.append(each)
    return tostring(root, encoding="unicode") + "\n"


def _sheet(width: int, height: int, title: str) -> Element:
    size = {"width": str(width), "height": str(height), "viewBox": f"0 0 {width} {height}"}
    root = Element("svg", {"xmlns": _NAMESPACE, **size, "role": "img"})
    SubElement(root, "title").text = shown(title, 10_000)
    return root


def _add(node: Element, parent: Element, symbols: Mapping[str, Element]) -> None:
    """Add a node without ids, clips, references and redundant groups."""
    tag = node.tag.rpartition("}")[2]
    if tag in ("defs", "metadata"):
        return
    if tag == "g":
        kind, bar, tips = node.get("id", "").partition("|")
        inner = Element("g")
        for child in node:
            _add(child, inner, symbols)
        for shape, tip in zip_longest(inner, tips.split(_TIP_SEPARATOR)[: len(inner)]) if bar else ():
            shape.set("class", kind)
            if tip:
                SubElement(shape, "title").text = tip
        parent.extend(inner)
        return
    attributes = _style(node)
    if tag == "use":
        symbol = symbols[next(value for name, value in node.items() if name.endswith("href")).removeprefix("#")]
        place = (float(node.get("x", 0)), float(node.get("y", 0)))
        _add_path(symbol.get("d", ""), parent, _style(symbol) | attributes, place)
    elif tag == "path" and attributes != {"fill": "none"}:
        _add_path(node.get("d", ""), parent, attributes)
    elif tag != "path":
        places = {
            name: _short(node.get(name, "")) for name in _PLACES if "rotate(-0 " not in node.get(name, "rotate(-0 ")
        }
        SubElement(parent, tag, attributes | places).text = node.text


def _add_path(way: str, parent: Element, attributes: dict[str, str], place: tuple[float, float] = (0.0, 0.0)) -> None:
    """Add a path, or a circle if the path approximates one with eight curves."""
    if way.count("C") == 8:
        numbers = [float(number) for number in _NUMBER.findall(way)]
        (left, right), (top, bottom) = ((min(each), max(each)) for each in (numbers[::2], numbers[1::2]))
        circle = {"cx": place[0] + (left + right) / 2, "cy": place[1] + (top + bottom) / 2, "r": (right - left) / 2}
        SubElement(parent, "circle", attributes | {name: _short(f"{at:.2f}") for name, at in circle.items()})
    else:
        moved = {"transform": _short(f"translate({place[0]:.2f} {place[1]:.2f})")} if any(place) else {}
        SubElement(parent, "path", attributes | moved | {"d": _GAPS.sub(r"\1", _short(way).strip())})


def _style(node: Element) -> dict[str, str]:
    """The style as attributes, without those inherited from the root."""
    pairs = (each.partition(": ") for each in node.get("style", "").split("; ") if each)
    return {name: value for name, _, value in pairs if _ROOT_STYLE.get(name, "") not in (None, value)}


def _short(places: str) -> str:
    return _FRACTION.sub(lambda found: f"{float(found[0]):.1f}".removesuffix(".0"), places)
