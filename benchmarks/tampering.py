"""Damage the folders of all models at random, with and without repaired hashes, and count what happens.

    python -m benchmarks.tampering --count 5000 --seed 0

Prints a table of outcomes, and every case that ends with a traceback, a signal or a hang, or that changes answers
without an error although its hashes are as they were.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from itertools import chain
from pathlib import Path

from tests.support.tampered_models import KINDS, build
from tests.support.tampering import directed
from tests.support.tampering_runs import Campaign, Case, random_cases

OUTCOMES = ("answers", "error", "message", "traceback", "signal", "timeout")


def main() -> None:
    """Run the damages and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=5000, help="random damages")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--models", nargs="*", default=list(KINDS), help="kinds of model folders")
    parser.add_argument("--directed", action="store_true", help="also change every array in six ways, with both hashes")
    parser.add_argument("--folders", type=Path, help="where to keep the trained models, for another run")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="xmtc-tampering-") as temporary:
        place = arguments.folders or Path(temporary)
        place.mkdir(exist_ok=True)
        folders = build(place, arguments.models)
        cases = random_cases(folders, arguments.count, arguments.seed)
        every = (
            Case(name, damage)
            for name, (folder, _) in folders.items()
            for damage in (directed(folder, (True, False)) if arguments.directed else ())
        )
        counts: Counter[tuple[str, bool]] = Counter()
        started, slowest, faults = time.monotonic(), 0.0, 0
        with Campaign(folders, arguments.workers) as campaign:
            for case, outcome in campaign.run(chain(cases, every)):
                counts[outcome.kind, case.damage.is_repaired] += 1
                slowest = max(slowest, outcome.seconds)
                fault = campaign.fault(case, outcome)
                if fault is not None:
                    faults += 1
                    print(fault, flush=True)
    print(f"\n{'outcome':<12}{'hashes as they were':>22}{'hashes repaired':>18}")
    for kind in OUTCOMES:
        print(f"{kind:<12}{counts[kind, False]:>22,}{counts[kind, True]:>18,}")
    print(f"{'all':<12}{sum(n for (_, r), n in counts.items() if not r):>22,}", end="")
    print(f"{sum(n for (_, r), n in counts.items() if r):>18,}")
    print(f"{faults:,} faults, slowest case {slowest:.1f} s, {time.monotonic() - started:,.0f} s in all")


if __name__ == "__main__":
    main()
