"""LEML and SLEEC: random search over settings on splits of the training documents, and the results of a recipe.

    python benchmarks/embedding_relatives.py search leml DATA/bibtex/train.txt.gz --trials 30 --out trials.jsonl
    python benchmarks/embedding_relatives.py search sleec DATA/bibtex/train.txt.gz --set learners=1 --from bibtex/sleec
    python benchmarks/embedding_relatives.py best trials.jsonl
    python benchmarks/embedding_relatives.py figures bibtex/leml DATA/bibtex/train.txt.gz DATA/bibtex/test.txt.gz

`search` draws settings from the search space of the model, trains each on 80 % of the documents and evaluates it on the
others, for three random splits; the first trial is the starting point. Test documents are not read. A later run
continues from the trials of an earlier one. `figures` trains a recipe on all training documents with three seeds.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from xmtc.core import config
from xmtc.core.config import Range
from xmtc.core.runtime import Runtime
from xmtc.data import read
from xmtc.data.dataset import Dataset, align_labels
from xmtc.metrics import ndcg, precision
from xmtc.models.base import Model
from xmtc.models.registry import model_class
from xmtc.recipes import find_recipe

SHARE = 0.8
"""Fraction of the documents that a trial is trained on."""


def splits(documents: Dataset, count: int) -> Iterator[tuple[Dataset, Dataset]]:
    """Pairs of training and evaluation documents."""
    for seed in range(count):
        order = np.random.default_rng(seed).permutation(len(documents))
        cut = int(SHARE * len(order))
        yield documents.take(np.sort(order[:cut])), documents.take(np.sort(order[cut:]))


def measured(model: Model, documents: Dataset) -> list[float]:
    """P@1, P@3, P@5 and nDCG@5 in percent."""
    truth, _ = align_labels(documents, model.labels)
    answer = model.predict(documents, 5)
    return [100 * precision(answer, truth, k) for k in (1, 3, 5)] + [100 * ndcg(answer, truth, 5)]


def drawn(start: config.Settings, fixed: dict[str, Any], random: np.random.Generator) -> dict[str, Any]:
    """A random point of the search space; fixed settings are kept."""
    found: dict[str, Any] = {}
    for name, space in config.space(start).items():
        if name in fixed or name.startswith("text."):
            continue
        if isinstance(space, Range):
            ends = np.log([space.low, space.high]) if space.log else np.array([space.low, space.high], dtype=float)
            value = float(np.exp(random.uniform(*ends)) if space.log else random.uniform(*ends))
            found[name] = round(value) if isinstance(space.low, int) else float(f"{value:.3g}")
        else:
            found[name] = space.values[int(random.integers(len(space.values)))]
    return found


def search(given: argparse.Namespace) -> None:
    kind, documents = model_class(given.model), read(given.train)
    recipe = config.read_recipe(find_recipe(given.start))[1] if given.start else {}
    fixed = dict(written(each) for each in given.set)
    base = config.merge(recipe, fixed)
    start = kind(**base).config
    parts, random = list(splits(documents, given.splits)), np.random.default_rng(given.seed)
    tried = {json.dumps(trial["settings"], sort_keys=True) for trial in lines(given.out)}
    for number in range(given.trials):
        point = {} if number == 0 else drawn(start, fixed, random)
        settings = config.flat(config.merge(base, point))
        if json.dumps(settings, sort_keys=True) in tried:
            continue
        began = perf_counter()
        each = [
            measured(kind(**settings).fit(train, runtime=Runtime(threads=given.threads)), held) for train, held in parts
        ]
        trial = {
            "model": given.model,
            "settings": settings,
            "P@1/3/5, nDCG@5": [round(float(value), 2) for value in np.mean(each, axis=0)],
            "seconds": round((perf_counter() - began) / len(parts), 1),
        }
        print(json.dumps(trial), flush=True)
        if given.out is not None:
            with given.out.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(trial) + "\n")


def written(setting: str) -> tuple[str, Any]:
    """KEY=VALUE as TOML reads it."""
    key, _, value = setting.partition("=")
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value


def lines(path: Path | None) -> list[dict[str, Any]]:
    if path is None or not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def best(given: argparse.Namespace) -> None:
    """The trials of a search, the best first, by nDCG@5."""
    for trial in sorted(lines(given.trials), key=lambda each: -float(each["P@1/3/5, nDCG@5"][-1]))[: given.count]:
        print(trial["P@1/3/5, nDCG@5"], trial["seconds"], trial["settings"])


def figures(given: argparse.Namespace) -> None:
    name, settings = config.read_recipe(find_recipe(given.recipe))
    assert name is not None
    train, test = read(given.train), read(given.test)
    each = []
    for seed in range(given.seeds):
        began = perf_counter()
        model = model_class(name)(**settings).fit(train, runtime=Runtime(threads=given.threads, seed=seed))
        fitted = perf_counter()
        each.append(measured(model, test))
        times = f"fit {fitted - began:.1f} s, test {perf_counter() - fitted:.2f} s"
        print(f"seed {seed}:", " ".join(f"{value:.2f}" for value in each[-1]), times, flush=True)
    print("mean:  ", " ".join(f"{value:.2f}" for value in np.mean(each, axis=0)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("search")
    one.add_argument("model", choices=["leml", "sleec"])
    one.add_argument("train", type=Path)
    one.add_argument("--from", dest="start", help="recipe to start from")
    one.add_argument("--set", action="append", default=[], help="KEY=VALUE that stays")
    one.add_argument("--trials", type=int, default=30)
    one.add_argument("--splits", type=int, default=3)
    one.add_argument("--seed", type=int, default=0)
    one.add_argument("--threads", type=int, default=1)
    one.add_argument("--out", type=Path)
    one.set_defaults(run=search)
    two = commands.add_parser("best")
    two.add_argument("trials", type=Path)
    two.add_argument("--count", type=int, default=10)
    two.set_defaults(run=best)
    three = commands.add_parser("figures")
    three.add_argument("recipe")
    three.add_argument("train", type=Path)
    three.add_argument("test", type=Path)
    three.add_argument("--seeds", type=int, default=3)
    three.add_argument("--threads", type=int, default=2)
    three.set_defaults(run=figures)
    given = parser.parse_args()
    given.run(given)


if __name__ == "__main__":
    main()
