"""What surrounds one training."""

from __future__ import annotations

from dataclasses import dataclass

from xmtc.artifact.workspace import Workspace
from xmtc.core.progress import Progress
from xmtc.core.runtime import Runtime


@dataclass(frozen=True)
class FitContext:
    """What surrounds one training: the machine, who watches, and where finished parts go."""

    runtime: Runtime
    progress: Progress
    workspace: Workspace
