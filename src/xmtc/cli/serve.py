"""`xmtc serve`: an HTTP service and a web page. Heavy imports are inside the command."""

from __future__ import annotations

import importlib
from dataclasses import replace

from xmtc.cli.common import make_runtime
from xmtc.cli.options import takes_request
from xmtc.cli.output import echo, echo_error
from xmtc.core.errors import missing_extra
from xmtc.workflows.serve import API_KEY_VARIABLE, ServeRequest, read_api_key


@takes_request
def serve(request: ServeRequest) -> None:
    """Serve models over HTTP, with a web page."""
    for module, library in (("fastapi", "FastAPI"), ("uvicorn", "uvicorn"), ("prometheus_client", "prometheus_client")):
        try:
            importlib.import_module(module)
        except ImportError:
            raise missing_extra(f"serve needs {library}", "server") from None
    request = replace(request, api_key=read_api_key(request.api_key_file))
    make_runtime(request.threads, device=request.device)  # checks both options and sets up the process

    from xmtc.server import supervisor

    if not request.is_local and request.api_key is None:
        remedy = f"Set {API_KEY_VARIABLE}, or use --api-key-file FILE."
        echo_error(f"warning: the service on {request.host} accepts requests without an API key. {remedy}")
    supervisor.serve(request, announce=echo, log=echo_error)
