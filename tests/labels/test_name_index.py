"""Labels found by what a person types: against a slow reference in many scripts, and in time among a million."""

from __future__ import annotations

import threading
import time
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pyarrow.compute as pc
import pytest
from numpy.typing import NDArray

from xmtc.core.errors import ConfigError, DataError
from xmtc.data.label_index import LabelIndex
from xmtc.labels.name_index import LabelMatch, LabelSearch, fold

PIECES = [
    *"aabbcAB  ",
    *("é", "É", "e", "e\u0301", "ß", "SS", "ﬁ", "İ", "ı", "Å", "Å"),
    *("Σ", "ς", "σ", "ό", "ж", "Й", "и\u0306", "水", "火", "가", "ㄱ", "कि", "क", "が", "か"),
    *(
        "-",
        "–",
        "'",
        "’",
        "«",
        "…",
        "\u00ad",
        "、",
        "\u00a0",
        "\t",
        "\n",
        "\u2028",
        "´",
        "😀",
        "𝐚",
        "𐐀",
        "²",
        "ab",
        "ba ",
        "₂",
    ),
]


@cache
def plainly_folded(text: str) -> str:
    for _ in range(2):
        taken_apart = [
            "-" if unicodedata.category(c) == "Pd" else {"’": "'", "«": '"'}.get(c, c)
            for c in unicodedata.normalize("NFKD", text)
            if not unicodedata.combining(c) and unicodedata.category(c) != "Cf"
        ]
        text = "".join(taken_apart).casefold()
    return " ".join(text.split())


def kind(text: str, query: str) -> int:
    """0 the whole, 1 its beginning, 2 the beginning of a word, 3 anywhere, 90 nowhere."""
    text = plainly_folded(text)
    if query not in text:
        return 90
    if text.startswith(query):
        return 0 if text == query else 1
    places = [at for at in range(1, len(text)) if text.startswith(query, at)]
    apart = [text[at - 1].isascii() and not text[at - 1].isalnum() for at in places]
    return 2 if any(apart) else 3


def reference(labels: LabelIndex, counts: NDArray[np.int64], query: str, limit: int) -> tuple[list[LabelMatch], bool]:
    query = plainly_folded(query)
    ranked = []
    for number, row in enumerate(labels.table.to_pylist()):
        named = [(kind(row["name"], query), 0, None)]
        others = [row["key"], *row["alternatives"]]
        named += [(10 + kind(each, query), at, each if at else None) for at, each in enumerate(others)]
        best, _, alternative = min(named, key=lambda each: each[:2]) if query else named[0]
        if best < 90 or not query:
            ranked.append((best if query else 0, -int(counts[number]), number, alternative))
    ranked.sort(key=lambda each: each[:3])
    return [LabelMatch(number, alternative) for _, _, number, alternative in ranked[:limit]], len(ranked) > limit


def drawn(random: np.random.Generator, longest: int) -> str:
    return "".join(random.choice(PIECES, random.integers(0, longest)))


def some_labels(random: np.random.Generator, count: int, longest: int) -> LabelIndex:
    keys = [f"{drawn(random, 3)}{number}" for number in range(count)]
    names = [key if random.random() < 0.2 else drawn(random, longest) for key in keys]
    alternatives = [[drawn(random, longest) for _ in range(random.integers(0, 4))] for _ in keys]
    return LabelIndex.from_keys(keys, names, alternatives)


@pytest.mark.parametrize(("seed", "count", "longest"), [(0, 300, 12), (1, 300, 90), (2, 2000, 6), (3, 7, 5)])
def test_against_the_reference(seed: int, count: int, longest: int) -> None:
    random = np.random.default_rng(seed)
    labels = some_labels(random, count, longest)
    counts = random.integers(0, 4, count)
    search = LabelSearch(labels, counts)
    whole = [*labels.names, *labels.keys]
    for turn in range(100 if count < 1000 else 25):
        name = str(random.choice(whole))
        begin = int(random.integers(0, max(len(name), 1)))
        cut = name[begin : begin + int(random.integers(1, 9))]
        query = (cut, drawn(random, 4), name, str(random.choice(PIECES)), cut.swapcase())[turn % 5]
        limit = int(random.choice([1, 2, 5, 20, 10_000]))
        assert search.find(query, limit) == reference(labels, counts, query, limit), (query, limit)


def numbers(found: tuple[list[LabelMatch], bool]) -> list[int]:
    return [each.label for each in found[0]]


def test_order_by_hand() -> None:
    names = ["Starfish", "Fishing", "fish", "Big fish", "Fisher", "Cat", "sword-fish", "Dog"]
    others = [[], [], [], [], [], ["Fish-eater"], [], ["dogfish", "fish"]]
    labels = LabelIndex.from_keys([f"k{number}" for number in range(8)], names, others)
    found, more = LabelSearch(labels, np.array([9, 1, 0, 1, 2, 50, 3, 60])).find(" FISH ")
    told = [(each.label, each.alternative) for each in found]
    assert told == [(2, None), (4, None), (1, None), (6, None), (3, None), (0, None), (7, "fish"), (5, "Fish-eater")]
    assert not more
    assert numbers(LabelSearch(labels, None).find("fish")) == [2, 1, 4, 3, 6, 0, 7, 5]
    assert LabelSearch(labels, None).find("fish", 3) == ([LabelMatch(2), LabelMatch(1), LabelMatch(4)], True)
    assert LabelSearch(labels, None).find("fish", 8)[1] is False
    assert LabelSearch(labels, None).find("K3") == ([LabelMatch(3)], False)  # a key is no alternative name


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("elevage", "Élevage bovin"),
        ("ÉLEVAGE", "elevage"),
        ("e\u0301levage", "Élevage"),
        ("  bovine   spongiform ", "Bovine\u00a0 Spongiform\tencephalopathy"),
        ("strasse", "Straße"),
        ("ΣΟΦΌΣ", "σοφός"),
        ("H2O", "H₂O"),
        ("fi", "ﬁne"),
        ("d'eau", "Chute d’eau"),
        ('"a-b"', "«A–B»"),
        ("zusammen", "Zu\u00adsam\u00admen"),
        ("istanbul", "İstanbul"),
        ("молок", "Молоко"),
        ("乳", "牛乳"),
    ],
)
def test_case_accents_and_forms_are_ignored(query: str, name: str) -> None:
    assert LabelSearch(LabelIndex.from_keys(["0", "1"], ["nothing", name])).find(query) == ([LabelMatch(1)], False)


def test_an_empty_query_gives_the_most_frequent() -> None:
    search = LabelSearch(LabelIndex.from_keys(list("abcd")), np.array([1, 5, 5, 2]))
    for query in ("", "  ", "\u0301", "\n"):
        assert search.find(query, 3) == ([LabelMatch(1), LabelMatch(2), LabelMatch(3)], True)
    assert search.find("", 4) == ([LabelMatch(1), LabelMatch(2), LabelMatch(3), LabelMatch(0)], False)


def test_what_no_name_holds() -> None:
    search = LabelSearch(LabelIndex.from_keys(["a", "b"], ["one", "two"]))
    for query in ("e\nt", "onetwo", "e t", "x" * 5000, "\ud800", "\0"):
        assert search.find(query) == ([], False)
    nothing = LabelSearch(LabelIndex.from_keys([]), np.zeros(0, np.int64))
    assert nothing.find("a") == nothing.find("") == ([], False)


def test_mistakes() -> None:
    labels = LabelIndex.from_keys(["a", "b"])
    with pytest.raises(DataError, match="2 labels but 1 counts"):
        LabelSearch(labels, np.array([1]))
    with pytest.raises(ConfigError, match="'limit' must be an integer ≥ 1"):
        LabelSearch(labels).find("a", 0)


def test_sliced_and_chunked_labels() -> None:
    labels = some_labels(np.random.default_rng(5), 60, 8)
    part = LabelIndex(labels.table.slice(20, 30))
    joined = LabelIndex(labels.table.slice(20, 11)).joined(LabelIndex(labels.table.slice(31, 19)))
    expected = LabelIndex.from_keys(part.keys, part.names, part.table["alternatives"].to_pylist())
    for query in ("a", "b", "ab", "é"):
        assert LabelSearch(part).find(query) == LabelSearch(joined).find(query) == LabelSearch(expected).find(query)


def test_folding_twice_changes_nothing() -> None:
    random = np.random.default_rng(0)
    for _ in range(500):
        text = drawn(random, 20)
        assert fold(text) == plainly_folded(text) == fold(fold(text))


def test_threads_find_the_same() -> None:
    random = np.random.default_rng(8)
    search = LabelSearch(some_labels(random, 3000, 20))
    queries = [drawn(random, 3) for _ in range(200)]
    expected = [search.find(query) for query in queries]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(search.find, queries)) == expected


@pytest.mark.long
def test_a_million_labels_in_time(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever is typed, and the first time too; the interpreter is free meanwhile."""
    random = np.random.default_rng(0)
    words = ["".join(random.choice(list("etaoinshrdlu"), random.integers(2, 11))) for _ in range(30_000)]
    chosen = random.integers(0, len(words), (1_000_000, 5))
    names = [" ".join([words[word] for word in row]) + " élevage" for row in chosen]
    keys = [f"http://example.org/subjects/{number}" for number in range(len(names))]
    labels = LabelIndex.from_keys(keys, names, [[names[number - 1][:20]] for number in range(len(names))])
    started = time.perf_counter()
    search = LabelSearch(labels, random.integers(0, 1000, len(names)))
    built = time.perf_counter() - started
    queries = ["a", "e", "zzzzqq", "eaeaeaea", "et", "qz", "levage", "ttp", "example", "org/sub", "http", names[77]]
    queries += ["subjects/999999", f"{words[0]} {words[1]}", "long query " * 50, "", "élevage", "水"]
    told = [f"built in {built:.1f} s, {search.nbytes / 1e6:.0f} MB"]
    medians = []
    for query in queries:
        times = []
        for _ in range(5):
            started = time.perf_counter()
            search.find(query)
            times.append(1000 * (time.perf_counter() - started))
        medians.append(float(np.median(times)))
        told.append(f"{query[:30]:<30} {medians[-1]:7.2f} ms, the first time {times[0]:7.2f}")
    scans = []
    for _ in range(5):
        started = time.perf_counter()
        pc.match_substring(labels.table["name"], "zzzzqq", ignore_case=True)
        scans.append(1000 * (time.perf_counter() - started))
    told.append(f"Arrow reads all names in {np.median(scans):.2f} ms")
    with capsys.disabled():
        print("", *told, sep="\n")
    assert max(medians) < max(50, float(np.median(scans)))
    assert built < 30


@pytest.mark.long
def test_others_go_on_meanwhile() -> None:
    """A thread that only counts gets on beside a search that takes long."""
    search = LabelSearch(LabelIndex.from_keys([f"etaoin shrdlu {number} " * 8 for number in range(600_000)]))
    done = threading.Event()
    worker = threading.Thread(target=lambda: ([search.find("eaeaeaea") for _ in range(20)], done.set()))
    gaps, last = [], time.perf_counter()
    worker.start()
    while not done.is_set():
        now = time.perf_counter()
        gaps.append(now - last)
        last = now
    worker.join()
    assert np.quantile(gaps, 0.999) < 0.02
    assert len(gaps) > 1000
