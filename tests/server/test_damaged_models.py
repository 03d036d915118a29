"""A served folder that is replaced by a damaged one: the previous model stays, and the operator reads one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.app import Serve
from tests.support.tampering import Damage, array_damage, copied, value_damage

DAMAGES = {
    "tree": array_damage("arrays", "model.forest.tree-0.sparse_columns", "all maximum", 0, True),
    "tree, ends": array_damage("arrays", "model.forest.tree-0.sparse_ends", "all maximum", 0, True),
    "tree, numbers": array_damage("arrays", "model.forest.numbers", "all maximum", 0, True),
    "tree, table": array_damage("arrays", "model.forest.tree-0.table", "all 0", 0, True),
    "near": value_damage(("state", "documents"), 1, True),
    "near, labels": array_damage("arrays", "model.label_indices", "all maximum", 0, True),
}
"""Each passed a load without a schema, and killed the process or made it loop at the first request."""


@pytest.mark.parametrize("which", DAMAGES)
def test_the_previous_model_stays(serve: Serve, trained: dict[str, Path], tmp_path: Path, which: str) -> None:
    damage: Damage = DAMAGES[which]
    folder = copied(trained[which.partition(",")[0]], tmp_path / "model")
    served = serve(folder)
    before = served.predict(*served.texts[:3])
    damage.apply(folder)
    model = served.host[None]
    line = model.reload()
    assert line is not None
    assert line.startswith("model: keeping the previous model; the new one failed to load.")
    assert "\n" not in line
    assert served.predict(*served.texts[:3]) == before
    assert model.reload() is None  # once per change
