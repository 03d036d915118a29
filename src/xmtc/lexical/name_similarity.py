"""Similarity of names and texts by their character n-grams, for the matching kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

from xmtc.core.jit import called
from xmtc.core.selection import heap_sort, nth_largest
from xmtc.lexical.match_types import (
    GRAM_COUNT,
    GRAM_FIRST,
    GRAM_IDF,
    GRAM_OFTEN,
    GRAM_RARE,
    GRAM_TITLE,
    GRAM_VALUE,
    IN_TITLE,
    INSIDE,
    ITS_GRAMS,
    NAME_MASS,
    NAME_SCALE,
    OFTEN,
    ONE_WORD,
    POSITION,
    RARE,
    WORDS_COMPARED,
)


@called
def most_grams(texts: Any, known: Any) -> Any:
    """Return a bound of the distinct n-grams of any text."""
    most = 0
    for text in range(len(texts.indptr) - 1):
        count = 0
        for i in range(texts.indptr[text], texts.indptr[text + 1]):
            count += texts.gram_indptr[texts.tokens[i] + 1] - texts.gram_indptr[texts.tokens[i]]
        most = max(most, count)
    return min(most, known)


@called
def describe_grams(
    texts: Any, start: Any, size: Any, title: Any, grams: Any, rarity: Any, places: Any, own: Any, numbers: Any
) -> Any:
    """Write a row for each distinct n-gram of the text; return their number and the squared length of the text.

    `places` of an n-gram is its row plus one.
    """
    count = 0
    for i in range(size):
        word = texts.tokens[start + i]
        for j in range(texts.gram_indptr[word], texts.gram_indptr[word + 1]):
            gram = texts.grams[j]
            if gram < 0:
                continue
            at = places[gram] - 1
            if at < 0:
                at = count
                count += 1
                places[gram] = count
                numbers[at] = gram
                own[at, GRAM_COUNT], own[at, GRAM_FIRST] = 0.0, i
                own[at, GRAM_TITLE] = 1.0 if i < title else 0.0
            own[at, GRAM_COUNT] += 1.0
    square = 0.0
    for at in range(count):
        gram = numbers[at]
        idf, rare, often = np.float64(grams.idf[gram]), np.float64(rarity.grams[gram]), np.log(own[at, GRAM_COUNT])
        weight = (1.0 + often + own[at, GRAM_TITLE]) * rare * rare
        square += weight * weight
        own[at, GRAM_VALUE] = np.float32(weight * idf)
        own[at, GRAM_IDF], own[at, GRAM_RARE], own[at, GRAM_OFTEN] = idf, idf * rare, idf * often
        own[at, GRAM_TITLE] *= idf
    return count, square


@called
def add_up(grams: Any, count: Any, own: Any, numbers: Any, postings: Any, sums: Any, similar: Any, values: Any) -> Any:
    """Write the names with n-grams of the text and their similarities; return their number. `sums` are restored.

    If there are more than `postings` names to add up, the most telling n-grams come first, until the next one has more
    names than are left to add up. N-grams of more than `postings` names are skipped.
    """
    total = 0
    for at in range(count):
        total += grams.posting_indptr[numbers[at] + 1] - grams.posting_indptr[numbers[at]]
    order = np.arange(count)
    if total > postings:
        heap_sort(order, own[:count, GRAM_VALUE].copy(), count)
    left, found = postings, 0
    for at in order:
        low, high = grams.posting_indptr[numbers[at]], grams.posting_indptr[numbers[at] + 1]
        if high - low > postings:
            continue
        if high - low > left:
            break
        left -= high - low
        value = np.float32(own[at, GRAM_VALUE])
        for j in range(low, high):
            name = grams.postings[j]
            similar[found] = name
            before = sums[name, 0]
            found += before == 0
            sums[name, 0] = before + value
    for i in range(found):
        values[i] = sums[similar[i], 0] * sums[similar[i], 1]
        sums[similar[i], 0] = 0
    return found


@called
def _shrunk(labels: Any, values: Any, count: Any, most: Any, places: Any) -> Any:
    """Keep the `most` largest of the first `count` values, smaller labels first if equal; return the smallest."""
    cut = nth_largest(values[:count], most)
    spare, equal = most, 0
    ties = np.empty(count, np.int32)
    for i in range(count):
        spare -= values[i] > cut
        ties[equal] = labels[i]
        equal += values[i] == cut
    last = nth_largest(ties[:equal], equal - spare + 1)
    kept = 0
    for i in range(count):
        label = labels[i]
        if values[i] > cut or (values[i] == cut and label <= last):
            labels[kept], values[kept] = label, values[i]
            places[label] = kept
            kept += 1
        else:
            places[label] = -1
    return cut


@called
def most_similar(
    owners: Any,
    names: Any,
    similarities: Any,
    count: Any,
    allowed: Any,
    most: Any,
    places: Any,
    labels: Any,
    values: Any,
) -> Any:
    """Write the labels with the most similar of the first `count` names, best first; return their number.

    `places` (−1 for all labels) is restored.
    """
    listed, cut = 0, np.float32(0)
    for i in range(count):
        value = similarities[i]
        if value < cut or value == 0:
            continue
        label = owners[names[i]]
        if len(allowed) and not allowed[label]:
            continue
        at = places[label]
        if at >= 0:
            values[at] = max(values[at], value)
            continue
        if listed == len(labels):
            cut = _shrunk(labels, values, listed, most, places)
            listed = most
        labels[listed], values[listed] = label, value
        places[label] = listed
        listed += 1
    if listed > most:
        _shrunk(labels, values, listed, most, places)
        listed = most
    heap_sort(labels, values, listed)
    for i in range(listed):
        places[labels[i]] = -1
    return listed


@called
def best_name(label: Any, names: Any, grams: Any, places: Any, own: Any) -> Any:
    """Return the most similar name of a label."""
    best, top = np.int32(names.first[label]), np.float32(0)
    if names.first[label + 1] - names.first[label] == 1:
        return best
    for name in range(names.first[label], names.first[label + 1]):
        total = np.float32(0)
        for j in range(grams.indptr[name], grams.indptr[name + 1]):
            at = places[grams.grams[j]]
            if at:
                total += np.float32(own[at - 1, GRAM_VALUE])
        value = total * grams.scales[name]
        if value > top:
            best, top = np.int32(name), value
    return best


@called
def compare(name: Any, grams: Any, facts: Any, places: Any, own: Any, words: Any, out: Any) -> Any:
    """Compare the n-grams of a name with those of the text, weighted by idf; return their similarity.

    See INSIDE and so on for the other results. An n-gram counts for the first word that has it.
    """
    inside, title, rare, often, total, count = 0.0, 0.0, 0.0, 0.0, np.float32(0), 0
    for j in range(grams.indptr[name], grams.indptr[name + 1]):
        at = places[grams.grams[j]] - 1
        if at < 0:
            continue
        total += np.float32(own[at, GRAM_VALUE])
        inside += own[at, GRAM_IDF]
        rare += own[at, GRAM_RARE]
        often += own[at, GRAM_OFTEN]
        title += own[at, GRAM_TITLE]
        first, word = own[at, GRAM_FIRST], 0
        while word < count and words[word, 0] != first:
            word += 1
        if word == count and count < WORDS_COMPARED:
            words[word, 0], words[word, 1], words[word, 2] = first, 0.0, 0.0
            count += 1
        if word < count:
            words[word, 1] += own[at, GRAM_IDF]
            words[word, 2] += 1.0
    one, mass = 0, np.float64(facts[NAME_MASS])
    for word in range(count):
        if words[word, 1] > words[one, 1]:
            one = word
    out[INSIDE], out[IN_TITLE] = inside / max(mass, 1e-9), title / max(mass, 1e-9)
    if count:
        out[POSITION], out[ONE_WORD], out[ITS_GRAMS] = words[one, 0], words[one, 1] / mass, words[one, 2]
        out[RARE], out[OFTEN] = rare / inside, often / inside
    return total * facts[NAME_SCALE]
