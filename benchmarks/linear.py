"""Linear label trees compared with PECOS and napkinXC on the same tf-idf matrices, run one after the other.

usage: python benchmarks/linear.py --matrices FOLDER --peers PYTHON [--sets eurlex57k …] [--repeat 3] [--out FILE]
       python benchmarks/linear.py --text --peers PYTHON [--data ../shared/data] [--sets eurlex57k tibkat-gnd]

FOLDER has a folder per dataset with X_train.npz, X_test.npz, Y_train.npz and Y_test.npz (scipy CSR; test labels that do
not occur in training are dropped). PYTHON is the interpreter of the peers' environment: PECOS requires numpy < 2.

Every measurement runs in its own process, one at a time. In each round all systems train once, the peers first; the
smallest time of `--repeat` rounds counts for every system. A process trains, saves, loads the model for prediction as a
service would, warms up, and predicts the complete test set three times, of which the fastest counts; then 300 single
documents on one thread, of which the median counts: from a feature row to label numbers (peers) or label names (ours:
`predict`, and `tag`, which is optimised for single documents). Ours compiles its kernels on a few hundred rows first;
that time is reported separately. All settings of ours are the defaults, whatever the data set; "1 tree" is the fastest
single tree, trained on the documents of each node alone.
PECOS: PIFA, hierarchical k-means with 16 or 2 branches and leaves of 100, beam 10, hash chunks.

With --text, from files to scores: both sides read train.jsonl, compute tf-idf, train (PECOS: 16 branches),
predict test.jsonl and compute P@k; seconds from the start of the program, including imports.
"""

from __future__ import annotations

import time

BEGAN = time.perf_counter()

import argparse
import json
import lzma
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

SETS = ("eurlex57k", "tibkat-gnd", "delicious", "bibtex")
TEXT_SETS = ("eurlex57k", "tibkat-gnd")
SMALL = ("delicious", "bibtex")
PEERS = ("pecos-16", "pecos-2")
TEXT_SYSTEMS = ("parabel", "parabel-1")
OURS: dict[str, tuple[str, dict[str, Any]]] = {
    "parabel": ("parabel", {}),
    "parabel-1": ("parabel", {"trees": 1, "negatives": 0}),
    "bonsai": ("bonsai", {}),
    "one_vs_all": ("one_vs_all", {}),
}
NAMES = {
    "pecos-16": "PECOS, 16-ary",
    "pecos-2": "PECOS, 2-ary",
    "napkin-plt": "napkinXC PLT",
    "parabel": "parabel, default",
    "parabel-1": "parabel, 1 tree",
    "bonsai": "bonsai, default",
    "one_vs_all": "one_vs_all",
}
TIMES = ("train", "predict", "one_ms", "named_ms", "load")
SINGLE, WARM, TRIES = 300, 300, 3


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    result = call()
    return time.perf_counter() - started, result


# ---- ours, in a process of its own


def fresh(system: str) -> Any:
    """The untrained model of a row."""
    import xmtc

    name, settings = OURS[system]
    return xmtc.create(name, **settings)


def matrix(folder: Path, name: str) -> Any:
    import scipy.sparse as sp

    return sp.csr_array(sp.load_npz(folder / f"{name}.npz"))


def warm_up(model: Any, rows: Any, labels: Any) -> None:
    few, held = rows[:WARM], labels[:WARM]
    model.fit(few, held).predict(few, k=5)
    model.predict(few[[0]], k=5).names()
    model.tag(few[[0]], k=5)


def ours(source: Path, system: str, target: Path) -> dict[str, float]:
    """Train, save, load, predict; the ranking goes to a file."""
    import numpy as np

    import xmtc

    rows, labels, test = (matrix(source, name) for name in ("X_train", "Y_train", "X_test"))
    compiling, _ = timed(lambda: warm_up(fresh(system), rows, labels))
    training, trained = timed(lambda: fresh(system).fit(rows, labels))
    with tempfile.TemporaryDirectory() as folder:
        trained.save(folder, overwrite=True)
        size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file()) / 1e6
        loading, model = timed(lambda: xmtc.load(folder))
        model.predict(test[:50], k=5)
        runs = [timed(lambda: model.predict(test, k=5)) for _ in range(TRIES)]
        model = xmtc.load(folder, xmtc.Runtime(threads=1))
        named = median_ms(lambda row: model.predict(row, k=5).names(), test)
        one = median_ms(lambda row: model.tag(row, k=5), test)
        np.save(target, runs[0][1].labels)
    found = {"train": training, "predict": min(seconds for seconds, _ in runs), "one_ms": one, "named_ms": named}
    return {**found, "load": loading, "size": size, "compile": compiling}


def median_ms(call: Callable[[Any], Any], rows: Any) -> float:
    singles = [rows[[place]] for place in range(min(SINGLE, rows.shape[0]))]
    call(singles[0])
    return 1000 * statistics.median(timed(lambda row=row: call(row))[0] for row in singles)


def ours_on_text(train_path: Path, test_path: Path, system: str) -> dict[str, float]:
    import xmtc
    from xmtc import metrics
    from xmtc.data.dataset import align_labels

    model = fresh(system)
    imported = time.perf_counter()
    train = xmtc.read(train_path)
    read_in = time.perf_counter()
    model.fit(train)
    trained = time.perf_counter()
    test = xmtc.read(test_path)
    answer = model.predict(test, k=5)
    truth = align_labels(test, model.labels)[0][:, : len(model.labels)]
    measures = {f"P@{k}": metrics.precision(answer, truth, k) for k in (1, 3, 5)}
    ended = time.perf_counter()
    return {
        "imports": imported - BEGAN,
        "read": read_in - imported,
        "train": trained - read_in,
        "predict": ended - trained,
        "total": ended - BEGAN,
        **measures,
    }


# ---- everybody, one after the other


def answered(*command: Any) -> dict[str, Any]:
    """What a process says in its last line, as JSON."""
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def run_once(source: Path, system: str, peers: str, ranking: Path) -> dict[str, Any]:
    if system in OURS:
        return answered(sys.executable, __file__, "--action", "matrices", source, system, ranking)
    return answered(peers, Path(__file__).with_name("linear_peers.py"), "matrices", source, system, ranking)


def measures_of(source: Path, ranking: Path) -> dict[str, float]:
    import numpy as np

    from xmtc import metrics
    from xmtc.labels.propensity import inverse_propensities

    labels = matrix(source, "Y_train")
    counts = np.bincount(labels.indices, minlength=labels.shape[1])
    inverse = inverse_propensities(counts, labels.shape[0], 0.55, 1.5)
    return metrics.evaluate(np.load(ranking), matrix(source, "Y_test"), (1, 3, 5), inverse)


def systems_for(data_set: str) -> list[str]:
    small = data_set in SMALL
    return [*PEERS, *(["napkin-plt"] if small else []), *(name for name in OURS if small or name != "one_vs_all")]


def on_matrices(source: Path, data_set: str, peers: str, repeat: int, wanted: list[str]) -> dict[str, dict[str, Any]]:
    """What was measured of each system: the smallest times of all rounds."""
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        ranking = Path(folder) / "ranking.npy"
        for turn in range(repeat):
            for system in (name for name in systems_for(data_set) if not wanted or name in wanted):
                seen = run_once(source, system, peers, ranking)
                print(f"{data_set} {system} {turn + 1}: {json.dumps(seen)}", file=sys.stderr, flush=True)
                if system not in found:
                    found[system] = {**seen, **measures_of(source, ranking)}
                kept = found[system]
                kept.update({name: min(kept[name], seen[name]) for name in TIMES if name in seen})
    return found


HEAD = ("system", "train s", "predict s", "one doc ms ¹", "size MB", "load s", "P@1/3/5", "nDCG@5", "PSP@1/3/5")
RATIOS = ("train ÷ PECOS ²", "predict ÷ PECOS", "one doc ÷ PECOS")


def table(found: dict[str, dict[str, Any]]) -> str:
    lines = [f"| {' | '.join(HEAD + RATIOS)} |", "|" + "---|" * len(HEAD + RATIOS)]
    pecos = [seen for system, seen in found.items() if system in PEERS]
    least = {name: min(seen[name] for seen in pecos) for name in ("train", "predict", "one_ms")} if pecos else {}
    for system, seen in found.items():
        one = f"{seen['one_ms']:.3f}" + (f" ({seen['named_ms']:.3f})" if "named_ms" in seen else "")
        cells = [NAMES[system], f"{seen['train']:.1f}", f"{seen['predict']:.3f}", one, f"{seen['size']:.1f}"]
        cells += [f"{seen['load']:.2f}", percent(seen, "P@1", "P@3", "P@5"), percent(seen, "nDCG@5")]
        cells += [percent(seen, "PSP@1", "PSP@3", "PSP@5")]
        cells += [f"{seen[name] / least[name]:.2f}" if system in OURS and least else "" for name in TIMES[:3]]
        lines.append(f"| {' | '.join(cells)} |")
    compiled = [f"{NAMES[system]} {seen['compile']:.1f}" for system, seen in found.items() if "compile" in seen]
    return "\n".join(
        [
            *lines,
            "",
            "¹ The call for one document; `predict` in brackets. ² Ours over the faster of the two, for each time.",
            f"Warm-up, compiling where the cache was empty, s: {', '.join(compiled)}.",
        ]
    )


def percent(seen: dict[str, Any], *names: str) -> str:
    return "/".join(f"{100 * seen[name]:.2f}" for name in names)


def unpacked(source: Path, folder: Path) -> list[Path]:
    """train.jsonl and test.jsonl in a folder, out of .jsonl.xz or .jsonl."""
    targets = []
    for stem in ("train", "test"):
        path = next(source.glob(f"{stem}.jsonl*"))
        targets.append(folder / f"{stem}.jsonl")
        opener: Any = lzma.open if path.suffix == ".xz" else open
        with opener(path, "rb") as packed, open(targets[-1], "wb") as plain:
            shutil.copyfileobj(packed, plain)
    return targets


def on_text(source: Path, peers: str, repeat: int) -> list[dict[str, Any]]:
    """The fastest run of the peer and of each of ours."""
    with tempfile.TemporaryDirectory() as name:
        train, test = unpacked(source, Path(name))
        few = Path(name) / "few.jsonl"
        with open(train, encoding="utf-8") as lines:
            few.write_text("".join(next(lines) for _ in range(WARM)), encoding="utf-8")
        own = (sys.executable, __file__, "--action", "text")
        answered(*own, few, few, "parabel")  # compiles the kernels
        theirs = (peers, Path(__file__).with_name("linear_peers.py"), "text", train, test)
        runs = []
        for _ in range(repeat):
            runs.append((answered(*theirs), *(answered(*own, train, test, system) for system in TEXT_SYSTEMS)))
    return [min(column, key=lambda seen: float(seen["total"])) for column in zip(*runs, strict=True)]


def text_rows(data_set: str, seen: list[dict[str, Any]]) -> str:
    lines = []
    names = ("scikit-learn and PECOS, 16-ary", *(NAMES[system] for system in TEXT_SYSTEMS))
    for system, found in zip(names, seen, strict=True):
        steps = ("imports", "read", "features", "train", "predict")
        parts = ", ".join(f"{step} {found[step]:.1f}" for step in steps if step in found)
        ratio = f"{found['total'] / seen[0]['total']:.2f}"
        cells = [data_set, system, f"{found['total']:.1f}", parts, percent(found, "P@1", "P@3", "P@5"), ratio]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def keep(path: Path | None, lines: list[dict[str, Any]]) -> None:
    if path:
        with open(path, "a", encoding="utf-8") as handle:
            handle.writelines(json.dumps(line) + "\n" for line in lines)


def child(action: str, rest: list[str]) -> None:
    if action == "text":
        found = ours_on_text(Path(rest[0]), Path(rest[1]), rest[2])
    else:
        found = ours(Path(rest[0]), rest[1], Path(rest[2]))
    print(json.dumps(found), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--matrices", type=Path)
    parser.add_argument("--peers", help="interpreter of the environment with PECOS and napkinXC")
    parser.add_argument("--sets", nargs="+")
    parser.add_argument("--systems", nargs="+", default=[], choices=list(NAMES), help="only these")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--out", type=Path, help="file that raw figures are added to, a JSON line each")
    parser.add_argument("--text", action="store_true", help="from text files to scores")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--action", choices=["matrices", "text"], help=argparse.SUPPRESS)
    parser.add_argument("rest", nargs="*", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.action:
        child(given.action, given.rest)
        return
    if not given.peers or not (given.text or given.matrices):
        parser.error("--peers and one of --matrices and --text are needed")
    if given.text:
        print("| data set | system | total s | of it | P@1/3/5 | ÷ peer |\n|---|---|---|---|---|---|", flush=True)
        for data_set in given.sets or TEXT_SETS:
            seen = on_text(given.data / data_set, given.peers, given.repeat)
            keep(given.out, [{"set": data_set, "text": True, **found} for found in seen])
            print(text_rows(data_set, seen), flush=True)
        return
    for data_set in given.sets or SETS:
        found = on_matrices(given.matrices / data_set, data_set, given.peers, given.repeat, given.systems)
        keep(given.out, [{"set": data_set, "system": system, **seen} for system, seen in found.items()])
        print(f"\n### {data_set}\n\n{table(found)}", flush=True)


if __name__ == "__main__":
    main()
