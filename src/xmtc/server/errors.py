"""Errors as `application/problem+json`, in the words of the command line."""

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
"""Validation errors of one body that are looked at."""
TITLES = {413: "Content Too Large", 422: "Unprocessable Content"}
"""Reason phrases that older versions of Python name differently."""


class Problem(Exception):
    """A response of type problem+json: the status, and one line that says what is wrong and what to do."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = dict(headers or {})

    def body(self) -> bytes:
        title = TITLES.get(self.status) or HTTPStatus(self.status).phrase
        content = {"type": "about:blank", "title": title, "status": self.status, "detail": self.detail}
        return json.dumps(content, ensure_ascii=False).encode()

    def response(self) -> Response:
        return Response(self.body(), self.status, self.headers, MEDIA_TYPE)


class TooManyRequests(Problem):
    """Too much is waiting; the client may try again after some seconds."""

    def __init__(self, detail: str, *, retry_after: float) -> None:
        super().__init__(429, detail, {"Retry-After": str(max(1, round(retry_after)))})


def add_exception_handlers(app: FastAPI, check_access: Callable[[Request], Awaitable[None]]) -> None:
    """Have every error of an application answered as a problem.

    `check_access` is asked before a stranger learns that a path does not exist or does not take a method.
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
            404: f"there is nothing at '{path}'. What there is: /openapi.json",
            405: f"'{path}' does not take {shown(request.method)}. What it takes: /openapi.json",
        }
        return Problem(error.status_code, details.get(error.status_code, str(error.detail)), error.headers).response()

    async def on_invalid_query(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        value = shown(repr(first.get("input")))
        return Problem(422, f"'{shown(str(first['loc'][-1]))}' cannot be {value}: {first['msg'].lower()}.").response()

    async def on_bug(_: Request, __: Exception) -> Response:
        return Problem(500, "the service failed, and said why on its standard error. Please report it.").response()

    app.add_exception_handler(Problem, on_problem)
    app.add_exception_handler(XmtcError, on_user_error)
    app.add_exception_handler(HTTPException, on_http_error)
    app.add_exception_handler(RequestValidationError, on_invalid_query)
    app.add_exception_handler(Exception, on_bug)


def validation_problem(error: ValidationError, known: list[str]) -> Problem:
    """The first thing that is wrong with a body; `known` are the fields that it may have."""
    fields = f" Fields: {', '.join(known)}."
    if error.error_count() > MAX_ERRORS:  # listing all of them takes longer than finding them
        return Problem(422, f"there are more than {MAX_ERRORS} fields that are not known.{fields}")
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
            words = f"there is no field '{shown(name)}'.{nearest(place[-1], known) or fields}"
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
