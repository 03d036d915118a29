"""Compare two checkouts of this project, in alternating runs: linear trees and tf-idf.

usage: python benchmarks/before_after.py OLD NEW --matrices FOLDER [--sets eurlex57k] [--text FILE.jsonl] [--rounds 9]

OLD and NEW are checkouts, FOLDER is the input of `benchmarks/linear.py`. Each measurement runs
`benchmarks/linear.py` (train, predict, single documents, load) and `benchmarks/text.py` (without scikit-learn) of the
checkout in a separate process. A first round, which is not measured, compiles the kernels. The order of the checkouts
alternates. The table shows medians and the ratio new ÷ old.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

SYSTEMS = ("parabel-1", "parabel-3", "one_vs_all")
TIMES = ("train", "predict", "one_ms", "named_ms", "load")
NO_PEER = """
class TfidfVectorizer:
    vocabulary_ = {}
    def __init__(self, **settings): pass
    def fit_transform(self, texts): return self
    shape = (0, 0)
"""


def run(checkout: Path, *command: object, path: Path | None = None) -> str:
    """The output of a script of a checkout, run with the sources of that checkout."""
    sources = os.pathsep.join(map(str, [*([path] if path else []), checkout / "src"]))
    environment = {**os.environ, "PYTHONPATH": sources, "XMTC_CACHE": "off"}
    done = subprocess.run(
        [sys.executable, *map(str, command)], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def linear(checkout: Path, matrices: Path, data_set: str, system: str, ranking: Path) -> dict[str, float]:
    script = checkout / "benchmarks" / "linear.py"
    told = run(checkout, script, "--action", "matrices", matrices / data_set, data_set, system, ranking)
    found = json.loads(told.splitlines()[-1])
    return {f"{data_set} {system} {name}": found[name] for name in TIMES}


def text(checkout: Path, file: Path, without: Path) -> dict[str, float]:
    told = run(checkout, checkout / "benchmarks" / "text.py", file, path=without)
    names = {"read": r"read in ([\d.]+) s", "tokenise": r"words ([\d.]+)", "choose": r"choice ([\d.]+)"}
    names |= {"weigh": r"rows ([\d.]+)", "tf-idf": r"xmtc +([\d.]+) s"}
    found = {name: re.search(pattern, told) for name, pattern in names.items()}
    return {f"text {name}": float(match[1]) for name, match in found.items() if match}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", type=Path, nargs=2, metavar="OLD NEW")
    parser.add_argument("--matrices", type=Path)
    parser.add_argument("--sets", nargs="+", default=["eurlex57k"])
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=SYSTEMS)
    parser.add_argument("--text", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, help="all measurements, a JSON line each")
    given = parser.parse_args()
    measured: dict[str, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        without = folder / "without" / "sklearn" / "feature_extraction"
        without.mkdir(parents=True)
        for package in (without.parent, without):
            (package / "__init__.py").write_text("")
        (without / "text.py").write_text(NO_PEER)
        for turn in range(given.rounds + 1):
            for which in (0, 1) if turn % 2 else (1, 0):
                checkout = given.checkouts[which].resolve()
                found: dict[str, float] = {}
                if given.matrices:
                    for data_set in given.sets:
                        for system in given.systems:
                            found |= linear(checkout, given.matrices, data_set, system, folder / "ranking.npy")
                if given.text:
                    found |= text(checkout, given.text, folder / "without")
                if turn == 0:
                    continue  # compiled
                for key, value in found.items():
                    measured[key][which].append(value)
                if given.out:
                    with open(given.out, "a", encoding="utf-8") as handle:
                        handle.write(json.dumps({"turn": turn, "new": bool(which), **found}) + "\n")
                print(f"round {turn} {('old', 'new')[which]}", file=sys.stderr, flush=True)
    print("| what | old | new | new ÷ old |\n|---|---|---|---|")
    for key, (old, new) in measured.items():
        medians = statistics.median(old), statistics.median(new)
        print(f"| {key} | {medians[0]:.4g} | {medians[1]:.4g} | {medians[1] / medians[0]:.3f} |")


if __name__ == "__main__":
    main()
