"""Errors as `application/problem+json`, with the same messages as on the command line."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from xmtc.core.errors import XmtcError, nearest, shown

MEDIA_TYPE = "application/problem+json"
MAX_ERRORS = 100
"""Maximum number of validation errors of one body that are examined."""
TITLES = {413: "Content Too Large", 422: "Unprocessable Content"}
"""Reason phrases that differ in older Python versions."""


class Problem(Exception):
    """A problem+json response: a status, and one line with the problem and its remedy."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = dict(headers or {})

    def body(self) -> bytes:
        """The JSON body."""
        title = TITLES.get(self.status) or HTTPStatus(self.status).phrase
        content = {"type": "about:blank", "title": title, "status": self.status, "detail": self.detail}
        return json.dumps(content, ensure_ascii=False).encode()

    def response(self) -> Response:
        """The HTTP response."""
        return Response(self.body(), self.status, self.headers, MEDIA_TYPE)


class TooManyRequests(Problem):
    """The queue is full; the client should retry after some seconds."""

    def __init__(self, detail: str, *, retry_after: float) -> None:
        super().__init__(429, detail, {"Retry-After": str(max(1, round(retry_after)))})


def add_exception_handlers(app: FastAPI, check_access: Callable[[Request], Awaitable[None]]) -> None:
    """Answer every error of an application with a problem+json response.

    `check_access` runs first, so that unauthorised clients do not learn which paths and methods exist.
    """

    async def on_problem(_: Request, error: Exception) -> Response:
        assert isinstance(error, Problem)
        return error.response()

    async def on_user_error(_: Request, error: Exception) -> Response:
        return Problem(422, " ".join(str(error).splitlines())).response()

    async def on_http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        try:
            await check_access(request)
        except Problem as problem:
            return problem.response()
        path = shown(request.scope["path"])
        details = {
            404: f"no such path '{path}'. See /openapi.json for all paths.",
            405: f"'{path}' does not support {shown(request.method)}. See /openapi.json for its methods.",
        }
        return Problem(error.status_code, details.get(error.status_code, str(error.detail)), error.headers).response()

    async def on_invalid_query(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        value = shown(repr(first.get("input")))
        return Problem(422, f"'{shown(str(first['loc'][-1]))}' cannot be {value}: {first['msg'].lower()}.").response()

    async def on_bug(_: Request, __: Exception) -> Response:
        return Problem(500, "internal error. See the standard error of the service, and please report it.").response()

    app.add_exception_handler(Problem, on_problem)
    app.add_exception_handler(XmtcError, on_user_error)
    app.add_exception_handler(HTTPException, on_http_error)
    app.add_exception_handler(RequestValidationError, on_invalid_query)
    app.add_exception_handler(Exception, on_bug)


def validation_problem(error: ValidationError, known: list[str]) -> Problem:
    """A problem that reports the first error of a body; `known` are its fields."""
    fields = f" Fields: {', '.join(known)}."
    if error.error_count() > MAX_ERRORS:  # listing all of them takes longer than finding them
        return Problem(422, f"the body has more than {MAX_ERRORS} unknown fields.{fields}")
    errors = error.errors(include_url=False)
    first: dict[str, Any] = dict(next((one for one in errors if one["type"] == "extra_forbidden"), errors[0]))
    if first["type"] == "json_invalid":
        return Problem(400, f"the body is not JSON: {first['ctx']['error']}. Send UTF-8 JSON.")
    place = [str(part) for part in first["loc"]]
    name, got = _field_name(place), shown(_summary(first.get("input")))
    match first["type"]:
        case "missing":
            words = f"'{name}' is missing.{fields}"
        case "extra_forbidden":
            words = f"unknown field '{shown(name)}'.{nearest(place[-1], known) or fields}"
        case "value_error":
            words = str(first["ctx"]["error"])
        case "model_type" | "model_attributes_type":
            words = f"the body must be a JSON object. Got {got}."
        case "string_type":
            words = f"'{name}' must be a string. Got {got}."
        case "list_type":
            words = f"'{name}' must be a list of strings. Got {got}."
        case _:
            words = f"'{name}' cannot be {got}: {first['msg'][0].lower()}{first['msg'][1:]}."
    return Problem(422, words)


def _field_name(parts: list[str]) -> str:
    """texts[3] for ("texts", "3")."""
    return "".join(f"[{part}]" if part.isdecimal() else part for part in parts) or "body"


def _summary(value: Any) -> str:
    if isinstance(value, str):
        return f"'{shown(value)}'"
    if isinstance(value, dict):
        return "an object"
    return "a list" if isinstance(value, list) else json.dumps(value)
