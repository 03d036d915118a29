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
from xmtc.core.runtime import Runtime
from xmtc.models.base import Model
from xmtc.models.knn import Knn
from xmtc.models.parabel import Parabel
from xmtc.models.popularity import Popularity
from xmtc.server.app import create_app
from xmtc.server.limits import Limits
from xmtc.server.metrics import Tallies
from xmtc.server.middleware import Doors
from xmtc.server.model_host import Hosts


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
    """Serve some of the models, or others from folders; other words are limits, a key, or host names."""
    with ExitStack() as stack:

        def start(
            *names: str | Path,
            key: str | None = None,
            hosts: list[str] | None = None,
            feedback: Path | None = None,
            raises: bool = True,
            **limits: Any,
        ) -> Served:
            folders = [trained[name] if isinstance(name, str) else name for name in names or ("tree",)]
            bounds = Limits(**limits)
            tallies = Tallies([folder.name for folder in folders])
            lines: list[str] = []
            made = Hosts(folders, Runtime(threads=1), bounds, tallies, feedback, lines.append)
            app = Doors(create_app(made), bounds, tallies, key=key, hosts=hosts)
            client = stack.enter_context(TestClient(app, raise_server_exceptions=raises))
            return Served(client, made, texts, lines)

        yield start
