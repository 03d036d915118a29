"""The HTTP application: thin routes over hosted models."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from importlib.resources import files
from pathlib import PurePath
from typing import Annotated, Any, TypeVar

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel
from pydantic_core import to_json

from xmtc import __version__
from xmtc.core.errors import shown
from xmtc.server.batching import How
from xmtc.server.errors import MEDIA_TYPE, Problem, add_handlers
from xmtc.server.model_host import MOST_SEARCHED, Hosts
from xmtc.server.schemas import (
    ANSWERS,
    ExplainBody,
    Explained,
    FeedbackBody,
    FoundLabels,
    Kept,
    Models,
    PredictBody,
    PredictResponse,
    ProblemBody,
    Status,
    body_schema,
    read_body,
)

Result = TypeVar("Result")
KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
MOST_FOUND = 100
"""Labels that one search returns."""
WORDS = {
    400: "The body is not JSON.",
    401: "The key is missing or wrong.",
    404: "There is no such model.",
    408: "The request took too long to arrive.",
    413: "The body is too large.",
    415: "The body is not sent as JSON.",
    422: "The content cannot be worked with.",
    429: "Too much is waiting.",
    503: "No answer in time.",
}


def create_app(hosts: Hosts, ready: Callable[[], bool] = lambda: True) -> FastAPI:
    """The service's routes. `ready` says whether new requests are welcome."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        watching = asyncio.create_task(hosts.watch())
        try:
            yield
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
            hosts.close()

    app = FastAPI(
        title="xmtc",
        version=__version__,
        summary="The right few labels for a text, out of hundreds to millions.",
        docs_url=None,  # these pages would fetch scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
    )
    add_handlers(app)
    app.add_exception_handler(RequestValidationError, _bad_query)
    _add_models(app, hosts)
    _add_labels(app, hosts)
    _add_health(app, hosts, ready)
    _add_page(app)
    return app


def _add_models(app: FastAPI, hosts: Hosts) -> None:
    limits = hosts.limits

    @app.post("/v1/predict", **_told(PredictResponse, body_schema(PredictBody, limits)))
    async def predict(request: Request) -> Response:
        """Tag texts with their best labels."""
        body = await read_body(request, PredictBody, limits)
        host = hosts[body.model]
        allow, deny = (None if keys is None else tuple(dict.fromkeys(keys)) for keys in (body.allow, body.deny))
        answers = await host.batcher.tag(body.texts, How(body.k, body.threshold, allow, deny))
        return _json({"model": host.name, "predictions": [{"labels": labels} for labels in answers]})

    @app.post("/v1/explain", **_told(Explained, body_schema(ExplainBody, limits)))
    async def explain(request: Request) -> Response:
        """Show why a text gets a label."""
        body = await read_body(request, ExplainBody, limits)
        host = hosts[body.model]
        label, explanation = await host.batcher.alone(partial(host.loaded.explain, body.text, body.label))
        hosts.tallies.add("explained", host.name)
        return _json({"model": host.name, "label": label, "explanation": explanation})

    @app.post("/v1/feedback", **_told(Kept, body_schema(FeedbackBody, limits), 201))
    async def feedback(request: Request) -> Response:
        """Keep which labels of a text are right and which are wrong, for `xmtc feedback export`."""
        body = await read_body(request, FeedbackBody, limits)
        host = hosts[body.model]
        number = await _aside(hosts, partial(host.keep, body.text, body.accepted, body.rejected))
        return _json({"id": number, "model": host.name}, 201)

    @app.get("/v1/models", **_told(Models))
    async def models() -> Response:
        """The models that are served: settings, labels, how they were trained and what was measured."""
        told = {"texts": limits.texts, "characters": limits.characters, "k": limits.k, "body": limits.body}
        return _json({"models": [host.describe() for host in hosts.by_name.values()], "limits": told})


def _add_labels(app: FastAPI, hosts: Hosts) -> None:
    told = _told(FoundLabels)
    told["responses"] |= _problems(404, 422)

    @app.get("/v1/labels", **told)
    async def labels(
        q: Annotated[
            str,
            Query(
                description="Words of a name, key or other name; the most frequent labels where none are given.",
                max_length=MOST_SEARCHED,
                examples=["cast"],
            ),
        ] = "",
        limit: Annotated[int, Query(ge=1, le=MOST_FOUND, description="Labels, at most.")] = 20,
        model: Annotated[str | None, Query(description="Which model; the first where none is named.")] = None,
    ) -> Response:
        """Find labels by the beginning or any part of their names."""
        host = hosts[model]
        found, more = await _aside(hosts, partial(host.loaded.search, q, limit))
        return _json({"model": host.name, "labels": found, "more": more})


def _add_health(app: FastAPI, hosts: Hosts, ready: Callable[[], bool]) -> None:
    @app.get("/healthz", response_model=Status)
    async def healthz() -> Response:
        """Whether the process answers."""
        return _json({"status": "ok"})

    @app.get("/readyz", response_model=Status, responses=_problems(503))
    async def readyz() -> Response:
        """Whether requests are welcome."""
        if not ready():
            raise Problem(503, "the service is about to end. Ask another.")
        return _json({"status": "ready"})

    @app.get("/metrics", responses={200: {"content": {"text/plain": {}}}, **_problems(401)}, response_class=Response)
    async def metrics() -> Response:
        """What was counted, for Prometheus."""
        return Response(hosts.tallies.text(), media_type="text/plain; version=0.0.4")


def _add_page(app: FastAPI) -> None:
    """The page and its files, read once: no name from a request is ever one of a file."""
    folder = files("xmtc.server") / "page"
    kept = {
        part.name: (part.read_bytes(), f"{KINDS[PurePath(part.name).suffix]}; charset=utf-8")
        for part in folder.iterdir()
        if PurePath(part.name).suffix in KINDS
    }

    def serve(name: str) -> Response:
        if name not in kept:
            raise Problem(404, f"there is nothing at '/page/{shown(name)}'. What there is: /openapi.json")
        content, kind = kept[name]
        return Response(content, headers={"content-type": kind, "cache-control": "no-cache"})

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return serve("index.html")

    @app.get("/page/{name}", include_in_schema=False)
    async def part(name: str) -> Response:
        return serve(name)


async def _aside(hosts: Hosts, work: Callable[[], Result]) -> Result:
    return await asyncio.get_running_loop().run_in_executor(hosts.aside, work)


def _json(content: Any, status: int = 200) -> Response:
    return Response(to_json(content, inf_nan_mode="null"), status, media_type="application/json")


def _told(answer: type[BaseModel], extra: dict[str, Any] | None = None, status: int = 200) -> dict[str, Any]:
    """What OpenAPI says of a route."""
    content = {"application/json": {"example": ANSWERS[answer]}} if answer in ANSWERS else {}
    problems = _problems(*(WORDS if extra is not None else (401,)))
    return {
        "response_model": answer,
        "status_code": status,
        "responses": {status: {"content": content}, **problems},
        "openapi_extra": extra,
    }


def _problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    schema = ProblemBody.model_json_schema()
    return {status: {"description": WORDS[status], "content": {MEDIA_TYPE: {"schema": schema}}} for status in statuses}


async def _bad_query(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    words = f"'{shown(str(first['loc'][-1]))}' cannot be {shown(repr(first.get('input')))}: {first['msg'].lower()}."
    return Problem(422, words).response()
