"""Occurrences of one name in a text, for the matching kernel."""

from __future__ import annotations

from typing import Any

from xmtc.core.jit import called
from xmtc.lexical.match_types import LINE_END, MOST_NEIGHBOURS, MOST_OCCURRENCES, PHRASES, SETS


@called
def number_sentences(breaks: Any, start: Any, size: Any, sentences: Any) -> Any:
    """Number the sentence of each token; return the length of the title.

    The title is the first line, or the first sentence of a text of one line.
    """
    sentence, line, first = 0, -1, -1
    for i in range(size):
        if i > 0 and breaks[start + i] > 0:
            sentence += 1
            if first < 0:
                first = i
            if line < 0 and breaks[start + i] == LINE_END:
                line = i
        sentences[i] = sentence
    if line >= 0:
        return line
    return first if first >= 0 else size


@called
def occurrences(
    name: Any,
    anchor: Any,
    start: Any,
    length: Any,
    texts: Any,
    names: Any,
    heads: Any,
    following: Any,
    sentences: Any,
    pointers: Any,
    out: Any,
) -> Any:
    """Write count, kind, first and last position of a name whose rarest stem is `anchor`; return whether it occurs.

    All its stems must be in one sentence, or side by side on one line: the full stop of 'St. Gallen' ends a sentence.
    The fifth number is the first position of the words side by side, or −1.
    """
    low, high = names.indptr[name], names.indptr[name + 1]
    size = high - low
    place = 0  # of the anchor in the name
    possible = True
    for j in range(size):
        head = heads[names.stems[low + j]]
        if head < 0:
            possible = False
            break
        pointers[j] = head
        if names.stems[low + j] == anchor:
            place = j
    count, kind, first, last, side_by_side = 0, 0, -1, -1, -1
    if possible:
        at, seen = heads[anchor], 0
        while at >= 0 and seen < MOST_OCCURRENCES:
            seen += 1
            sentence = sentences[at]
            together = True
            for j in range(size):
                p = pointers[j]
                steps = 0
                while p >= 0 and sentences[p] < sentence and steps < MOST_OCCURRENCES:
                    p = following[p]
                    steps += 1
                pointers[j] = p
                if p < 0 or sentences[p] != sentence:
                    together = False
                    break
            begin = at - place
            phrase = begin >= 0 and begin + size <= length
            if phrase:
                for j in range(size):
                    position = start + begin + j
                    is_other = texts.stems[texts.tokens[position]] != names.stems[low + j]
                    if is_other or (j > 0 and texts.breaks[position] == LINE_END):
                        phrase = False
                        break
            if together or phrase:
                exact = True
                for j in range(size):
                    position = begin + j if phrase else pointers[j]
                    if texts.forms[texts.tokens[start + position]] != names.forms[low + j]:
                        exact = False
                        break
                kind = max(kind, (PHRASES if phrase else SETS) + (1 if exact else 0))
                count += 1
                last = begin if phrase else at
                if first < 0:
                    first = last
                if phrase and side_by_side < 0:
                    side_by_side = begin
            at = following[at]
    out[0], out[1], out[2], out[3], out[4] = count, kind, first, last, side_by_side
    return count > 0


@called
def neighbours_found(label: Any, indptr: Any, others: Any, found: Any) -> Any:
    """Count the neighbours of a label that match, too."""
    count = 0
    for i in range(indptr[label], min(indptr[label + 1], indptr[label] + MOST_NEIGHBOURS)):
        if found[others[i]] >= 0:
            count += 1
    return count
