"""Texts of several requests are tagged together, in turn, and each gets its own answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from xmtc.server import batching
from xmtc.server.batching import Batcher, How
from xmtc.server.errors import Busy
from xmtc.server.metrics import Tallies


class Echo:
    """Answers each text with itself, and remembers what it was asked together; waits where it is told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[str], How]] = []
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, texts: list[str], how: How) -> list[list[dict[str, Any]]]:
        self.asked.append((texts, how))
        assert self.gate.wait(10)
        if "bad" in texts:
            raise ValueError("bad")
        return [[{"key": text}] for text in texts]


def run(
    echo: Echo, story: Callable[[Batcher], Awaitable[None]], queue: int = 1000, window: float = 0.01
) -> dict[str, float]:
    tallies = Tallies(["m"])

    async def whole() -> None:
        batcher = Batcher("m", echo, queue, window, tallies)
        try:
            await asyncio.wait_for(story(batcher), 20)
        finally:
            echo.gate.set()
            batcher.close()

    asyncio.run(whole())
    lines = [line for line in tallies.text().splitlines() if not line.startswith("#")]
    return {name.split("{")[0]: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def keys(answer: list[list[dict[str, Any]]]) -> list[str]:
    return [labels[0]["key"] for labels in answer]


def test_requests_within_the_window_are_one_batch_and_each_gets_its_own_answers() -> None:
    echo = Echo()

    async def story(batcher: Batcher) -> None:
        found = await asyncio.gather(*(batcher.tag([f"{i}a", f"{i}b"], How()) for i in range(10)))
        assert [keys(answer) for answer in found] == [[f"{i}a", f"{i}b"] for i in range(10)]

    counted = run(echo, story)
    assert [len(texts) for texts, _ in echo.asked] == [20]
    assert counted["xmtc_texts_total"] == 20
    assert counted["xmtc_batches_total"] == 1
    assert counted["xmtc_waiting_texts"] == 0


def test_only_requests_that_want_the_same_are_tagged_together_and_the_oldest_goes_first() -> None:
    echo = Echo()
    wants = [How(k=1), How(k=2), How(k=1), How(threshold=0.5), How(k=2), How(allow=("a",)), How(allow=("b",))]

    async def story(batcher: Batcher) -> None:
        found = await asyncio.gather(*(batcher.tag([str(i)], how) for i, how in enumerate(wants)))
        assert [keys(answer) for answer in found] == [[str(i)] for i in range(len(wants))]

    run(echo, story)
    assert [texts for texts, _ in echo.asked] == [["0", "2"], ["1", "4"], ["3"], ["5"], ["6"]]
    assert [how for _, how in echo.asked] == [wants[0], wants[1], wants[3], wants[5], wants[6]]


def test_a_batch_has_a_size_and_a_larger_request_is_one_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "MOST_TEXTS", 4)
    monkeypatch.setattr(batching, "MOST_CHARACTERS", 40)
    echo = Echo()

    async def story(batcher: Batcher) -> None:
        sizes = [3, 2, 1, 9, 1]
        found = await asyncio.gather(
            *(batcher.tag(["x"] * size, How()) for size in sizes), batcher.tag(["y" * 50], How())
        )
        assert [len(answer) for answer in found] == [*sizes, 1]

    run(echo, story)
    assert [len(texts) for texts, _ in echo.asked] == [4, 3, 9, 1]
    assert echo.asked[-1][0] == ["y" * 50]


def test_what_arrives_while_a_batch_is_tagged_gathers() -> None:
    echo = Echo()
    echo.gate.clear()

    async def story(batcher: Batcher) -> None:
        first = asyncio.create_task(batcher.tag(["first"], How()))
        while not echo.asked:
            await asyncio.sleep(0.001)
        others = [asyncio.create_task(batcher.tag([str(i)], How())) for i in range(5)]
        await asyncio.sleep(0.05)
        echo.gate.set()
        assert keys(await first) == ["first"]
        assert [keys(await other) for other in others] == [[str(i)] for i in range(5)]

    run(echo, story)
    assert [len(texts) for texts, _ in echo.asked] == [1, 5]


def test_a_full_queue_refuses_and_those_in_it_are_answered() -> None:
    echo = Echo()
    echo.gate.clear()

    async def story(batcher: Batcher) -> None:
        first = asyncio.create_task(batcher.tag(["first"], How()))
        while not echo.asked:
            await asyncio.sleep(0.001)
        waiting = [asyncio.create_task(batcher.tag(["a", "b"], How())) for _ in range(5)]
        await asyncio.sleep(0.01)
        with pytest.raises(Busy, match=r"10 texts wait for 'm' already\. Try again in a moment\.") as refused:
            await batcher.tag(["c"], How())
        assert refused.value.status == 429
        assert int(refused.value.headers["Retry-After"]) >= 1
        echo.gate.set()
        assert keys(await first) == ["first"]
        assert [keys(await job) for job in waiting] == [["a", "b"]] * 5
        assert keys(await batcher.tag(["d"], How())) == ["d"]

    run(echo, story, queue=10)


def test_a_request_that_is_given_up_is_not_worked_on() -> None:
    echo = Echo()
    echo.gate.clear()

    async def story(batcher: Batcher) -> None:
        first = asyncio.create_task(batcher.tag(["first"], How()))
        while not echo.asked:
            await asyncio.sleep(0.001)
        gone, stays = (asyncio.create_task(batcher.tag([name], How())) for name in ("gone", "stays"))
        await asyncio.sleep(0.01)
        gone.cancel()
        await asyncio.sleep(0.01)
        echo.gate.set()
        await first
        assert keys(await stays) == ["stays"]

    counted = run(echo, story)
    assert [texts for texts, _ in echo.asked] == [["first"], ["stays"]]
    assert counted["xmtc_waiting_texts"] == 0


def test_an_error_reaches_all_of_its_batch_and_the_next_one_works() -> None:
    echo = Echo()

    async def story(batcher: Batcher) -> None:
        found = await asyncio.gather(*(batcher.tag([text], How()) for text in ("a", "bad")), return_exceptions=True)
        assert [str(error) for error in found] == ["bad", "bad"]
        assert keys(await batcher.tag(["fine"], How())) == ["fine"]

    run(echo, story)


def test_a_model_is_never_asked_twice_at_once() -> None:
    at_work, most = 0, 0
    lock = threading.Lock()

    def work() -> None:
        nonlocal at_work, most
        with lock:
            at_work += 1
            most = max(most, at_work)
        threading.Event().wait(0.005)
        with lock:
            at_work -= 1

    class Slow(Echo):
        def __call__(self, texts: list[str], how: How) -> list[list[dict[str, Any]]]:
            work()
            return super().__call__(texts, how)

    async def story(batcher: Batcher) -> None:
        jobs = [batcher.tag([str(i)], How(k=i + 1)) for i in range(6)]
        await asyncio.gather(*jobs, *(batcher.alone(work) for _ in range(6)))

    run(Slow(), story)
    assert most == 1
