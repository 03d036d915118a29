"""SKOS vocabularies in Turtle, N-Triples, RDF/XML or JSON-LD, parsed by rdflib; unused triples are discarded."""

from __future__ import annotations

import io
import json
import logging
import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote
from xml.parsers import expat
from xml.sax import SAXParseException

from xmtc.core.errors import DataError, missing_extra, shown
from xmtc.core.files import decode_line, read_blocks
from xmtc.core.parsing import parse_json

try:
    import rdflib
except ImportError:
    raise missing_extra("reading SKOS needs rdflib", "skos") from None

from rdflib import BNode, Graph, Literal, URIRef
from rdflib.exceptions import ParserError
from rdflib.parser import InputSource
from rdflib.plugins.parsers.notation3 import BadSyntax, RDFSink, SinkParser
from rdflib.plugins.parsers.ntriples import NTGraphSink, W3CNTriplesParser
from rdflib.plugins.parsers.rdfxml import create_parser
from rdflib.store import Store

Text: TypeAlias = tuple[str, str]  # language tag in lower case, '' if there is none, and text

_BASE = "http://relative.invalid/"  # removed again, so that relative URIs stay unchanged
_BLANK = "_:"  # start of the keys of blank nodes: the parts of lists, and collections without a URI
_SKOS = "http://www.w3.org/2004/02/skos/core#"
_PROPERTIES = {
    "http://www.w3.org/1999/02/22-rdf-syntax-ns#type": "type",
    "http://www.w3.org/2002/07/owl#deprecated": "deprecated",
    "http://purl.org/dc/terms/isReplacedBy": "replaced_by",
    f"{_SKOS}prefLabel": "name",
    f"{_SKOS}altLabel": "alternative",
    f"{_SKOS}definition": "definition",
    f"{_SKOS}scopeNote": "scope_note",
    f"{_SKOS}note": "note",
    f"{_SKOS}broader": "broader",
    f"{_SKOS}narrower": "narrower",
    f"{_SKOS}related": "related",
    f"{_SKOS}inScheme": "scheme",
    f"{_SKOS}topConceptOf": "scheme",
    f"{_SKOS}hasTopConcept": "top_concept",
    f"{_SKOS}member": "member",
    f"{_SKOS}memberList": "member",
    "http://www.w3.org/1999/02/22-rdf-syntax-ns#first": "member",
    "http://www.w3.org/1999/02/22-rdf-syntax-ns#rest": "member",
    "http://purl.org/iso25964/skos-thes#status": "status",
}
# Some files use https although the namespaces are defined with http.
_FIELDS = {URIRef(way + uri.removeprefix("http")): to for uri, to in _PROPERTIES.items() for way in ("http", "https")}
_INVERSE = {"narrower": "broader", "related": "related", "top_concept": "scheme"}
"""Links that also hold in the other direction, and their names there."""
_CONCEPT = {URIRef(f"{_SKOS}Concept"), URIRef(f"https{_SKOS.removeprefix('http')}Concept")}


class _Facts(Store):
    """Triple store that keeps only the label properties of each URI, in file order."""

    context_aware = True  # required by the JSON-LD parser; named graphs are merged

    def __init__(self) -> None:
        super().__init__()
        self.concepts: dict[str, None] = {}
        self.texts: dict[str, dict[str, list[Text]]] = defaultdict(dict)
        self.links: dict[str, dict[str, list[str]]] = defaultdict(dict)

    def add(self, triple: tuple[Any, Any, Any], context: Any, quoted: bool = False) -> None:
        subject, predicate, value = triple
        field = _FIELDS.get(predicate)
        if field == "member" and isinstance(value, (URIRef, BNode)):
            self.links[field].setdefault(_key(subject), []).append(_key(value))
            return
        if field is None or not isinstance(subject, URIRef):
            return
        key = _key(subject)
        if field == "type":
            if value in _CONCEPT:
                self.concepts[key] = None
            elif isinstance(value, URIRef):
                self.links["type"].setdefault(key, []).append(_key(value))
        elif isinstance(value, Literal):
            text = " ".join(value.split())  # names may contain line breaks and indentation
            if text:
                self.texts[field].setdefault(key, []).append(((value.language or "").lower(), text))
        elif isinstance(value, URIRef):
            self.links[field].setdefault(key, []).append(_key(value))


def _key(node: Any) -> str:
    return f"{_BLANK}{node}" if isinstance(node, BNode) else str(node).removeprefix(_BASE)


def skos_labels(path: str | Path, syntax: str, language: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield the concepts of a file as records of a JSONL vocabulary; the key is the URI.

    RDF is unordered, so multiple values are sorted alphabetically.
    Names are in `language` (de matches de-AT, too); the default is English if most concepts have an English name,
    otherwise the most common language. The fallbacks are, in this order, a name without a language, in English, in
    the alphabetically first language, and the last part of the URI. Alternatives are in that language only.
    Hidden labels are ignored, since they contain misspellings. Notes are definitions, scope notes and notes in that
    language or without a language. Collections are given by name, or by URI if they have none; the members of a
    collection inside another belong to both.
    """
    facts = _parsed(path, syntax)
    if not facts.concepts:
        raise DataError(f"{path}: contains no labels. Give each label the type skos:Concept.")
    names = facts.texts["name"]
    own = _languages(path, [names.get(key, []) for key in facts.concepts], language)
    for field, inverse in _INVERSE.items():
        stated = [(key, tuple(others)) for key, others in facts.links[field].items()]
        for key, others in stated:
            for other in others:
                facts.links[inverse].setdefault(other, []).append(key)
    replaced, collections = facts.links["replaced_by"], _collections(facts.links["member"])
    for key in dict.fromkeys([*facts.concepts, *replaced]):  # replaced concepts may have no type
        yield {
            "key": key,
            **_texts(facts, key, own),
            "parents": sorted(set(facts.links["broader"].get(key, [])) - {key}),
            "related": sorted(set(facts.links["related"].get(key, [])) - {key}),
            "schemes": sorted(set(facts.links["scheme"].get(key, []))),
            "collections": sorted({_name(facts, group, own, group) for group in collections.get(key, [])}),
            "types": sorted(set(facts.links["type"].get(key, []))),
            "deprecated": any(text in ("true", "1") for _, text in facts.texts["deprecated"].get(key, [])),
            "replaced_by": sorted(replaced.get(key, [])),
        }


def _collections(members: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the collections that each member is in, directly, through a list, or through other collections."""
    found: dict[str, list[str]] = {}
    for collection in members:
        if collection.startswith(_BLANK):
            continue
        waiting, seen = [collection], {collection}
        while waiting:
            for member in members.get(waiting.pop(), ()):
                if member not in seen:
                    seen.add(member)
                    waiting.append(member)
                    found.setdefault(member, []).append(collection)
    return found


def _texts(facts: _Facts, key: str, own: Sequence[str]) -> dict[str, Any]:
    """Return name, alternatives, description, notes and status of a concept."""

    def ordered(*kinds: str) -> list[Text]:
        return [text for kind in kinds for text in _ordered(facts.texts[kind].get(key, []), own)]

    name = _name(facts, key, own, _last_part(key))
    others = _in_languages(ordered("name", "alternative"), own)
    return {
        "name": name,
        "alternatives": [text for text in others if text != name],
        "description": next((text for _, text in ordered("definition", "scope_note")), ""),
        "notes": _in_languages(ordered("definition", "scope_note", "note"), [*own, ""]),
        "status": min((text for _, text in ordered("status")), default=""),
    }


def _name(facts: _Facts, key: str, own: Sequence[str], default: str) -> str:
    return next((text for _, text in _ordered(facts.texts["name"].get(key, []), own)), default)


def _languages(path: str | Path, names: Sequence[Sequence[Text]], language: str | None) -> list[str]:
    """Return the preferred languages for names, best first, such as de-at, de."""
    concepts = Counter(tag for texts in names for tag in {tag.partition("-")[0] for tag, _ in texts})
    if language is None:
        common = min(concepts, key=lambda tag: (-concepts[tag], tag), default="")
        return ["en" if 2 * concepts["en"] > len(names) else common]
    parts = language.lower().split("-")
    own = ["-".join(parts[:count]) for count in range(len(parts), 0, -1)]
    if not parts[0] or parts[0] not in concepts:
        found = ", ".join(sorted(tag for tag in concepts if tag))
        remedy = f"Choose one of {shown(found, 300)}" if found else "Its names have no language: omit the language"
        raise DataError(f"{path}: no label has a name in language '{shown(language)}'. {remedy}.")
    return own


def _is_in(tag: str, language: str) -> bool:
    return tag == language or (language != "" and tag.startswith(f"{language}-"))


def _in_languages(texts: Iterable[Text], languages: Sequence[str]) -> list[str]:
    """Return the texts in one of the languages, without repeats."""
    return list(dict.fromkeys(text for tag, text in texts if any(_is_in(tag, choice) for choice in languages)))


def _ordered(texts: Iterable[Text], own: Sequence[str]) -> list[Text]:
    """Sort texts by language, best first."""
    choices = [*own, "", "en"]

    def rank(text: Text) -> tuple[int, bool, Text]:
        place = next((place for place, choice in enumerate(choices) if _is_in(text[0], choice)), len(choices))
        return place, text[0] not in choices, text

    return sorted(texts, key=rank)


def _last_part(uri: str) -> str:
    return unquote(re.split("[/#:]", uri.rstrip("/#:"))[-1]) or uri


def _parsed(path: str | Path, syntax: str) -> _Facts:
    facts = _Facts()
    graph = Graph(store=facts, bind_namespaces="none")
    with _calm():
        {"turtle": _turtle, "n-triples": _n_triples, "rdf/xml": _rdf_xml, "json-ld": _json_ld}[syntax](path, graph)
    return facts


@contextmanager
def _calm() -> Iterator[None]:
    """Silence rdflib's warnings and disable number normalisation, which would expand 1e999999999 to all its digits."""
    logger = logging.getLogger("rdflib")
    before = logger.level, rdflib.NORMALIZE_LITERALS
    logger.setLevel(logging.CRITICAL + 1)
    rdflib.NORMALIZE_LITERALS = False
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logger.level, rdflib.NORMALIZE_LITERALS = before


def _turtle(path: str | Path, graph: Graph) -> None:
    lines = b"".join(read_blocks(path)).split(b"\n")
    text = "\n".join(decode_line(line, path, number) for number, line in enumerate(lines, start=1))
    parser = SinkParser(RDFSink(graph), baseURI=_BASE, turtle=True)
    try:
        parser.loadBuf(text)
    except Exception as error:  # rdflib's parsers may raise anything
        raise _refusal(path, "Turtle", error, parser.lines + 1) from None


def _n_triples(path: str | Path, graph: Graph) -> None:
    parser = W3CNTriplesParser(NTGraphSink(graph))
    number = 0
    for block in read_blocks(path):
        for line in block.removesuffix(b"\n").split(b"\n"):
            number += 1
            parser.line = decode_line(line, path, number)
            try:
                parser.parseline()
            except Exception as error:
                raise _refusal(path, "N-Triples", error, number) from None


def _rdf_xml(path: str | Path, graph: Graph) -> None:
    content = b"".join(read_blocks(path))
    _refuse_entities(path, content)
    source = InputSource()
    source.setByteStream(io.BytesIO(content))
    source.setPublicId(_BASE)
    reader = create_parser(source, graph)  # Python's own parser, which loads no external resources
    try:
        reader.parse(source)
    except Exception as error:
        line = reader.getLineNumber()  # type: ignore[attr-defined]
        raise _refusal(path, "RDF/XML", error, line) from None


def _refuse_entities(path: str | Path, content: bytes) -> None:
    """Raise `DataError` for entities before the first element: they can expand without bound or be external."""

    class Seen(Exception):
        pass

    def refuse(*_: object) -> None:
        line = parser.CurrentLineNumber
        raise DataError(f"{path}:{line}: a DOCTYPE with entities is not supported. Export the file without it.")

    def doctype(name: str, system: str | None, public: str | None, subset: bool) -> None:
        if system or public:
            refuse()

    def element(*_: object) -> None:
        raise Seen

    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = doctype
    parser.EntityDeclHandler = refuse
    parser.StartElementHandler = element
    try:
        parser.Parse(content, True)
    except Seen:
        pass
    except DataError:
        raise
    except Exception as error:
        raise _refusal(path, "RDF/XML", error, parser.CurrentLineNumber) from None


def _json_ld(path: str | Path, graph: Graph) -> None:
    content = b"".join(read_blocks(path))
    try:
        document = parse_json(content, any_number=True)
    except ValueError as error:
        raise _refusal(path, "JSON-LD", error, getattr(error, "lineno", 1)) from None
    _refuse_remote(path, document)
    try:
        # Serialised again, so that the parser sees exactly the document that was checked.
        graph.parse(data=json.dumps(document), format="json-ld", publicID=_BASE)
    except Exception as error:
        raise _refusal(path, "JSON-LD", error) from None


def _refuse_remote(path: str | Path, document: Any) -> None:
    """Raise `DataError` for a context given as a URL, which rdflib would download."""
    waiting = [(document, False)]  # values, and whether each is a context
    while waiting:
        value, is_context = waiting.pop()
        if isinstance(value, list):
            waiting += [(item, is_context) for item in value]
        elif isinstance(value, dict):
            waiting += [(item, name in ("@context", "@import")) for name, item in value.items()]
        elif is_context and isinstance(value, str):
            raise DataError(f"{path}: the remote context '{shown(value)}' is not loaded. Embed it in the file.")


def _refusal(path: str | Path, syntax: str, error: Exception, line: int | None = None) -> DataError:
    if isinstance(error, BadSyntax):
        reason = error._why
    elif isinstance(error, RecursionError):
        reason = "too deeply nested"
    elif isinstance(error, SAXParseException):
        reason = error.getMessage()
    elif isinstance(error, json.JSONDecodeError):
        reason = error.msg
    elif isinstance(error, (AssertionError, ParserError, ValueError, expat.ExpatError)):
        reason = re.split(r" at \^|: line|\n", re.sub(r"^\S*:\d+:\d+: ", "", str(error)))[0]
    else:  # internal errors of rdflib do not help the user
        reason = ""
    why = f" ({shown(reason, 120).rstrip('.')})" if reason else ""
    place = path if line is None else f"{path}:{line}"
    return DataError(f"{place}: invalid {syntax}{why}. Correct the file, or export it again.")
