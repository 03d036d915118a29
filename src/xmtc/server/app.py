"""Assembly of the HTTP application: routes, API key, error handlers and middleware."""

from __future__ import annotations

import asyncio
import hmac
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Request, Security
from fastapi.routing import APIRoute
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.types import ASGIApp

from xmtc import __version__
from xmtc.server.clients import RefusalLog
from xmtc.server.errors import Problem, add_exception_handlers
from xmtc.server.middleware import HostMiddleware, LimitsMiddleware, ObservabilityMiddleware, OriginMiddleware
from xmtc.server.model_host import Log, ModelHost
from xmtc.server.routes import api_router, public_router

BEARER = HTTPBearer(auto_error=False, description="API key of the service.")


def create_app(
    host: ModelHost,
    *,
    is_ready: Callable[[], bool] = lambda: True,
    on_startup: Callable[[], Coroutine[Any, Any, None]] | None = None,
    log: Log | None = None,
    refusal_log: RefusalLog | None = None,
) -> ASGIApp:
    """Create the application that serves these models.

    `on_startup` is a task that starts with it; `log` is called with a line per request, and
    `refusal_log` counts clients that exceed limits (default: on standard error).
    """
    refusals = refusal_log or RefusalLog(partial(print, file=sys.stderr, flush=True))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(work()) for work in (host.watch, on_startup) if work is not None]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            refusals.flush()
            host.close()

    app = FastAPI(
        title="xmtc",
        version=__version__,
        summary="Extreme multi-label text classification: the most relevant labels for a text, out of up to millions.",
        docs_url=None,  # these pages would load scripts from other sites
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
    )
    settings = host.settings
    check_key = None if settings.api_key is None else _api_key_dependency(settings.api_key)
    api, public = api_router(host), public_router(is_ready)
    app.include_router(api, dependencies=[] if check_key is None else [Depends(check_key)])
    app.include_router(public)
    public_paths = {"/openapi.json", "/page", *_paths(public)}

    async def check_access(request: Request) -> None:
        if check_key is not None and request.scope["path"] not in public_paths:
            await check_key(await BEARER(request))

    add_exception_handlers(app, check_access)
    limited = LimitsMiddleware(app, settings, refusals)
    wrapped = HostMiddleware(OriginMiddleware(limited, settings.hostname), settings.allowed_hosts)
    return ObservabilityMiddleware(wrapped, metrics=host.metrics, paths=public_paths | _paths(api), log=log)


def _paths(router: APIRouter) -> set[str]:
    return {route.path for route in router.routes if isinstance(route, APIRoute)}


def _api_key_dependency(key: str) -> Callable[[HTTPAuthorizationCredentials | None], Awaitable[None]]:
    """A FastAPI dependency that refuses requests without this key, before their body is read."""
    expected = key.encode()

    async def check(credentials: Annotated[HTTPAuthorizationCredentials | None, Security(BEARER)]) -> None:
        given = b"" if credentials is None else credentials.credentials.strip().encode()
        if not hmac.compare_digest(given, expected):
            words = "missing or wrong API key. Send the header Authorization: Bearer KEY."
            raise Problem(401, words, {"WWW-Authenticate": "Bearer"})

    return check
