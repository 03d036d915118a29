"""Rank-AE: variants on a validation set, ensembles, decay under label noise, and all of it on a GPU.

    python benchmarks/rank_ae.py trials DATA/delicious/train.txt [--workers 2] [--only NAME…]
    python benchmarks/rank_ae.py members DATA/delicious/train.txt DATA/delicious/test.txt --recipe delicious/rank_ae
    python benchmarks/rank_ae.py decay NOISE TEST --models rank_ae-published rank_ae-bce
    python benchmarks/rank_ae.py all DATA --out DIR --pack DIR [--seconds 370]

`trials` trains every variant below on 80 % of the documents and evaluates it on the others, for two random splits.
`decay` bootstraps the test documents of a noise study: the difference in the loss of accuracy of two models from clean
to noisy labels. `all` runs everything in parallel processes on one GPU and many cores until the time is up; the packed
results are small.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch

from xmtc.core import config
from xmtc.core.runtime import Runtime
from xmtc.data import read
from xmtc.data.dataset import Dataset, align_labels
from xmtc.data.topk import TopK
from xmtc.metrics import document_parts, ndcg, precision
from xmtc.metrics.resampling import bootstrap_difference
from xmtc.models.rank_ae import RankAe
from xmtc.recipes import find_recipe

BOTH, PUBLISHED = "rank_ae", "rank_ae-published"
PLAIN = {
    "encoder.residual": False,
    "encoder.activation": "relu",
    "head.follow": True,
    "head.ranking.margin": 1.0,
    "head.feature_balance": 6.6,
    "head.dropout": 0.6,
}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "both": (BOTH, PLAIN),
    "both, wider": (BOTH, {**PLAIN, "corpus.width": 384, "head.hidden": 768}),
    "both, margin 0.3": (BOTH, {**PLAIN, "head.ranking.margin": 0.3}),
    "both, hidden layer": (BOTH, {"head.feature_balance": 6.6, "head.dropout": 0.6}),
    "both, hidden layer, less for documents": (BOTH, {}),
    "published": (PUBLISHED, {}),
    "published, margin 0.6": (PUBLISHED, {"head.ranking.margin": 0.6}),
    "published, margin 1": (PUBLISHED, {"head.ranking.margin": 1.0}),
    "published, margin 1, dropout": (PUBLISHED, {"head.ranking.margin": 1.0, "head.dropout": 0.2}),
}


def measured(model: RankAe, documents: Dataset) -> dict[str, float]:
    """Percent."""
    truth, _ = align_labels(documents, model.labels)
    answer = model.predict(documents, 5)
    found = {f"P@{k}": precision(answer, truth, k) for k in (1, 3, 5)} | {"nDCG@5": ndcg(answer, truth, 5)}
    return {name: round(100 * value, 2) for name, value in found.items()}


def recipe_of(folder: str, family: str, changes: dict[str, Any]) -> dict[str, Any]:
    _, settings = config.read_recipe(find_recipe(f"{folder}/{family}"))
    return config.merge(settings, changes)


# ---- variants on validation documents


def trial(train: Path, name: str, split: int, seed: int, threads: int) -> None:
    """One variant on one split, told as a line of JSON."""
    family, changes = VARIANTS[name]
    documents = read(train)
    order = np.random.default_rng([seed, split]).permutation(len(documents))
    cut = len(documents) * 4 // 5
    model = RankAe(**recipe_of(train.parent.name, family, changes))
    started = time.perf_counter()
    model.fit(documents.take(np.sort(order[:cut])), runtime=Runtime(threads=threads, seed=seed))
    seconds = time.perf_counter() - started
    print(json.dumps(measured(model, documents.take(np.sort(order[cut:]))) | {"seconds": round(seconds, 1)}))


def trials(train: Path, only: list[str], workers: int, threads: int) -> None:
    def one(job: tuple[str, int]) -> dict[str, float]:
        asked = ["trial", str(train), "--name", job[0], "--split", str(job[1]), "--threads", str(threads)]
        done = subprocess.run([sys.executable, __file__, *asked], capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{job}: {done.stderr.strip()[-300:]}", flush=True)
            return {}
        line: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
        print(job, line, flush=True)
        return line

    jobs = [(name, split) for name in VARIANTS if not only or name in only for split in (0, 1)]
    with ThreadPoolExecutor(workers) as pool:
        found = dict(zip(jobs, pool.map(one, jobs), strict=True))
    best: dict[str, tuple[float, str]] = {}
    print("| variant | P@1 | P@3 | P@5 | nDCG@5 | seconds |\n| --- | ---: | ---: | ---: | ---: | ---: |")
    for name in dict.fromkeys(name for name, _ in jobs):
        both = [found[name, split] for split in (0, 1)]
        if not all(both):
            continue
        means = {measure: sum(each[measure] for each in both) / 2 for measure in both[0]}
        print(f"| {name} | " + " | ".join(f"{value:.2f}" for value in means.values()) + " |", flush=True)
        family = VARIANTS[name][0]
        best[family] = max(best.get(family, (0.0, "")), (means["nDCG@5"], name))
    for family, (_, name) in best.items():
        print(f"best of {family}: {name}", flush=True)


def members(train: Path, test: Path, recipe: str, count: int, threads: int, seed: int) -> None:
    """Several networks whose probabilities are averaged, on the test documents."""
    _, settings = config.read_recipe(find_recipe(recipe))
    started = time.perf_counter()
    model = RankAe(**config.merge(settings, {"members": count})).fit(
        read(train), runtime=Runtime(threads=threads, seed=seed)
    )
    seconds = time.perf_counter() - started
    print(recipe, count, "members", measured(model, read(test)), f"{seconds:.1f} s", flush=True)


# ---- decay under noise


def decay(folder: Path, test: Path, models: list[str], samples: int) -> None:
    """How much more of P@1 and nDCG@5 the first model keeps than the second, clean to noisy, with 95 % intervals."""
    documents = read(test)
    names = sorted(path.name for path in (folder / "cells").iterdir())
    clean = next(name for name in names if name.endswith("-clean"))
    parts = {(name, model): parts_of(folder / "cells" / name / model, documents) for name in names for model in models}
    for name in [clean, *(name for name in names if name != clean)]:
        for measure in ("P@1", "nDCG@5"):
            values = [100 * parts[name, model][measure].value for model in models]
            found = bootstrap_difference(
                *(kept(parts[name, model], parts[clean, model], measure) for model in models), samples
            )[measure]
            low, high = 100 * found.low, 100 * found.high
            told = f"{models[0]} keeps {100 * found.value:+.2f} [{low:+.2f}, {high:+.2f}] more than {models[1]}"
            print(f"{name} {measure}: {values[0]:.2f}, {values[1]:.2f}; {told}", flush=True)


def parts_of(cell: Path, documents: Dataset) -> dict[str, Any]:
    """Parts of the measures, summed over seeds."""
    whole: dict[str, Any] = {}
    seeds = [path for path in sorted(cell.iterdir()) if (path / "predictions.parquet").is_file()]
    for path in seeds:
        answer = TopK.read(path / "predictions.parquet").first(5)
        truth, _ = align_labels(documents, answer.index)
        for name, part in document_parts(answer, truth, ks=(1, 3, 5)).items():
            numerator = part.numerator / len(seeds)
            whole[name] = replace(part, numerator=numerator + (whole[name].numerator if name in whole else 0.0))
    return whole


def kept(noisy: dict[str, Any], clean: dict[str, Any], measure: str) -> dict[str, Any]:
    """A measure on noisy labels less that on clean ones, document by document."""
    part = noisy[measure]
    return {measure: replace(part, numerator=part.numerator - clean[measure].numerator)}


# ---- everything at once


def everything(data: Path, out: Path, seconds: float) -> None:
    out.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    xmtc = [sys.executable, "-m", "xmtc"]
    here = [sys.executable, __file__]
    environment = {**os.environ, "XMTC_CACHE": str(out / "cache")}

    def run(name: str, *command: str) -> None:
        left = seconds - (time.perf_counter() - started)
        if left < 5:
            return
        with (out / f"{name}.log").open("w") as log:
            try:
                subprocess.run([*command], stdout=log, stderr=subprocess.STDOUT, timeout=left, env=environment)
                end = "done"
            except subprocess.TimeoutExpired:
                end = "cut off"
        print(f"{time.perf_counter() - started:.0f} s: {name} {end}", flush=True)

    def noise(data_set: str, model: str, seed: int, rates: str, *more: str) -> None:
        files = [str(data / data_set / f"{part}.jsonl.xz") for part in ("train", "test")]
        folder = str(out / f"noise-{data_set}")
        name = f"noise-{data_set}-{Path(model).name}-{seed}"
        asked = [
            "--model",
            model,
            "--seeds",
            str(seed),
            "--rates",
            rates,
            "--out",
            f"{folder}-{Path(model).name}-{seed}",
        ]
        run(name, *xmtc, "experiment", "noise", *files, *asked, *more)

    def bench(suite: str, only: str, *more: str) -> None:
        name = f"bench-{only.replace('/', '-').replace('*', 'all')}"
        run(name, *xmtc, "bench", suite, "--data", str(data), "--only", only, "--out", str(out / name), *more)

    def small() -> None:
        train, test = (str(data / "delicious" / f"{part}.txt.gz") for part in ("train", "test"))
        run("trials", *here, "trials", train, "--workers", "4", "--threads", "2")
        two = ("--threads", "2")
        with ThreadPoolExecutor(5) as pool:
            pool.submit(bench, "classic", "delicious/rank_ae/*", *two)
            pool.submit(bench, "classic", "delicious/rank_ae-published/*", *two)
            for name in ("rank_ae", "rank_ae-published"):
                asked = ["members", train, test, "--recipe", f"delicious/{name}", "--threads", "2"]
                pool.submit(run, f"members-{name}", *here, *asked)
            asked = ["--model", "delicious/rank_ae", "--out", str(out / "ablation-delicious"), *two]
            pool.submit(run, "ablation-delicious", *xmtc, "experiment", "ablation", train, test, *asked)

    def large() -> None:
        files = [str(data / "eurlex57k" / f"{part}.jsonl.xz") for part in ("train", "test")]
        asked = [
            "--model",
            "eurlex57k/rank_ae",
            "--out",
            str(out / "ablation-eurlex57k"),
            "--threads",
            "2",
            "--set",
            "training.epochs=8",
        ]
        run("ablation-eurlex57k", *xmtc, "experiment", "ablation", *files, *asked)

    with ThreadPoolExecutor(16) as pool:
        cooking, cpu = "0,0.2,0.4,0.6", ("--threads", "3", "--device", "cpu")
        for model in ("cooking/rank_ae-published", "cooking/rank_ae-bce"):
            pool.submit(noise, "cooking", model, 0, cooking, *cpu)
        pool.submit(noise, "eurlex57k", "eurlex57k/parabel", 0, "0,0.3,0.6", "--threads", "3")
        if torch.cuda.is_available():
            bench("eurlex57k", "eurlex57k/rank_ae/0", "--threads", "4")  # the one that is timed has the GPU for itself
        pool.submit(small)
        pool.submit(large)
        for seed in (0, 1):
            for model in ("eurlex57k/rank_ae-published", "eurlex57k/rank_ae-bce"):
                pool.submit(noise, "eurlex57k", model, seed, "0,0.3,0.6", "--threads", "2")
        pool.submit(noise, "eurlex57k", "eurlex57k/xml_cnn", 0, "0,0.3,0.6", "--threads", "2")
        pool.submit(noise, "cooking", "cooking/xml_cnn", 0, cooking, "--threads", "2")
        for model in ("cooking/rank_ae-published", "cooking/rank_ae-bce", "cooking/xml_cnn"):
            pool.submit(noise, "cooking", model, 1, cooking, "--threads", "2")
        pool.submit(bench, "classic", "bibtex/rank_ae/*", "--threads", "2")
        pool.submit(bench, "eurlex57k", "eurlex57k/rank_ae/[12]", "--threads", "2")
    shutil.rmtree(out / "cache", ignore_errors=True)


def pack(out: Path, packed: Path) -> None:
    """Records and logs of all cells, and of noise studies the first five labels of each prediction."""
    for path in sorted(out.rglob("*")):
        target = packed / path.relative_to(out)
        if path.suffix in (".json", ".jsonl", ".toml", ".log"):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
        elif path.name == "predictions.parquet" and "noise" in str(path.relative_to(out)):
            target.parent.mkdir(parents=True, exist_ok=True)
            table = pq.read_table(path)
            shorter = pc.list_slice(table["labels"], 0, 5)
            pq.write_table(table.set_column(table.schema.get_field_index("labels"), "labels", shorter), target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("trial")
    one.add_argument("train", type=Path)
    one.add_argument("--name", required=True)
    one.add_argument("--split", type=int, default=0)
    many = commands.add_parser("trials")
    many.add_argument("train", type=Path)
    many.add_argument("--only", nargs="*", default=[])
    many.add_argument("--workers", type=int, default=1)
    several = commands.add_parser("members")
    several.add_argument("train", type=Path)
    several.add_argument("test", type=Path)
    several.add_argument("--recipe", required=True)
    several.add_argument("--count", type=int, default=3)
    for each in (one, many, several):
        each.add_argument("--threads", type=int, default=os.cpu_count() or 1)
        each.add_argument("--seed", type=int, default=0)
    lost = commands.add_parser("decay")
    lost.add_argument("folder", type=Path)
    lost.add_argument("test", type=Path)
    lost.add_argument("--models", nargs=2, required=True)
    lost.add_argument("--samples", type=int, default=2000)
    whole = commands.add_parser("all")
    whole.add_argument("data", type=Path)
    whole.add_argument("--out", type=Path, required=True)
    whole.add_argument("--pack", type=Path, required=True)
    whole.add_argument("--seconds", type=float, default=370.0)
    given = parser.parse_args()
    if given.command == "trial":
        trial(given.train, given.name, given.split, given.seed, given.threads)
    elif given.command == "trials":
        trials(given.train, given.only, given.workers, given.threads)
    elif given.command == "members":
        members(given.train, given.test, given.recipe, given.count, given.threads, given.seed)
    elif given.command == "decay":
        decay(given.folder, given.test, given.models, given.samples)
    else:
        everything(given.data, given.out, given.seconds)
        pack(given.out, given.pack)


if __name__ == "__main__":
    main()
