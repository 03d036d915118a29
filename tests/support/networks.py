"""Small networks, copies of their weights, and a progress that interrupts training at a given step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import Tensor

from xmtc.core.progress import Task
from xmtc.models.attention_xml import AttentionXml
from xmtc.models.base import Model
from xmtc.models.xml_cnn import XmlCnn
from xmtc.models.xml_rnn import XmlRnn
from xmtc.nn.network import Network
from xmtc.nn.training.loop import TrainingSettings

torch = pytest.importorskip("torch")


def settings_of(**changes: Any) -> TrainingSettings:
    return TrainingSettings(**{"epochs": 2, "batch_size": 8, "learning_rate": 0.01, "lengths": 3, **changes})


def copied(network: Network) -> dict[str, Tensor]:
    return {name: part.detach().clone() for name, part in network.named_parameters()}


def same(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


class Watching:
    """Progress that calls back after every step, with the number of the step; tasks of other titles pass by."""

    def __init__(self, after: Callable[[int], None], which: int = 0) -> None:
        self.after, self.which, self.opened = after, which, 0
        self.notes: list[str] = []

    @contextmanager
    def task(self, title: str, total: int | None = None) -> Iterator[Task]:
        watching, mine = self, title == "training" and self.opened == self.which
        self.opened += title == "training"

        class Bar:
            calls = -1  # the first tells what was done before

            def advance(self, steps: int = 1) -> None:
                self.calls += 1
                if mine and self.calls:
                    watching.after(self.calls)

            def note(self, words: str) -> None:
                watching.notes.append(words)

        yield Bar()


def stop_at(step: int) -> Callable[[int], None]:
    def after(number: int) -> None:
        if number == step:
            raise KeyboardInterrupt

    return after


SMALL: dict[str, Any] = {
    "corpus__width": 6,
    "encoder__dropout": 0.3,
    "training__epochs": 2,
    "training__batch_size": 8,
    "training__validate_every": 4,
    "training__learning_rate": 0.02,
}


KINDS: dict[type[Model], dict[str, Any]] = {
    AttentionXml: {"encoder__units": 4, "head__hidden": (4,)},
    XmlRnn: {"encoder__units": 4, "encoder__hidden": 5},
    XmlCnn: {"encoder__filters": 3, "encoder__pools": 2, "encoder__hidden": 5},
}


def model_of(kind: type[Model], **changes: Any) -> Model:
    return kind(**{**SMALL, **KINDS[kind], **changes})
