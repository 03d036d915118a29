"""`xmtc demo`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xmtc.cli.common import check_writable, make_runtime
from xmtc.cli.options import takes_request
from xmtc.cli.output import JsonOutput, echo

if TYPE_CHECKING:
    from xmtc.workflows.demo import Demo


@takes_request
def demo(
    output: JsonOutput,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for the corpus and the model.", metavar="DIR")
    ] = Path("xmtc-demo"),
    seed: Annotated[int, typer.Option(metavar="N", help="Random seed of the corpus.")] = 0,
) -> None:
    """Train, evaluate and try a model on a built-in corpus."""
    from xmtc.cli.progress import terminal_progress
    from xmtc.cli.show import metrics_table, ranking
    from xmtc.workflows import demo as workflow

    check_writable(output.path)
    run = workflow.Demo(out, make_runtime(seed=seed), terminal_progress())
    run.write_corpus()
    echo(
        f"Corpus: {workflow.TRAIN:,} training and {workflow.TEST:,} test documents, {run.label_count} labels, in {out}"
    )
    model = run.train()
    echo(f"Model:  {run.model_name}, trained in {model.training['seconds']:.1f} s, saved in {run.out}\n")
    metrics = run.metrics(model, run.test_documents())
    echo("Test set, in percent, compared with the most-frequent-label baseline:\n")
    echo(metrics_table(metrics))
    echo("\nLabels for three new texts:\n")
    echo(ranking(run.examples(model), workflow.TEXTS))
    echo("\nTry next:\n")
    echo(commands(run))
    echo('\nThen use your own file, with a "text" and a list of "labels" on every line.')
    output.write({"folder": out, "model": run.out, "seconds": model.training["seconds"], "metrics": metrics})


def commands(run: Demo) -> str:
    """Commands to try next."""
    mine = run.out.with_name("my-model")
    return "\n".join(
        [
            f'  xmtc predict {run.out} --text "Why is the sky blue?"',
            f"  xmtc train {run.train_file} --model knn --out {mine}",
            f"  xmtc evaluate {mine} {run.test_file}",
            f"  xmtc compare {run.out} {mine} {run.test_file}",
            f"  xmtc predict {mine} {run.test_file} --out predictions.jsonl",
            f"  xmtc serve {run.out}",
        ]
    )
