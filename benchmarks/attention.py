"""AttentionXML on a GPU: seconds per epoch, a breakdown of them, and accuracy of one network and of an ensemble.

    python benchmarks/attention.py prepare --data ../shared/data/eurlex57k --vectors GLOVE.txt --to carry
    PYTHONPATH=src python benchmarks/attention.py parts
    PYTHONPATH=src python benchmarks/attention.py train --from carry --plan PLAN.json [--test] [--save FOLDER]
    PYTHONPATH=src python benchmarks/attention.py together --from carry FOLDER FOLDER …

`prepare` copies the data and writes the vectors as a half-precision .npy file plus a word list, a fifth of the size of
the text. A plan is a list of {"name", "recipe", "settings", "seed"}; without --test only the validation set is scored.
`together` averages models that were trained and saved separately with different seeds; one process can also train them
as members.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np

import xmtc
from xmtc.artifact.workspace import Workspace
from xmtc.cli.progress import LogProgress
from xmtc.core.config import merge, read_recipe
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset, align_labels
from xmtc.metrics import precision
from xmtc.models.registry import model_class
from xmtc.recipes import find_recipe

PARTS = ("train", "dev", "test")
CEILING = 790e12
"""Peak bf16 operations per second of the matrix units of an H200."""


class Watched(Workspace):
    """A workspace in memory that keeps the training's log."""

    def __init__(self, shown: bool) -> None:
        super().__init__()
        self.lines: list[dict[str, Any]] = []
        self.shown = shown

    def log(self, line: Any) -> None:
        self.lines.append(dict(line))
        if self.shown:
            score = 100 * line.get("score", 0)
            which = f"{line['member']}.{line['level']}" if "level" in line else line["member"]
            print(f"    {which}  epoch {line['epoch']:5.1f}  {line['seconds']:6.1f} s  ", end="")
            print(f"loss {1e3 * line['loss']:.3f}e-3  nDCG@5 {score:.2f}", flush=True)


def prepare(data: Path, vectors: Path, to: Path) -> None:
    to.mkdir(parents=True, exist_ok=True)
    for part in PARTS:
        shutil.copy(data / f"{part}.jsonl.xz", to)
    words, rows = [], []
    with vectors.open(encoding="utf-8") as lines:
        for line in lines:
            word, *numbers = line.rstrip().split(" ")
            if len(numbers) > 10:
                words.append(word)
                rows.append(np.array(numbers, dtype=np.float16))
    np.save(to / "vectors.npy", np.stack(rows))
    (to / "vectors.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    print(f"{len(words):,} vectors; {sum(path.stat().st_size for path in to.iterdir()) / 2**20:.1f} MiB in {to}")


def percent(answer: Any, truth: Any) -> str:
    return "/".join(f"{100 * precision(answer, truth, k):.2f}" for k in (1, 3, 5))


def train(
    folder: Path, plan: list[dict[str, Any]], with_test: bool, shown: bool, limit: int | None, save: Path | None
) -> None:
    import torch

    documents = {part: xmtc.read(folder / f"{part}.jsonl.xz") for part in PARTS[: 3 if with_test else 2]}
    if limit:
        documents = {part: dataset.slice(0, limit) for part, dataset in documents.items()}
    for item in plan:
        runtime = Runtime(seed=int(item.get("seed", 0)), cache=Path("/tmp/xmtc-cache"))
        recipe = read_recipe(find_recipe(item["recipe"]))[1] if "recipe" in item else {}
        vectors = folder / "vectors.npy"
        settings = merge(recipe, {"vectors": str(vectors)} if vectors.is_file() else {}, item.get("settings", {}))
        model: Any = model_class(item.get("model", "attention_xml"))(**settings)
        watched = Watched(shown)
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        started = time.perf_counter()
        model.fit(
            documents["train"], valid=documents["dev"], runtime=runtime, workspace=watched, progress=LogProgress()
        )
        whole = time.perf_counter() - started
        report(item, model, watched, documents, whole)
        if save is not None:
            model.save(save, overwrite=True)


def together(folder: Path, models: list[Path]) -> None:
    loaded: list[Any] = [xmtc.load(path) for path in models]
    first = loaded[0]
    for other in loaded[1:]:
        assert other._reader.words == first._reader.words
        assert other.labels.keys == first.labels.keys
        first._members += other._members
    documents = {part: xmtc.read(folder / f"{part}.jsonl.xz") for part in PARTS[1:]}
    score(first, documents)


def report(item: dict[str, Any], model: Any, watched: Watched, documents: dict[str, Dataset], whole: float) -> None:
    import torch

    for (member, level), run in by_network(watched.lines).items():
        each = np.diff([line["seconds"] for line in run]) / np.diff([line["epoch"] for line in run])
        middle = f", {np.median(each):.2f} s an epoch" if len(each) else ""
        print(f"  member {member}, level {level}: loop {run[-1]['seconds']:.1f} s{middle}", flush=True)
    memory = torch.cuda.max_memory_reserved() / 2**30 if torch.cuda.is_available() else 0.0
    print(f"{item['name']}: fit {whole:.1f} s, {memory:.1f} GiB", flush=True)
    score(model, documents)


def score(model: Any, documents: dict[str, Dataset]) -> None:
    """P@1/3/5 of each member and of the ensemble, and prediction times."""
    members = list(model._members)
    groups = [([member], f"member {place}") for place, member in enumerate(members)]
    groups += [(members, f"{len(members)} averaged")] if len(members) > 1 else []
    for part in [part for part in PARTS[1:] if part in documents]:
        truth, _ = align_labels(documents[part], model.labels)
        truth = truth[:, : len(model.labels)]
        for chosen, name in groups:
            model._members = chosen
            batch = model._documents(documents[part])
            model._best_labels(batch, 5, None)
            started = time.perf_counter()
            found, _ = model._best_labels(batch, 5, None)
            seconds = time.perf_counter() - started
            started = time.perf_counter()
            model.predict(documents[part], 5)
            from_text = time.perf_counter() - started
            timed = f"({seconds:.2f} s from word numbers, {from_text:.2f} s from text)"
            print(f"  {part} {name}: {percent(found, truth)}  {timed}", flush=True)
    model._members = members


def by_network(lines: list[dict[str, Any]]) -> dict[tuple[int, int], list[dict[str, Any]]]:
    """The log of each network by its member and its level, which is 0 without a tree."""
    networks: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for line in lines:
        networks.setdefault((line["member"], line.get("level", 0)), []).append(line)
    return networks


def parts(batches: list[int], length: int, labels: int) -> None:
    """Milliseconds of the encoder, the head and the update, each captured alone, and what the head reaches."""
    import torch

    from xmtc.nn.device import chunk_memory
    from xmtc.nn.encoders.lstm import BiLstm, LstmSettings
    from xmtc.nn.heads.label_attention import LabelAttention, flops
    from xmtc.nn.training.optimisers import Adam

    device = torch.device("cuda")
    encoder = BiLstm(300, LstmSettings()).to(device).train()
    head = LabelAttention(labels, 512, (256,)).to(device)
    for batch in batches:
        chunk = head.chunk(batch, length, 2, chunk_memory(device))
        words = torch.randn(length, batch, 300, device=device, dtype=torch.bfloat16, requires_grad=True)
        mask = torch.ones(batch, length, dtype=torch.bool, device=device)
        states = torch.randn(batch, length, 512, device=device, dtype=torch.bfloat16) * 0.3
        positives = torch.randint(0, labels, (batch, 5), device=device)
        adam = Adam(dict(encoder.named_parameters()) | {f"head.{n}": p for n, p in head.named_parameters()})

        def both_ways(words: Any = words, mask: Any = mask, states: Any = states) -> None:
            encoded = encoder(words, mask)
            torch.autograd.grad(encoded, [*encoder.parameters(), words], states)

        lstm = milliseconds(both_ways)
        with torch.no_grad():
            one_way = milliseconds(lambda words=words, mask=mask: encoder(words, mask))
        attention = milliseconds(
            lambda states=states, mask=mask, positives=positives, chunk=chunk: head.learn(
                states, mask, positives, chunk
            )
        )
        update = milliseconds(lambda adam=adam: adam.step({}))
        work = flops(batch, length, labels, 512, 256)
        share = work / (attention * 1e-3) / CEILING
        print(
            f"batch {batch}, {length} words: LSTM {lstm:.2f} ms (forward {one_way:.2f}), head {attention:.2f} ms in "
            f"{-(-labels // chunk)} chunks, update {update:.2f} ms; head {work / 1e12:.2f} TFLOP, {100 * share:.0f} % "
            "of the ceiling",
            flush=True,
        )


def profile(batch: int, length: int, labels: int, rows: int) -> None:
    """The kernels of one training step on random texts of equal length, slowest first."""
    import scipy.sparse as sp
    import torch
    from torch.profiler import ProfilerActivity

    from xmtc.nn.device import chunk_memory
    from xmtc.nn.documents import Documents
    from xmtc.nn.encoders.lstm import BiLstm, LstmSettings
    from xmtc.nn.heads.label_attention import LabelAttention
    from xmtc.nn.network import Network
    from xmtc.nn.training.cuda_graphs import Captured
    from xmtc.nn.training.loop import Trainer, TrainingSettings
    from xmtc.text.tokens import TokenBlock

    device, random, count = torch.device("cuda"), np.random.default_rng(0), 2000
    ids = np.minimum(random.zipf(1.3, count * length), rows - 1).astype(np.int32)
    truth = sp.csr_array(sp.random(count, labels, 5 / labels, format="csr", random_state=random))
    documents = Documents(TokenBlock(np.arange(count + 1) * length, ids), truth, device)
    encoder, head = BiLstm(300, LstmSettings()), LabelAttention(labels, 512, (256,))
    network = Network(torch.randn(rows, 300), encoder, head, trained_words=True, compute=torch.bfloat16).to(device)
    settings = TrainingSettings(batch_size=batch)
    trainer = Trainer(network, documents, settings, seed=0, free=chunk_memory(device), validate=None)
    network.train()
    chosen = torch.arange(batch, device=device)
    captured = Captured(trainer._step, trainer._tensors())
    captured(chosen, length)
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(10):
        captured(chosen, length)
    torch.cuda.synchronize()
    print(f"batch {batch}, {length} words: {100 * (time.perf_counter() - started):.2f} ms a step", flush=True)
    with torch.profiler.profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as found:
        trainer._step(chosen, length)
        torch.cuda.synchronize()
    kernels = [event for event in found.key_averages() if str(event.device_type).endswith("CUDA")]
    for event in sorted(kernels, key=lambda event: -event.device_time_total)[:32]:
        print(f"  {event.device_time_total / 1e3:7.3f} ms  × {event.count:<5} {event.key[:110]}", flush=True)


def milliseconds(step: Any, times: int = 10) -> float:
    """One call, captured in a graph and replayed."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    graph.replay()
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(times):
        graph.replay()
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - started) / times


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    preparing = commands.add_parser("prepare")
    preparing.add_argument("--data", type=Path, required=True)
    preparing.add_argument("--vectors", type=Path, required=True)
    preparing.add_argument("--to", type=Path, default=Path("carry"))
    timing = commands.add_parser("parts")
    timing.add_argument("--batches", type=int, nargs="+", default=[128, 256])
    timing.add_argument("--length", type=int, default=500)
    timing.add_argument("--labels", type=int, default=4108)
    profiling = commands.add_parser("profile")
    profiling.add_argument("--batch", type=int, default=128)
    profiling.add_argument("--length", type=int, default=440)
    profiling.add_argument("--labels", type=int, default=4108)
    profiling.add_argument("--words", type=int, default=75_000)
    training = commands.add_parser("train")
    training.add_argument("--from", dest="source", type=Path, default=Path("carry"))
    training.add_argument("--plan", type=Path, required=True)
    training.add_argument("--test", action="store_true", help="Score the test documents too.")
    training.add_argument("--quiet", action="store_true", help="Only the results.")
    training.add_argument("--save", type=Path, help="Folder for the model of a plan of one.")
    training.add_argument("--limit", type=int, help="Documents of each part, for a rehearsal.")
    averaging = commands.add_parser("together")
    averaging.add_argument("--from", dest="source", type=Path, default=Path("carry"))
    averaging.add_argument("models", type=Path, nargs="+")
    given = parser.parse_args()
    if given.command == "prepare":
        prepare(given.data, given.vectors, given.to)
    elif given.command == "parts":
        parts(given.batches, given.length, given.labels)
    elif given.command == "profile":
        profile(given.batch, given.length, given.labels, given.words)
    elif given.command == "together":
        together(given.source, given.models)
    else:
        train(given.source, json.loads(given.plan.read_text()), given.test, not given.quiet, given.limit, given.save)


if __name__ == "__main__":
    main()
