"""`xmtc serve`: saved models behind HTTP, and a page for people. Everything heavy is imported inside the command."""

from __future__ import annotations

import importlib
from dataclasses import replace

from xmtc.cli.common import echo, echo_error, make_runtime
from xmtc.cli.options import takes_request
from xmtc.core.errors import MissingExtraError
from xmtc.workflows.serve import API_KEY_VARIABLE, ServeRequest, read_api_key


@takes_request
def serve(request: ServeRequest) -> None:
    """Answer over HTTP, with a page to tag texts on."""
    for module, library in (("fastapi", "FastAPI"), ("uvicorn", "uvicorn"), ("prometheus_client", "prometheus_client")):
        try:
            importlib.import_module(module)
        except ImportError:
            words = f'serve needs {library}. Install it with: pip install "xmtc[server]".'
            raise MissingExtraError(words) from None
    request = replace(request, api_key=read_api_key(request.api_key_file))
    make_runtime(request.threads, device=request.device)  # checks both, and sets the process up as other commands do

    from xmtc.server import supervisor

    if not request.is_local and request.api_key is None:
        words = f"Set {API_KEY_VARIABLE}, or name a file with --api-key-file."
        echo_error(f"anybody who reaches {request.host} can use this service. {words}")
    supervisor.serve(request, announce=echo, log=echo_error)
