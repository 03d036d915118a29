"""Errors as `application/problem+json`, in the words of the command line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from xmtc.core.errors import XmtcError, nearest, shown

MEDIA_TYPE = "application/problem+json"
MANY = 100
"""Mistakes of one body that are looked at."""
TITLES = {413: "Content Too Large", 422: "Unprocessable Content"}
"""Names that changed since the oldest Python that runs here."""


class Problem(Exception):
    """What is wrong with a request, and the status that says so."""

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


class Busy(Problem):
    """Too much is waiting; `seconds` is when to come back."""

    def __init__(self, detail: str, seconds: float) -> None:
        super().__init__(429, detail, {"Retry-After": str(max(1, round(seconds)))})


def add_handlers(app: FastAPI) -> None:
    """Have every error of an application answered as a problem."""

    async def problem(_: Request, error: Exception) -> Response:
        assert isinstance(error, Problem)
        return error.response()

    async def mistake(_: Request, error: Exception) -> Response:
        return Problem(422, " ".join(str(error).splitlines())).response()

    async def astray(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path = shown(request.url.path)
        told = {
            404: f"there is nothing at '{path}'. What there is: /openapi.json",
            405: f"'{path}' does not take {shown(request.method)}. What it takes: /openapi.json",
        }
        return Problem(error.status_code, told.get(error.status_code, str(error.detail)), error.headers).response()

    async def bug(_: Request, __: Exception) -> Response:
        return Problem(500, "the service failed, and said why on its standard error. Please report it.").response()

    app.add_exception_handler(Problem, problem)
    app.add_exception_handler(XmtcError, mistake)
    app.add_exception_handler(HTTPException, astray)
    app.add_exception_handler(Exception, bug)


def invalid(error: ValidationError, known: list[str]) -> Problem:
    """The first thing that is wrong with a body; `known` are the fields that it may have."""
    fields = f" Fields: {', '.join(known)}."
    if error.error_count() > MANY:  # telling all of them takes longer than finding them
        return Problem(422, f"there are more than {MANY} fields that are not known.{fields}")
    found = error.errors(include_url=False)
    first: dict[str, Any] = dict(next((one for one in found if one["type"] == "extra_forbidden"), found[0]))
    if first["type"] == "json_invalid":
        return Problem(400, f"the body is not JSON: {first['ctx']['error']}. Send UTF-8 JSON.")
    place = [str(part) for part in first["loc"]]
    name, got = _place(place), shown(_short(first.get("input")))
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


def _place(parts: list[str]) -> str:
    """texts[3] for ("texts", "3")."""
    return "".join(f"[{part}]" if part.isdecimal() else part for part in parts) or "body"


def _short(value: Any) -> str:
    if isinstance(value, str):
        return f"'{shown(value)}'"
    if isinstance(value, dict):
        return "an object"
    return "a list" if isinstance(value, list) else json.dumps(value)
