"""Texts of several requests are tagged together, in turn, and each gets its own answer."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from tests.support.app import samples
from xmtc.core.cancellation import Cancelled, check
from xmtc.core.parallel import run_parallel
from xmtc.server import batching
from xmtc.server.batching import Batcher
from xmtc.server.errors import TooManyRequests
from xmtc.server.metrics import Metrics
from xmtc.workflows.hosted_model import PredictOptions as Options


class Echo:
    """Answers each text with itself, and remembers what it was asked together; waits where it is told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[str], Options]] = []
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, texts: list[str], options: Options) -> list[list[dict[str, Any]]]:
        self.asked.append((texts, options))
        assert self.gate.wait(10)
        if "bad" in texts:
            raise ValueError("bad")
        return [[{"key": text}] for text in texts]


def run(
    echo: Any,
    story: Callable[[Batcher], Awaitable[None]],
    queue: int = 1000,
    window: float = 0.01,
    is_model: bool = False,
) -> dict[str, float]:
    metrics = Metrics(["m"])

    async def whole() -> None:
        batcher = Batcher("m", echo if is_model else lambda: echo, queue, window, metrics)
        try:
            await asyncio.wait_for(story(batcher), 20)
        finally:
            if isinstance(echo, Echo):
                echo.gate.set()
            batcher.close()

    asyncio.run(whole())
    return {name: value for (name, *_), value in samples(metrics.exposition().decode()).items()}


def keys(answer: list[list[dict[str, Any]]]) -> list[str]:
    return [labels[0]["key"] for labels in answer]


def test_requests_within_the_window_are_one_batch_and_each_gets_its_own_answers() -> None:
    echo = Echo()

    async def story(batcher: Batcher) -> None:
        found = await asyncio.gather(*(batcher.predict([f"{i}a", f"{i}b"], Options()) for i in range(10)))
        assert [keys(answer) for answer in found] == [[f"{i}a", f"{i}b"] for i in range(10)]

    counted = run(echo, story)
    assert [len(texts) for texts, _ in echo.asked] == [20]
    assert counted["xmtc_texts_total"] == 20
    assert counted["xmtc_batches_total"] == 1
    assert counted["xmtc_waiting_texts"] == 0


def test_only_requests_that_want_the_same_are_tagged_together_and_the_oldest_goes_first() -> None:
    echo = Echo()
    wants = [
        Options(k=1),
        Options(k=2),
        Options(k=1),
        Options(threshold=0.5),
        Options(k=2),
        Options(allow=("a",)),
        Options(allow=("b",)),
    ]

    async def story(batcher: Batcher) -> None:
        found = await asyncio.gather(*(batcher.predict([str(i)], options) for i, options in enumerate(wants)))
        assert [keys(answer) for answer in found] == [[str(i)] for i in range(len(wants))]

    run(echo, story)
    assert [texts for texts, _ in echo.asked] == [["0", "2"], ["1", "4"], ["3"], ["5"], ["6"]]
    assert [options for _, options in echo.asked] == [wants[0], wants[1], wants[3], wants[5], wants[6]]


def small_batches(monkeypatch: pytest.MonkeyPatch, texts: int, characters: int) -> None:
    monkeypatch.setattr(batching, "MAX_BATCH_TEXTS", texts)
    monkeypatch.setattr(batching, "MAX_BATCH_CHARACTERS", characters)
    monkeypatch.setattr(batching, "FIRST_BATCH_COST", characters)
    monkeypatch.setattr(batching, "TEXT_COST", 0)


def test_a_batch_has_a_size_and_a_larger_request_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    small_batches(monkeypatch, 4, 40)
    echo = Echo()

    async def story(batcher: Batcher) -> None:
        sizes = [3, 2, 1, 9, 1]
        found = await asyncio.gather(
            *(batcher.predict([str(i) for i in range(size)], Options()) for size in sizes),
            batcher.predict(["y" * 50], Options()),
        )
        assert [keys(answer) for answer in found[:-1]] == [[str(i) for i in range(size)] for size in sizes]
        assert keys(found[-1]) == ["y" * 50]

    counted = run(echo, story)
    assert [len(texts) for texts, _ in echo.asked] == [4, 3, 4, 4, 1, 1]
    assert echo.asked[-1][0] == ["y" * 50]
    assert counted["xmtc_texts_total"] == 17
    assert counted["xmtc_waiting_texts"] == 0


def test_the_smallest_and_the_oldest_request_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """So small requests do not wait for large ones, and large ones progress while small ones keep coming."""
    small_batches(monkeypatch, 100, 20)
    echo = Echo()
    order: list[str] = []

    async def ask(batcher: Batcher, name: str, count: int) -> None:
        await batcher.predict([name * 9] * count, Options())
        order.append(name)

    async def story(batcher: Batcher) -> None:
        await asyncio.gather(*(ask(batcher, name, count) for name, count in [("A", 6), ("B", 6), ("c", 2), ("d", 2)]))

    run(echo, story)
    assert "".join(texts[0][0] for texts, _ in echo.asked) == "cAdAABBB"
    assert order == ["c", "d", "A", "B"]


def test_a_slow_model_gets_small_batches() -> None:
    """A request that comes later does not wait until all of an earlier one is predicted."""
    sizes: list[int] = []

    def slow(texts: list[str], options: Options) -> list[list[dict[str, Any]]]:
        sizes.append(len(texts))
        time.sleep(0.005 * len(texts))
        return [[{"key": text[:1]}] for text in texts]

    async def story(batcher: Batcher) -> None:
        large = asyncio.create_task(batcher.predict(["x" * 1000] * 500, Options()))
        while len(sizes) < 4:
            await asyncio.sleep(0.001)
        started = time.monotonic()
        assert keys(await batcher.predict(["y"], Options())) == ["y"]
        assert time.monotonic() - started < 1
        assert not large.done()
        large.cancel()

    run(slow, story)
    assert sizes[0] > 200
    assert max(sizes[4:]) <= 60  # 0.3 s


def test_work_that_nobody_waits_for_is_stopped() -> None:
    stopped = threading.Event()
    at_work = threading.Event()

    def endless(texts: list[str], options: Options) -> list[list[dict[str, Any]]]:
        if "endless" not in texts:
            return [[{"key": text}] for text in texts]
        at_work.set()
        try:
            for _ in run_parallel(lambda _: time.sleep(0.001), range(100_000), options.k or 1):
                pass
        except Cancelled:
            stopped.set()
            raise
        raise AssertionError("not stopped")

    async def story(batcher: Batcher) -> None:
        for threads in (1, 2):
            jobs = [asyncio.create_task(batcher.predict([text], Options(k=threads))) for text in ("endless", "with it")]
            while not at_work.is_set():
                await asyncio.sleep(0.001)
            other = asyncio.create_task(batcher.predict(["other"], Options()))
            jobs[0].cancel()
            await asyncio.sleep(0.05)
            assert not stopped.is_set(), "the other request of the batch waits for it"
            jobs[1].cancel()
            assert keys(await asyncio.wait_for(other, 5)) == ["other"]
            assert stopped.is_set()
            at_work.clear()
            stopped.clear()

    counted = run(endless, story)
    assert counted["xmtc_waiting_texts"] == 0


def test_calls_and_texts_take_turns_and_a_call_is_stopped() -> None:
    """One explanation at most delays a prediction."""
    echo = Echo()
    done: list[str] = []

    def long_work() -> None:
        until = time.monotonic() + 10
        while time.monotonic() < until:
            check()

    async def story(batcher: Batcher) -> None:
        stuck = asyncio.create_task(batcher.call(long_work, 10))
        await asyncio.sleep(0.01)
        calls = [asyncio.create_task(batcher.call(partial(done.append, str(i)), 10_000 - i)) for i in range(4)]
        await asyncio.sleep(0.01)
        text = asyncio.create_task(batcher.predict(["text"], Options()))
        text.add_done_callback(lambda _: done.append("text"))
        await asyncio.sleep(0.01)
        stuck.cancel()
        started = time.monotonic()
        await asyncio.gather(text, *calls)
        assert time.monotonic() - started < 5

    run(echo, story)
    assert done.index("text") <= 2
    assert sorted(done) == ["0", "1", "2", "3", "text"]


def test_all_texts_of_a_request_are_predicted_by_one_model(monkeypatch: pytest.MonkeyPatch) -> None:
    small_batches(monkeypatch, 2, 1000)
    version = 0

    def model() -> Any:
        loaded = version

        def predict(texts: list[str], options: Options) -> list[list[dict[str, Any]]]:
            nonlocal version
            version += 1  # another one is loaded meanwhile
            return [[{"key": str(loaded)}] for _ in texts]

        return predict

    async def story(batcher: Batcher) -> None:
        assert keys(await batcher.predict(["x"] * 9, Options())) == ["0"] * 9
        assert keys(await batcher.predict(["x"], Options())) == ["5"]

    run(model, story, is_model=True)


def test_what_arrives_while_a_batch_is_tagged_gathers() -> None:
    echo = Echo()
    echo.gate.clear()

    async def story(batcher: Batcher) -> None:
        first = asyncio.create_task(batcher.predict(["first"], Options()))
        while not echo.asked:
            await asyncio.sleep(0.001)
        others = [asyncio.create_task(batcher.predict([str(i)], Options())) for i in range(5)]
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
        first = asyncio.create_task(batcher.predict(["first"], Options()))
        while not echo.asked:
            await asyncio.sleep(0.001)
        waiting = [asyncio.create_task(batcher.predict(["a", "b"], Options())) for _ in range(5)]
        await asyncio.sleep(0.01)
        with pytest.raises(
            TooManyRequests, match=r"the queue of 'm' is full \(10 texts\)\. Try again in a moment\."
        ) as refused:
            await batcher.predict(["c"], Options())
        assert refused.value.status == 429
        assert int(refused.value.headers["Retry-After"]) >= 1
        echo.gate.set()
        assert keys(await first) == ["first"]
        assert [keys(await job) for job in waiting] == [["a", "b"]] * 5
        assert keys(await batcher.predict(["d"], Options())) == ["d"]

    run(echo, story, queue=10)


def test_a_request_that_is_given_up_is_not_worked_on() -> None:
    echo = Echo()
    echo.gate.clear()

    async def story(batcher: Batcher) -> None:
        first = asyncio.create_task(batcher.predict(["first"], Options()))
        while not echo.asked:
            await asyncio.sleep(0.001)
        gone, stays = (asyncio.create_task(batcher.predict([name], Options())) for name in ("gone", "stays"))
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
        found = await asyncio.gather(
            *(batcher.predict([text], Options()) for text in ("a", "bad")), return_exceptions=True
        )
        assert [str(error) for error in found] == ["bad", "bad"]
        assert keys(await batcher.predict(["fine"], Options())) == ["fine"]

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
        def __call__(self, texts: list[str], options: Options) -> list[list[dict[str, Any]]]:
            work()
            return super().__call__(texts, options)

    async def story(batcher: Batcher) -> None:
        jobs = [batcher.predict([str(i)], Options(k=i + 1)) for i in range(6)]
        await asyncio.gather(*jobs, *(batcher.call(work) for _ in range(6)))

    run(Slow(), story)
    assert most == 1
