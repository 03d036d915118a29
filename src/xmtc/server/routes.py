"""The routes of the service."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from importlib.resources import files
from pathlib import PurePath
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic_core import to_json

from xmtc.core.errors import shown
from xmtc.server.clients import CLIENT
from xmtc.server.errors import MEDIA_TYPE, Problem
from xmtc.server.metrics import CONTENT_TYPE
from xmtc.server.model_host import ModelHost
from xmtc.server.schemas import (
    ExplainBody,
    ExplainResponse,
    FeedbackBody,
    FeedbackResponse,
    LabelsResponse,
    ModelsResponse,
    PredictBody,
    PredictResponse,
    ProblemDetails,
    RequestBody,
    ResponseBody,
    StatusResponse,
    read_body,
    request_body,
)
from xmtc.workflows.hosted_model import MAX_QUERY_LENGTH

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])
Result = TypeVar("Result")
MEDIA_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
MAX_MATCHES = 100
"""Maximum number of labels that a search returns."""
PROBLEMS = {
    400: "The body is not JSON.",
    401: "The API key is missing or wrong.",
    403: "The request comes from a page of another web site.",
    404: "No such model.",
    408: "The request took too long to arrive.",
    413: "The body is too large.",
    415: "The content type is not application/json.",
    422: "The content is invalid.",
    429: "Too many requests are waiting, or a quota is used up.",
    503: "The request timed out, or the service is shutting down.",
    507: "The feedback file is full.",
}


def api_router(host: ModelHost) -> APIRouter:
    """The routes under /v1 and the metrics. They require the API key, if the service has one."""
    router = APIRouter()
    settings = host.settings

    def post(
        path: str, body: type[RequestBody], response: type[ResponseBody], status: int = 200
    ) -> Callable[[Endpoint], Endpoint]:
        problems = [problem for problem in PROBLEMS if problem != 507 or response is FeedbackResponse]
        return router.post(path, **_documented(response, *problems, status=status, body=request_body(body, settings)))

    @post("/v1/predict", PredictBody, PredictResponse)
    async def predict(request: Request) -> Response:
        """Predict the best labels of texts."""
        body = await read_body(request, PredictBody, settings)
        model = host[body.model]
        predictions = await _while_connected(request, model.batcher.predict(body.texts, body.options()))
        return _json({"model": model.name, "predictions": predictions})

    @post("/v1/explain", ExplainBody, ExplainResponse)
    async def explain(request: Request) -> Response:
        """Explain why a label is predicted for a text."""
        body = await read_body(request, ExplainBody, settings)
        model = host[body.model]
        work = partial(model.current.explain, body.text, body.label)
        label, explanation = await _while_connected(request, model.batcher.call(work, len(body.text)))
        host.metrics.explanations.labels(model=model.name).inc()
        return _json({"model": model.name, "label": label, "explanation": explanation})

    @post("/v1/feedback", FeedbackBody, FeedbackResponse, 201)
    async def feedback(request: Request) -> Response:
        """Save which labels of a text are right and which are wrong, for `xmtc feedback export`."""
        body = await read_body(request, FeedbackBody, settings)
        model = host[body.model]
        who = {"complete": body.complete, "client": request.scope[CLIENT]}
        number = await host.in_background(partial(model.add_feedback, body.text, body.accepted, body.rejected, **who))
        return _json({"id": number, "model": model.name}, 201)

    @router.get("/v1/models", **_documented(ModelsResponse, 401))
    async def models() -> Response:
        """List the served models: settings, labels, training and metrics."""
        limits = {
            "texts": settings.max_texts,
            "characters": settings.max_characters,
            "k": settings.max_k,
            "body": settings.max_body_bytes,
        }
        return _json({"models": [model.describe() for model in host.models.values()], "limits": limits})

    @router.get("/v1/labels", **_documented(LabelsResponse, 401, 404, 422))
    async def labels(
        q: Annotated[
            str,
            Query(
                description="Text to find in names, alternative names and keys; default: the most frequent labels.",
                max_length=MAX_QUERY_LENGTH,
                examples=["cast"],
            ),
        ] = "",
        limit: Annotated[int, Query(ge=1, le=MAX_MATCHES, description="Maximum number of labels.")] = 20,
        model: Annotated[str | None, Query(description="Name of the model; default: the first one.")] = None,
    ) -> Response:
        """Search labels by any part of their names."""
        served = host[model]
        matches, more = await host.in_background(partial(served.current.search_labels, q, limit))
        return _json({"model": served.name, "labels": matches, "more": more})

    @router.get("/metrics", responses={200: {"content": {"text/plain": {}}}, **_problems(401)}, response_class=Response)
    async def metrics() -> Response:
        """Metrics in the Prometheus text format."""
        return Response(host.metrics.exposition(), media_type=CONTENT_TYPE)

    return router


def public_router(is_ready: Callable[[], bool]) -> APIRouter:
    """The health checks and the page, which need no API key."""
    router = APIRouter()
    assets = _page_assets()

    @router.get("/healthz", response_model=StatusResponse)
    async def healthz() -> Response:
        """Liveness check."""
        return _json({"status": "ok"})

    @router.get("/readyz", response_model=StatusResponse, responses=_problems(503))
    async def readyz() -> Response:
        """Readiness check."""
        if not is_ready():
            raise Problem(503, "the service is shutting down. Use another instance.")
        return _json({"status": "ready"})

    @router.get("/page/{name}", include_in_schema=False)
    async def asset(name: str) -> Response:
        if name not in assets:
            raise Problem(404, f"no such path '/page/{shown(name)}'. See /openapi.json for all paths.")
        content, media_type = assets[name]
        return Response(content, headers={"content-type": media_type, "cache-control": "no-cache"})

    @router.get("/", include_in_schema=False)
    async def page() -> Response:
        return await asset("index.html")

    return router


def _page_assets() -> dict[str, tuple[bytes, str]]:
    """Content and media type of the page's files, read once: no name from a request reaches the file system."""
    folder = files("xmtc.server") / "page"
    return {
        file.name: (file.read_bytes(), f"{MEDIA_TYPES[PurePath(file.name).suffix]}; charset=utf-8")
        for file in folder.iterdir()
        if PurePath(file.name).suffix in MEDIA_TYPES
    }


async def _while_connected(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """Wait for the result; if the client disconnects, stop the work."""
    job, gone = asyncio.ensure_future(work), asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait((job, gone), return_when=asyncio.FIRST_COMPLETED)
        if not job.done():
            raise Problem(503, "the client has disconnected.")
        return job.result()
    finally:
        job.cancel()
        gone.cancel()


def _json(content: Any, status: int = 200) -> Response:
    return Response(to_json(content, inf_nan_mode="null"), status, media_type="application/json")


def _documented(
    response: type[ResponseBody], *problems: int, status: int = 200, body: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Arguments of a route that define its OpenAPI documentation."""
    content = {"application/json": {"example": response.example}} if response.example is not None else {}
    return {
        "response_model": response,
        "status_code": status,
        "responses": {status: {"content": content}, **_problems(*problems)},
        "openapi_extra": body,
    }


def _problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    content = {MEDIA_TYPE: {"schema": ProblemDetails.model_json_schema()}}
    return {status: {"description": PROBLEMS[status], "content": content} for status in statuses}
