"""SVG as matplotlib writes it, made small and free of ids, so that many plots fit into one page.

An artist whose gid is `kind|tip` becomes an element of class `kind` with the tip as its title, which browsers show when
it is pointed at. An artist of several shapes has as many tips.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import accumulate, zip_longest
from xml.etree.ElementTree import Element, SubElement, fromstring, tostring

from xmtc.core.errors import shown
from xmtc.views.theme import FONT, INK

_NAMESPACE = "http://www.w3.org/2000/svg"
_TIP_SEPARATOR = "\u2028"  # in no tip, because it is not printable
_NUMBER, _FRACTION = re.compile(r"-?\d+(?:\.\d+)?"), re.compile(r"-?\d+\.\d+")
_GAPS = re.compile(r"\s*([A-Za-z])\s*")
_PLACES = ("x", "y", "width", "height", "transform")
_SAID_BY_ROOT = {"font-family": None, "stroke-linejoin": None, "stroke-linecap": None, "font-size": "11px", "fill": INK}


def gid(kind: str, tips: Sequence[str] = ()) -> str:
    """What to give an artist for it to have a class, and tips for its shapes."""
    return f"{kind}|{_TIP_SEPARATOR.join(shown(tip, 500) for tip in tips)}"


def compact_svg(written: bytes, width: int, height: int, title: str, description: str) -> str:
    """An SVG of that size in pixels, from what matplotlib wrote."""
    root = fromstring(written)
    drawn = _sheet(width, height, title)
    drawn.attrib |= {"font-family": FONT, "font-size": "11px", "fill": INK, "stroke-linejoin": "round"}
    if description:
        SubElement(drawn, "desc").text = shown(description, 10_000)
    symbols = {each.get("id", ""): each for each in root.iter() if each.get("id")}
    for child in root:
        _add(child, drawn, symbols)
    return tostring(drawn, encoding="unicode").replace(" />", "/>") + "\n"


def stacked(pictures: Sequence[str]) -> str:
    """Several SVG pictures as one, one below the other."""
    drawn = [fromstring(each) for each in pictures]
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
    """A node without ids, clips, references and needless groups."""
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
    """A path, or the circle that it approximates by eight curves."""
    if way.count("C") == 8:
        numbers = [float(number) for number in _NUMBER.findall(way)]
        (left, right), (top, bottom) = ((min(each), max(each)) for each in (numbers[::2], numbers[1::2]))
        circle = {"cx": place[0] + (left + right) / 2, "cy": place[1] + (top + bottom) / 2, "r": (right - left) / 2}
        SubElement(parent, "circle", attributes | {name: _short(f"{at:.2f}") for name, at in circle.items()})
    else:
        moved = {"transform": _short(f"translate({place[0]:.2f} {place[1]:.2f})")} if any(place) else {}
        SubElement(parent, "path", attributes | moved | {"d": _GAPS.sub(r"\1", _short(way).strip())})


def _style(node: Element) -> dict[str, str]:
    """The style as attributes, without what the root says already."""
    pairs = (each.partition(": ") for each in node.get("style", "").split("; ") if each)
    return {name: value for name, _, value in pairs if _SAID_BY_ROOT.get(name, "") not in (None, value)}


def _short(places: str) -> str:
    return _FRACTION.sub(lambda found: f"{float(found[0]):.1f}".removesuffix(".0"), places)
