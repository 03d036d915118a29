"""The matcher in plain Python: slow, on strings, without any index."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from xmtc.text.stemming import light_stem

NAN = float("nan")
PHRASE, TOGETHER = 3, 1
MASK = (1 << 64) - 1
Values = dict[str, float]
PAIR = re.compile("(?=([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]{2}))")


def plain_key(text: str, start: int) -> int:
    """The key of a text, in Python's integers."""
    key = start
    for letter in text:
        key = (key ^ ord(letter)) * 0x9E3779B97F4A7C15 & MASK
        key ^= key >> 29
    key = (key ^ (key >> 32)) * 0xD6E8FEB86659FD93 & MASK
    return key ^ (key >> 32)


def plain_grams(word: str, shortest: int, longest: int) -> list[str]:
    """The n-grams of a padded word, and its pairs of characters that are written without spaces between words."""
    padded = f" {word} "
    found = [padded[i : i + n] for n in range(shortest, longest + 1) for i in range(len(padded) - n + 1)]
    return (found or [padded]) + PAIR.findall(word)


class Match(NamedTuple):
    """How a name occurs in a text."""

    name: int
    words: int
    kind: int
    count: int
    first: int
    last: int
    phrase: int  # where it first occurs side by side, or −1


@dataclass
class Name:
    """One name of a label."""

    label: int
    kind: int
    words: list[str]
    ambiguity: int = 0

    @property
    def stems(self) -> list[str]:
        return [light_stem(word) for word in self.words]

    @property
    def grams(self) -> list[str]:
        """Distinct n-grams, in the order of their keys."""
        return sorted({gram for word in self.words for gram in plain_grams(word, 4, 5)}, key=lambda g: plain_key(g, 11))


class Text:
    """Words, sentences and title of a text."""

    def __init__(self, text: str) -> None:
        found = [(m.group().lower(), m.start(), m.end()) for m in re.finditer(r"\w+", text)]
        self.words = [word for word, _, _ in found]
        self.stems = [light_stem(word) for word in self.words]
        between = [text[a[2] : b[1]] for a, b in pairwise(found)]
        ends = [re.search(r"[.!?;].*\s|\n", gap) is not None for gap in between]
        self.sentences = [0, *np.cumsum(ends).tolist()][: len(found)]
        lines = [i + 1 for i, gap in enumerate(between) if "\n" in gap]
        stops = [i + 1 for i, is_end in enumerate(ends) if is_end]
        self.line_starts = set(lines)
        self.title = (lines or stops or [len(found)])[0]
        self.grams: dict[str, list[int]] = {}  # positions, one for each time
        for i, word in enumerate(self.words):
            for gram in plain_grams(word, 4, 5):
                self.grams.setdefault(gram, []).append(i)


class Reference:
    """Names of labels, given as preferred name and alternatives, with links between labels."""

    def __init__(self, labels: Sequence[Sequence[str]], corpus: Sequence[str], most: int) -> None:
        self.count, self.most = len(labels), min(most, len(labels))
        self.names = [Name(label, int(i > 0), n.split()) for label, own in enumerate(labels) for i, n in enumerate(own)]
        owners: dict[tuple[str, ...], set[int]] = {}
        for name in self.names:
            owners.setdefault(tuple(sorted(name.stems)), set()).add(name.label)
        for name in self.names:
            name.ambiguity = len(owners[tuple(sorted(name.stems))])
        self.frequency = Counter(stem for name in self.names for stem in name.stems)
        held = Counter(gram for name in self.names for gram in name.grams)
        self.idf = {gram: np.float32(1 + math.log(len(self.names) / count)) for gram, count in held.items()}
        self.scales = [np.float32(1 / math.sqrt(sum(float(self.idf[g]) ** 2 for g in n.grams))) for n in self.names]
        texts = [Text(text) for text in corpus]
        self.gram_rarity = {g: _rarity(sum(g in text.grams for text in texts), len(texts)) for g in held}
        self.stem_rarity = {s: _rarity(sum(s in text.stems for text in texts), len(texts)) for s in self.frequency}
        self.links: dict[str, list[set[int]]] = {
            kind: [set() for _ in labels] for kind in ("broader", "narrower", "related")
        }

    def anchor(self, name: Name) -> str:
        """The rarest stem."""
        return min(name.stems, key=lambda stem: self.frequency[stem])

    def occurrence(self, number: int, text: Text) -> Match | None:
        """Where all stems of a name are in one sentence, or side by side on one line."""
        name, found = self.names[number], []
        anchor = self.anchor(name)
        place = max(i for i, stem in enumerate(name.stems) if stem == anchor)
        for at in (i for i, stem in enumerate(text.stems) if stem == anchor):
            inside = [i for i, sentence in enumerate(text.sentences) if sentence == text.sentences[at]]
            firsts = [next((i for i in inside if text.stems[i] == stem), -1) for stem in name.stems]
            begin = at - place
            side_by_side = begin >= 0 and text.stems[begin : begin + len(name.stems)] == name.stems
            side_by_side &= text.line_starts.isdisjoint(range(begin + 1, begin + len(name.stems)))
            if -1 in firsts and not side_by_side:
                continue
            used = list(range(begin, begin + len(name.stems))) if side_by_side else firsts
            exact = [text.words[i] for i in used] == name.words
            found.append((begin if side_by_side else at, (PHRASE if side_by_side else TOGETHER) + exact))
        if not found:
            return None
        phrases = [at for at, kind in found if kind >= PHRASE]
        kind = max(kind for _, kind in found)
        return Match(
            number, len(name.words), kind, len(found), found[0][0], found[-1][0], phrases[0] if phrases else -1
        )

    def matches(self, text: Text) -> tuple[dict[int, Match], list[int]]:
        """The best match of each label, and the words of the longest phrase at each position."""
        found: dict[int, Match] = {}
        longest = [0] * len(text.words)
        for stem in dict.fromkeys(text.stems):
            for number, name in enumerate(self.names):
                match = self.occurrence(number, text) if self.anchor(name) == stem else None
                if match is None:
                    continue
                if match.phrase >= 0:
                    for at in range(match.phrase, match.phrase + match.words):
                        longest[at] = max(longest[at], match.words)
                before = found.get(name.label)
                if before is None or (match.words, match.kind) > (before.words, before.kind):
                    found[name.label] = match
                else:
                    found[name.label] = before._replace(count=max(before.count, match.count))
        return found, longest

    def weights(self, text: Text) -> dict[str, float]:
        """(1 + ln tf + [in the title]) · idf² of the n-grams of a text that any name has."""
        return {
            gram: (1 + math.log(len(at)) + (at[0] < text.title)) * float(self.gram_rarity[gram]) ** 2
            for gram, at in text.grams.items()
            if gram in self.idf
        }

    def best_names(self, weights: dict[str, float]) -> list[tuple[int, np.float32]]:
        """The most similar name of each label, and its similarity."""
        best: list[tuple[int, np.float32]] = []
        for number, name in enumerate(self.names):
            value = np.float32(0)
            own = set(name.grams)
            for gram, weight in weights.items():
                if gram in own:
                    value += np.float32(weight * float(self.idf[gram]))
            value *= self.scales[number]
            if name.label == len(best):
                best.append((number, value))
            elif value > best[name.label][1]:
                best[name.label] = number, value
        return best

    def compared(self, number: int, text: Text) -> tuple[Values, int, float]:
        """Features of the common n-grams; the position of the word with most of them, and its share."""
        grams = self.names[number].grams
        common = [gram for gram in grams if gram in text.grams]
        mass = sum(float(self.idf[gram]) for gram in grams)
        inside = sum(float(self.idf[gram]) for gram in common)
        shares: dict[int, float] = {}
        for gram in common:
            at = text.grams[gram][0]
            shares[at] = shares.get(at, 0.0) + float(self.idf[gram])
        values = {
            "share of the name in the text": inside / mass,
            "share of the name in the title": sum(
                float(self.idf[gram]) for gram in common if text.grams[gram][0] < text.title
            )
            / mass,
            "n-grams of the name": len(grams),
            "share of the name in one word": 0.0,
            "share of this word in the name": 0.0,
            "position of this word": NAN,
            "rarity of the common n-grams": NAN,
            "frequency of the common n-grams": NAN,
        }
        if not common:
            return values, -1, 0.0
        at = max(shares, key=lambda place: shares[place])
        own = [gram for gram in common if text.grams[gram][0] == at]
        values["share of the name in one word"] = shares[at] / mass
        values["share of this word in the name"] = len(own) / len(plain_grams(text.words[at], 4, 5))
        values["position of this word"] = math.log1p(at)
        for key, of in (
            ("rarity of the common n-grams", lambda gram: float(self.gram_rarity[gram])),
            ("frequency of the common n-grams", lambda gram: math.log(len(text.grams[gram]))),
        ):
            values[key] = sum(float(self.idf[gram]) * of(gram) for gram in common) / inside
        return values, at, shares[at] / mass

    def described(self, text_: str, allowed: set[int] | None = None) -> tuple[list[int], dict[int, tuple[int, Values]]]:
        """Candidates in order; and for all labels the name and the features."""
        text = Text(text_)
        weights, (matches, longest) = self.weights(text), self.matches(text)
        best = self.best_names(weights)
        ranking = sorted((label for label in range(self.count) if best[label][1] > 0), key=lambda i: (-best[i][1], i))
        tops = ranking[: self.most]
        shares: dict[int, float] = {}
        for label in tops:
            _, at, share = self.compared(best[label][0], text)
            shares[at] = max(shares.get(at, 0.0), share)
        chosen = [label for label in ranking if allowed is None or label in allowed][: self.most]
        for label in matches:
            if label not in chosen and (allowed is None or label in allowed):
                chosen.append(label)
        length = math.sqrt(max(sum(weight**2 for weight in weights.values()), 1e-12))
        top = float(best[tops[0]][1]) if tops else 1.0
        rows = {}
        for label in range(self.count):
            number, value = best[label]
            values, at, share = self.compared(number, text)
            values["share in this word, relative to the best name"] = (
                share / max(shares.get(at, 0.0), share) if at >= 0 else NAN
            )
            values["similarity"], values["relative similarity"] = float(value) / length, float(value) / top
            values["rank by similarity"] = tops.index(label) if label in tops else self.most
            values.update(self._match_values(matches.get(label), text, longest))
            if label in matches:
                number = matches[label].name
            values.update(self._name_values(self.names[number]))
            for kind, links in self.links.items():
                values[f"{kind} labels found"] = len(links[label] & matches.keys())
            values["number of neighbours"] = sum(len(links[label]) for links in self.links.values())
            values["length of the text"] = math.log1p(len(text.words))
            values["title only"] = float(text.title == len(text.words))
            values["matches in the text"] = len(matches)
            rows[label] = number, values
        return chosen, rows

    def _match_values(self, match: Match | None, text: Text, longest: list[int]) -> Values:
        if match is None:
            none = dict.fromkeys(("first position", "spread", "part of a longer match"), NAN)
            return {**none, "match": 0, "occurrences": 0, "in the title": 0}
        return {
            "match": match.kind,
            "occurrences": match.count,
            "first position": math.log1p(match.first),
            "spread": (match.last - match.first) / len(text.words),
            "in the title": float(match.first < text.title),
            "part of a longer match": float(longest[match.first] > match.words),
        }

    def _name_values(self, name: Name) -> Values:
        rarities = [float(self.stem_rarity[stem]) for stem in name.stems]
        return {
            "words of the name": len(name.words),
            "kind of name": name.kind,
            "labels with this name": name.ambiguity,
            "rarest word of the name": max(rarities),
            "mean rarity of its words": sum(rarities) / len(rarities),
        }


def _rarity(count: int, documents: int) -> np.float32:
    return np.float32(1 + math.log((1 + documents) / (1 + count)))
