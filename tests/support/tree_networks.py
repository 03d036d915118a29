"""A small planted corpus, a model with a three-level label tree, and a progress that stops training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from tests.support.networks import model_of
from xmtc.core.progress import Task
from xmtc.core.runtime import Runtime
from xmtc.models.attention_xml import AttentionXml

torch = pytest.importorskip("torch")


CPU = torch.device("cpu")


RUNTIME = Runtime(device="cpu", threads=1, seed=5)


CHOSEN = [sorted({number % 13, (7 * number + 3) % 13, number * number % 13}) for number in range(60)]


TEXTS = [
    " ".join([*(f"noise{number * place % 11}" for place in range(number % 9)), *(f"w{label}" for label in chosen)])
    for number, chosen in enumerate(CHOSEN)
]


TRUTH = [[f"label{label:02}" for label in chosen] for chosen in CHOSEN]


VALID = (TEXTS[5:25], TRUTH[5:25])


def tree_model(**changes: Any) -> Any:
    """Levels of 4, 8 and 13 nodes."""
    tree = {"head__tree__height": 2, "head__tree__cluster_size": 2, "head__tree__arity": 2, "head__tree__beam_width": 3}
    return model_of(AttentionXml, vectors="random", **{**tree, **changes})


class Stopping:
    """Progress that raises an error when a task is opened, or after some steps of it; keeps what is said."""

    def __init__(self, title: str = "", at: int = 0, error: type[BaseException] = KeyboardInterrupt, which: int = 0):
        self.title, self.at, self.error, self.which = title, at, error, which
        self.opened: list[str] = []
        self.events: list[str] = []

    def say(self, line: str) -> None:
        self.events.append(line)

    @contextmanager
    def task(self, title: str, total: int | None = None) -> Iterator[Task]:
        mine = title == self.title and self.opened.count(title) == self.which
        self.opened.append(title)
        self.events.append(title)
        if mine and not self.at:
            raise self.error
        stopping, told_before = self, title.startswith("training")  # whose first call tells what was done before

        class Bar:
            calls = -1 if told_before else 0

            def advance(self, steps: int = 1) -> None:
                self.calls += 1
                if mine and self.calls == stopping.at:
                    raise stopping.error

            def note(self, words: str) -> None:
                return

        yield Bar()
