"""Stems: words that share one and words that must not, the extra, and any Unicode."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xmtc.core.errors import ConfigError, MissingExtraError
from xmtc.text import stemming
from xmtc.text.stemming import ALGORITHMS, light_stem, snowball_algorithm, stems, without_marks

SAME = [
    "house houses housing",
    "class classes",
    "study studies",
    "city cities",
    "company companies",
    "program programs programme programming programm programmen",
    "process processes processing",
    "plan plans planning planned",
    "model models modell modelle modellen",
    "tier tiere tieren tiers",
    "license licenses",
    "employee employees employed employé",
    "apply applied applies",
    "analysis analyses analyse analysen",
    "thesis theses thesen",
    "kind kinder kindern kindes",
    "haus häuser häusern hauses",
    "straße straßen strasse",
    "name namen",
    "buch bücher büchern",
    "lehrerin lehrerinnen",
    "regel regeln",
    "ergebnis ergebnisse ergebnissen ergebnisses",
    "kurs kurse kurses kursen",
    "physiker physikern physikers",
    "mensch menschen",
    "deutsch deutsche deutscher deutschen deutsches",
    "biologie biology biología",
    "énergie energie energien energy energies energía",
    "journal journaux journals",
    "oiseau oiseaux",
    "national nationale nationales nationaux",
    "canción canciones",
    "cruz cruces",
    "ciudad ciudades",
    "económico económica económicos económicas",
]
DIFFERENT = [
    "car care career cart",
    "wind wine window winter",
    "bild bildung",
    "policy police politics",
    "organ organisation",
    "university universe universal",
    "market marker",
    "art arm arbeit",
    "new newt nets",
    "general generation",
    "thesis the theory",
    "computer company component",
    "virus viral vista",
    "physik physiker psyche",
    "nation notion national",
    "casa caso cosa",
    "metall metallisieren",
    "nacht nachttiere",
    "fisch fischerei",
    "experte expertise",
    "schleier schlesier",
    "run ruin",
    "ville vile vigile",
]


@pytest.mark.parametrize("words", SAME)
def test_forms_of_a_word_share_a_stem(words: str) -> None:
    assert len({light_stem(word) for word in words.split()}) == 1


@pytest.mark.parametrize("words", DIFFERENT)
def test_different_words_have_different_stems(words: str) -> None:
    found = {word: light_stem(word) for word in words.split()}
    assert len(set(found.values())) == len(found), found


def test_words_that_stay() -> None:
    for word in ("", "s", "es", "die", "auto", "и", "городами", "日本語", "a1b2", "c++"):
        assert light_stem(word) == word
    assert light_stem("these") != "the"
    assert light_stem("городами".replace("и", "и\u0301")) == "городами"


def test_marks_of_letters() -> None:
    assert without_marks("häuser straße çığ łódź œuvre") == "hauser strasse cig lodz oeuvre"
    assert without_marks("ha\u0308user") == "hauser"
    assert without_marks("йод ё") == "йод ё"


SUFFIXES = st.text(alphabet="aeioysnrdgxzmtlcuß\u0308é", max_size=12)


@settings(max_examples=400)
@given(st.one_of(SUFFIXES, st.text(max_size=70), st.tuples(st.text(max_size=3), SUFFIXES).map("".join)))
def test_any_word(word: str) -> None:
    """The stem of a stem is itself, and no longer than the word without marks."""
    found = light_stem(word)
    assert light_stem(found) == found
    assert len(found) <= len(without_marks(word))
    assert bool(found) == bool(without_marks(word))


def test_long_words_take_no_time() -> None:
    start = time.perf_counter()
    for word in ("e" * 1_000_000, "en" * 500_000, "ä" * 100_000, "a" + "\u0301" * 100_000):
        assert light_stem(light_stem(word)) == light_stem(word)
    assert time.perf_counter() - start < 5


def test_stems_of_many_words() -> None:
    words = ["häuser", "", "studies"]
    assert (
        stems(words)
        == stems(pa.array(words))
        == stems(pa.chunked_array([words[:1], words[1:]]))
        == ["haus", "", "studi"]
    )


def test_unknown_language() -> None:
    with pytest.raises(ConfigError, match=r"no stemmer for language 'xx'\..* Available: ar, ca, .*yi\.$"):
        stems(["word"], "xx")
    assert snowball_algorithm("de-AT") == snowball_algorithm("DE") == snowball_algorithm("de_CH") == "german"


def test_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "snowballstemmer", None)
    stemming._snowball.cache_clear()
    with pytest.raises(MissingExtraError) as caught:
        stems(["word"], "en")
    assert str(caught.value) == (
        'stemming by language needs snowballstemmer. Install it with: pip install "xmtc[snowball]"'
    )
    assert stems(["words"]) == ["word"]


def test_snowball() -> None:
    snowballstemmer = pytest.importorskip("snowballstemmer", reason="the extra 'snowball' is not installed")
    assert stems(["häuser", "wissenschaftlichen"], "de") == ["haus", "wissenschaft"]
    assert stems(pa.array(["generalizations", "ponies"]), "en") == ["general", "poni"]
    assert stems(["n" * 100_000, "", "\U0001f600"], "de") == ["n" * 100_000, "", "\U0001f600"]
    for language, algorithm in ALGORITHMS.items():
        if algorithm in snowballstemmer.algorithms():
            assert len(stems(["informationen", "gatos", "\u0301", "ß"], language)) == 4


def test_snowball_on_threads() -> None:
    """A stemmer works on one word at a time; each thread has its own."""
    pytest.importorskip("snowballstemmer", reason="the extra 'snowball' is not installed")
    words = [f"{first}{second}lichen" for first in "bdfgklmnprst" for second in ("auer", "ieder", "ortung", "essen")]
    alone = stems(words, "de")
    stemming._snowball.cache_clear()
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: stems(words, "de"), range(8))) == [alone] * 8


def test_language_that_is_too_new(monkeypatch: pytest.MonkeyPatch) -> None:
    snowballstemmer = pytest.importorskip("snowballstemmer", reason="the extra 'snowball' is not installed")
    monkeypatch.setattr(snowballstemmer, "algorithms", lambda: ["english"])
    stemming._snowball.cache_clear()
    with pytest.raises(ConfigError, match=r"does not support language 'cs'. Update it with: pip install --upgrade"):
        stems(["word"], "cs")
