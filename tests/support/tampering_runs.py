"""Runs of many damages over model folders, on several processes, and what is wrong with their outcomes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from queue import SimpleQueue

import numpy as np

from tests.support.tampering import Damage, anything, copied
from tests.support.tampering_victim import CPU_SECONDS, Outcome, Victim

Folders = Mapping[str, tuple[Path, Path]]
"""Model folders by name, with the documents to use them on."""


@dataclass(frozen=True)
class Case:
    """A damage to one of the folders."""

    name: str
    damage: Damage
    update: bool = False
    """Whether the model is updated and saved too."""
    seconds: int = CPU_SECONDS
    """Processor time after which it counts as a hang."""

    def __str__(self) -> str:
        return f"{self.name}: {self.damage}{', with update' if self.update else ''}"


def random_cases(folders: Folders, count: int, seed: int) -> Iterator[Case]:
    """Any damages, equally often of every model."""
    names = list(folders)
    for number in range(count):
        random = np.random.default_rng([seed, number])
        name = names[number % len(names)]
        damage = anything(folders[name][0], random)
        # An update takes as many epochs as the settings demand: that is not a hang.
        is_training = ".epochs" in damage.what
        yield Case(name, damage, random.random() < 0.2 and not is_training)


class Campaign:
    """Processes that are ready to load damaged folders, and the answers of the undamaged ones."""

    def __init__(self, folders: Folders, workers: int = 2, plugins: Iterable[str] = ()) -> None:
        self._folders = folders
        self._victims: SimpleQueue[Victim] = SimpleQueue()
        self._all = [Victim(*plugins) for _ in range(workers)]
        self._expected: dict[tuple[str, bool], str] = {}
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(self._warm, self._all))
        for name, (folder, documents) in folders.items():
            for update in (False, True):
                whole = self._all[0].run(folder, documents, update)
                assert whole.kind == "answers", f"{name}: {whole}"
                self._expected[name, update] = whole.answers
        for victim in self._all:
            self._victims.put(victim)

    def _warm(self, victim: Victim) -> None:
        for name, (folder, documents) in self._folders.items():
            outcome = victim.warm(folder, documents)
            assert outcome.kind == "answers", f"{name}: {outcome}"

    def __enter__(self) -> Campaign:
        return self

    def __exit__(self, *error: object) -> None:
        for victim in self._all:
            victim.close()

    def run(self, cases: Iterable[Case]) -> Iterator[tuple[Case, Outcome]]:
        """Yield the outcome of every case, in order."""
        waiting = iter(cases)
        with ThreadPoolExecutor(len(self._all)) as pool:
            while some := list(islice(waiting, 64)):
                yield from zip(some, pool.map(self._outcome, some), strict=True)

    def _outcome(self, case: Case) -> Outcome:
        folder, documents = self._folders[case.name]
        place = Path(tempfile.mkdtemp(prefix="damaged-", dir=folder.parent))
        victim = self._victims.get()
        try:
            damaged = copied(folder, place / "model")
            case.damage.apply(damaged)
            return victim.run(damaged, documents, case.update, case.seconds)
        finally:
            self._victims.put(victim)
            shutil.rmtree(place, ignore_errors=True)

    def fault(self, case: Case, outcome: Outcome) -> str | None:
        """What is wrong with an outcome, None if nothing is."""
        if not outcome.is_clean:
            return f"{case}: {outcome.kind}: {outcome.detail}"
        if case.damage.is_repaired or outcome.kind == "error":
            return None
        same = outcome.answers == self._expected[case.name, case.update]
        return None if same else f"{case}: other answers without an error"
