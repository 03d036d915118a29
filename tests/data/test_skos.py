"""SKOS vocabularies: what becomes of concepts, languages and deprecated labels, and files that mean harm."""

from __future__ import annotations

import logging
import socket
import sys
import urllib.request
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.packing import SUFFIXES, pack
from tests.support.reading import vocabulary_refusal as refusal
from xmtc.core.errors import DataError, MissingExtraError
from xmtc.data.label_index import LabelIndex
from xmtc.data.vocabularies import LabelVocabulary, read_vocabulary, write_vocabulary

EXAMPLE = "http://example.org/"
PREFIXES = """@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix dct: <http://purl.org/dc/terms/> .
@prefix ex: <http://example.org/> .
"""
TURTLE = f"""# Kitchen
{PREFIXES}
ex:scheme a skos:ConceptScheme ; skos:prefLabel "the scheme"@en ; skos:hasTopConcept ex:dairy .
ex:dairy a skos:Concept ;
    skos:prefLabel "dairy"@en , "Milchprodukte"@de ;
    skos:narrower ex:cheese .
ex:cheese a skos:Concept , ex:Product ;
    skos:prefLabel "cheese"@en , "Käse"@de ;
    skos:altLabel "Schnittkäse"@de-AT , "Chäs"@de-CH , "fromage"@fr , "queso" ;
    skos:hiddenLabel "chese"@en ;
    skos:scopeNote "Not for curd."@en ;
    skos:note "Goes with wine."@en , "Passt zu Wein."@de , "12" ;
    <http://purl.org/iso25964/skos-thes#status> "candidate" ;
    skos:definition "What milk becomes."@en , "Was aus Milch wird."@de ;
    skos:broader ex:dairy , ex:food .
ex:food a skos:Concept ; skos:prefLabel "food"@en ; skos:scopeNote "All of it."@en ; skos:inScheme ex:scheme ;
    skos:topConceptOf ex:scheme ; skos:related ex:cheese .
ex:quark a skos:Concept ; skos:prefLabel "quark"@en ; owl:deprecated true ; dct:isReplacedBy ex:curd .
ex:curd a skos:Concept ; skos:prefLabel "curd"@en ; owl:deprecated true ; dct:isReplacedBy ex:cheese .
ex:lard a skos:Concept ; skos:prefLabel "lard"@en ; owl:deprecated true .
ex:party a skos:Collection ; skos:prefLabel "for parties"@en , "Feste"@de ; skos:member ex:cheese , ex:party .
ex:board a skos:Collection ; skos:member ex:cheese .
"""
RDF_XML = """<?xml version="1.0" encoding="{encoding}"?>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:skos="http://www.w3.org/2004/02/skos/core#"
         xmlns:owl="http://www.w3.org/2002/07/owl#" xmlns:dct="http://purl.org/dc/terms/"
         xmlns:iso="http://purl.org/iso25964/skos-thes#">
  <skos:ConceptScheme rdf:about="http://example.org/scheme">
    <skos:prefLabel xml:lang="en">the scheme</skos:prefLabel>
    <skos:hasTopConcept rdf:resource="http://example.org/dairy"/>
  </skos:ConceptScheme>
  <skos:Concept rdf:about="http://example.org/dairy">
    <skos:prefLabel xml:lang="en">dairy</skos:prefLabel>
    <skos:prefLabel xml:lang="de">
      Milchprodukte
    </skos:prefLabel>
    <skos:narrower>
      <skos:Concept rdf:about="http://example.org/cheese">
        <skos:prefLabel xml:lang="de">Käse</skos:prefLabel>
        <skos:prefLabel xml:lang="en">cheese</skos:prefLabel>
        <skos:altLabel>queso</skos:altLabel>
        <skos:altLabel xml:lang="de-CH">Chäs</skos:altLabel>
        <skos:altLabel xml:lang="fr">fromage</skos:altLabel>
        <skos:altLabel xml:lang="de-AT">Schnittkäse</skos:altLabel>
        <skos:hiddenLabel xml:lang="en">chese</skos:hiddenLabel>
        <skos:definition xml:lang="de">Was aus Milch wird.</skos:definition>
        <skos:definition xml:lang="en">What milk becomes.</skos:definition>
        <skos:scopeNote xml:lang="en">Not for curd.</skos:scopeNote>
        <skos:note>12</skos:note>
        <skos:note xml:lang="de">Passt zu Wein.</skos:note>
        <skos:note xml:lang="en">Goes with wine.</skos:note>
        <rdf:type rdf:resource="http://example.org/Product"/>
        <iso:status>candidate</iso:status>
        <skos:broader rdf:resource="http://example.org/dairy"/>
        <skos:broader rdf:resource="http://example.org/food"/>
      </skos:Concept>
    </skos:narrower>
  </skos:Concept>
  <rdf:Description rdf:about="http://example.org/food">
    <rdf:type rdf:resource="http://www.w3.org/2004/02/skos/core#Concept"/>
    <skos:prefLabel xml:lang="en">food</skos:prefLabel>
    <skos:scopeNote xml:lang="en">All of it.</skos:scopeNote>
    <skos:inScheme rdf:resource="http://example.org/scheme"/>
    <skos:topConceptOf rdf:resource="http://example.org/scheme"/>
    <skos:related rdf:resource="http://example.org/cheese"/>
  </rdf:Description>
  <skos:Concept rdf:about="http://example.org/quark">
    <owl:deprecated rdf:datatype="http://www.w3.org/2001/XMLSchema#boolean">true</owl:deprecated>
    <dct:isReplacedBy rdf:resource="http://example.org/curd"/>
  </skos:Concept>
  <skos:Concept rdf:about="http://example.org/curd">
    <owl:deprecated rdf:datatype="http://www.w3.org/2001/XMLSchema#boolean">1</owl:deprecated>
    <dct:isReplacedBy rdf:resource="http://example.org/cheese"/>
  </skos:Concept>
  <skos:Concept rdf:about="http://example.org/lard"><owl:deprecated>true</owl:deprecated></skos:Concept>
  <skos:Collection rdf:about="http://example.org/party">
    <skos:prefLabel xml:lang="de">Feste</skos:prefLabel>
    <skos:prefLabel xml:lang="en">for parties</skos:prefLabel>
    <skos:member rdf:resource="http://example.org/cheese"/>
    <skos:member rdf:resource="http://example.org/party"/>
  </skos:Collection>
  <skos:Collection rdf:about="http://example.org/board"><skos:member rdf:resource="http://example.org/cheese"/>
  </skos:Collection>
</rdf:RDF>
"""
JSON_LD = """{
  "@context": {
    "skos": "http://www.w3.org/2004/02/skos/core#", "owl": "http://www.w3.org/2002/07/owl#",
    "ex": "http://example.org/", "isReplacedBy": {"@id": "http://purl.org/dc/terms/isReplacedBy", "@type": "@id"},
    "skos:broader": {"@type": "@id"}, "skos:narrower": {"@type": "@id"}, "skos:related": {"@type": "@id"},
    "skos:inScheme": {"@type": "@id"}, "skos:member": {"@type": "@id"}
  },
  "@graph": [
    {"@id": "ex:dairy", "@type": "skos:Concept", "skos:narrower": "ex:cheese", "skos:inScheme": "ex:scheme",
      "skos:prefLabel": [
      {"@language": "en", "@value": "dairy"}, {"@language": "de", "@value": "Milchprodukte"}]},
    {"@id": "ex:cheese", "@type": ["skos:Concept", "ex:Product"], "skos:broader": ["ex:dairy", "ex:food"],
      "http://purl.org/iso25964/skos-thes#status": "candidate", "skos:related": "ex:food",
      "skos:note": [{"@language": "en", "@value": "Goes with wine."}, "12",
        {"@language": "de", "@value": "Passt zu Wein."}],
      "skos:prefLabel": [{"@language": "en", "@value": "cheese"}, {"@language": "de", "@value": "Käse"}],
      "skos:altLabel": [{"@language": "de-AT", "@value": "Schnittkäse"}, {"@language": "de-CH", "@value": "Chäs"},
        {"@language": "fr", "@value": "fromage"}, "queso"],
      "skos:scopeNote": {"@language": "en", "@value": "Not for curd."},
      "skos:definition": [{"@language": "en", "@value": "What milk becomes."},
        {"@language": "de", "@value": "Was aus Milch wird."}]},
    {"@id": "ex:food", "@type": "skos:Concept", "skos:prefLabel": {"@language": "en", "@value": "food"},
      "skos:inScheme": "ex:scheme", "skos:scopeNote": {"@language": "en", "@value": "All of it."}},
    {"@id": "ex:quark", "@type": "skos:Concept", "owl:deprecated": true, "isReplacedBy": "ex:curd"},
    {"@id": "ex:curd", "@type": "skos:Concept", "owl:deprecated": true, "isReplacedBy": "ex:cheese"},
    {"@id": "ex:lard", "@type": "skos:Concept", "owl:deprecated": true},
    {"@id": "ex:party", "@type": "skos:Collection", "skos:member": ["ex:cheese", "ex:party"],
      "skos:prefLabel": [{"@language": "en", "@value": "for parties"}, {"@language": "de", "@value": "Feste"}]},
    {"@id": "ex:board", "@type": "skos:Collection", "skos:member": "ex:cheese"}
  ]
}
"""


def n_triples() -> str:
    from rdflib import Graph

    lines = Graph().parse(data=TURTLE, format="turtle").serialize(format="nt").splitlines()
    order = ["dairy", "cheese", "food", "quark", "curd", "lard", "scheme", "party", "board"]
    return "".join(f"{line}\n" for name in order for line in lines if line.startswith(f"<http://example.org/{name}>"))


def turtle(path: Path, *lines: str) -> Path:
    path.write_text(PREFIXES + "\n".join(lines))
    return path


def rows(vocabulary: LabelVocabulary) -> dict[str, dict]:
    """Labels by the last part of their URI."""
    return {row["key"].removeprefix(EXAMPLE): row for row in vocabulary.index.table.to_pylist()}


@pytest.fixture
def kitchen(tmp_path) -> Path:
    path = tmp_path / "kitchen.ttl"
    path.write_text(TURTLE)
    return path


class TestForms:
    def test_what_becomes_of_a_concept(self, kitchen):
        vocabulary = read_vocabulary(kitchen)
        assert not vocabulary.plain
        assert vocabulary.index.keys == [f"http://example.org/{name}" for name in ("dairy", "cheese", "food")]
        assert rows(vocabulary)["cheese"] == {
            "key": "http://example.org/cheese",
            "name": "cheese",
            "alternatives": [],
            "parents": ["http://example.org/dairy", "http://example.org/food"],
            "description": "What milk becomes.",
            "related": ["http://example.org/food"],
            "notes": ["What milk becomes.", "Not for curd.", "Goes with wine.", "12"],
            "schemes": [],
            "collections": ["for parties", "http://example.org/board"],
            "types": ["http://example.org/Product"],
            "status": "candidate",
        }
        assert rows(vocabulary)["food"]["description"] == "All of it."
        assert rows(vocabulary)["food"]["related"] == ["http://example.org/cheese"]
        assert rows(vocabulary)["food"]["schemes"] == rows(vocabulary)["dairy"]["schemes"] == [f"{EXAMPLE}scheme"]
        german = rows(read_vocabulary(kitchen, language="de"))["cheese"]
        assert german["notes"] == ["Was aus Milch wird.", "Passt zu Wein.", "12"]
        assert german["collections"] == ["Feste", "http://example.org/board"]

    @pytest.mark.parametrize("language", [None, "de", "de-AT", "en", "EN"])
    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("k.rdf", RDF_XML.format(encoding="utf-8").encode()),
            ("k.xml", b"\xef\xbb\xbf" + RDF_XML.format(encoding="utf-8").encode()),
            ("k.rdf", RDF_XML.format(encoding="utf-16").encode("utf-16")),
            ("k.rdf", RDF_XML.format(encoding="iso-8859-1").encode("latin-1")),
            ("k.skos", RDF_XML.format(encoding="utf-8").encode()),
            ("k", RDF_XML.format(encoding="utf-8").split("?>")[1].encode()),
            ("k.nt", None),
            ("k.jsonld", JSON_LD.encode()),
            ("k.skos", TURTLE.encode()),
            ("k.txt", b"\xef\xbb\xbf" + TURTLE.replace("\n", "\r\n").encode()),
            ("k.rdf", TURTLE.encode()),
            ("k.txt", TURTLE.replace("@prefix", "PREFIX").replace("> .\n", ">\n").encode()),
        ],
    )
    def test_the_same_content_in_another_form(self, tmp_path, kitchen, name, content, language):
        path = tmp_path / name
        path.write_bytes(n_triples().encode() if content is None else content)
        assert read_vocabulary(path, language=language) == read_vocabulary(kitchen, language=language)

    @pytest.mark.parametrize("suffix", SUFFIXES)
    def test_compressed(self, tmp_path, kitchen, suffix):
        path = pack(tmp_path / f"k.ttl{suffix}", TURTLE.encode())
        assert read_vocabulary(path) == read_vocabulary(kitchen)

    def test_numbered_makes_no_difference(self, kitchen):
        assert read_vocabulary(kitchen, numbered=True) == read_vocabulary(kitchen)

    @pytest.mark.parametrize("language", [None, "de"])
    def test_converted_to_jsonl(self, tmp_path, kitchen, language):
        vocabulary = read_vocabulary(kitchen, language=language)
        write_vocabulary(vocabulary, tmp_path / "kitchen.jsonl.gz")
        assert read_vocabulary(tmp_path / "kitchen.jsonl.gz") == vocabulary

    @pytest.mark.parametrize("syntax", ["turtle", "nt", "xml", "json-ld"])
    def test_collections_inside_collections(self, tmp_path, syntax):
        """Also in lists, without a URI, and in cycles."""
        from rdflib import Graph

        content = PREFIXES + "\n".join(
            [
                *(f'ex:{name} a skos:Concept ; skos:prefLabel "{name}"@en .' for name in "abcd"),
                'ex:outer a skos:Collection ; skos:prefLabel "outer"@en ; skos:member ex:a , ex:inner , ex:ordered .',
                'ex:inner a skos:Collection ; skos:prefLabel "inner"@en ; skos:member ex:b , ex:outer .',
                'ex:ordered a skos:OrderedCollection ; skos:prefLabel "ordered"@en ;',
                "  skos:memberList (ex:d ex:c [a skos:Collection ; skos:member ex:a]) .",
                "ex:empty a skos:OrderedCollection ; skos:memberList () .",
            ]
        )
        path = tmp_path / {"turtle": "l.ttl", "nt": "l.nt", "xml": "l.rdf", "json-ld": "l.jsonld"}[syntax]
        Graph().parse(data=content, format="turtle").serialize(path, format=syntax, encoding="utf-8")
        found = {name: row["collections"] for name, row in rows(read_vocabulary(path)).items()}
        ordered = ["inner", "ordered", "outer"]
        assert found == {"a": ordered, "b": ["inner", "outer"], "c": ordered, "d": ordered}

    def test_a_list_that_leads_back_to_itself(self, tmp_path):
        path = turtle(
            tmp_path / "l.ttl",
            "@prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> .",
            "ex:a a skos:Concept .",
            "ex:c a skos:OrderedCollection ; skos:memberList _:l .",
            "_:l rdf:first ex:a ; rdf:rest _:l .",
        )
        assert rows(read_vocabulary(path))["a"]["collections"] == [f"{EXAMPLE}c"]

    def test_relative_uris_stay_as_they_are_written(self, tmp_path):
        path = turtle(tmp_path / "l.ttl", "<#a> a skos:Concept ; skos:broader <b> .", "<b> a skos:Concept .")
        assert read_vocabulary(path).index.keys == ["#a", "b"]
        assert read_vocabulary(path).index.table["parents"].to_pylist() == [["b"], []]

    def test_names_of_properties_with_https(self, tmp_path):
        path = tmp_path / "l.ttl"
        path.write_text(
            TURTLE.replace("http://www.w3.org/2004", "https://www.w3.org/2004").replace("http://purl", "https://purl")
        )
        vocabulary = read_vocabulary(path)
        assert rows(vocabulary)["cheese"]["name"] == "cheese"
        assert len(vocabulary.replaced) == 2

    def test_what_is_not_a_label(self, tmp_path):
        path = turtle(
            tmp_path / "l.ttl",
            "ex:a a skos:Concept ; skos:prefLabel ex:not_text , [] , 'A' ; skos:broader 'text' , [ a skos:Concept ] .",
            "[] a skos:Concept ; skos:prefLabel 'no URI' .",
            "ex:b skos:prefLabel 'no type' .",
        )
        index = read_vocabulary(path).index
        assert index == LabelIndex.from_keys(["http://example.org/a"], ["A"])

    def test_what_is_said_twice_counts_once(self, tmp_path):
        path = turtle(
            tmp_path / "l.ttl",
            "ex:a a skos:Concept ; skos:prefLabel 'A'@en ; skos:altLabel 'x'@en , 'A'@en ; skos:narrower ex:b .",
            "ex:b a skos:Concept ; skos:broader ex:a .",
            "ex:a a skos:Concept ; skos:prefLabel 'A'@en ; skos:altLabel 'x'@en , ' '@en .",
        )
        vocabulary = read_vocabulary(path)
        assert list(rows(vocabulary)) == ["a", "b"]
        assert rows(vocabulary)["a"]["alternatives"] == ["x"]
        assert rows(vocabulary)["b"]["parents"] == ["http://example.org/a"]

    def test_parents_in_a_circle(self, tmp_path):
        path = turtle(
            tmp_path / "l.ttl",
            "ex:a a skos:Concept ; skos:broader ex:b , ex:a .",
            "ex:b a skos:Concept ; skos:broader ex:c .",
            "ex:c a skos:Concept ; skos:broader ex:a .",
        )
        parents = {key: row["parents"] for key, row in rows(read_vocabulary(path)).items()}
        assert parents == {key: [f"http://example.org/{to}"] for key, to in ("ab", "bc", "ca")}


class TestLanguages:
    def names(self, path: Path, language: str | None = None) -> dict[str, str]:
        return {key: row["name"] for key, row in rows(read_vocabulary(path, language=language)).items()}

    def test_of_the_language_asked_for(self, kitchen):
        assert self.names(kitchen, "de") == {"dairy": "Milchprodukte", "cheese": "Käse", "food": "food"}
        cheese = rows(read_vocabulary(kitchen, language="de"))["cheese"]
        assert cheese["alternatives"] == ["Schnittkäse", "Chäs"]
        assert cheese["description"] == "Was aus Milch wird."
        assert rows(read_vocabulary(kitchen, language="de"))["food"]["description"] == "All of it."

    @pytest.mark.parametrize(
        ("labels", "language", "name"),
        [
            ("'a'@de , 'b'@de-AT , 'c'@en", "de", "a"),
            ("'b'@de-CH , 'a'@de-AT , 'c'", "de", "a"),
            ("'a'@de-CH , 'b'@de-AT , 'c'", "de-CH", "a"),
            ("'a'@de , 'b'@de-AT , 'c'", "de-CH", "a"),
            ("'a'@DE , 'b'", "de", "a"),
            ("'b'@den , 'a'", "de", "a"),  # a language of Canada
            ("'a' , 'b'@en , 'c'@fr", "de", "a"),
            ("'a'@en-GB , 'b'@fr", "de", "a"),
            ("'b'@it , 'a'@fr", "de", "a"),
            ("'b'@de , 'a'@de", "de", "a"),
            ("'  '@de , 'a'@en", "de", "a"),
        ],
    )
    def test_the_next_best(self, tmp_path, labels, language, name):
        there = "ex:other a skos:Concept ; skos:prefLabel 'x'@de ."
        path = turtle(tmp_path / "l.ttl", f"ex:a a skos:Concept ; skos:prefLabel {labels} .", there)
        assert self.names(path, language)["a"] == name

    def test_another_name_of_the_language_is_an_alternative(self, tmp_path):
        path = turtle(
            tmp_path / "l.ttl", "ex:a a skos:Concept ; skos:prefLabel 'Januar'@de , 'Jänner'@de-AT , 'x'@en ."
        )
        january = rows(read_vocabulary(path, language="de"))["a"]
        assert (january["name"], january["alternatives"]) == ("Januar", ["Jänner"])
        january = rows(read_vocabulary(path, language="de-AT"))["a"]
        assert (january["name"], january["alternatives"]) == ("Jänner", ["Januar"])

    @pytest.mark.parametrize(
        ("uri", "name"),
        [
            ("http://example.org/things/42", "42"),
            ("http://example.org/things/42/", "42"),
            ("http://example.org/things#K%C3%A4se", "Käse"),
            ("urn:isbn:1", "1"),
            ("http://", "http"),
        ],
    )
    def test_no_name_at_all(self, tmp_path, uri, name):
        assert read_vocabulary(turtle(tmp_path / "l.ttl", f"<{uri}> a skos:Concept .")).index.names == [name]

    @pytest.mark.parametrize(
        ("labels", "names"),
        [
            (["'a'@en , 'x'@de", "'b'@en-US , 'x'@de", "'c'@de"], ["a", "b", "c"]),  # most are in English too
            (["'x'@en , 'a'@de", "'b'@de", "'c'@fr"], ["a", "b", "c"]),
            (["'x'@en , 'a'@fi", "'x'@en , 'b'@fi", "'c'@fi", "'d'@fi"], ["a", "b", "c", "d"]),  # half is not most
            (["'x'@sv , 'a'@fi", "'b'@fi , 'x'@sv"], ["a", "b"]),
            (["'a' , 'x'@en", "'b'", "'c'"], ["a", "b", "c"]),
        ],
    )
    def test_of_its_own_choice(self, tmp_path, labels, names):
        lines = [f"ex:c{number} a skos:Concept ; skos:prefLabel {label} ." for number, label in enumerate(labels)]
        assert read_vocabulary(turtle(tmp_path / "l.ttl", *lines)).index.names == names

    def test_a_language_that_is_not_there(self, kitchen, tmp_path):
        assert "no label has a name in language 'fr'. Choose one of de, en." in refusal(kitchen, language="fr")
        assert "in language ''" in refusal(kitchen, language="")
        assert "\\n" in refusal(kitchen, language="x\n" + "y" * 1000)
        none = turtle(tmp_path / "l.ttl", "ex:a a skos:Concept ; skos:prefLabel 'a' .")
        assert "omit the language" in refusal(none, language="de")

    def test_other_files_have_no_languages(self, tmp_path):
        for name, line in (("l.txt", "a"), ("l.tsv", "a\tA"), ("l.jsonl", '{"key": "a"}')):
            (tmp_path / name).write_text(line)
            assert "no languages to choose from" in refusal(tmp_path / name, language="de")


class TestDeprecated:
    def test_chains_are_followed(self, kitchen):
        vocabulary = read_vocabulary(kitchen)
        cheese = "http://example.org/cheese"
        assert vocabulary.replaced == {"http://example.org/quark": cheese, "http://example.org/curd": cheese}
        assert vocabulary.deprecated == {"http://example.org/lard"}

    def test_circles_dead_ends_and_untyped_labels(self, tmp_path):
        path = turtle(
            tmp_path / "l.ttl",
            "ex:a a skos:Concept .",
            "ex:b a skos:Concept ; owl:deprecated true ; dct:isReplacedBy ex:c .",
            "ex:c a skos:Concept ; owl:deprecated true ; dct:isReplacedBy ex:b .",
            "ex:d a skos:Concept ; owl:deprecated true ; dct:isReplacedBy ex:gone .",
            "ex:e dct:isReplacedBy ex:a .",
            "ex:f a skos:Concept ; owl:deprecated false .",
        )
        vocabulary = read_vocabulary(path)
        assert list(rows(vocabulary)) == ["a", "f"]
        assert vocabulary.replaced == {"http://example.org/e": "http://example.org/a"}
        assert vocabulary.deprecated == {f"http://example.org/{name}" for name in "bcd"}

    def test_nothing_in_use(self, tmp_path):
        path = turtle(tmp_path / "l.ttl", "ex:a a skos:Concept ; owl:deprecated true .")
        assert "all labels are deprecated" in refusal(path)


RDF = '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:skos="http://www.w3.org/2004/02/skos/core#">'
CONCEPT = '<skos:Concept rdf:about="http://example.org/a"><skos:prefLabel>{}</skos:prefLabel></skos:Concept></rdf:RDF>'
LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 30))


@pytest.fixture
def no_way_out(monkeypatch) -> None:
    """A machine on which every attempt to leave it, or to open another file, is a failure of the test."""

    def refuse(*_: object, **__: object) -> None:
        raise BaseException("left the file")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    monkeypatch.setattr("rdflib.parser._urlopen", refuse, raising=False)


@pytest.mark.usefixtures("no_way_out")
class TestHostile:
    @pytest.mark.parametrize(
        "doctype",
        [
            f'<!DOCTYPE rdf:RDF [<!ENTITY l0 "ha">{LAUGHS}]>',
            '<!DOCTYPE rdf:RDF [<!ENTITY l29 SYSTEM "SECRET">]>',
            '<!DOCTYPE rdf:RDF [<!ENTITY l29 SYSTEM "http://127.0.0.1:9/x">]>',
            '<!DOCTYPE rdf:RDF [<!ENTITY % more SYSTEM "SECRET"> %more;]>',
            '<!DOCTYPE rdf:RDF SYSTEM "SECRET">',
            '<!DOCTYPE rdf:RDF PUBLIC "-//x//y" "http://127.0.0.1:9/x.dtd">',
            '<!DOCTYPE rdf:RDF [<!ENTITY skos "http://www.w3.org/2004/02/skos/core#">]>',
        ],
    )
    @pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
    def test_entities(self, tmp_path, doctype, encoding):
        secret, path = tmp_path / "secret.txt", tmp_path / "l.rdf"
        secret.write_text('<!ENTITY l29 "the secret">')
        content = doctype.replace("SECRET", secret.as_uri()) + RDF + CONCEPT.format("&l29;")
        path.write_bytes(f'<?xml version="1.0" encoding="{encoding}"?>\n{content}'.encode(encoding))
        assert "a DOCTYPE with entities is not supported" in refusal(path, 2)

    def test_a_harmless_document_type(self, tmp_path):
        path = tmp_path / "l.rdf"
        path.write_text(f"<!DOCTYPE rdf:RDF [<!ATTLIST a b CDATA #IMPLIED>]>{RDF}{CONCEPT.format('A &amp; B')}")
        assert read_vocabulary(path).index.names == ["A & B"]

    @pytest.mark.parametrize(
        "context",
        [
            '"http://127.0.0.1:9/context"',
            '["context.json"]',
            '[{}, ["file:///etc/hostname"]]',
            '{"@import": "http://127.0.0.1:9/", "@context": []}',
            '{"x": {"@id": "http://example.org/x", "@context": "http://127.0.0.1:9/"}}',
        ],
    )
    @pytest.mark.parametrize("form", ['{{"@context": {}, "@id": "x"}}', '[{{"@id": "x", "y": [{{"@context": {}}}]}}]'])
    def test_contexts_elsewhere(self, tmp_path, context, form):
        path = tmp_path / "l.jsonld"
        path.write_text(form.format(context))
        assert "is not loaded. Embed it in the file." in refusal(path)

    def test_a_number_that_would_fill_the_memory(self, tmp_path):
        decimal = "'1e999999999999'^^<http://www.w3.org/2001/XMLSchema#decimal>"
        path = turtle(tmp_path / "l.ttl", f"ex:a a skos:Concept ; skos:prefLabel {decimal} .")
        assert read_vocabulary(path).index.names == ["1e999999999999"]

    @pytest.mark.parametrize("bracket", ["[ skos:broader ", "("])
    def test_depth_of_turtle(self, tmp_path, bracket):
        path = turtle(tmp_path / "l.ttl", f"ex:a skos:broader {bracket * 20_000}")
        assert "invalid Turtle (too deeply nested)" in refusal(path, 5)

    def test_depth_of_xml_and_json(self, tmp_path):
        nested = "".join(f"<skos:Concept rdf:about='http://example.org/{n}'><skos:broader>" for n in range(20_000))
        (tmp_path / "l.rdf").write_text(f"{RDF}{nested}{'</skos:broader></skos:Concept>' * 20_000}</rdf:RDF>")
        assert len(read_vocabulary(tmp_path / "l.rdf").index) == 20_000
        (tmp_path / "l.jsonld").write_text("[" * 100_000)
        assert "invalid JSON-LD (more than 64 nested levels)" in refusal(tmp_path / "l.jsonld", 1)
        (tmp_path / "l.jsonld").write_text('{"http://x/": [' * 400 + "]}" * 400)
        assert "invalid JSON-LD (more than 64 nested levels)" in refusal(tmp_path / "l.jsonld", 1)

    def test_half_of_a_surrogate_pair(self, tmp_path):
        path = turtle(tmp_path / "l.ttl", r"ex:a a skos:Concept ; skos:prefLabel '\ud800' .")
        assert "'name' contains an unpaired surrogate" in refusal(path)
        path = turtle(tmp_path / "l.ttl", r"<http://example.org/\ud800> a skos:Concept .")
        assert "'key' contains an unpaired surrogate" in refusal(path)


class TestBroken:
    @pytest.mark.parametrize(
        ("text", "line", "words"),
        [
            ("ex:a a skos:Concept .\nex:b a nothing:x .", 6, 'invalid Turtle (Prefix "nothing:" not bound)'),
            ("ex:a a skos:Concept ;\n\nex:b a skos:Concept .", 7, "invalid Turtle (objectList expected)"),
            ("ex:a skos:prefLabel '''one\ntwo\nthree''' .\nex:b a .", 8, "invalid Turtle"),
            ("ex:a a skos:Concept ;\n  skos:prefLabel 'open .", 6, "invalid Turtle (Quote expected in string)"),
            ("ex:a a skos:Concept .\n@prefix", 6, "invalid Turtle"),
            ("ex:a a skos:Concept .\n\n<http://example.org/", 7, "invalid Turtle (unterminated URI reference)"),
        ],
    )
    def test_turtle(self, tmp_path, text, line, words):
        assert words in refusal(turtle(tmp_path / "l.ttl", text), line)

    def test_bytes_that_are_not_utf_8(self, tmp_path):
        path = tmp_path / "l.ttl"
        path.write_bytes(PREFIXES.encode() + b"ex:a skos:prefLabel '\xff' .")
        assert "not UTF-8 (byte 0xff at column 22)" in refusal(path, 5)

    def test_n_triples(self, tmp_path):
        path = tmp_path / "l.nt"
        path.write_text("# comment\n\n<http://a> <http://b> <http://c> .\n<http://a> <http://b> c .\n")
        assert "invalid N-Triples" in refusal(path, 4)

    @pytest.mark.parametrize(
        ("text", "line", "words"),
        [
            (f"{RDF}\n<skos:Concept>\n</rdf:RDF>", 3, "invalid RDF/XML (mismatched tag)"),
            (f"{RDF}\n<skos:Concept rdf:about='a'", 2, "invalid RDF/XML (unclosed token)"),
            (f"{RDF}\n\n<skos:Concept rdf:about='a' rdf:ID='b'/></rdf:RDF>", 3, "(Can have at most one of rdf:ID"),
            (f"{RDF}\n<skos:Concept><skos:prefLabel xml:lang='?'/>", 2, "('?' is not a valid language tag!)"),
            (f"{RDF}\n<skos:Concept>&what;", 2, "invalid RDF/XML (undefined entity)"),
            ("<?xml version='1.0'?>\n", 2, "invalid RDF/XML (no element found)"),
            ("<?xml version='1.0' encoding='shift_jis'?>\n<a/>", 1, "invalid RDF/XML (multi-byte encodings"),
        ],
    )
    def test_rdf_xml(self, tmp_path, text, line, words):
        path = tmp_path / "l.rdf"
        path.write_text(text)
        assert words in refusal(path, line)

    def test_json_ld(self, tmp_path):
        path = tmp_path / "l.jsonld"
        path.write_text('{"@id":\n x}')
        assert "invalid JSON-LD (Expecting value)" in refusal(path, 2)
        path.write_text('{"@reverse": 5}')
        assert "invalid JSON-LD" in refusal(path)

    @pytest.mark.parametrize("name", ["l.ttl", "l.nt", "l.jsonld", "l.skos", "l.rdf"])
    def test_nothing_in_it(self, tmp_path, name):
        content = {"l.jsonld": "{}", "l.rdf": f"{RDF}</rdf:RDF>"}.get(name, "# nothing\n")
        (tmp_path / name).write_text(content)
        assert "contains no labels. Give each label the type skos:Concept." in refusal(tmp_path / name)

    def test_no_file(self, tmp_path):
        assert "no such file" in refusal(tmp_path / "missing.ttl")


class TestOfTheLibrary:
    def test_missing(self, kitchen, monkeypatch):
        monkeypatch.setitem(sys.modules, "rdflib", None)
        monkeypatch.delitem(sys.modules, "xmtc.data.skos", raising=False)
        with pytest.raises(MissingExtraError) as caught:
            read_vocabulary(kitchen)
        assert str(caught.value) == 'reading SKOS needs rdflib. Install it with: pip install "xmtc[skos]"'

    def test_quiet(self, tmp_path, capfd, caplog):
        import rdflib

        integer = "'x'^^<http://www.w3.org/2001/XMLSchema#integer>"
        path = turtle(
            tmp_path / "l.ttl", f"ex:a a skos:Concept ; skos:prefLabel {integer} ; skos:broader <http://a b> ."
        )
        before = logging.getLogger("rdflib").level, rdflib.NORMALIZE_LITERALS
        assert read_vocabulary(path).index.names == ["x"]
        assert not caplog.records
        assert capfd.readouterr() == ("", "")
        assert (logging.getLogger("rdflib").level, rdflib.NORMALIZE_LITERALS) == before


FILES = {
    "l.ttl": TURTLE.encode(),
    "l.rdf": RDF_XML.format(encoding="utf-8").encode(),
    "l.jsonld": JSON_LD.encode(),
    "l.nt": b"".join(
        b"<http://a/> <http://www.w3.org/%s .\n" % rest
        for rest in (
            b"1999/02/22-rdf-syntax-ns#type> <http://www.w3.org/2004/02/skos/core#Concept>",
            b'2004/02/skos/core#prefLabel> "A\\u00e4"@en',
        )
    ),
}
WORDS = """
    [ ] ( ) { } " \""" < > </ @ : ; . \\ \\u ^^ _:b << @prefix @base a 1e9 <!-- <![CDATA[ &#0; &x; <?x xml:base='/' null
    "@id" "@type" "@graph" "@reverse" "@list" "@language" "@base" \x00 xml:lang=""
"""
PIECES = st.binary(max_size=4) | st.sampled_from([*(word.encode() for word in WORDS.split()), b"\n", b"\xff"])


@pytest.mark.usefixtures("no_way_out")
@settings(max_examples=300, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(sorted(FILES)),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 8), PIECES), max_size=4),
    st.none() | st.lists(PIECES, max_size=30).map(b"".join),
)
def test_any_bytes_give_labels_or_a_refusal(tmp_path, name, edits, soup):
    content = FILES[name] if soup is None else soup
    for where, length, piece in edits:
        at = int(where * len(content))
        content = content[:at] + piece + content[at + length :]
    path = tmp_path / name
    path.write_bytes(content)
    try:
        assert len(read_vocabulary(path).index) > 0
    except DataError as error:
        message = str(error)
    else:
        return
    assert message.isprintable()
    assert message.startswith(str(path))
