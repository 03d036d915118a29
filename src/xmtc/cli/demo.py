"""`xmtc demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xmtc.cli.common import check_writable, make_runtime
from xmtc.cli.options import takes_request
from xmtc.cli.output import JsonOutput, echo


@takes_request
def demo(
    output: JsonOutput,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for the corpus and the model.", metavar="DIR")
    ] = Path("xmtc-demo"),
    seed: Annotated[int, typer.Option(metavar="N", help="Random seed of the corpus.")] = 0,
) -> None:
    """Train, measure and tag on made-up texts."""
    from xmtc.cli.progress import terminal_progress
    from xmtc.cli.show import metrics_table, ranking
    from xmtc.workflows import demo as workflow

    check_writable(output.path)
    run = workflow.Demo(out, make_runtime(seed=seed), terminal_progress())
    run.write_corpus()
    sizes = f"{workflow.TRAIN:,} texts to learn from, {workflow.TEST:,} to test on, {workflow.LABELS} labels"
    echo(f"A made-up corpus: {sizes}. Model: {run.model_name}.\n")
    model = run.train()
    echo(f"Trained in {model.training['seconds']:.1f} s.\n")
    documents = run.test_documents()
    metrics = run.metrics(model, documents)
    echo("Scores on the test file, beside those of the most-frequent-label baseline:\n")
    echo(metrics_table(metrics))
    echo("\nThree texts of the test file and the labels they get (*: right):\n")
    echo(ranking(*run.examples(model, documents)))
    echo('\nTry it on this corpus, then on a file of your own with a "text" and "labels" on every line:\n')
    echo(commands(run.train_file, run.test_file, run.out))
    output.write({"folder": out, "model": run.out, "seconds": model.training["seconds"], "metrics": metrics})


def commands(train: Path, test: Path, out: Path) -> str:
    """What to type next."""
    mine = out.with_name("my-model")
    return "\n".join(
        [
            f'  xmtc predict {out} --text "Some text to tag"',
            f"  xmtc train {train} --model knn --out {mine}",
            f"  xmtc evaluate {mine} {test}",
            f"  xmtc compare {out} {mine} {test}",
            f"  xmtc predict {mine} {test} -k 3 --out predictions.jsonl",
        ]
    )
