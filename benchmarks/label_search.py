"""Label search: milliseconds per query, and seconds and memory to build the index.

Synthetic names consist of words with the frequencies of a natural language; every label has a key, half of them an
alternative name. One query at a time, one thread; median and maximum of nine.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

QUERIES = {
    "one letter": "a",
    "two letters": "er",
    "two letters that are rare": "qz",
    "nowhere": "zzzzqq",
    "nowhere, of common letters": "eaeaeaea",
    "an ending": "ing",
    "accents": "élevage",
    "within words of another script": "ыба",
    "several words": "the {0} of",
    "one name in full": "{1}",
    "a key": "K123456",
    "what all keys begin with": "K",
    "within all names, begins none": "abel of",
    "longer than any name": "a long query " * 40,
    "nothing": "",
}


def made_up(labels: int, seed: int = 0) -> tuple[list[str], list[str], list[list[str]]]:
    """Keys, names of some forty characters, and alternatives."""
    random = np.random.default_rng(seed)
    letters = np.array(list("etaoinshrdlcumwfgypbvkjxqz"))
    weights = 1 / np.arange(2.0, 28.0)
    drawn = random.choice(letters, (60_000, 12), p=weights / weights.sum())
    words = ["".join(row[:size]) for row, size in zip(drawn, random.integers(2, 13, len(drawn)), strict=True)]
    words[:6] = ["the", "of", "and", "élevage", "Straße", "рыба"]
    common = (random.pareto(1.0, (labels, 5)) * 8).astype(np.int64) % len(words)
    names = [" ".join([words[word] for word in row]) + f" label of {number}" for number, row in enumerate(common)]
    others = [[f"{words[row[1]]}, {words[row[4]]} {words[row[2]]}"] if row[0] % 2 else [] for row in common]
    return [f"K{number}" for number in range(labels)], names, others


def main(labels: int) -> None:
    from xmtc.data.label_index import LabelIndex
    from xmtc.labels.name_index import LabelSearch

    keys, names, alternatives = made_up(labels)
    index = LabelIndex.from_keys(keys, names, alternatives)
    counts = np.random.default_rng(1).zipf(1.6, labels)
    LabelSearch(LabelIndex.from_keys(["a"]), None)  # kernels are compiled once and kept on disk
    started = time.perf_counter()
    search = LabelSearch(index, np.minimum(counts, 10**6))
    seconds = time.perf_counter() - started
    size = index.table.nbytes / 1e6
    print(f"{labels:,} labels, {size:.0f} MB of them; made in {seconds:.2f} s, holds {search.nbytes / 1e6:.0f} MB\n")
    print("| query | found | median ms | slowest ms |\n|---|---|---|---|")
    for what, query in QUERIES.items():
        asked = query.format(names[7].split()[0], names[labels // 2])
        times = []
        for _ in range(9):
            started = time.perf_counter()
            found, more = search.find(asked)
            times.append(1000 * (time.perf_counter() - started))
        told = f"{what} ('{asked if len(asked) < 40 else asked[:39] + '…'}')"
        print(f"| {told} | {len(found)}{'+' if more else ''} | {np.median(times):.2f} | {max(times):.2f} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("labels", type=int, nargs="?", default=1_000_000)
    main(parser.parse_args().labels)
