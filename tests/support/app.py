"""Helpers of several tests: app."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.testclient import TestClient

from xmtc.server.model_host import Hosts


@dataclass
class Served:
    """A service and what it was made of."""

    client: TestClient
    hosts: Hosts
    texts: list[str]
    lines: list[str]
    """What it told the operator."""

    def post(self, path: str, content: Any, **more: Any) -> Any:
        return self.client.post(path, json=content, **more)

    def predict(self, *texts: str, **more: Any) -> list[list[dict[str, Any]]]:
        answer = self.post("/v1/predict", {"texts": list(texts), **more})
        assert answer.status_code == 200, answer.text
        return [row["labels"] for row in answer.json()["predictions"]]

    def refused(self, path: str, content: Any, status: int = 422) -> str:
        """The line with which a body is refused."""
        answer = self.post(path, content)
        assert answer.status_code == status, answer.text
        return problem(answer)


def problem(answer: Any) -> str:
    """The line of a refusal, which has to have the form of one."""
    assert answer.headers["content-type"] == "application/problem+json"
    content = answer.json()
    assert set(content) == {"type", "title", "status", "detail"}
    assert content["status"] == answer.status_code
    assert "\n" not in content["detail"]
    return str(content["detail"])


Serve = Callable[..., Served]
