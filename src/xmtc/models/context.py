"""The context of a training run."""

from __future__ import annotations

from dataclasses import dataclass

from xmtc.artifact.workspace import Workspace
from xmtc.core.progress import Progress
from xmtc.core.runtime import Runtime


@dataclass(frozen=True)
class FitContext:
    """The context of a training run: runtime, progress display, and a workspace for finished parts."""

    runtime: Runtime
    progress: Progress
    workspace: Workspace
