"""Fetching data sets: servers that break off, change their mind or lie, and archives that should not be trusted."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import os
import random
import re
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from xmtc.cli.data import next_commands, run_get
from xmtc.core.errors import ConfigError, DataError
from xmtc.core.files import locked
from xmtc.core.progress import Task, silent
from xmtc.data import downloads, http_download, read
from xmtc.data.archives import unpack
from xmtc.data.catalogue import CATALOGUE, DataSet, Lines, Matched, Numbered, Part, RemoteFile, Renamed, Tabbed, find
from xmtc.data.downloads import Fetched, fetch
from xmtc.data.formats import FORMATS
from xmtc.data.preparation import prepare
from xmtc.data.vocabularies import read_vocabulary
from xmtc.workflows.data_requests import FetchRequest

CONTENT = random.Random(0).randbytes(300_000)
DATE = "Mon, 06 Jan 2020 10:00:00 GMT"


@dataclass
class Server:
    """A web server with one file under any name, and the bad habits that a test gives it."""

    content: bytes = CONTENT
    headers: dict[str, str] = field(default_factory=lambda: {"ETag": '"one"'})
    ranges: bool = True
    heeds_if_range: bool = True
    says_length: bool = True
    breaks_after: list[int] = field(default_factory=list)
    """Bytes after which the connection is cut, one for each answer; then no more."""
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    """Answers without the file that come first."""
    stalls: float = 0.0
    """Seconds of silence in the middle of the first answer."""
    url: str = ""
    asked: list[dict[str, str]] = field(default_factory=list)
    """The headers of each request."""
    sent: int = 0

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        asked = {name.lower(): value for name, value in handler.headers.items()}
        self.asked.append(asked)
        if self.answers:
            status, headers = self.answers.pop(0)
            handler.send_response(status)
            for name, value in {"Content-Length": "0", **headers}.items():
                handler.send_header(name, value)
            handler.end_headers()
            return
        start, status = 0, 200
        valid = asked.get("if-range") in (self.headers.get("ETag"), self.headers.get("Last-Modified"))
        if self.ranges and "range" in asked and (valid or not self.heeds_if_range):
            start, status = int(asked["range"].removeprefix("bytes=").removesuffix("-")), 206
        if start >= len(self.content):
            handler.send_error(416)
            return
        handler.send_response(status)
        if self.says_length:
            handler.send_header("Content-Length", str(len(self.content) - start))
        if status == 206:
            handler.send_header("Content-Range", f"bytes {start}-{len(self.content) - 1}/{len(self.content)}")
        for name, value in self.headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        body = self.content[start:]
        if self.breaks_after:
            body = body[: self.breaks_after.pop(0)]
        if self.stalls:
            handler.wfile.write(body[:1000])
            handler.wfile.flush()
            seconds, self.stalls = self.stalls, 0.0
            time.sleep(seconds)
            return
        self.sent += len(body)
        handler.wfile.write(body)


@contextmanager
def running(server: Server) -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.answer(self)

        def log_message(self, *words: Any) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        http.daemon_threads = True
        server.url = f"http://127.0.0.1:{http.server_port}/data"
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            http.shutdown()
            thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    with running(Server()) as started:
        yield started


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_download, "PAUSES", (0.0, 0.0, 0.0))
    monkeypatch.setattr(http_download, "TIMEOUT", 5.0)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def plain(
    url: str = "https://example.org/thing.bin",
    size: int | None = None,
    sha: str | None = None,
    by_hand: str = "",
    **more: Any,
) -> DataSet:
    """A data set of one file that is read as it is."""
    file = RemoteFile(url, size=size, sha256=sha, by_hand=by_hand, saved_as="thing.bin")
    part = Part("train", "thing.bin", "jsonl")
    return DataSet("thing", "a thing", 1, 0, 1, "https://example.org/home", (file,), (part,), **more)


def get(server: Server, folder: Path, dataset: DataSet | None = None, **more: Any) -> Fetched:
    return fetch(dataset or plain(), folder, mirror=server.url, **more)


def refused(server: Server, folder: Path, dataset: DataSet | None = None) -> str:
    """The one line that the user sees."""
    with pytest.raises(DataError) as caught:
        get(server, folder, dataset)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# ---- the catalogue


def test_every_entry_can_be_fetched_and_read_by_what_it_says():
    for name, entry in CATALOGUE.items():
        assert name == entry.name == name.lower()
        assert re.fullmatch(r"[a-z0-9.-]+", name)
        plain_files = {file.name for file in entry.files if not file.is_archive}
        assert sum(file.is_archive for file in entry.files) <= 1, f"{name}: one folder for two archives"
        assert len(plain_files) + sum(file.is_archive for file in entry.files) == len(entry.files)
        uses = [part.use for part in entry.parts]
        assert uses[0] == "train"
        assert len(set(uses)) == len(uses)
        assert ("test" in uses) == (entry.test > 0)
        for part in entry.parts:
            assert part.file_format in FORMATS
            assert bool(part.making) == bool(part.name), f"{name}: what is made has a name, and only that"
            assert part.source in plain_files or len(plain_files) < len(entry.files)
            assert part.name not in plain_files, f"{name}: {part.name} would be written over what was fetched"
        for file in entry.files:
            assert re.match(r"https?://", file.url)
            assert re.fullmatch(r"[\w.-]+", file.name)
            assert file.sha256 is None or re.fullmatch("[0-9a-f]{64}", file.sha256)


def test_the_page_on_data_sets_names_each_of_them():
    page = (Path(__file__).parents[2] / "docs" / "datasets.md").read_text()
    for name, entry in CATALOGUE.items():
        assert f"`{name}`" in page, f"docs/datasets.md lacks {name}"
        assert entry.home in page


def test_names_in_any_case_and_the_nearest_for_an_unknown_one():
    assert find("EURLEX57K").name == "eurlex57k"
    with pytest.raises(ConfigError, match=r"no data set 'coking'.* Did you mean 'cooking'\? List them with: xmtc data"):
        find("coking")


# ---- a whole data set


def cooking_archive(lines: int = 15_404) -> tuple[bytes, list[str]]:
    text = [f"__label__a __label__b{number} question {number}" for number in range(lines)]
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in (("cooking.stackexchange.txt", "\n".join(text) + "\n"), ("readme.txt", "…")):
            member = tarfile.TarInfo(name)
            member.size = len(content.encode())
            archive.addfile(member, io.BytesIO(content.encode()))
    return packed.getvalue(), text


def test_cooking_from_the_wire_to_the_next_command(server, tmp_path, monkeypatch):
    server.content, lines = cooking_archive()
    said: list[str] = []
    run_get(FetchRequest(name="cooking", out=tmp_path, mirror=server.url), silent, said.append)
    place = tmp_path / "cooking"
    assert (place / "train.txt").read_text().splitlines() == lines[:12_404]
    assert (place / "test.txt").read_text().splitlines() == lines[-3_000:]
    documents = read(place / "test.txt")
    assert documents.text().to_pylist()[0] == "question 12404"
    assert documents.label_index is not None
    assert len(documents.label_index) == 3_001
    assert names(place) == ["cooking.stackexchange.tar.gz", "download.json", "files", "test.txt", "train.txt"]
    record = json.loads((place / "download.json").read_text())["files"]["cooking.stackexchange.tar.gz"]
    assert record["sha256"] == sha256(server.content)
    assert record["url"] == f"{server.url}/cooking.stackexchange.tar.gz"
    assert record["size"] == len(server.content)
    output = "\n".join(said)
    assert "there is no published checksum to verify" in output
    assert "unpacked: 2 files" in output
    assert output.splitlines()[-2:] == [
        f"  xmtc train {place}/train.txt --out cooking-model",
        f"  xmtc evaluate cooking-model {place}/test.txt",
    ]

    again = fetch("cooking", tmp_path, mirror=server.url)
    assert len(server.asked) == 1, "what is there is not fetched again"
    assert [file.how for file in again.files] == ["there"]
    assert (again.unpacked, again.notes) == (None, ())
    assert again.parts == {"train": place / "train.txt", "test": place / "test.txt"}

    (place / "cooking.stackexchange.tar.gz").unlink()  # to save space
    (place / "train.txt").write_text("mine")
    again = fetch("cooking", tmp_path, mirror=server.url)
    assert [file.how for file in again.files] == ["used"]
    assert (place / "train.txt").read_text() == "mine", "what the user has changed is left alone"
    (place / "test.txt").unlink()
    fetch("cooking", tmp_path, mirror=server.url)
    assert (place / "test.txt").read_text().splitlines() == lines[-3_000:]
    assert len(server.asked) == 1

    (place / "files" / "cooking.stackexchange.txt").unlink()
    (place / "test.txt").unlink()
    again = fetch("cooking", tmp_path, mirror=server.url)
    assert len(server.asked) == 2
    assert again.unpacked is not None
    assert (place / "test.txt").read_text().splitlines() == lines[-3_000:]


def test_an_archive_that_lacks_what_it_should_hold(server, tmp_path):
    server.content, _ = cooking_archive(5_000)
    message = refused(server, tmp_path, find("cooking"))
    assert "cooking.stackexchange.txt: 5,000 lines, expected 12,404" in message
    assert "train.txt" not in names(tmp_path / "cooking")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("other.txt", "x")
    server.content = packed.getvalue()
    (tmp_path / "cooking" / "download.json").unlink()
    (tmp_path / "cooking" / "cooking.stackexchange.tar.gz").unlink()
    assert "the download contains no cooking.stackexchange.txt" in refused(server, tmp_path, find("cooking"))


def test_eurlex57k_becomes_documents_with_labels_and_names(server, tmp_path, monkeypatch):
    def row(number: int) -> dict[str, Any]:
        head = {"celex_id": f"3{number}", "title": "t", "header": "Head\nlines", "recitals": "Whereas"}
        return {**head, "main_body": ["Article 1", "Article 2"], "eurovoc_concepts": ["192", "862"]}

    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for number, stem in enumerate(("train", "dev", "test")):
            archive.writestr(f"dataset/{stem}.jsonl", json.dumps(row(number)) + "\n")
        archive.writestr("__MACOSX/dataset/._train.jsonl", "junk")
    entry = find("eurlex57k")
    archive_file, concepts = entry.files
    known = RemoteFile(archive_file.url, len(packed.getvalue()), sha256(packed.getvalue()))
    entry = DataSet(**{**vars(entry), "files": (known, concepts)})
    with running(Server(json.dumps({"id": "192", "title": "health"}).encode() + b"\n")) as other:
        server.content = packed.getvalue()
        plain_opener = http_download._opened

        def by_name(url: str, *more: Any) -> Any:
            return plain_opener(url.replace(server.url, other.url) if url.endswith("concepts.jsonl") else url, *more)

        monkeypatch.setattr(http_download, "_opened", by_name)
        done = fetch(entry, tmp_path, mirror=server.url)
    assert [file.published for file in done.files] == [True, False]
    assert names(tmp_path / "eurlex57k" / "files") == ["dev.jsonl", "test.jsonl", "train.jsonl"]
    documents = read(done.parts["train"])
    assert documents.text().to_pylist() == ["Head\nlines\nWhereas\nArticle 1\nArticle 2"]
    assert documents.document_ids() == ["30"]
    assert documents.label_index is not None
    assert sorted(documents.label_index.keys) == ["192", "862"]
    assert read(done.parts["valid"]).document_ids() == ["31"]
    assert list(read_vocabulary(done.parts["labels"]).index.names) == ["health"]
    assert [line.split(" --")[0] for line in next_commands(done)] == [
        f"xmtc train {tmp_path}/eurlex57k/train.jsonl",
        f"xmtc evaluate eurlex57k-model {tmp_path}/eurlex57k/test.jsonl",
    ]
    assert (
        f"--valid {tmp_path}/eurlex57k/dev.jsonl --labels {tmp_path}/eurlex57k/labels.jsonl" in next_commands(done)[0]
    )


def test_two_files_without_an_archive(tmp_path):
    with running(Server(bz2.compress(b"1,2 3:4\n"))) as server:
        done = fetch("mediamill", tmp_path, mirror=server.url + "/")
        assert done.parts["test"] == tmp_path / "mediamill" / "test-exp1.svm.bz2"
        assert bz2.decompress(done.parts["train"].read_bytes()) == b"1,2 3:4\n"
        assert len(fetch("bibtex", tmp_path, mirror=server.url).parts) == 1
        assert len(next_commands(fetch("bibtex", tmp_path))) == 1, "without a test file there is nothing to measure on"


def test_files_that_were_made_into_others_may_go(tmp_path):
    with running(Server(bz2.compress(b"7\tE11 M12\trecov excit\n"))) as server:
        done = fetch("rcv1", tmp_path, mirror=server.url)
        for file in done.files:
            file.path.unlink()
        again = fetch("rcv1", tmp_path, mirror=server.url)
        assert [file.how for file in again.files] == ["used", "used"]
        assert len(server.asked) == 2
        done.parts["test"].unlink()
        again = fetch("rcv1", tmp_path, mirror=server.url)
        assert [file.how for file in again.files] == ["used", "fetched"]
    assert read(again.parts["test"]).text().to_pylist() == ["recov excit"]


def test_a_made_file_that_changed_since_is_told(tmp_path):
    with running(Server(bz2.compress(b"7\tE11 M12\trecov excit\n"))) as server:
        done = fetch("rcv1", tmp_path, mirror=server.url)
        done.parts["test"].write_bytes(b"")
        (note,) = fetch("rcv1", tmp_path, mirror=server.url).notes
        assert note.startswith(f"{done.parts['test']} has 0 bytes but had ")
        assert note.endswith("delete it to create it again")
        done.parts["test"].unlink()
        assert not [note for note in fetch("rcv1", tmp_path, mirror=server.url).notes if "bytes" in note]


def test_an_archive_that_cannot_be_unpacked_is_no_measure(tmp_path):
    whole = pecos_archive()
    with running(Server(whole[: len(whole) // 2])) as server:
        with pytest.raises(DataError, match="damaged"):
            fetch("eurlex-4k", tmp_path, mirror=server.url)
        archive = next((tmp_path / "eurlex-4k").glob("*.tar.gz"))
        archive.unlink()
        server.content = whole
        assert len(read(fetch("eurlex-4k", tmp_path, mirror=server.url).parts["train"])) == 3


def pecos_archive(texts: int = 3) -> bytes:
    matrix = io.BytesIO()
    sp.save_npz(matrix, sp.csr_matrix(np.array([[0, 1], [1, 1], [1, 0]], dtype=np.float32)))
    files = {
        "X.trn.txt": b"text\n" * texts,
        "X.tst.txt": b"text\n" * 3,
        "Y.trn.npz": matrix.getvalue(),
        "Y.tst.npz": matrix.getvalue(),
        "output-items.txt": b"zero\none\n",
        "tfidf-attnxml/X.trn.npz": b"features",
    }
    archive_bytes = io.BytesIO()
    with tarfile.open(fileobj=archive_bytes, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"xmc-base/eurlex-4k/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return archive_bytes.getvalue()


def test_texts_labels_and_names_of_pecos(server, tmp_path):
    server.content = pecos_archive()
    done = fetch("eurlex-4k", tmp_path, mirror=server.url)
    documents = read(done.parts["train"], vocabulary=done.parts["labels"])
    assert documents.labels is not None
    assert documents.labels.toarray().tolist() == [[0, 1], [1, 1], [1, 0]]
    assert documents.label_index is not None
    assert list(documents.label_index.names) == ["zero", "one"]
    assert (tmp_path / "eurlex-4k" / "files" / "tfidf-attnxml" / "X.trn.npz").is_file()
    server.content = pecos_archive(texts=2)
    message = refused(server, tmp_path / "other", find("eurlex-4k"))
    assert "X.trn.txt: 2 lines for 3 rows of Y.trn.npz" in message


# ---- breaking off and going on


def test_goes_on_where_the_connection_broke_off(server, tmp_path):
    server.breaks_after = [100_000, 0, 50_000]
    done = get(server, tmp_path)
    assert done.parts["train"].read_bytes() == CONTENT
    assert [asked.get("range") for asked in server.asked] == [None, "bytes=100000-", "bytes=100000-", "bytes=150000-"]
    assert server.asked[1]["if-range"] == '"one"'
    assert server.sent == len(CONTENT), "no byte twice"
    assert names(tmp_path / "thing") == ["download.json", "thing.bin"]


def test_a_later_call_goes_on_too(server, tmp_path, monkeypatch):
    monkeypatch.setattr(http_download, "PAUSES", ())
    server.breaks_after = [100_000]
    message = refused(server, tmp_path)
    place = tmp_path / "thing"
    assert message == (
        f"{server.url}/thing.bin: the connection was lost. Run the same command again to resume: "
        f"{place}/thing.bin.part has 100,000 bytes."
    )
    assert names(place) == ["thing.bin.part", "thing.bin.part.json"]
    done = get(server, tmp_path)
    assert done.files[0].how == "resumed"
    assert done.parts["train"].read_bytes() == CONTENT
    assert server.sent == len(CONTENT)
    assert names(place) == ["download.json", "thing.bin"]


def test_a_part_that_was_whole_needs_no_request(server, tmp_path, monkeypatch):
    monkeypatch.setattr(downloads._Fetching, "accept", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        get(server, tmp_path)
    monkeypatch.undo()
    assert (tmp_path / "thing" / "thing.bin.part").stat().st_size == len(CONTENT)
    done = get(server, tmp_path)
    assert len(server.asked) == 1
    assert done.parts["train"].read_bytes() == CONTENT


def test_gives_up_when_nothing_more_comes(server, tmp_path):
    server.breaks_after = [100_000] + [0] * 20
    message = refused(server, tmp_path)
    assert "the connection was lost (4 attempts). Run the same command again to resume: " in message
    assert message.endswith("thing.bin.part has 100,000 bytes.")
    assert len(server.asked) == 4


@pytest.mark.parametrize("headers", [{"ETag": '"one"'}, {"Last-Modified": DATE}])
def test_a_server_that_knows_no_ranges_starts_over(server, tmp_path, headers):
    server.headers, server.ranges, server.breaks_after = headers, False, [100_000]
    assert get(server, tmp_path).parts["train"].read_bytes() == CONTENT
    assert server.asked[1]["range"] == "bytes=100000-"
    assert server.sent == len(CONTENT) + 100_000


def test_a_server_that_knows_no_ranges_and_always_breaks_off(server, tmp_path):
    server.ranges, server.breaks_after = False, [100_000] * 20
    assert "(4 attempts)" in refused(server, tmp_path)
    assert len(server.asked) == 4


@pytest.mark.parametrize("headers", [{}, {"ETag": 'W/"weak"'}])
def test_without_a_sure_sign_of_the_version_it_starts_over(server, tmp_path, headers):
    server.headers, server.breaks_after = headers, [100_000]
    assert get(server, tmp_path).parts["train"].read_bytes() == CONTENT
    assert "range" not in server.asked[1]


@pytest.mark.parametrize("heeds", [True, False])
@pytest.mark.parametrize("name", ["ETag", "Last-Modified"])
@pytest.mark.parametrize("size", [300_000, 310_000, 90_000])
def test_a_file_that_changes_in_between_is_fetched_from_its_beginning(server, tmp_path, monkeypatch, heeds, name, size):
    """Whether the server heeds If-Range or goes on with the other file, which only its headers tell."""
    monkeypatch.setattr(http_download, "PAUSES", ())
    versions = {"ETag": ('"one"', '"two"'), "Last-Modified": (DATE, DATE.replace("2020", "2021"))}[name]
    server.headers, server.breaks_after, server.heeds_if_range = {name: versions[0]}, [100_000], heeds
    refused(server, tmp_path)
    server.content, server.headers = random.Random(1).randbytes(size), {name: versions[1]}
    monkeypatch.setattr(http_download, "PAUSES", (0.0,))
    assert get(server, tmp_path).parts["train"].read_bytes() == server.content


def test_another_address_starts_over(server, tmp_path, monkeypatch):
    monkeypatch.setattr(http_download, "PAUSES", ())
    server.breaks_after = [100_000]
    refused(server, tmp_path)
    with running(Server(CONTENT[::-1])) as other:
        assert get(other, tmp_path).parts["train"].read_bytes() == CONTENT[::-1]
        assert "range" not in other.asked[0]


@pytest.mark.parametrize("memory", ["", "{", "[]", '{"url": 1}', None])
def test_a_part_nobody_knows_anything_about_starts_over(server, tmp_path, memory):
    place = tmp_path / "thing"
    place.mkdir()
    (place / "thing.bin.part").write_bytes(b"something else")
    if memory is not None:
        (place / "thing.bin.part.json").write_text(memory)
    assert get(server, tmp_path).parts["train"].read_bytes() == CONTENT


def test_a_server_that_says_no_length(server, tmp_path):
    server.says_length = False
    assert get(server, tmp_path).parts["train"].read_bytes() == CONTENT


def test_silence_counts_as_breaking_off(server, tmp_path, monkeypatch):
    monkeypatch.setattr(http_download, "TIMEOUT", 0.2)
    server.stalls = 0.6
    started = time.monotonic()
    assert get(server, tmp_path).parts["train"].read_bytes() == CONTENT
    assert time.monotonic() - started < 5
    assert server.asked[1]["range"] == "bytes=1000-"


def test_a_server_that_never_answers(tmp_path, monkeypatch):
    import socket

    monkeypatch.setattr(http_download, "TIMEOUT", 0.1)
    monkeypatch.setattr(http_download, "PAUSES", ())
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        address = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        with pytest.raises(DataError, match=r"thing.bin: no response within 0.1 s. Run the same command again.$"):
            fetch(plain(), tmp_path, mirror=address)
    with pytest.raises(DataError, match=r"cannot be reached \(Connection refused\)"):
        fetch(plain(), tmp_path, mirror=address)


def test_no_network_is_told_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(http_download, "PAUSES", (60.0,))
    with pytest.raises(DataError, match="host not found, or no network"):
        fetch(plain("http://no-such-host.invalid/thing.bin"), tmp_path)


class Interrupting:
    """Progress that presses Ctrl-C after so many kilobytes."""

    def __init__(self, after: int) -> None:
        self.left = after

    @contextmanager
    def task(self, title: str, total: int | None = None) -> Iterator[Task]:
        yield self  # type: ignore[misc]

    def advance(self, steps: int = 1) -> None:
        self.left -= steps
        if self.left < 0:
            raise KeyboardInterrupt

    def note(self, words: str) -> None:
        return


def test_an_interrupt_leaves_the_part(server, tmp_path, monkeypatch):
    monkeypatch.setattr(http_download, "_BLOCK", 10_000)
    monkeypatch.setitem(CATALOGUE, "thing", plain())
    said: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        run_get(FetchRequest(name="thing", out=tmp_path, mirror=server.url), Interrupting(100), said.append)
    part = tmp_path / "thing" / "thing.bin.part"
    assert 90_000 <= part.stat().st_size < 200_000
    assert CONTENT.startswith(part.read_bytes())
    assert said[-1].endswith("bytes downloaded. To resume, repeat the command.")
    assert get(server, tmp_path).files[0].how == "resumed"
    assert (tmp_path / "thing" / "thing.bin").read_bytes() == CONTENT


# ---- sums and sizes


def test_a_published_sum_is_held(server, tmp_path):
    done = get(server, tmp_path, plain(size=len(CONTENT), sha=sha256(CONTENT)))
    assert done.files[0].published
    assert done.notes == ()


def test_a_wrong_sum_removes_what_arrived(server, tmp_path):
    message = refused(server, tmp_path, plain(sha=sha256(b"other")))
    assert message == (
        f"{server.url}/thing.bin: sha256 {sha256(CONTENT)}, expected {sha256(b'other')}. "
        "The download was deleted: run the same command again."
    )
    assert names(tmp_path / "thing") == []


def test_a_wrong_size_is_told_before_anything_is_fetched(server, tmp_path):
    message = refused(server, tmp_path, plain(size=5))
    assert f"thing.bin: {len(CONTENT):,} bytes, expected 5. The file has changed" in message
    assert names(tmp_path / "thing") == []
    server.says_length = False
    assert "300,000 bytes, expected 5. The download was deleted" in refused(server, tmp_path, plain(size=5))
    assert names(tmp_path / "thing") == []


def test_without_a_published_sum_the_first_one_counts(server, tmp_path):
    done = get(server, tmp_path)
    assert "no published checksum" in done.notes[0]
    date = json.loads((tmp_path / "thing" / "download.json").read_text())["files"]["thing.bin"]["date"]
    done.parts["train"].unlink()
    server.content = b"replaced at its source"
    message = refused(server, tmp_path)
    assert message == (
        f"{server.url}/thing.bin: differs from the file downloaded on {date}: "
        f"sha256 {sha256(server.content)}, expected {sha256(CONTENT)}. "
        f"Delete {tmp_path}/thing/download.json to accept the new file."
    )
    assert names(tmp_path / "thing") == ["download.json"]
    (tmp_path / "thing" / "download.json").unlink()
    assert get(server, tmp_path).parts["train"].read_bytes() == server.content


@pytest.mark.parametrize("published", [True, False])
def test_a_file_that_was_damaged_here_is_fetched_again(server, tmp_path, published):
    entry = plain(sha=sha256(CONTENT) if published else None)
    path = get(server, tmp_path, entry).parts["train"]
    path.write_bytes(CONTENT[:-1])
    done = get(server, tmp_path, entry)
    assert path.read_bytes() == CONTENT
    assert "unexpected sha256" in done.notes[0]
    assert len(server.asked) == 2


def test_a_damaged_record_is_told(server, tmp_path):
    get(server, tmp_path)
    for content in ("", "{}", '{"files": {"a": 1}, "unpacked": "", "made": {}}'):
        (tmp_path / "thing" / "download.json").write_text(content)
        assert "download.json: damaged (" in refused(server, tmp_path)


def test_a_page_in_place_of_the_file(server, tmp_path):
    server.content = b"<!DOCTYPE html><p>Sorry, we have moved"
    message = refused(server, tmp_path, find("cooking"))
    assert "the content does not match the file name: it starts with '<!DOCTYPE html>" in message
    assert "supervised-tutorial" in message
    assert names(tmp_path / "cooking") == [], "and is not remembered as the file that it should be"
    assert "the content does not match the file name" in refused(server, tmp_path)


# ---- answers without a file


def test_not_found_is_final(server, tmp_path):
    server.answers = [(404, {})]
    message = refused(server, tmp_path)
    assert message == (
        f"{server.url}/thing.bin: the server responded with 404 (Not Found). "
        "See https://example.org/home, or use --mirror."
    )
    assert len(server.asked) == 1


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_server_is_asked_again(server, tmp_path, status):
    server.answers = [(status, {})] * 2
    assert get(server, tmp_path).parts["train"].read_bytes() == CONTENT
    server.answers = [(status, {})] * 9
    assert f"the server responded with {status} (" in refused(server, tmp_path / "other")


def test_a_redirect_is_followed(server, tmp_path):
    with running(Server()) as other:
        other.answers = [(302, {"Location": f"{server.url}/elsewhere"})]
        assert get(other, tmp_path).parts["train"].read_bytes() == CONTENT
        assert len(server.asked) == 1


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://x/y", "data:text/plain,x"])
def test_a_redirect_to_anything_but_the_web_is_refused(server, tmp_path, target):
    server.answers = [(302, {"Location": target})]
    message = refused(server, tmp_path)
    assert f"redirects to '{target}'" in message or "302" in message
    assert names(tmp_path / "thing") == []


def test_a_redirect_in_circles_ends(server, tmp_path):
    server.answers = [(302, {"Location": "/data/thing.bin"})] * 50
    assert "the server responded with 302" in refused(server, tmp_path)


@pytest.mark.parametrize("mirror", ["ftp://example.org", "example.org", "/some/folder", "file:///tmp", "http://"])
def test_a_mirror_must_be_an_address(tmp_path, mirror):
    with pytest.raises(ConfigError, match="--mirror must be a URL"):
        fetch("cooking", tmp_path, mirror=mirror)


# ---- where it goes


def test_no_room(server, tmp_path, monkeypatch):
    monkeypatch.setattr(http_download.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 200_000})())
    assert "0 MB needed, 0 MB free. Free disk space or choose another folder with --out." in refused(server, tmp_path)


def test_a_disk_that_fills_up(server, tmp_path):
    place = tmp_path / "thing"
    place.mkdir()
    (place / "thing.bin.part").symlink_to("/dev/full")
    assert "thing.bin.part: cannot be written (No space left on device). Free disk space" in refused(server, tmp_path)


def test_places_that_cannot_be_used(server, tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot be created (Not a directory). Choose another folder with --out." in refused(
        server, tmp_path / "file"
    )
    (tmp_path / "thing" / "thing.bin").mkdir(parents=True)
    assert "thing.bin: exists and is not a file" in refused(server, tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission(server, tmp_path):
    tmp_path.chmod(0o500)
    assert "cannot be created (Permission denied)" in refused(server, tmp_path)


def test_one_call_at_a_time(server, tmp_path):
    (tmp_path / "thing").mkdir()
    with locked(tmp_path / "thing"):
        assert "another xmtc process is downloading to it" in refused(server, tmp_path)
    assert get(server, tmp_path).files[0].how == "fetched"


# ---- by hand


def test_by_hand(server, tmp_path, monkeypatch):
    entry = plain("https://example.org/page", by_hand="'Raw text'")
    with pytest.raises(DataError) as caught:
        fetch(entry, tmp_path)
    assert str(caught.value) == (
        "thing: cannot be downloaded automatically. Open https://example.org/page in a browser, choose 'Raw text', "
        f"save the file as {tmp_path}/thing/thing.bin, and run the same command again."
    )
    (tmp_path / "thing" / "thing.bin").write_bytes(CONTENT)  # the folder is there to save it in
    monkeypatch.setitem(CATALOGUE, "thing", entry)
    said: list[str] = []
    run_get(FetchRequest(name="thing", out=tmp_path, mirror=None), silent, said.append)
    assert f"{tmp_path}/thing/thing.bin: already present (300,000 bytes" in said[-1]
    assert said[-1].endswith(f"xmtc train {tmp_path}/thing/thing.bin --out thing-model")
    assert fetch(entry, tmp_path).files[0].how == "there"
    (tmp_path / "thing" / "thing.bin").write_bytes(b"another")
    with pytest.raises(
        DataError, match=r"differs from the file downloaded on .* Delete .*download.json to accept the new file"
    ):
        fetch(entry, tmp_path)
    done = get(server, tmp_path / "mirrored", entry)
    assert done.parts["train"].read_bytes() == CONTENT, "a mirror serves what needs a browser elsewhere"


def test_by_hand_and_saved_a_page_instead(tmp_path):
    place = tmp_path / "lf-wikiseealso-320k"
    place.mkdir()
    (place / "lf-wikiseealso-320k.zip").write_bytes(b"<html>Google Drive cannot scan this file for viruses")
    with pytest.raises(DataError, match=r"starts with '<html>Google Drive.*Delete it and see http"):
        fetch("lf-wikiseealso-320k", tmp_path)
    assert names(place) == ["lf-wikiseealso-320k.zip"]
    with zipfile.ZipFile(place / "lf-wikiseealso-320k.zip", "w") as archive:
        for name in ("trn.json.gz", "tst.json.gz", "lbl.json.gz"):
            row = {"uid": "u", "title": "See", "content": "also", "target_ind": [0]}
            archive.writestr(f"LF-WikiSeeAlso-320K/{name}", gzip.compress(json.dumps(row).encode() + b"\n"))
    done = fetch("lf-wikiseealso-320k", tmp_path)
    assert done.parts == {"train": place / "files" / "trn.json.gz", "test": place / "files" / "tst.json.gz"}
    documents = read(done.parts["train"])
    assert documents.label_index is not None
    assert list(documents.label_index.names) == ["See"]


def test_names_of_the_repository_vary(tmp_path):
    place = tmp_path / "eurlex-4k-xmlrepo"
    place.mkdir()
    with zipfile.ZipFile(place / "eurlex-4k-xmlrepo.zip", "w") as archive:
        for name in ("eurlex_train.txt", "eurlex_test.txt", "more/eurlex_old_train.txt", "readme.txt"):
            archive.writestr(f"Eurlex/{name}", "1 1 1\n0 0:1\n")
    done = fetch("eurlex-4k-xmlrepo", tmp_path)
    assert done.parts["train"] == place / "files" / "eurlex_train.txt"
    assert read(done.parts["train"]).features is not None


def test_the_list_of_data_sets(tmp_path):
    said: list[str] = []
    run_get(FetchRequest(name=None, out=tmp_path, mirror=None), silent, said.append)
    listed = "\n".join(said).splitlines()
    assert all(any(line.startswith(f"{name} ") for line in listed) for name in CATALOGUE)
    assert names(tmp_path) == []


# ---- archives


Member = tuple[str, bytes] | tarfile.TarInfo


def packed(path: Path, *members: Member) -> Path:
    """A tar or zip, as the name says."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for member in members:
                assert not isinstance(member, tarfile.TarInfo)
                archive.writestr(*member)
        return path
    kind = path.suffix.removeprefix(".")
    with tarfile.open(path, f"w:{'' if kind == 'tar' else kind}") as archive:  # type: ignore[call-overload]
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
                continue
            entry = tarfile.TarInfo(member[0])
            entry.size = len(member[1])
            archive.addfile(entry, io.BytesIO(member[1]))
    return path


KINDS = ["a.tar", "a.tar.gz", "a.tar.xz", "a.tar.bz2", "a.zip"]


@pytest.mark.parametrize("kind", KINDS)
def test_unpack(tmp_path, kind):
    archive = packed(tmp_path / kind, ("./top/one.txt", b"1"), ("top/in/two.txt", b"22"), ("__MACOSX/top/x", b"junk"))
    renamed = archive.rename(tmp_path / "told-by-content")
    done = unpack(renamed, tmp_path / "files")
    assert (done.files, done.size, done.left_out) == (2, 3, ())
    assert (tmp_path / "files" / "one.txt").read_bytes() == b"1"
    assert (tmp_path / "files" / "in" / "two.txt").read_bytes() == b"22"
    assert names(tmp_path) == ["files", "told-by-content"]


def test_unpack_takes_the_place_of_an_older_folder_or_leaves_it(tmp_path):
    unpack(packed(tmp_path / "old.tar", ("one.txt", b"old"), ("more.txt", b"")), tmp_path / "files")
    with pytest.raises(DataError):
        unpack(packed(tmp_path / "bad.tar", ("one.txt", b"new"), ("../two.txt", b"")), tmp_path / "files")
    assert (tmp_path / "files" / "one.txt").read_bytes() == b"old"
    unpack(packed(tmp_path / "new.zip", ("one.txt", b"new")), tmp_path / "files")
    assert names(tmp_path / "files") == ["one.txt"]
    assert (tmp_path / "files" / "one.txt").read_bytes() == b"new"
    assert names(tmp_path) == ["bad.tar", "files", "new.zip", "old.tar"]


@pytest.mark.parametrize("kind", ["a.tar.gz", "a.zip"])
@pytest.mark.parametrize(
    "name", ["/etc/evil", "../evil", "in/../../evil", "..", "C:\\evil", "..\\evil", "in\\..\\..\\evil", "//host/evil"]
)
def test_ways_out_of_the_folder_are_refused(tmp_path, kind, name):
    (tmp_path / "inner").mkdir()
    archive = packed(tmp_path / "inner" / kind, ("fine.txt", b"1"), (name, b"evil"))
    with pytest.raises(DataError, match=r"a path outside the target folder. Do not trust this file") as caught:
        unpack(archive, tmp_path / "inner" / "files")
    assert len(str(caught.value).splitlines()) == 1
    assert names(tmp_path / "inner") == [kind]
    assert names(tmp_path) == ["inner"]


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, target
    return entry


def test_links_and_devices_are_never_made(tmp_path):
    entries = [
        special("link", tarfile.SYMTYPE, "/etc"),
        special("hard", tarfile.LNKTYPE, "one.txt"),
        special("pipe", tarfile.FIFOTYPE),
        special("disk", tarfile.BLKTYPE),
        special("null", tarfile.CHRTYPE),
    ]
    done = unpack(packed(tmp_path / "a.tar.gz", ("one.txt", b"1"), *entries, ("two.txt", b"2")), tmp_path / "files")
    assert done.left_out == ("link", "hard", "pipe", "disk", "null")
    assert names(tmp_path / "files") == ["one.txt", "two.txt"]
    # A link that a later file would be written through: the file lands in a folder of its own.
    done = unpack(
        packed(tmp_path / "b.tar", ("x", b""), special("sub", tarfile.SYMTYPE, str(tmp_path)), ("sub/evil", b"!")),
        tmp_path / "other",
    )
    assert (tmp_path / "other" / "sub" / "evil").is_file()
    assert not (tmp_path / "evil").exists()


def test_a_link_in_a_zip_is_never_made(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        entry = zipfile.ZipInfo("link")
        entry.create_system, entry.external_attr = 3, 0o120777 << 16
        archive.writestr(entry, "/etc/passwd")
        archive.writestr("one.txt", "1")
    done = unpack(tmp_path / "a.zip", tmp_path / "files")
    assert done.left_out == ("link",)
    assert names(tmp_path / "files") == ["one.txt"]


@pytest.mark.parametrize("kind", ["a.tar.gz", "a.tar.xz", "a.tar.bz2", "a.zip"])
def test_bombs(tmp_path, monkeypatch, kind):
    monkeypatch.setattr("xmtc.data.archives.SPARE", 100_000)
    archive = packed(tmp_path / kind, *((f"{number}.txt", bytes(1_000_000)) for number in range(4)))
    with pytest.raises(
        DataError, match=r"unpacks to more than 100 times its size. If you trust the file, unpack it manually"
    ):
        unpack(archive, tmp_path / "files")
    assert names(tmp_path) == [kind]


def test_a_header_that_swells(tmp_path, monkeypatch):
    monkeypatch.setattr("xmtc.data.archives.SPARE", 100_000)
    entry = tarfile.TarInfo("x" * 4_000_000)  # the name goes into a header of its own
    archive = packed(tmp_path / "a.tar.gz", entry)
    with pytest.raises(DataError, match="unpacks to more than"):
        unpack(archive, tmp_path / "files")


def test_too_many_files(tmp_path, monkeypatch):
    monkeypatch.setattr("xmtc.data.archives.MOST_FILES", 10)
    archive = packed(tmp_path / "a.zip", *((f"{number}", b"") for number in range(11)))
    with pytest.raises(DataError, match="contains more than 10 files"):
        unpack(archive, tmp_path / "files")
    assert names(tmp_path) == ["a.zip"]


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("kind", ["a.tar", "a.zip"])
@pytest.mark.parametrize("second", ["one", "one/two"])
def test_two_files_in_one_place(tmp_path, kind, second):
    with pytest.raises(DataError, match="contains two files named"):
        unpack(packed(tmp_path / kind, ("one", b"1"), (second, b"2")), tmp_path / "files")
    assert names(tmp_path) == [kind]


def damaged_archives() -> list[tuple[str, Callable[[bytes], bytes]]]:
    return [
        *((kind, lambda content: content[: len(content) // 2]) for kind in KINDS),
        ("a.tar.gz", lambda content: content[:40] + bytes(20) + content[60:]),
        ("a.zip", lambda content: content[:60] + bytes(20) + content[80:]),
        ("a.zip", lambda content: content.replace(b"\x14\x03\x14\x00\x00", b"\x14\x03\x14\x00\x01")),  # locked
        ("a.tar", lambda content: b"not an archive at all"),
        ("a.tar", lambda content: gzip.compress(b"text, compressed, and no tar" * 1000)),
        ("a.tar", lambda content: b""),
    ]


@pytest.mark.parametrize(("kind", "damage"), damaged_archives())
def test_damaged_archives(tmp_path, kind, damage):
    archive = packed(tmp_path / kind, ("one.bin", CONTENT[:50_000]), ("two.bin", CONTENT[50_000:100_000]))
    archive.write_bytes(damage(archive.read_bytes()))
    with pytest.raises(DataError) as caught:
        unpack(archive, tmp_path / "files")
    assert str(caught.value).startswith(f"{archive}: damaged, or not a tar or zip (")
    assert len(str(caught.value).splitlines()) == 1
    assert names(tmp_path) == [kind]


@pytest.mark.parametrize("kind", ["a.tar", "a.zip"])
def test_an_empty_archive(tmp_path, kind):
    with pytest.raises(DataError, match="contains no files"):
        unpack(packed(tmp_path / kind), tmp_path / "files")


def test_what_a_killed_call_left_is_swept_up(server, tmp_path):
    place = tmp_path / "thing"
    (place / ".files.0123.part").mkdir(parents=True)
    (place / ".files.0123.part" / "half").write_text("")
    (place / ".train.jsonl.4567.part").write_text("")
    (place / ".mine").write_text("")
    get(server, tmp_path)
    assert names(place) == [".mine", "download.json", "thing.bin"]


# ---- files made into files that can be read


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_texts_after_their_labels(tmp_path):
    source, target = tmp_path / "in.txt.gz", tmp_path / "out.jsonl"
    source.write_bytes(gzip.compress('E11 M12\trecov "excit"\n\tno labels\nC24\tgrößer\n'.encode()))
    assert prepare(source, Tabbed(), target) == []
    assert rows(target) == [
        {"text": 'recov "excit"', "labels": ["E11", "M12"]},
        {"text": "no labels", "labels": []},
        {"text": "größer", "labels": ["C24"]},
    ]
    source.write_bytes(b"2286\tE11 M12\trecov\r\n2287\tC24\tb\xff\n")
    assert prepare(source, Tabbed(), target)[0].startswith(f"{target}: 1 lines were not valid UTF-8")
    assert rows(target) == [
        {"id": "2286", "text": "recov", "labels": ["E11", "M12"]},
        {"id": "2287", "text": "b\ufffd", "labels": ["C24"]},
    ]
    for content in (b"no tab\n", b"a\tb\nno tab\n", b"a\tb\tc\td\n"):
        source.write_bytes(content)
        with pytest.raises(DataError, match=r"in.txt.gz:\d: expected labels, a tab and a text"):
            prepare(source, Tabbed(), target)
    assert len(rows(target)) == 2, "the older file stays"


def test_texts_beside_a_matrix_of_labels(tmp_path):
    (tmp_path / "X.txt").write_text("one\ntwo\n\n")
    matrix = sp.csr_matrix(np.array([[0, 1, 1], [0, 0, 0], [1, 0, 0]], dtype=np.float32))
    sp.save_npz(tmp_path / "Y.npz", matrix)
    prepare(tmp_path / "X.txt", Matched("Y.npz"), tmp_path / "out.jsonl")
    assert rows(tmp_path / "out.jsonl") == [
        {"text": "one", "labels": ["1", "2"]},
        {"text": "two", "labels": []},
        {"text": "", "labels": ["0"]},
    ]
    (tmp_path / "names.txt").write_text("zero\n\ntwo words\n")
    assert prepare(tmp_path / "names.txt", Numbered("Y.npz"), tmp_path / "labels.jsonl") == []
    named = [(row["id"], row["name"]) for row in rows(tmp_path / "labels.jsonl")]
    assert named == [("0", "zero"), ("1", "1"), ("2", "two words")]
    (tmp_path / "names.txt").write_text("zero\none\nand a half\ntwo words\n")
    notes = prepare(tmp_path / "names.txt", Numbered("Y.npz"), tmp_path / "labels.jsonl")
    assert "4 names for 3 labels" in notes[0]
    assert [row["name"] for row in rows(tmp_path / "labels.jsonl")] == ["0", "1", "2"]
    for text, words in (("one\n", "1 lines for 3 rows"), ("a\nb\nc\nd\n", "too many lines for 3 rows")):
        (tmp_path / "X.txt").write_text(text)
        with pytest.raises(DataError, match=words):
            prepare(tmp_path / "X.txt", Matched("Y.npz"), tmp_path / "out.jsonl")
    (tmp_path / "Y.npz").write_bytes(b"no matrix")
    with pytest.raises(DataError, match=r"Y.npz: not a sparse matrix"):
        prepare(tmp_path / "X.txt", Matched("Y.npz"), tmp_path / "out.jsonl")


def test_fields_of_other_names(tmp_path):
    (tmp_path / "in.jsonl").write_text('{"a": "x", "b": ["y", "z"], "c": ["l"], "d": 5}\n')
    making = Renamed({"id": ("d",), "text": ("a", "b"), "labels": ("c",)})
    prepare(tmp_path / "in.jsonl", making, tmp_path / "out.jsonl")
    assert rows(tmp_path / "out.jsonl") == [{"id": 5, "text": "x\ny\nz", "labels": ["l"]}]
    (tmp_path / "in.jsonl").write_text('{"a": "half \\ud800", "b": "", "c": [], "d": "5"}\n')
    prepare(tmp_path / "in.jsonl", making, tmp_path / "out.jsonl")
    assert rows(tmp_path / "out.jsonl") == [{"id": "5", "text": "half ?\n", "labels": []}]
    (tmp_path / "in.jsonl").write_text('{"a": "x", "b": null}\n')
    with pytest.raises(DataError, match=r"in.jsonl:1: no 'd'. Download the data set again"):
        prepare(tmp_path / "in.jsonl", making, tmp_path / "out.jsonl")


def test_some_lines(tmp_path):
    (tmp_path / "in.txt").write_text("".join(f"{number}\n" for number in range(10)))
    prepare(tmp_path / "in.txt", Lines(first=3), tmp_path / "a")
    prepare(tmp_path / "in.txt", Lines(last=2), tmp_path / "b")
    assert (tmp_path / "a").read_text() == "0\n1\n2\n"
    assert (tmp_path / "b").read_text() == "8\n9\n"
