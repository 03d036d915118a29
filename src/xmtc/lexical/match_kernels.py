"""Compiled search for label names in texts, and the features of each match."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xmtc.core.jit import kernel
from xmtc.core.selection import heap_sort
from xmtc.lexical.match_types import (
    BROADER_FOUND,
    COMMON_FREQUENCY,
    COMMON_RARITY,
    COSINE,
    FIRST_POSITION,
    FREQUENCY,
    GRAMS_OF_NAME,
    IN_LONGER_MATCH,
    IN_TITLE,
    INSIDE,
    ITS_GRAMS,
    KIND_OF_NAME,
    LABELS_WITH_NAME,
    MATCH,
    MATCH_COUNT,
    MATCH_IN_TITLE,
    MEAN_RARITY,
    NAME_GRAMS,
    NAME_KIND,
    NAME_LABELS,
    NAME_MASS,
    NAME_RAREST,
    NAME_RARITY,
    NAME_SCALE,
    NAME_WORDS,
    NARROWER_FOUND,
    NEIGHBOUR_COUNT,
    OCCURRENCES,
    OFTEN,
    ONE_WORD,
    POSITION,
    PRECISION,
    RARE,
    RAREST_WORD,
    RELATED_FOUND,
    RELATIVE_SIMILARITY,
    SHARE_IN_TEXT,
    SHARE_IN_TITLE,
    SHARE_IN_WORD,
    SHARE_OF_BEST,
    SHARE_OF_WORD,
    SIMILARITY,
    SIMILARITY_RANK,
    SPREAD,
    TEXT_LENGTH,
    TITLE_ONLY,
    WORD_POSITION,
    WORDS_COMPARED,
    WORDS_OF_NAME,
    MatchMemory,
    Neighbours,
    Rarity,
    TextNumbers,
)
from xmtc.lexical.name_occurrences import neighbours_found, number_sentences, occurrences
from xmtc.lexical.name_similarity import add_up, best_name, compare, describe_grams, most_grams, most_similar
from xmtc.lexical.names import MOST_WORDS, GramIndex, NameTable


@kernel()
def name_facts(names: NameTable, grams: GramIndex, rarity: Rarity) -> NDArray[np.float32]:
    """Return the numbers of each name, see NAME_SCALE and so on: one row is read faster than many arrays."""
    out = np.empty((len(names.owners), 8), np.float32)
    for name in range(len(out)):
        mass, rarest, rarities = 0.0, np.float32(0), np.float32(0)
        for j in range(grams.indptr[name], grams.indptr[name + 1]):
            mass += np.float64(grams.idf[grams.grams[j]])
        words = names.indptr[name + 1] - names.indptr[name]
        for j in range(names.indptr[name], names.indptr[name + 1]):
            rarest = max(rarest, rarity.stems[names.stems[j]])
            rarities += rarity.stems[names.stems[j]]
        row = out[name]
        row[NAME_SCALE], row[NAME_MASS] = grams.scales[name], mass
        row[NAME_GRAMS] = grams.indptr[name + 1] - grams.indptr[name]
        row[NAME_WORDS], row[NAME_KIND], row[NAME_LABELS] = words, names.kinds[name], names.ambiguity[name]
        row[NAME_RAREST], row[NAME_RARITY] = rarest, rarities / max(words, 1)
    return out


@kernel(
    outputs=("out_labels", "out_names", "out_features", "out_counts"),
)
def match_texts(
    texts: TextNumbers,
    names: NameTable,
    grams: GramIndex,
    facts: NDArray[np.float32],  # (S, 8) of name_facts
    rarity: Rarity,
    near: Neighbours,
    scratch: MatchMemory,
    most: int,
    postings: int,
    allowed: NDArray[np.bool_],  # (L,), or empty if all labels are allowed
    wanted: NDArray[np.int32],  # (n, c) labels to describe; (0, 0) for the candidates
    more: NDArray[np.int32],  # (n, e) further candidates, padded with −1; (0, 0) for none
    out_labels: NDArray[np.int32],  # (n, w), at least most + e wide, or (n, c)
    out_names: NDArray[np.int32],
    out_features: NDArray[np.float32],  # (n, w, F)
    out_counts: NDArray[np.int64],  # (n,) candidates of each text
) -> None:
    """Find the candidates of each text: labels whose name occurs, and labels with the most similar names.

    Similarity is Σ (1 + ln tf + [in the title]) · idf² · idf' over the common character n-grams, with idf in the
    training texts and idf' among the names, divided by the length of the name's vector.
    """
    pointers, record = np.zeros(MOST_WORDS, np.int64), np.zeros(5, np.int64)
    everything = np.empty(0, np.bool_)
    linked = len(near.broader) + len(near.narrower) + len(near.related) > 0
    tokens_seen, compared = np.empty((WORDS_COMPARED, 3), np.float64), np.empty((most + 1, 7), np.float64)
    top_names = np.empty(most, np.int32)
    room = 8 * most
    top_labels, top_values = np.empty(room, np.int32), np.empty(room, np.float32)
    chosen, chosen_values = np.empty(max(room, out_labels.shape[1]), np.int32), np.empty(room, np.float32)
    distinct = most_grams(texts, len(grams.idf))
    own_grams, own = np.empty(distinct, np.int32), np.empty((distinct, 7), np.float64)
    similar_names, similarities = np.empty(postings + 1, np.int32), np.empty(postings + 1, np.float32)
    capacity = 64
    matches = np.empty((capacity, 7), np.int64)  # label, name, count, kind, first, last, words
    for text in range(len(texts.indptr) - 1):
        start = texts.indptr[text]
        size = texts.indptr[text + 1] - start
        sentences, following = np.empty(size, np.int32), np.empty(size, np.int32)
        longest = np.zeros(size, np.int32)  # words of the longest match at each position
        title = number_sentences(texts.breaks, start, size, sentences)
        for k in range(size):  # the occurrences of each stem, ascending
            i = size - 1 - k
            stem = texts.stems[texts.tokens[start + i]]
            if stem >= 0:
                following[i] = scratch.heads[stem]
                scratch.heads[stem] = i
        gram_count, square = describe_grams(
            texts, start, size, title, grams, rarity, scratch.gram_places, own, own_grams
        )
        similar = add_up(grams, gram_count, own, own_grams, postings, scratch.sums, similar_names, similarities)
        count = 0
        for i in range(size):
            stem = texts.stems[texts.tokens[start + i]]
            if stem < 0 or scratch.heads[stem] != i:
                continue
            for j in range(names.anchor_indptr[stem], names.anchor_indptr[stem + 1]):
                if names.partners[j] >= 0 and scratch.heads[names.partners[j]] < 0:
                    continue
                name = names.anchored[j]
                if not occurrences(
                    name, stem, start, size, texts, names, scratch.heads, following, sentences, pointers, record
                ):
                    continue
                words = names.indptr[name + 1] - names.indptr[name]
                if record[4] >= 0:
                    for position in range(record[4], record[4] + words):
                        longest[position] = max(longest[position], words)
                label = names.owners[name]
                at = scratch.found[label]
                if at < 0:
                    if count == capacity:
                        larger = np.empty((2 * capacity, 7), np.int64)
                        for row in range(capacity):  # an assignment of arrays takes four seconds to compile
                            for c in range(7):
                                larger[row, c] = matches[row, c]
                        matches, capacity = larger, 2 * capacity
                    at = count
                    scratch.found[label] = at
                    count += 1
                elif (words, record[1]) <= (matches[at, 6], matches[at, 3]):  # fewer words, or a worse match
                    matches[at, 2] = max(matches[at, 2], record[0])
                    continue
                matches[at, 0], matches[at, 1], matches[at, 6] = label, name, words
                for c in range(4):
                    matches[at, 2 + c] = record[c]
        tops = most_similar(
            names.owners, similar_names, similarities, similar, everything, most, scratch.ranks, top_labels, top_values
        )
        listed = 0
        if len(allowed):
            some = chosen[:room]
            listed = most_similar(
                names.owners, similar_names, similarities, similar, allowed, most, scratch.ranks, some, chosen_values
            )
        for i in range(tops):  # the sums may lack frequent n-grams
            top_names[i] = best_name(top_labels[i], names, grams, scratch.gram_places, own)
            top_values[i] = compare(
                top_names[i], grams, facts[top_names[i]], scratch.gram_places, own, tokens_seen, compared[i]
            )
        ranked, ranked_values = top_labels[:tops].copy(), top_values[:tops].copy()
        heap_sort(ranked, ranked_values, tops)
        for i in range(tops):
            scratch.ranks[ranked[i]] = i
        if wanted.shape[1]:
            total = wanted.shape[1]
            for i in range(total):
                chosen[i] = wanted[text, i]
        else:
            if len(allowed) == 0:
                listed = tops
                for i in range(tops):
                    chosen[i] = top_labels[i]
            others, weights, left = np.empty(count, np.int32), np.empty(count, np.float32), 0
            for i in range(count):  # other labels whose name occurs
                label = np.int32(matches[i, 0])
                known = scratch.ranks[label] >= 0
                if len(allowed):
                    known = not allowed[label]
                    for j in range(listed):
                        known = known or chosen[j] == label
                if not known:
                    others[left], weights[left] = label, facts[matches[i, 1], NAME_MASS]
                    left += 1
            total = min(listed + left, out_labels.shape[1] - more.shape[1])
            if listed + left > total:  # the longest and rarest names come first
                heap_sort(others, weights, left)
            for i in range(listed, total):
                chosen[i] = others[i - listed]
            listed = total
            for i in range(more.shape[1]):
                known = more[text, i] < 0 or total == out_labels.shape[1]
                for j in range(listed):
                    known = known or chosen[j] == more[text, i]
                if not known:
                    chosen[total] = more[text, i]
                    total += 1
        best_share = np.zeros(size, np.float64)  # of a name's n-grams in the word at each position
        for i in range(tops):
            if compared[i, INSIDE] > 0.0:
                position = int(compared[i, POSITION])
                best_share[position] = max(best_share[position], compared[i, ONE_WORD])
        top = ranked_values[0] if tops else np.float32(1)
        length = np.sqrt(max(square, 1e-12))
        for i in range(total):
            label = chosen[i]
            out_labels[text, i] = label
            if label < 0:
                continue
            if i < tops and label == top_labels[i]:
                name, value, common = top_names[i], top_values[i], compared[i]
            else:
                name, common = best_name(label, names, grams, scratch.gram_places, own), compared[most]
                value = compare(name, grams, facts[name], scratch.gram_places, own, tokens_seen, common)
            at, rank = scratch.found[label], scratch.ranks[label]
            features = out_features[text, i]
            if common[INSIDE] > 0.0:
                position = int(common[POSITION])
                word = texts.tokens[start + position]
                features[SHARE_IN_WORD] = common[ONE_WORD]
                features[SHARE_OF_WORD] = common[ITS_GRAMS] / (texts.gram_indptr[word + 1] - texts.gram_indptr[word])
                features[WORD_POSITION] = np.log1p(common[POSITION])
                features[COMMON_RARITY] = common[RARE]
                features[COMMON_FREQUENCY] = common[OFTEN]
                features[SHARE_OF_BEST] = common[ONE_WORD] / max(best_share[position], common[ONE_WORD])
            else:
                features[SHARE_IN_WORD] = features[SHARE_OF_WORD] = 0
                features[WORD_POSITION] = features[COMMON_RARITY] = features[COMMON_FREQUENCY] = np.nan
                features[SHARE_OF_BEST] = np.nan
            features[SIMILARITY] = value / length
            features[RELATIVE_SIMILARITY] = value / top
            features[SIMILARITY_RANK] = rank if rank >= 0 else most
            features[SHARE_IN_TEXT] = common[INSIDE]
            features[SHARE_IN_TITLE] = common[IN_TITLE]
            features[GRAMS_OF_NAME] = facts[name, NAME_GRAMS]
            if at >= 0:
                name = np.int32(matches[at, 1])
                features[MATCH] = matches[at, 3]
                features[OCCURRENCES] = matches[at, 2]
                features[FIRST_POSITION] = np.log1p(np.float64(matches[at, 4]))
                features[SPREAD] = (matches[at, 5] - matches[at, 4]) / max(size, 1)
                features[MATCH_IN_TITLE] = 1.0 if matches[at, 4] < title else 0.0
                features[IN_LONGER_MATCH] = 1.0 if longest[matches[at, 4]] > matches[at, 6] else 0.0
            else:
                features[MATCH] = features[OCCURRENCES] = features[MATCH_IN_TITLE] = 0
                features[FIRST_POSITION] = features[SPREAD] = features[IN_LONGER_MATCH] = np.nan
            own_facts = facts[name]
            features[WORDS_OF_NAME], features[KIND_OF_NAME] = own_facts[NAME_WORDS], own_facts[NAME_KIND]
            features[LABELS_WITH_NAME] = own_facts[NAME_LABELS]
            features[TEXT_LENGTH] = np.log1p(np.float64(size))
            features[RAREST_WORD], features[MEAN_RARITY] = own_facts[NAME_RAREST], own_facts[NAME_RARITY]
            features[BROADER_FOUND] = features[NARROWER_FOUND] = 0
            features[RELATED_FOUND] = features[NEIGHBOUR_COUNT] = 0
            if linked:
                features[BROADER_FOUND] = neighbours_found(label, near.broader_indptr, near.broader, scratch.found)
                features[NARROWER_FOUND] = neighbours_found(label, near.narrower_indptr, near.narrower, scratch.found)
                features[RELATED_FOUND] = neighbours_found(label, near.related_indptr, near.related, scratch.found)
                neighbours = near.broader_indptr[label + 1] - near.broader_indptr[label]
                neighbours += near.narrower_indptr[label + 1] - near.narrower_indptr[label]
                features[NEIGHBOUR_COUNT] = neighbours + near.related_indptr[label + 1] - near.related_indptr[label]
            features[FREQUENCY] = features[PRECISION] = features[COSINE] = np.nan
            features[TITLE_ONLY] = 1.0 if title == size else 0.0
            features[MATCH_COUNT] = count
            out_names[text, i] = name
        out_counts[text] = total
        for i in range(gram_count):  # restore the scratch memory
            scratch.gram_places[own_grams[i]] = 0
        for i in range(size):
            stem = texts.stems[texts.tokens[start + i]]
            if stem >= 0:
                scratch.heads[stem] = -1
        for i in range(tops):
            scratch.ranks[top_labels[i]] = -1
        for i in range(count):
            scratch.found[matches[i, 0]] = -1
