"""Explain why a model predicts a label for a text."""

from __future__ import annotations

from xmtc.core.explanation import Explanation
from xmtc.core.runtime import Runtime
from xmtc.models.base import Model
from xmtc.workflows.requests import ExplainRequest


def explain(request: ExplainRequest, *, runtime: Runtime | None = None) -> Explanation:
    """Return the evidence for and against a label."""
    return Model.load(request.folder, runtime).explain(request.text, request.label)
