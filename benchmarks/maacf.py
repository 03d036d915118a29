"""MAACF+ and its encoders on one GPU: parallel jobs, and differences with confidence intervals.

    python benchmarks/maacf.py prepare --data DATA/eurlex57k --to carry/words/eurlex57k [--words 256]
    python benchmarks/maacf.py prepare --encoder FOLDER --to carry/minilm
    python benchmarks/maacf.py keep carry/words/eurlex57k carry/minilm --to PLACE
    PYTHONPATH=src python benchmarks/maacf.py jobs PLAN.json --data PLACE --out FOLDER [--workers 4] [--seconds 540] \
        [--test] [--pack FOLDER]
    python benchmarks/maacf.py compare --data DATA/eurlex57k --pairs A.parquet:B.parquet …

`prepare` collects the files for a GPU machine: documents, with --words also word vectors trained on their first 500
words (words.npy), and an encoder in half precision; `keep` copies folders to a permanent place, if not everything can
be transferred at once.

A plan is a list of {"name", "model" or "recipe", "settings", "seed", "data", "seconds"}: `data` is a folder in --data,
setting values that start with DATA/ are files there, and jobs with the most expected seconds start first. Each job
trains on train.jsonl.xz, validates on dev.jsonl.xz and writes NAME.json (results) and NAME.log.jsonl (its epochs); with
--test also NAME.parquet, the best labels of the development and then the test documents, as input for
`consensus.py measure`. When the time is up, running jobs are stopped. --pack collects all that in .tar files of at most
15 MiB, updated after each job.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import traceback
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

import xmtc
from xmtc.artifact.workspace import Workspace
from xmtc.core.config import merge, read_recipe
from xmtc.core.files import write_json
from xmtc.core.runtime import Runtime, available_threads
from xmtc.data.topk import TopK
from xmtc.metrics import Interval, Parts, bootstrap_difference
from xmtc.models.registry import model_class
from xmtc.recipes import find_recipe
from xmtc.workflows.evaluate import evaluate_predictions
from xmtc.workflows.evaluation import Training, judge
from xmtc.workflows.requests import EvaluationOptions

PARTS = ("train", "dev", "test")
DATA = "DATA/"
WORDS = {"text.max_tokens": 500, "text.min_df": 2}
"""Number of words per document that word vectors of `prepare` are trained on."""
LEFT_OUT = ("position_ids", "pooler.")
"""Of an encoder's weights: what is counted, and what works on a single piece."""
AGREED = 0.9999
"""Cosine of embeddings in half and in single precision, at least."""
TAR_BYTES, TARS = 15 << 20, 4
SHOWN = ("P@1", "P@3", "P@5", "nDCG@3", "nDCG@5")
TOLD = (*SHOWN, "PSP@1", "PSP@3", "PSP@5")
SAMPLES = 10_000


# ---- what travels


def prepare(data: Path | None, encoder: Path | None, to: Path, width: int) -> None:
    to.mkdir(parents=True, exist_ok=True)
    if data is not None:
        for part in PARTS:
            shutil.copy(data / f"{part}.jsonl.xz", to)
        if width:
            write_words(data / "train.jsonl.xz", width, to)
    if encoder is not None:
        write_half(encoder, to)
    print(f"{sum(path.stat().st_size for path in to.iterdir()) / 1e6:.1f} MB in {to}")


def write_words(train: Path, width: int, to: Path) -> None:
    """The vectors that `vectors=corpus` of a word network starts from, with seed 0, in half precision."""
    from xmtc.core.progress import silent
    from xmtc.models.context import FitContext
    from xmtc.nn.word_table import corpus_vectors

    model: Any = model_class("xml_cnn")(**{"corpus.width": width, **WORDS})
    run = FitContext(Runtime(), silent, Workspace())
    started = time.perf_counter()
    reader, numbered = model._fit_reader(xmtc.read(train), run)
    vectors = corpus_vectors(numbered, len(reader.words), model.config.corpus, run.runtime.seed, run.progress)
    np.save(to / "words.npy", vectors.astype(np.float16))
    (to / "words.txt").write_text("\n".join(reader.words) + "\n", encoding="utf-8")
    print(f"{len(reader.words):,} word vectors, {width} wide, in {time.perf_counter() - started:.0f} s")


def write_half(encoder: Path, to: Path) -> None:
    """An encoder's folder in half precision, and how far its embeddings are from those it had."""
    import torch
    from safetensors.torch import load_file, save_file

    for name in ("config.json", "tokenizer.json"):
        shutil.copy(encoder / name, to)
    weights = load_file(encoder / "model.safetensors")
    kept = {name: part for name, part in weights.items() if not any(word in name for word in LEFT_OUT)}
    half = {name: part.half() if part.is_floating_point() else part for name, part in kept.items()}
    save_file(half, to / "model.safetensors", metadata={"format": "pt"})
    before, after = (embedded(folder) for folder in (encoder, to))
    agreement = float(torch.cosine_similarity(before, after, dim=-1).min())
    print(f"{len(half)} of {len(weights)} weights; cosine of embeddings at least {agreement:.6f}")
    if agreement < AGREED:
        raise SystemExit(f"{to}: embeddings do not agree with those of {encoder}. Carry it in single precision.")


def embedded(folder: Path) -> Any:
    """(n, T, d) what an encoder makes of a few made-up texts."""
    import torch
    from transformers import AutoModel

    model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    pieces = torch.from_numpy(np.random.default_rng(0).integers(1000, model.config.vocab_size, (8, 64)))
    with torch.no_grad():
        return model(input_ids=pieces).last_hidden_state


def keep(folders: list[Path], to: Path) -> None:
    for folder in folders:
        shutil.copytree(folder, to / folder.name, dirs_exist_ok=True)
    print(f"{to}: {', '.join(sorted(path.name for path in to.iterdir()))}", flush=True)


# ---- one job


class Watched(Workspace):
    """A workspace in memory that keeps the training's log, in a file as well."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.lines: list[dict[str, Any]] = []
        self.path = path

    def log(self, line: Any) -> None:
        self.lines.append(dict(line))
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(dict(line)) + "\n")


def placed(settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Settings with files of this machine."""

    def place(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: place(inner) for key, inner in value.items()}
        return str(folder / value.removeprefix(DATA)) if isinstance(value, str) and value.startswith(DATA) else value

    return {key: place(value) for key, value in settings.items()}


def job(item: dict[str, Any], given: argparse.Namespace) -> None:
    """Train, answer, measure and write; a line for whoever watches."""
    folder, out = given.data / item.get("data", ""), given.out
    documents = {part: xmtc.read(folder / f"{part}.jsonl.xz") for part in PARTS[: 3 if given.test else 2]}
    if given.limit:
        documents = {part: dataset.slice(0, given.limit) for part, dataset in documents.items()}
    name, recipe = read_recipe(find_recipe(item["recipe"])) if "recipe" in item else (None, {})
    settings = placed(merge(recipe, item.get("settings", {})), given.data)
    model: Any = model_class(item.get("model") or name or "")(**settings)
    threads = max(1, available_threads() // given.workers)
    runtime = Runtime(threads=threads, seed=int(item.get("seed", 0)), cache=given.data / "cache")
    watched = Watched(out / f"{item['name']}.log.jsonl")
    started = time.perf_counter()
    model.fit(documents["train"], valid=documents["dev"], runtime=runtime, workspace=watched)
    trained = time.perf_counter() - started
    training = Training(model.labels, *model.counted())
    answers, figures, seconds = [], {}, {"train": round(trained, 2)}
    for part in PARTS[1 : len(documents)]:
        started = time.perf_counter()
        answers.append(model.predict(documents[part], min(given.k, len(model.labels))))
        seconds[part] = round(time.perf_counter() - started, 2)
        found = judge(answers[-1], documents[part], EvaluationOptions(unknown_labels="drop"), training=training)
        figures[part] = {measure: found.metrics[measure] for measure in TOLD}
    told = {"item": item, "seconds": seconds, "device_memory": memory(), "facts": model.facts, **figures}
    if given.test:
        TopK.concatenate(answers).write(out / f"{item['name']}.parquet")
    write_json(out / f"{item['name']}.json", told)
    shown = "; ".join(f"{part} {in_words(figures[part])}" for part in figures)
    print(
        f"{item['name']}: {trained:.0f} s, {memory() / 2**30:.1f} GiB; {epochs(watched.lines)}; {shown}",
        flush=True,
    )


def in_words(figures: dict[str, float]) -> str:
    ranks = "/".join(f"{100 * figures[name]:.2f}" for name in SHOWN[:3])
    return f"P@1/3/5 {ranks}, nDCG@3/5 {100 * figures['nDCG@3']:.2f}/{100 * figures['nDCG@5']:.2f}"


def epochs(lines: list[dict[str, Any]]) -> str:
    """nDCG@5 of the held-out documents by epoch, for each network."""
    told = []
    for which, run in groupby(lines, lambda line: (line.get("member", 0), line.get("level", 0))):
        looks = list(run)
        scores = [line["score"] for line in looks if "score" in line]
        best = f", best {looks[int(np.argmax(scores))]['epoch']:g}" if scores else ""
        by_epoch = " ".join(f"{100 * score:.1f}" for score in scores)
        place = f"network {which[0]}.{which[1]}: " if which != (0, 0) else ""
        told.append(f"{place}{looks[-1]['epoch']:g} epochs in {looks[-1]['seconds']:.0f} s{best}: {by_epoch}")
    return " | ".join(told) or "no epochs"


def memory() -> int:
    """The most bytes of the GPU that this process has reserved."""
    torch = sys.modules.get("torch")
    return int(torch.cuda.max_memory_reserved()) if torch is not None and torch.cuda.is_available() else 0


def run_job(given: argparse.Namespace) -> None:
    item = json.loads(given.plan.read_text(encoding="utf-8"))[given.number]
    try:
        job(item, given)
    except Exception as error:
        traceback.print_exc()
        last = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]
        print(f"{item['name']}: failed: {last}", flush=True)
        raise SystemExit(1) from None


# ---- all jobs of a plan


class Bench:
    """The jobs of a plan as processes, so many at a time."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.plan: list[dict[str, Any]] = json.loads(given.plan.read_text(encoding="utf-8"))
        names = [item["name"] for item in self.plan]
        if len(set(names)) < len(names):
            raise SystemExit(f"{given.plan}: two jobs have one name. Give each its own.")
        self.waiting = sorted(range(len(names)), key=lambda number: -self.plan[number].get("seconds", 0))
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        self.started = time.monotonic()

    def run(self) -> None:
        """All jobs, or as many as the time allows; what is there is packed whatever happens."""
        self.given.out.mkdir(parents=True, exist_ok=True)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
        try:
            while self.waiting or self.running:
                while self.waiting and len(self.running) < self.given.workers:
                    number = self.waiting.pop(0)
                    self.running[number] = self.begun(number)
                if time.monotonic() - self.started > self.given.seconds:
                    break
                time.sleep(0.1)
                self.gather()
        finally:
            self.stop()
            self.pack()

    def begun(self, number: int) -> subprocess.Popen[bytes]:
        given, name = self.given, self.plan[number]["name"]
        (given.out / f"{name}.log.jsonl").unlink(missing_ok=True)
        words = [sys.executable, __file__, "job", str(given.plan), "--number", str(number), "--data", str(given.data)]
        words += ["--out", str(given.out), "--workers", str(given.workers), "-k", str(given.k)]
        words += ["--test"] * given.test + (["--limit", str(given.limit)] if given.limit else [])
        threads = str(max(1, available_threads() // given.workers))
        own = dict.fromkeys(("OMP_NUM_THREADS", "RAYON_NUM_THREADS"), threads)
        with (given.out / f"{name}.err").open("wb") as errors:
            return subprocess.Popen(words, stderr=errors, env={**os.environ, **own})

    def gather(self) -> None:
        """Take note of the jobs that have ended."""
        for number, process in list(self.running.items()):
            if process.poll() is None:
                continue
            del self.running[number]
            if process.returncode not in (0, 1):
                print(f"{self.plan[number]['name']}: ended with status {process.returncode}", flush=True)
            self.pack()

    def stop(self) -> None:
        for process in self.running.values():
            process.terminate()
        for number, process in self.running.items():
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
            name = self.plan[number]["name"]
            log = self.given.out / f"{name}.log.jsonl"
            lines = [json.loads(line) for line in log.read_text().splitlines()] if log.is_file() else []
            print(f"{name}: stopped; {epochs(lines)}", flush=True)
        self.running.clear()
        if self.waiting:
            print("not begun: " + ", ".join(self.plan[number]["name"] for number in self.waiting), flush=True)

    def pack(self) -> None:
        for path in self.given.out.glob("*.err"):
            busy = {self.plan[number]["name"] for number in self.running}
            if not path.stat().st_size and path.name.removesuffix(".err") not in busy:
                path.unlink()
        if self.given.pack is not None:
            packed(self.given.out, self.given.pack)


def packed(folder: Path, to: Path) -> None:
    """A folder's files, small ones first, in a few .tar files."""
    to.mkdir(parents=True, exist_ok=True)
    files = sorted((path for path in folder.iterdir() if path.is_file()), key=lambda path: path.stat().st_size)
    tars: list[list[Path]] = [[]]
    room = TAR_BYTES
    for path in files:
        size = path.stat().st_size + 2048  # its header, and what fills its last block
        if size > room:
            tars.append([])
            room = TAR_BYTES - 10240
        tars[-1].append(path)
        room -= size
    for number, part in enumerate(tars[:TARS], 1):
        going = to / f"part-{number}.tar.new"
        with tarfile.open(going, "w") as tar:
            for path in part:
                tar.add(path, path.name)
        going.replace(to / f"part-{number}.tar")
    if lost := [path.name for part in tars[TARS:] for path in part]:
        print(f"not packed: {', '.join(lost)}", flush=True)


# ---- differences


def compare(data: Path, pairs: list[str]) -> None:
    """Figures on the test documents, and paired differences with intervals, as Markdown."""
    scope = EvaluationOptions(unknown_labels="drop", bootstrap=10)  # which keeps what each document adds
    systems = dict.fromkeys(system for pair in pairs for system in pair.split(":"))
    parts: dict[str, dict[str, Parts]] = {}
    for system in systems:
        found = [
            evaluate_predictions(path, data / "test.jsonl.xz", scope, train_file=data / "train.jsonl.xz").parts
            for path in system.split(",")
        ]
        parts[system] = {name: mean_parts([each[name] for each in found]) for name in SHOWN}
    print(line("", *SHOWN) + "\n" + line("---", *["---:"] * len(SHOWN)))
    for system in systems:
        print(line(called(system), *(f"{100 * parts[system][name].value:.2f}" for name in SHOWN)))
    for pair in pairs:
        first, second = pair.split(":")
        apart = bootstrap_difference(parts[first], parts[second], SAMPLES)
        print(line(f"{called(first)} less {called(second)}", *(span(apart[name]) for name in SHOWN)), flush=True)


def mean_parts(parts: list[Parts]) -> Parts:
    """Of several seeds of one system: what each document adds on average."""
    return Parts(*(np.mean([getattr(part, side) for part in parts], axis=0) for side in ("numerator", "denominator")))


def called(system: str) -> str:
    names = [Path(path).name.removesuffix(".parquet") for path in system.split(",")]
    return names[0] if len(names) == 1 else f"mean of {', '.join(names)}"


def span(found: Interval) -> str:
    told = f"{100 * found.value:+.2f} [{100 * found.low:+.2f}, {100 * found.high:+.2f}]".replace("-", "−")
    return told if found.low <= 0 <= found.high else f"**{told}**"


def line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    preparing = commands.add_parser("prepare")
    preparing.add_argument("--data", type=Path)
    preparing.add_argument("--encoder", type=Path)
    preparing.add_argument("--to", type=Path, required=True)
    preparing.add_argument("--words", type=int, default=0, help="Width of word vectors to train.")
    keeping = commands.add_parser("keep")
    keeping.add_argument("folders", type=Path, nargs="+")
    keeping.add_argument("--to", type=Path, required=True)
    for name in ("jobs", "job"):
        running = commands.add_parser(name)
        running.add_argument("plan", type=Path)
        running.add_argument("--data", type=Path, required=True)
        running.add_argument("--out", type=Path, required=True)
        running.add_argument("--workers", type=int, default=4, help="Jobs at a time.")
        running.add_argument("--seconds", type=float, default=540, help="After which running jobs are stopped.")
        running.add_argument("--test", action="store_true", help="Answer and measure the test documents too.")
        running.add_argument("--pack", type=Path, help="Folder for .tar files of all results.")
        running.add_argument("--limit", type=int, help="Documents of each part, for a rehearsal.")
        running.add_argument("-k", type=int, default=50, help="Labels of an answer.")
        running.add_argument("--number", type=int, help="Of one job in the plan.")
    comparing = commands.add_parser("compare")
    comparing.add_argument("--data", type=Path, required=True)
    comparing.add_argument("--pairs", nargs="+", required=True, help="A:B; files of one system's seeds as A1,A2.")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    if given.command == "prepare":
        prepare(given.data, given.encoder, given.to, given.words)
    elif given.command == "keep":
        keep(given.folders, given.to)
    elif given.command == "jobs":
        Bench(given).run()
    elif given.command == "job":
        run_job(given)
    else:
        compare(given.data, given.pairs)


if __name__ == "__main__":
    main()
