"""A service in this process, on small models."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.support.app import Serve, Served
from tests.support.models import planted_split
from xmtc.models.base import Model
from xmtc.models.knn import Knn
from xmtc.models.parabel import Parabel
from xmtc.models.popularity import Popularity
from xmtc.server.app import create_app
from xmtc.server.metrics import Metrics
from xmtc.server.model_host import ModelHost
from xmtc.workflows.serve import ServeRequest


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of small models: 'tree', 'near' and 'often'."""
    folder = tmp_path_factory.mktemp("models")
    train = planted_split(800, 200, labels=60, seed=7)[0]
    models: dict[str, Model] = {"tree": Parabel(trees=1), "near": Knn(neighbours=10), "often": Popularity()}
    for name, model in models.items():
        model.fit(train).save(folder / name)
    return {name: folder / name for name in models}


@pytest.fixture(scope="session")
def texts() -> list[str]:
    """Texts that the models did not learn from."""
    return list(planted_split(800, 200, labels=60, seed=7)[1].text().to_pylist())


@pytest.fixture
def serve(trained: dict[str, Path], texts: list[str]) -> Iterator[Serve]:
    """Serve some of the models, or others from folders; other arguments are settings of the service."""
    with ExitStack() as stack:

        def start(*names: str | Path, raises: bool = True, **settings: Any) -> Served:
            folders = tuple(trained[name] if isinstance(name, str) else name for name in names or ("tree",))
            request = ServeRequest(**{"host": "0.0.0.0", "threads": 1, "folders": folders, **settings})
            lines: list[str] = []
            host = ModelHost(request, Metrics([folder.name for folder in folders]), log=lines.append)
            client = stack.enter_context(TestClient(create_app(host), raise_server_exceptions=raises))
            return Served(client, host, texts, lines)

        yield start
