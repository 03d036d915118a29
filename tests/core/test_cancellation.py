"""Work can be stopped from another thread, also where it runs on several threads."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from xmtc.core.cancellation import Cancellation, Cancelled, check
from xmtc.core.parallel import run_parallel


def test_work_that_nobody_stops_is_done() -> None:
    check()
    assert Cancellation().run(lambda: list(run_parallel(lambda i: i * i, range(5), 2))) == [0, 1, 4, 9, 16]


@pytest.mark.parametrize("threads", [1, 3])
def test_parallel_work_stops_between_items(threads: int) -> None:
    cancellation, done = Cancellation(), []

    def work(item: int) -> None:
        done.append(item)
        if item == 10:
            cancellation.cancel()

    with pytest.raises(Cancelled):
        cancellation.run(lambda: list(run_parallel(work, range(1000), threads)))
    assert 11 <= len(done) <= 11 + 2 * threads
    check()  # this thread has no work that was stopped


@pytest.mark.parametrize("threads", [1, 3])
def test_checks_within_an_item_notice_it(threads: int) -> None:
    cancellation, checked = Cancellation(), threading.Event()

    def work(item: int) -> None:
        cancellation.cancel()
        try:
            check()
        except Cancelled:
            checked.set()
            raise

    with pytest.raises(Cancelled):
        cancellation.run(lambda: list(run_parallel(work, range(3), threads)))
    assert checked.is_set()


def test_work_that_was_stopped_before_does_not_begin() -> None:
    cancellation, begun = Cancellation(), []
    cancellation.cancel()
    with pytest.raises(Cancelled):
        cancellation.run(lambda: begun.append(1))
    assert not begun


def test_other_threads_are_not_stopped() -> None:
    cancellation, raised = Cancellation(), []

    def other() -> None:
        try:
            check()
        except Cancelled as error:
            raised.append(error)

    def work() -> Any:
        cancellation.cancel()
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()

    cancellation.run(work)
    assert not raised
