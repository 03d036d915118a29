"""Load test of `xmtc serve`: many clients in a closed loop, on the same machine as the service.

usage: python benchmarks/serving.py MODEL DOCUMENTS [--texts 32] [--clients 64] [--seconds 60] [--workers 1] [--out F]

Starts the service on a free port and requests labels of the documents, `--texts` of them per request, for `--seconds`
after a warm-up of five seconds. The clients are one process with one thread that polls all sockets; requests are
prepared as bytes beforehand. The status of every response is checked, and every 50th response is compared with
`model.predict`. Before and after, without the service, a separate process predicts all documents at once, three times;
the best of all six is the reference, although clients and service share the cores.

Compared with target values: texts per second relative to `predict` (at 32 texts), the 99th percentile of the latency
relative to the mean of a queue served in order (at one text), CPU time of the event loop per request, and private
memory in the last ten seconds relative to the first ten. CPU times come from /proc: Linux only. Cores used by other
programs meanwhile are reported: results are only meaningful if there are almost none.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import re
import resource
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import xmtc

LABELS = 5
WARM_UP = 5.0
CHECK_EVERY = 50
TRIES = 3
PER_TEXT_DOCUMENTS = 2000
"""Documents predicted in small batches, to measure their cost without HTTP."""
MOMENT = 10
"""Seconds at both ends over which memory is averaged."""
TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    given = arguments()
    texts = read_texts(given.documents, given.limit)
    requests = prepared(texts, given.texts)
    before = apart(bulk, given.model, given.documents, given.limit, True)
    expected = before.pop("answers")
    load, service = drive(
        given, requests, [expected[at : at + given.texts] for at in range(0, len(texts), given.texts)]
    )
    after = apart(bulk, given.model, given.documents, given.limit, False)
    found = figures(given, load, service, max(before["documents a second"], after["documents a second"]))
    if given.texts == 1:
        size = max(1, round(service["mean batch"] or 1))
        alone = apart(in_batches, given.model, given.documents, given.limit, size)
        found["predict alone, ms of processor a text, in batches of the mean size"] = round(alone, 3)
    report = {
        "model": service["model"],
        "documents": len(texts),
        "characters a document": round(sum(map(len, texts)) / len(texts)),
        **{name: getattr(given, name) for name in ("texts", "clients", "seconds", "workers")},
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "xmtc": xmtc.__version__,
        "predict in bulk": {"before": before, "after": after},
        **found,
    }
    show(report)
    if given.out is not None:
        given.out.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")


def read_texts(documents: Path, limit: int) -> list[str]:
    texts: list[str] = xmtc.read(documents).text().to_pylist()
    return texts[:limit] if limit else texts


def prepared(texts: list[str], at_once: int) -> list[bytes]:
    """Whole requests, head and body."""
    found = []
    for start in range(0, len(texts), at_once):
        body = json.dumps({"texts": texts[start : start + at_once], "k": LABELS}, ensure_ascii=False).encode()
        head = (
            "POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        found.append(head.encode() + body)
    return found


def apart(call: Any, *given: Any) -> Any:
    """The call's result, from a process of its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(call, *given).result()


def bulk(model: Path, documents: Path, limit: int, with_answers: bool) -> dict[str, Any]:
    """Documents a second when `predict` gets all of them at once, and the processor time of one."""
    texts, loaded = read_texts(documents, limit), xmtc.load(model)
    loaded.predict(texts[:300], LABELS)  # compiles, and brings the weights into memory
    best = processor = float("inf")
    begun, busy, own = time.perf_counter(), busy_time(), time.process_time()
    for _ in range(TRIES):
        started, spent = time.perf_counter(), time.process_time()
        answers = loaded.predict(texts, LABELS)
        best = min(best, time.perf_counter() - started)
        processor = min(processor, time.process_time() - spent)
    found: dict[str, Any] = {
        "documents a second": round(len(texts) / best, 1),
        "ms of processor a document": round(1000 * processor / len(texts), 3),
        "cores of others": round((busy_time() - busy - (time.process_time() - own)) / (time.perf_counter() - begun), 2),
    }
    if with_answers:
        scores = [row[row > -np.inf] for row in answers.scores]
        found["answers"] = list(zip(answers.keys(), scores, strict=True))
    return found


def in_batches(model: Path, documents: Path, limit: int, size: int) -> float:
    """Milliseconds of processor time that `predict` takes for a text in batches of this size."""
    texts, loaded = read_texts(documents, limit)[:PER_TEXT_DOCUMENTS], xmtc.load(model)
    loaded.predict(texts[:300], LABELS)
    started = time.process_time()
    for start in range(0, len(texts), size):
        loaded.predict(texts[start : start + size], LABELS)
    return 1000 * (time.process_time() - started) / len(texts)


def drive(given: argparse.Namespace, requests: list[bytes], expected: list[Any]) -> tuple[Load, dict[str, Any]]:
    """The service started, put under load and stopped; what the clients saw, and what it said about itself."""
    with tempfile.TemporaryDirectory() as folder, open(Path(folder) / "said", "w+") as said:
        command = [sys.executable, "-m", "xmtc", "serve", str(given.model), "--port", "0"]
        process = subprocess.Popen([*command, "--workers", str(given.workers)], stdout=said, stderr=said)
        try:
            port = wait_for_port(process, Path(said.name))
            load = Load(port, process.pid, requests, expected, given.clients)
            load.run(given.seconds)
            told = fetch(port, "/metrics")
            model = json.loads(fetch(port, "/v1/models"))["models"][0]
            process.send_signal(signal.SIGTERM)
            stopped = process.wait(60)
        finally:
            process.kill()
            process.wait()
    about = {key: model[key] for key in ("name", "kind", "labels")}
    return load, {"model": about, "mean batch": mean_batch(told), "exit status": stopped}


def wait_for_port(process: subprocess.Popen[bytes], said: Path) -> int:
    until = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < until:
        found = re.search(r"^serving .* at http://127\.0\.0\.1:(\d+)/", said.read_text(), re.MULTILINE)
        if found:
            return int(found[1])
        time.sleep(0.1)
    sys.exit(f"xmtc serve did not come up. It said:\n{said.read_text()}")


def fetch(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        return str(answer.read().decode())


def mean_batch(metrics: str) -> float | None:
    """Texts that were predicted together on average, where the service counts them."""
    counts = dict(re.findall(r"^xmtc_(texts|batches)_total\{[^}]*\} ([\d.e+]+)$", metrics, re.MULTILINE))
    return round(float(counts["texts"]) / float(counts["batches"]), 2) if len(counts) == 2 else None


@dataclass(slots=True)
class Client:
    """A connection, the request on its way and what came back so far."""

    socket: socket.socket
    number: int = 0
    since: float = 0.0
    left: memoryview = field(default_factory=lambda: memoryview(b""))
    received: bytes = b""
    wanted: int = 0  # length of the whole answer; 0 until its head is there
    busy: bool = False


class Load:
    """Clients in a closed loop: each sends its next request once the last one is answered."""

    def __init__(self, port: int, server: int, requests: list[bytes], expected: list[Any], clients: int) -> None:
        self.port, self.server, self.requests, self.expected = port, server, requests, expected
        self.poll = select.epoll()
        self.clients: dict[int, Client] = {}
        self.next = self.answered = self.texts = self.checked = self.wrong = 0
        self.latencies: list[float] = []
        self.errors: dict[str, int] = {}
        self.memory: list[dict[str, int]] = []
        self.seconds = self.others = 0.0
        self.processor: dict[str, float] = {}
        self.sending = True
        for _ in range(clients):
            self.send(self.connect())

    def run(self, seconds: float) -> None:
        self.until(time.perf_counter() + WARM_UP)
        self.latencies, self.memory, self.errors, self.answered, self.texts = [], [], {}, 0, 0
        started, spent, busy = time.perf_counter(), processor_time(self.server), busy_time()
        own = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
        self.until(started + seconds)
        self.seconds = time.perf_counter() - started
        self.processor = {name: value - spent.get(name, 0) for name, value in processor_time(self.server).items()}
        self.processor["clients"] = sum(resource.getrusage(resource.RUSAGE_SELF)[:2]) - own
        self.others = (busy_time() - busy - sum(self.processor.values())) / self.seconds
        measured = self.latencies, self.memory, self.errors, self.answered, self.texts
        self.sending = False
        self.until(time.perf_counter() + 10)
        self.latencies, self.memory, self.errors, self.answered, self.texts = measured
        for client in self.clients.values():
            client.socket.close()

    def until(self, end: float) -> None:
        sample = now = time.perf_counter()
        while now < end and (self.sending or any(client.busy for client in self.clients.values())):
            if now >= sample:
                self.memory.append(memory_of(self.server))
                sample += 1.0
            for number, event in self.poll.poll(max(0.0, min(end, sample) - now)):
                client = self.clients[number]
                if event & select.EPOLLOUT:
                    self.push(client)
                if event & ~select.EPOLLOUT:
                    self.receive(client)
            now = time.perf_counter()

    def connect(self) -> Client:
        made = socket.create_connection(("127.0.0.1", self.port))
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        made.setblocking(False)
        client = self.clients[made.fileno()] = Client(made)
        self.poll.register(made, select.EPOLLIN)
        return client

    def send(self, client: Client) -> None:
        client.number, self.next = self.next, (self.next + 1) % len(self.requests)
        client.left, client.received, client.wanted = memoryview(self.requests[client.number]), b"", 0
        client.since, client.busy = time.perf_counter(), True
        self.push(client)

    def push(self, client: Client) -> None:
        """As much of the request as the socket takes."""
        try:
            client.left = client.left[client.socket.send(client.left) :]
        except BlockingIOError:
            pass
        except OSError:
            client.left = memoryview(b"")  # that it is closed is seen when the answer is read
        self.poll.modify(client.socket, select.EPOLLIN | (select.EPOLLOUT if client.left else 0))

    def receive(self, client: Client) -> None:
        try:
            came = client.socket.recv(1 << 18)
        except OSError:
            came = b""
        if not came:
            return self.again(client, "connection closed")
        client.received += came
        if not client.wanted:
            head = client.received.find(b"\r\n\r\n")
            if head < 0:
                return None
            length = re.search(rb"\r\ncontent-length: *(\d+)", client.received[:head], re.IGNORECASE)
            if length is None:
                return self.again(client, "answer without a length")
            client.wanted = head + 4 + int(length[1])
        if len(client.received) >= client.wanted:
            self.done(client)
        return None

    def again(self, client: Client, error: str) -> None:
        """Another connection in place of one that is of no use any more."""
        self.errors[error] = self.errors.get(error, 0) + 1
        self.poll.unregister(client.socket)
        del self.clients[client.socket.fileno()]
        client.socket.close()
        if self.sending:
            self.send(self.connect())

    def done(self, client: Client) -> None:
        self.latencies.append(time.perf_counter() - client.since)
        self.answered += 1
        self.texts += len(self.expected[client.number])
        client.busy = False
        if client.received[9:12] != b"200":
            status = client.received[9:12].decode("latin-1")
            self.errors[status] = self.errors.get(status, 0) + 1
        elif self.answered % CHECK_EVERY == 0:
            self.check(client)
        if self.sending:
            self.send(client)

    def check(self, client: Client) -> None:
        rows = json.loads(client.received.partition(b"\r\n\r\n")[2])["predictions"]
        found = [
            ([label["key"] for label in row["labels"]], [label["score"] for label in row["labels"]]) for row in rows
        ]
        right = self.expected[client.number]
        same = len(found) == len(right) and all(
            keys == true and np.array_equal(np.array(scores, np.float32), given)
            for (keys, scores), (true, given) in zip(found, right, strict=True)
        )
        self.checked, self.wrong = self.checked + 1, self.wrong + (not same)


def processes(root: int) -> list[int]:
    """A process and all that it started."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue  # it has ended
    found = [root]
    for known in found:
        found += [process for process, parent in parents.items() if parent == known]
    return found


def processor_time(root: int) -> dict[str, float]:
    """Seconds by kind of thread: the first of each process, on which its event loop runs, and all others."""

    def seconds(stat: Path) -> float:
        return sum(map(int, stat.read_text().rpartition(")")[2].split()[11:13])) / TICKS

    folders = [Path(f"/proc/{process}") for process in processes(root)]
    total = sum(seconds(folder / "stat") for folder in folders)
    first = sum(seconds(folder / "task" / folder.name / "stat") for folder in folders)
    return {"event loop": first, "other threads": total - first}


def busy_time() -> float:
    """Seconds for which all cores together were at work, for whomever."""
    user, nice, system, _, _, *interrupts = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9])
    return (user + nice + system + sum(interrupts)) / TICKS


def memory_of(root: int) -> dict[str, int]:
    """Kilobytes of the service's processes together; pages that several share are counted by their shares."""
    totals = {"Rss": 0, "Pss": 0, "Private_Dirty": 0, "Anonymous": 0}
    for process in processes(root):
        try:
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            name, _, value = line.partition(":")
            if name in totals:
                totals[name] += int(value.split()[0])
    return totals


def figures(given: argparse.Namespace, load: Load, service: dict[str, Any], bulk_rate: float) -> dict[str, Any]:
    rate, texts = load.answered / load.seconds, load.texts / load.seconds
    low = {name: np.mean([sample[name] for sample in load.memory[:MOMENT]]) / 1024 for name in load.memory[0]}
    high = {name: np.mean([sample[name] for sample in load.memory[-MOMENT:]]) / 1024 for name in load.memory[0]}
    latency = np.percentile(load.latencies, [50, 90, 99, 100]) * 1000
    loop = 1000 * load.processor["event loop"] / load.answered
    grown = high["Private_Dirty"] / low["Private_Dirty"] - 1
    share, turns = texts / bulk_rate, 2000 * given.clients / rate
    bars = [
        ("errors", sum(load.errors.values()), "0", not load.errors),
        (f"wrong answers of {load.checked:,} looked at", load.wrong, "0", not load.wrong and load.checked > 0),
        ("exit status after the end", service["exit status"], "0", service["exit status"] == 0),
        ("event loop, ms of processor a request", round(loop, 3), "≤ 1", loop <= 1),
        ("private memory grown, %", round(100 * grown, 2), "≤ 2", grown <= 0.02),
    ]
    if given.texts == 32:
        bars.append(("texts a second ÷ predict in bulk", round(share, 3), "≥ 0.8", share >= 0.8))
    if given.texts == 1:
        bars.append(("p99, ms", round(latency[2], 1), f"≤ {turns:.1f} = 2 × clients ÷ rate", latency[2] <= turns))
    return {
        "requests a second": round(rate, 1),
        "texts a second": round(texts, 1),
        "texts a second ÷ predict in bulk": round(share, 3),
        "latency ms": dict(zip(("p50", "p90", "p99", "max"), latency.round(1).tolist(), strict=True)),
        "errors": load.errors,
        "seconds": round(load.seconds, 1),
        "cores of others": round(load.others, 2),
        "processor seconds": {name: round(value, 2) for name, value in load.processor.items()},
        "service, ms of processor a request": round(
            1000 * (load.processor["event loop"] + load.processor["other threads"]) / load.answered, 3
        ),
        "texts in a batch, mean": service["mean batch"],
        "memory MB, first ten seconds": {name: round(value, 1) for name, value in low.items()},
        "memory MB, last ten seconds": {name: round(value, 1) for name, value in high.items()},
        "bars": [{"what": what, "found": found, "bar": bar, "met": bool(met)} for what, found, bar, met in bars],
    }


def show(report: dict[str, Any]) -> None:
    for name, value in report.items():
        if name != "bars":
            print(f"{name}: {json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else value}")
    print()
    for line in report["bars"]:
        print(f"{line['what']:45}  {line['found']!s:>8}  {line['bar']:28}  {'met' if line['met'] else 'NOT MET'}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("documents", type=Path)
    parser.add_argument("--texts", type=int, default=32, help="texts in a request")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--limit", type=int, default=0, help="take only the first of the documents")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
