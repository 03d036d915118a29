"""Every array of every model is damaged, and everything else at random: one line or the same answers, never a crash."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.tampered_models import build
from tests.support.tampering import selected
from tests.support.tampering_runs import Campaign, Case, Folders, random_cases

pytestmark = pytest.mark.long
SEED = 5
RANDOM = 500
"""Random damages, with and without repaired hashes; the directed ones have repaired hashes."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return build(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def campaign(folders: Folders) -> Iterator[Campaign]:
    with Campaign(folders, 2) as made:
        yield made


def check(campaign: Campaign, cases: Iterator[Case]) -> int:
    """Raise an error that names every bad case; return the number of cases."""
    outcomes = list(campaign.run(cases))
    faults = [fault for case, outcome in outcomes if (fault := campaign.fault(case, outcome))]
    assert not faults, f"{len(faults)} of {len(outcomes)}, seed {SEED}:\n" + "\n".join(faults)
    return len(outcomes)


def test_every_array(campaign: Campaign, folders: Folders) -> None:
    every = (Case(name, damage) for name, (folder, _) in folders.items() for damage in selected(folder, SEED))
    assert check(campaign, every) > 1000


def test_anything(campaign: Campaign, folders: Folders) -> None:
    check(campaign, random_cases(folders, RANDOM, SEED))
