"""The workspace: parts that last, trainings that go on or are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from xmtc.errors import ConfigError, DataError
from xmtc.workspace import Workspace


@pytest.mark.parametrize("on_disk", [True, False])
def test_parts(tmp_path: Path, on_disk: bool) -> None:
    work = Workspace(tmp_path / "m.work" if on_disk else None)
    work.begin({"seed": 1}, resume=False)
    assert not work.has("level-0")
    work.save("level-0", {"a": np.arange(3)}, {"loss": 0.5})
    assert work.has("level-0")
    arrays, values = work.load("level-0")
    assert arrays["a"].tolist() == [0, 1, 2]
    assert values == {"loss": 0.5}
    work.remove()
    assert not work.has("level-0")
    assert not (tmp_path / "m.work").exists()


def test_resume_keeps_and_restart_forgets(tmp_path: Path) -> None:
    work = Workspace(tmp_path / "m.work")
    work.begin({"seed": 1}, resume=False)
    work.save("part", {"a": np.arange(3)})
    Workspace(tmp_path / "m.work").begin({"seed": 1}, resume=True)
    assert work.has("part")
    with pytest.raises(ConfigError, match="different seed"):
        Workspace(tmp_path / "m.work").begin({"seed": 2}, resume=True)
    Workspace(tmp_path / "m.work").begin({"seed": 1}, resume=False)
    assert not work.has("part")


def test_more_parts_than_open_files(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
    try:
        work = Workspace(tmp_path / "m.work")
        work.begin({}, resume=False)
        for number in range(150):
            work.save(f"part-{number}", {"a": np.array([number])})
        parts = [work.load(f"part-{number}")[0]["a"] for number in range(150)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert np.concatenate(parts).tolist() == list(range(150))


def test_lies_beside_the_model() -> None:
    assert Workspace.beside(Path("some/model")) == Path("some/model.work")


def test_a_resumed_training_without_its_description_is_refused(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "model.work")
    workspace.begin({"seed": 1}, resume=False)
    workspace.save("part", {"numbers": np.arange(3)})
    (tmp_path / "model.work" / "training.json").unlink()
    with pytest.raises(DataError, match=r"training.json: missing, so nothing tells what was trained"):
        workspace.begin({"seed": 1}, resume=True)
    assert workspace.has("part")
