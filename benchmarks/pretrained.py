"""Pretrained encoders on a GPU: training time and accuracy, throughput of the encoder, embeddings for linear models.

    python benchmarks/pretrained.py split --to carry/encoder FOLDER           # parts of 8 MB, to copy piece by piece
    python benchmarks/pretrained.py join --to FOLDER carry/encoder …
    PYTHONPATH=src python benchmarks/pretrained.py speed --encoder FOLDER
    PYTHONPATH=src python benchmarks/pretrained.py train --data FOLDER --encoder FOLDER --recipe RECIPE --out DIR

`train` takes other models, too (`--model attention_xml`). It scores the validation and the test set and writes the best
fifty labels of each document (`answers.npz`) and, with `--embed`, the mean states of all texts as 8-bit numbers
(`embeddings-*.npz`). `speed` times one step of the encoder, forward and backward, and the same with the library's code.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import xmtc
from xmtc.artifact.workspace import Workspace
from xmtc.cli.progress import LogProgress
from xmtc.core.config import merge, parse_assignments, read_recipe
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset, align_labels
from xmtc.metrics import ndcg, precision
from xmtc.models.registry import model_class
from xmtc.recipes import find_recipe

PARTS = ("train", "dev", "test")
PART_BYTES = 8 << 20
CEILING = 790e12
"""Peak bf16 operations per second of the matrix units of an H200."""
SAVED = 50
"""Labels saved for each document."""


class Watched(Workspace):
    """A workspace in memory that prints the training's log."""

    def log(self, line: Any) -> None:
        score = f"  nDCG@5 {100 * line['score']:.2f}" if "score" in line else ""
        print(f"  epoch {line['epoch']:5.1f}  {line['seconds']:6.1f} s  loss {line['loss']:.4f}{score}", flush=True)


def split(folder: Path, to: Path) -> None:
    """Cut the files of a folder into parts."""
    to.mkdir(parents=True, exist_ok=True)
    for file in sorted(folder.iterdir()):
        content = file.read_bytes()
        for number, low in enumerate(range(0, len(content), PART_BYTES)):
            (to / f"{file.name}.part{number:03}").write_bytes(content[low : low + PART_BYTES])


def join(parts: list[Path], to: Path) -> None:
    """Put the files together again."""
    to.mkdir(parents=True, exist_ok=True)
    pieces = sorted((piece for folder in parts for piece in folder.iterdir()), key=lambda piece: piece.name)
    for name in sorted({piece.name.rpartition(".part")[0] for piece in pieces}):
        own = [piece.read_bytes() for piece in pieces if piece.name.rpartition(".part")[0] == name]
        (to / name).write_bytes(b"".join(own))
        print(f"{to / name}: {len(own)} parts")


def figures(found: np.ndarray[Any, Any], truth: Any) -> str:
    shares = "/".join(f"{100 * precision(found, truth, k):.2f}" for k in (1, 3, 5))
    return f"{shares}, nDCG@5 {100 * ndcg(found, truth, 5):.2f}"


def train(arguments: argparse.Namespace) -> None:
    import torch

    folder, out = Path(arguments.data), Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    documents = {part: xmtc.read(folder / f"{part}.jsonl.xz") for part in PARTS}
    if arguments.limit:
        documents = {part: dataset.slice(0, arguments.limit) for part, dataset in documents.items()}
    recipe = read_recipe(find_recipe(arguments.recipe))[1] if arguments.recipe else {}
    encoder = {"encoder": {"path": arguments.encoder}} if arguments.encoder else {}
    settings = merge(recipe, encoder, parse_assignments(arguments.set))
    model: Any = model_class(arguments.model)(**settings)
    runtime = Runtime(seed=arguments.seed, device=arguments.device)
    is_cuda = torch.cuda.is_available()
    if is_cuda:
        torch.cuda.reset_peak_memory_stats()
    started = time.perf_counter()
    model.fit(documents["train"], valid=documents["dev"], runtime=runtime, workspace=Watched(), progress=LogProgress())
    memory = torch.cuda.max_memory_reserved() / 2**30 if is_cuda else 0.0
    print(f"fit {time.perf_counter() - started:.1f} s, {memory:.1f} GiB", flush=True)
    report(model, documents, out)
    if arguments.embed:
        embed(model, documents, out)


def report(model: Any, documents: dict[str, Dataset], out: Path) -> None:
    """Metrics and prediction times; writes the answers."""
    answers = {}
    for part in PARTS[1:]:
        truth = align_labels(documents[part], model.labels)[0][:, : len(model.labels)]
        started = time.perf_counter()
        found, scores = model._predict(documents[part], SAVED, None)
        seconds = time.perf_counter() - started
        print(f"{part}: {figures(found, truth)} ({seconds:.2f} s from text, {SAVED} labels)", flush=True)
        answers |= {f"{part}.labels": found.astype(np.int32), f"{part}.scores": scores.astype(np.float16)}
    np.savez_compressed(out / "answers.npz", keys=np.array(model.labels.keys), **answers)


def embed(model: Any, documents: dict[str, Dataset], out: Path) -> None:
    """Unit mean states as 8-bit numbers, in files of at most 15 MB."""
    for part in PARTS:
        mean = model.embed(documents[part].text().to_pylist())
        mean /= np.maximum(np.abs(mean).max(1, keepdims=True), 1e-9)
        vectors = np.round(127 * mean).astype(np.int8)
        step = max(1, (15 << 20) // vectors.shape[1])
        for number, low in enumerate(range(0, len(vectors), step)):
            np.savez_compressed(out / f"embeddings-{part}-{number}.npz", vectors=vectors[low : low + step])


def speed(arguments: argparse.Namespace) -> None:
    import torch
    from transformers import AutoModel

    from xmtc.nn.encoders.transformer import Backbone, TransformerSettings, TransformerStates

    batch, length = arguments.batch, arguments.length
    backbone = Backbone.read(Path(arguments.encoder))
    encoder = TransformerStates(backbone.module(), TransformerSettings()).cuda().train()
    width, layers = encoder.width, int(encoder.pretrained.config.num_hidden_layers)
    inner = int(encoder.pretrained.config.intermediate_size)
    each = layers * (4 * width * width + 2 * width * inner + 2 * length * width)  # multiplications per subword
    work = 6.0 * each * batch * length  # forward and twice that backward
    ids = torch.randint(5, 20_000, (batch, length), device="cuda")
    mask = torch.ones(batch, length, dtype=torch.bool, device="cuda")
    words = torch.randn(length, batch, width, device="cuda", dtype=torch.bfloat16)
    d_states = torch.randn(batch, length, width, device="cuda", dtype=torch.bfloat16)
    parameters = [part for part in encoder.parameters() if part.requires_grad]

    def ours() -> None:
        torch.autograd.grad(encoder(words, mask), parameters, d_states)

    library: Any = AutoModel.from_pretrained(arguments.encoder, local_files_only=True, dtype=torch.float32)
    library = library.cuda().train()
    trained = [part for name, part in library.named_parameters() if "pooler" not in name]

    def theirs() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            states = library(input_ids=ids, attention_mask=mask.long()).last_hidden_state
        torch.autograd.grad(states, trained, d_states.to(states.dtype))

    for name, step, captured in (
        ("library's code", theirs, False),
        ("ours", ours, False),
        ("ours, captured", ours, True),
    ):
        seconds = step_seconds(step, captured)
        share = work / seconds / CEILING
        print(
            f"{name}: {1e3 * seconds:.2f} ms, {work / 1e12:.1f} TFLOP, {work / seconds / 1e12:.0f} TFLOP/s, "
            f"{100 * share:.1f} % of the ceiling",
            flush=True,
        )


def step_seconds(step: Callable[[], None], captured: bool, times: int = 10) -> float:
    """Seconds of one step on the GPU, alone or in a captured graph."""
    import torch

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    run = step
    if captured:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        run = graph.replay
        run()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(times):
        run()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / 1e3 / times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("split", "join"):
        given = verbs.add_parser(verb)
        given.add_argument("folders", nargs="+", type=Path)
        given.add_argument("--to", type=Path, required=True)
    given = verbs.add_parser("train")
    given.add_argument("--data", required=True)
    given.add_argument("--model", default="transformer")
    given.add_argument("--encoder")
    given.add_argument("--recipe")
    given.add_argument("--set", action="append", default=[])
    given.add_argument("--seed", type=int, default=0)
    given.add_argument("--device", default="auto")
    given.add_argument("--limit", type=int)
    given.add_argument("--embed", action="store_true")
    given.add_argument("--out", required=True)
    given = verbs.add_parser("speed")
    given.add_argument("--encoder", required=True)
    given.add_argument("--batch", type=int, default=64)
    given.add_argument("--length", type=int, default=480)
    arguments = parser.parse_args()
    if arguments.verb == "split":
        for folder in arguments.folders:
            split(folder, arguments.to)
    elif arguments.verb == "join":
        join(arguments.folders, arguments.to)
    else:
        print(json.dumps({name: str(value) for name, value in vars(arguments).items()}), flush=True)
        {"train": train, "speed": speed}[arguments.verb](arguments)


if __name__ == "__main__":
    main()
