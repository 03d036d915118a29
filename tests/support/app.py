"""A service in the process of a test, and what tests ask of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from xmtc.server.model_host import ModelHost


@dataclass
class Served:
    """A service and what it was made of."""

    client: TestClient
    host: ModelHost
    texts: list[str]
    lines: list[str]
    """What it told the operator."""

    def post(self, path: str, content: Any, **more: Any) -> Any:
        return self.client.post(path, json=content, **more)

    def predict(self, *texts: str, **more: Any) -> list[list[dict[str, Any]]]:
        answer = self.post("/v1/predict", {"texts": list(texts), **more})
        assert answer.status_code == 200, answer.text
        return [row["labels"] for row in answer.json()["predictions"]]

    def metrics(self) -> dict[tuple[str, ...], float]:
        """The value of each series: its name, then the values of its labels by the names of the labels."""
        return samples(self.client.get("/metrics").text)

    def refused(self, path: str, content: Any, status: int = 422) -> str:
        """The line with which a body is refused."""
        answer = self.post(path, content)
        assert answer.status_code == status, answer.text
        return problem(answer)


def samples(exposition: str) -> dict[tuple[str, ...], float]:
    """Series of Prometheus' text format: name and the values of its labels, sorted by label → value."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(exposition)
        for sample in family.samples
    }


def problem(answer: Any) -> str:
    """The line of a refusal, which has to have the form of one."""
    assert answer.headers["content-type"] == "application/problem+json"
    content = answer.json()
    assert set(content) == {"type", "title", "status", "detail"}
    assert content["status"] == answer.status_code
    assert "\n" not in content["detail"]
    return str(content["detail"])


Serve = Callable[..., Served]
