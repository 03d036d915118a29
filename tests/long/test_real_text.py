"""The speed and memory of reading and tf-idf on a real corpus, measured as the benchmark does it."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from benchmarks.text import memory

from xmtc.core.runtime import available_threads
from xmtc.data.reading import read
from xmtc.models.knn import Knn
from xmtc.text.tfidf import TextSettings, Tfidf
from xmtc.text.tokens import tokenise
from xmtc.workflows.evaluate import evaluate_model

pytestmark = pytest.mark.long


def test_tfidf_is_three_times_as_fast_as_scikit_learn(shared_data: Path) -> None:
    vectorizers = pytest.importorskip("sklearn.feature_extraction.text")
    texts = read(shared_data / "eurlex57k" / "train.jsonl.xz").text()
    threads = available_threads()
    Tfidf.fit(tokens := tokenise(texts.slice(0, 10), threads), TextSettings()).transform(tokens)  # kernels loaded
    started = time.perf_counter()
    tokens = tokenise(texts, threads)
    ours = Tfidf.fit(tokens, TextSettings(), threads).transform(tokens, threads)
    seconds = time.perf_counter() - started
    plain = texts.to_pylist()
    started = time.perf_counter()
    judge = vectorizers.TfidfVectorizer(sublinear_tf=True, min_df=2, max_features=200_000, dtype=np.float32)
    theirs = judge.fit_transform(plain)
    assert ours.shape == theirs.shape
    assert ours.nnz == theirs.nnz
    assert (time.perf_counter() - started) / seconds >= 3


def test_reading_and_tokenising_stay_within_one_and_a_half_times_the_text(shared_data: Path) -> None:
    if not Path("/proc/self/status").exists():
        pytest.skip("needs /proc")
    size, peak = memory(str(shared_data / "eurlex57k" / "train.jsonl.xz"))
    assert peak <= 1.5 * size


def test_neighbours_on_eu_laws(shared_data: Path) -> None:
    train, test = (read(shared_data / "eurlex57k" / f"{part}.jsonl.xz") for part in ("train", "test"))
    result = evaluate_model(Knn().fit(train), test, unknown_labels="drop")
    assert result.metrics["P@1"] >= 0.90
    assert result.documents == 6000
