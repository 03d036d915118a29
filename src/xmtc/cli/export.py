"""`xmtc export`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xmtc.cli.common import check_writable, counted
from xmtc.cli.options import takes_request
from xmtc.cli.output import JsonOutput, echo, note
from xmtc.workflows.requests import ExportRequest

if TYPE_CHECKING:
    from xmtc.workflows.export import Differences


@takes_request
def export(
    request: ExportRequest,
    output: JsonOutput,
) -> None:
    """Export a neural model to ONNX, to predict without PyTorch.

    OUT is a model folder for predict, serve and xmtc.load, which then need onnxruntime instead of PyTorch. If OUT ends
    in .onnx, it is the network only, for other programs. Predictions are compared with those of DIR first.
    """
    from xmtc.cli.common import make_runtime
    from xmtc.cli.progress import terminal_progress
    from xmtc.workflows import export as workflow

    check_writable(output.path, request.check_file)
    report = workflow.export(request, runtime=make_runtime(), progress=terminal_progress())
    model = report.model
    size = f"{model.graph.bytes / 1e6:,.1f} MB"
    echo(f"saved {model.config.exported} in {request.onnx}: {counted(len(model.labels), 'label')}, {size}")
    echo(_line("exported", report.exported))
    if report.int8 is not None:
        echo(_line("8-bit weights", report.int8))
    output.write(
        {
            "model": model.config.exported,
            "out": request.onnx,
            "labels": len(model.labels),
            "bytes": model.graph.bytes,
            "exported": report.exported,
            "int8": report.int8,
        }
    )
    if request.int8 and request.check_file is None:
        note("compared on texts of random words; for differences on real texts, pass --check FILE")


def _line(what: str, found: Differences) -> str:
    same = f"same best label in {found.same_best:,} of {found.texts:,} texts"
    return f"{what}: probabilities differ by up to {found.largest:.2g} (mean {found.mean:.2g}), {same}"
