"""Work in other threads: results in order, errors where they occurred, and nothing is read that nobody wants."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest

from xmtc.core.parallel import in_background, run_parallel


def test_items_come_in_order_from_another_thread() -> None:
    threads = set()

    def items() -> Iterator[int]:
        for number in range(50):
            threads.add(threading.get_ident())
            yield number

    assert list(in_background(items())) == list(range(50))
    assert threading.get_ident() not in threads


def test_an_error_comes_after_the_items_before_it() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("damaged")

    found = in_background(items())
    assert next(found) == 1
    with pytest.raises(ValueError, match="damaged"):
        next(found)


def test_a_reader_that_stops_closes_the_items() -> None:
    read, closed = [], []

    def items() -> Iterator[int]:
        try:
            for number in range(1000):
                read.append(number)
                yield number
        finally:
            closed.append(True)

    wanted = in_background(items())
    assert [next(wanted), next(wanted)] == [0, 1]
    wanted.close()  # type: ignore[attr-defined]
    assert closed
    assert len(read) <= 5


def test_a_reader_that_is_collected_as_garbage() -> None:
    wanted = in_background(iter(range(1000)))
    assert next(wanted) == 0
    cycle: list[object] = [wanted]
    cycle.append(cycle)
    del wanted, cycle
    gc.collect()  # would wait for ever if it asked the thread for anything


def test_garbage_is_collected_while_a_thread_starts() -> None:
    """The collector may run in a starting thread that holds a lock which the end of any thread needs."""
    lock = getattr(threading, "_shutdown_locks_lock", None) or threading.Lock()  # until Python 3.12
    wanted = in_background(iter(range(1000)))
    assert next(wanted) == 0
    cycle: list[object] = [wanted]
    cycle.append(cycle)

    def collect() -> None:
        with lock:
            gc.collect()

    del wanted, cycle
    worker = threading.Thread(target=collect, daemon=True)
    worker.start()
    worker.join(20)
    assert not worker.is_alive()


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_results_in_order_on_any_number_of_threads(count: int) -> None:
    for threads in (1, 2, 3):
        assert list(run_parallel(str, range(count), threads)) == [str(number) for number in range(count)]


def test_a_single_item_starts_no_thread() -> None:
    assert list(run_parallel(lambda _: threading.get_ident(), [0], 4)) == [threading.get_ident()]
