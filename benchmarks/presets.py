"""Train with a preset on data sets with an official split, and evaluate on the test documents.

    python -m benchmarks.presets --data DATA --sets cooking bibtex --preset good --minutes 10 --out OUT

Prints, for each set, the test metrics, the time taken, prediction time and size, and the members of the final model.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from xmtc.artifact.store import read_manifest
from xmtc.core.runtime import Runtime
from xmtc.presets.estimates import folder_megabytes
from xmtc.presets.leaderboard import Leaderboard
from xmtc.workflows.auto import train_preset
from xmtc.workflows.data_requests import VocabularyOptions
from xmtc.workflows.evaluate import evaluate_model, read_test
from xmtc.workflows.requests import PresetOptions, TrainRequest

METRICS = ("P@1", "P@3", "P@5", "nDCG@5")
VOCABULARIES = {"eurlex57k": "labels.jsonl.gz", "tibkat-gnd": "labels.tsv.gz"}


def tried(result: object) -> None:
    """Print each model that was tried."""
    for entry in result.entries if isinstance(result, Leaderboard) else ():
        score = "" if entry.score is None else f"{100 * entry.score:.2f}"
        times = f"{entry.train_seconds or 0:.0f} s, {entry.predict_ms or 0:.3f} ms, {entry.megabytes or 0:.0f} MiB"
        print(f"  {'*' if entry.member else ' '} {entry.name:20s} {score:6s} {times} {entry.note}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", required=True)
    parser.add_argument("--preset", choices=("fast", "good", "best"), default="good")
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--vocabulary", action="store_true", help="use the names of the labels, where there are any")
    parser.add_argument("--encoder", type=Path, help="with best: folder of a pretrained encoder")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    for name in given.sets:
        files = [next(path for path in sorted((given.data / name).glob(f"{part}.*"))) for part in ("train", "test")]
        labels = given.data / name / VOCABULARIES[name] if given.vocabulary and name in VOCABULARIES else None
        request = TrainRequest(
            train_file=files[0],
            out=given.out / name,
            auto=PresetOptions(
                preset=given.preset,
                minutes=None if given.preset == "fast" else given.minutes,
                encoder=given.encoder,
            ),
            vocabulary=VocabularyOptions(labels=labels),
            force=True,
        )
        started = time.perf_counter()
        model = train_preset(request, runtime=Runtime(seed=given.seed), listener=tried)
        seconds = time.perf_counter() - started
        test = read_test(files[1], model=model)
        model.predict(test.take(range(10)))  # compiles
        started = time.perf_counter()
        model.predict(test)
        predicting = time.perf_counter() - started
        found = evaluate_model(model, test).metrics
        scores = "/".join(f"{100 * found[metric]:.2f}" for metric in METRICS)
        preset = read_manifest(given.out / name)["training"]["preset"]
        members = [each["name"] for each in preset.get("models", []) if each["member"]]
        size = folder_megabytes(given.out / name)
        print(
            f"{name}: {scores} ({'/'.join(METRICS)}); {seconds:.0f} s, {predicting:.2f} s to predict {len(test):,} "
            f"documents, {size:.0f} MiB; {', '.join(members) or model!r}",
            flush=True,
        )


if __name__ == "__main__":
    main()
