"""tf-idf compared with scikit-learn, and the memory for reading and tokenising.

Both compute the same features from the same texts in memory, one after the other, on all cores.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

MEMORY = """
import sys
from pathlib import Path
from xmtc.data.reading import read
from xmtc.data.dataset import as_dataset
from xmtc.core.runtime import Runtime
from xmtc.text.cache import tokens_of

def resident(kind):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(kind)) / 1024

tokens_of(as_dataset(["load the", "kernels"]).text(), Runtime())
before = resident("VmRSS")
dataset = read(sys.argv[1])
tokens = tokens_of(dataset.text(), Runtime())
size = dataset.text().nbytes / 2**20
print(size, resident("VmHWM") - before)
"""


def memory(path: str) -> tuple[float, float]:
    """MiB of text in a file, and the MiB above imports at which a process peaks that reads and tokenises it."""
    done = subprocess.run([sys.executable, "-c", MEMORY, path], capture_output=True, text=True, check=True)
    size, peak = map(float, done.stdout.split())
    return size, peak


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    result = call()
    return time.perf_counter() - started, result


def main(path: str) -> None:
    import numpy as np
    from sklearn.feature_extraction.text import TfidfVectorizer

    from xmtc.core.runtime import available_threads
    from xmtc.data.dataset import as_dataset
    from xmtc.data.reading import read
    from xmtc.text.tfidf import TextSettings, Tfidf
    from xmtc.text.tokens import tokenise

    seconds, dataset = timed(lambda: read(path))
    texts = dataset.text()
    size = texts.nbytes / 1e6
    print(f"{len(texts):,} texts, {size:.0f} MB; read in {seconds:.2f} s; {available_threads()} cores")

    threads, settings = available_threads(), TextSettings()
    warm = tokenise(as_dataset(["load the kernels", "load them"]).text(), threads)
    Tfidf.fit(warm, settings, threads).transform(warm, threads)
    tokenising, tokens = timed(lambda: tokenise(texts, threads))
    fitting, tfidf = timed(lambda: Tfidf.fit(tokens, settings, threads))
    weighing, ours = timed(lambda: tfidf.transform(tokens, threads))
    total = tokenising + fitting + weighing
    print(f"xmtc         {total:6.2f} s   (words {tokenising:.2f}, choice {fitting:.2f}, rows {weighing:.2f})")

    started = time.process_time()
    tfidf.transform(again := tokenise(texts, threads), threads)
    Tfidf.fit(again, settings, threads)
    print(f"the same in processor time: {time.process_time() - started:.2f} s")
    plain = texts.to_pylist()
    vectorizer = TfidfVectorizer(sublinear_tf=True, min_df=2, max_features=200_000, dtype=np.float32)
    started = time.process_time()
    theirs_seconds, theirs = timed(lambda: vectorizer.fit_transform(plain))
    print(f"scikit-learn {theirs_seconds:6.2f} s   ratio {theirs_seconds / total:.1f}", end="")
    print(f"   ({time.process_time() - started:.2f} s of processor time)")
    names = tfidf.terms.to_pylist()
    common = [
        (column, vectorizer.vocabulary_[name]) for column, name in enumerate(names) if name in vectorizer.vocabulary_
    ]
    print(f"features {ours.shape[1]:,} and {theirs.shape[1]:,}, {len(common):,} in common", end="")
    if len(common) == len(names):
        difference = abs(ours - theirs[:, [column for _, column in common]]).max()
        print(f"; largest difference of a value {difference:.1e}", end="")
    print()

    size, peak = memory(path)
    print(f"reading and tokenising: {peak:.0f} MiB above imports for {size:.0f} MiB of text, ratio {peak / size:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="documents in any format that xmtc reads")
    main(parser.parse_args().file)
