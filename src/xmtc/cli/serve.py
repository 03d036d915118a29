"""`xmtc serve`: saved models behind HTTP, and a page for people. Everything heavy is imported inside the command."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import typing
from typing import Annotated, Any

import typer

from xmtc.cli.common import make_runtime, say, tell
from xmtc.core.config import field_docs
from xmtc.core.errors import MissingExtraError
from xmtc.workflows.serve import API_KEY_VARIABLE, ServeRequest, read_api_key


def serve(**options: Any) -> None:
    """Answer over HTTP, with a page to tag texts on."""
    for module, library in (("fastapi", "FastAPI"), ("uvicorn", "uvicorn"), ("prometheus_client", "prometheus_client")):
        try:
            importlib.import_module(module)
        except ImportError:
            words = f'serve needs {library}. Install it with: pip install "xmtc[server]".'
            raise MissingExtraError(words) from None
    several = {name: tuple(value or ()) for name, value in options.items() if name in ("folders", "hostname")}
    request = ServeRequest(**{**options, **several}, api_key=read_api_key(options["api_key_file"]))
    make_runtime(request.threads, device=request.device)  # checks both, and sets the process up as other commands do

    from xmtc.server import supervisor

    if not request.is_local and request.api_key is None:
        words = f"Set {API_KEY_VARIABLE}, or name a file with --api-key-file."
        tell(f"anybody who reaches {request.host} can use this service. {words}")
    supervisor.serve(request, announce=say, log=tell)


def _parameters() -> list[inspect.Parameter]:
    """The fields of the request as parameters of the command: one without a default is an argument."""
    docs, types = field_docs(ServeRequest), typing.get_type_hints(ServeRequest)
    parameters = []
    for field in dataclasses.fields(ServeRequest):
        if not field.metadata.get("option", True):
            continue
        kind, default = types[field.name], field.default
        shown: dict[str, Any] = {"help": docs[field.name], "metavar": field.metadata.get("metavar")}
        if typing.get_origin(kind) is tuple:
            kind, default = list[typing.get_args(kind)[0]], None if default == () else default  # type: ignore[misc]
        if default is dataclasses.MISSING:
            option, default = typer.Argument(**shown), inspect.Parameter.empty
        else:
            option = typer.Option(*(["--" + field.name.replace("_", "-")] if kind is bool else []), **shown)
            kind = kind | None if default is None else kind
        parameters.append(
            inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option]
            )
        )
    return parameters


serve.__signature__ = inspect.Signature(_parameters())  # type: ignore[attr-defined]
serve.__annotations__ = {parameter.name: parameter.annotation for parameter in _parameters()}
