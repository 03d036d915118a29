"""A grammar of HTTP requests for the service: valid bodies, and bodies with one or more things wrong."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote_from_bytes

POSTS = ("/v1/predict", "/v1/explain", "/v1/feedback")
NUMBERS = (
    "0",
    "-0",
    "-1",
    "1.5",
    "1e0",
    "1e400",
    "-1e400",
    "1e-400",
    "9" * 400,
    "0.1" + "0" * 5_000,
    "NaN",
    "Infinity",
)
TYPES = ("null", "true", "false", "0", "1.5", '""', '"a"', "[]", "{}", '[""]', '["a", null]', '[["a"]]', '{"a": 1}')
STRINGS = (
    "", "\0", "\x7f", "\u2028", "\ufeff", "é" * 3, "e\u0301", "😀", "水" * 50, "\u202egnp", "a" * 3_000, "auto",
    "planted",
)  # fmt: skip
ESCAPES = (rb"\ud800", rb"\udc00\ud800", rb"\u0000", rb"\x41", rb"\u12", rb"\ud83d\ude00", rb"\/", b"\\")
BYTES = (
    b"\xff",
    b"\xc3",
    b"\xc0\xaf",
    b"\xed\xa0\x80",
    b"\xf5\x80\x80\x80",
    b"\x00",
    b"\x01",
    b"\xef\xbb\xbf",
    b"\x1f\x8b",
)
CONTENT_TYPES = (
    "application/json; charset=utf-8", "APPLICATION/JSON", "application/json;", " application/json ", "text/plain", "",
    "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/json, text/plain", "json",
    "application/jsonp", "application/problem+json", "application/json\x0b",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One request, and whether it is as it should be."""

    method: str
    path: str
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    chunks: tuple[bytes, ...] | None = None
    """The body as sent with chunked transfer encoding, raw."""
    is_valid: bool = False
    """Whether the request has to be accepted; others may be, where what was changed does not matter."""
    is_cut: bool = False
    """Whether less is sent than was announced, so that there may be no response."""

    def __str__(self) -> str:
        body = repr(self.body[:1_500]) + ("…" if len(self.body) > 1_500 else "")
        chunks = "" if self.chunks is None else f" chunks={[chunk[:60] for chunk in self.chunks[:20]]}"
        return f"{self.method} {self.path[:300]!r} {self.headers} body={body}{chunks}"


class Grammar:
    """Makes cases; the same seed makes the same ones."""

    def __init__(self, seed: int, texts: Sequence[str], keys: Sequence[str]) -> None:
        self.random = random.Random(seed)
        self.texts, self.keys = texts, keys

    def case(self) -> Case:
        kind = self.random.random()
        if kind < 0.12:
            return self._get()
        path = self.random.choice(POSTS)
        value = self._value(path)
        if kind < 0.3:
            body = json.dumps(value, ensure_ascii=self.random.random() < 0.5).encode()
            return self._sent(path, body, is_valid=True)
        return self._sent(path, self._damaged(value), is_valid=False)

    # ---- valid values

    def _text(self) -> str:
        if self.random.random() < 0.2:
            return self.random.choice(STRINGS)
        return self.random.choice(self.texts)

    def _value(self, path: str) -> dict[str, Any]:
        draw = self.random
        some = draw.sample(self.keys, draw.randint(1, 4))
        value: dict[str, Any]
        if path == "/v1/predict":
            value = {"texts": [self._text() for _ in range(draw.choice((0, 1, 1, 2, 5)))]}
            value |= draw.choice(({}, {"k": draw.randint(1, 20)}, {"k": None}, {"k": 3.0}))
            value |= draw.choice(({}, {"threshold": draw.random()}, {"threshold": None}, {"threshold": -1e30}))
            value |= draw.choice(({}, {"allow": some}, {"deny": some}, {"allow": None, "deny": None}))
            value |= draw.choice(
                ({}, {"under": some, "deny": None}, {"only_used": True}, {"hierarchy": "keep"}, {"scheme": None})
            )
            value |= draw.choice(({}, {"details": draw.random() < 0.5}))
        elif path == "/v1/explain":
            value = {"text": self._text(), "label": some[0]}
        else:
            value = {"text": self._text()}
            value |= draw.choice(
                (
                    {"accepted": some, "rejected": []},
                    {"accepted": some[:1], "rejected": some[1:]},
                    {"accepted": [], "complete": True},
                    {"rejected": some, "complete": True},
                    {"withdraw": True, "complete": False},
                )
            )
        value |= draw.choice(({}, {}, {"model": None}, {"model": "planted"}))
        return dict(draw.sample(list(value.items()), len(value)))

    # ---- damage

    def _damaged(self, value: dict[str, Any]) -> bytes:
        """One to three changes: of values first, then of the written JSON."""
        draw, written = self.random, {name: json.dumps(item) for name, item in value.items()}
        for _ in range(draw.choice((0, 1, 1, 2))):
            draw.choice((self._other_value, self._other_name, self._without, self._nested, self._long))(written)
        pairs = [f"{json.dumps(name)}: {item}" for name, item in written.items()]
        if draw.random() < 0.15:  # a name twice
            pairs.insert(0, f"{json.dumps(draw.choice(list(value)))}: {draw.choice(TYPES)}")
        body = ("{" + ", ".join(pairs) + "}").encode()
        changes: tuple[Callable[[bytes], bytes], ...] = (
            self._cut,
            self._insert,
            self._delete,
            self._swap,
            self._append,
        )
        for _ in range(draw.choice((0, 0, 1, 1, 3))):
            body = draw.choice(changes)(body)
        return body

    def _other_value(self, written: dict[str, str]) -> None:
        name = self.random.choice((*written, "k", "threshold", "allow", "under", "details", "complete", "model"))
        written[name] = self.random.choice((*TYPES, *NUMBERS, json.dumps(self.random.choice(STRINGS))))

    def _other_name(self, written: dict[str, str]) -> None:
        written[self.random.choice((*STRINGS, "Text", "text ", "__proto__", "texts", "label"))] = '"a"'

    def _without(self, written: dict[str, str]) -> None:
        written.pop(self.random.choice(list(written)), None) if written else None

    def _nested(self, written: dict[str, str]) -> None:
        depth = self.random.choice((3, 150, 250, 50_000))
        opening, closing = self.random.choice((("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")))
        name = self.random.choice((*written, "extra"))
        written[name] = opening * depth + "1" + closing * self.random.choice((depth, depth - 1))

    def _long(self, written: dict[str, str]) -> None:
        draw = self.random
        long = draw.choice(('"' + "a" * 300_000 + '"', "[" + '"a",' * 20_000 + '"a"]', "[" + "0," * 50_000 + "0]"))
        written[draw.choice((*written, "x" * 70_000))] = long

    def _at(self, body: bytes) -> int:
        return self.random.randint(0, len(body))

    def _cut(self, body: bytes) -> bytes:
        return body[: self._at(body)]

    def _insert(self, body: bytes) -> bytes:
        at, tokens = self._at(body), (*ESCAPES, *BYTES, b"{", b"}", b"[", b'"', b",", b":", b"//", b"'", b"\n", b"1")
        return body[:at] + self.random.choice(tokens) + body[at:]

    def _delete(self, body: bytes) -> bytes:
        at = self._at(body)
        return body[:at] + body[at + self.random.randint(1, 5) :]

    def _swap(self, body: bytes) -> bytes:
        at = self._at(body)
        return body[:at] + bytes([self.random.randrange(256)]) + body[at + 1 :]

    def _append(self, body: bytes) -> bytes:
        return self.random.choice((body + b"x", body + body, b"\xef\xbb\xbf" + body, b" \n" + body + b"\t ", b""))

    # ---- sending

    def _sent(self, path: str, body: bytes, *, is_valid: bool) -> Case:
        """The body with its length, or in chunks; sometimes with another type or encoding, or not all of it."""
        draw = self.random
        kind = draw.random()
        headers = {"Content-Type": "application/json"}
        if kind < 0.65:
            return Case("POST", path, body, headers, is_valid=is_valid)
        if kind < 0.75:
            return Case("POST", path, body, {"Content-Type": draw.choice(CONTENT_TYPES)})
        if kind < 0.8:
            packed = draw.choice((zlib.compress(body), body))
            encoding = draw.choice(("gzip", "deflate", "br", "identity", "x"))
            return Case("POST", path, packed, {**headers, "Content-Encoding": encoding})
        if kind < 0.93:
            chunks = self._chunks(body)
            return Case("POST", path, body, headers, chunks=(*chunks, b"0\r\n\r\n"), is_valid=is_valid)
        if kind < 0.97:
            wrong = [
                b"zz\r\nabc\r\n",
                b"5\r\nabcdefgh\r\n",
                b"-1\r\n\r\n",
                b"f" * 30 + b"\r\n",
                b"3\nabc\n",
            ]
            chunks = self._chunks(body)
            chunks.insert(draw.randint(0, len(chunks)), draw.choice(wrong))
            return Case("POST", path, body, headers, chunks=(*chunks, b"0\r\n\r\n"), is_cut=True)
        more = str(len(body) + draw.randint(1, 1_000))
        return Case("POST", path, body, {**headers, "Content-Length": more}, is_cut=True)

    def _chunks(self, body: bytes) -> list[bytes]:
        size = max(1, self.random.choice((1_000, len(body), len(body) // 3)))
        parts = [body[at : at + size] for at in range(0, len(body), size)]
        return [b"%x\r\n%s\r\n" % (len(part), part) for part in parts]

    def _get(self) -> Case:
        draw = self.random
        if draw.random() < 0.3:
            path = draw.choice(("/v1/models", "/metrics", "/healthz", "/readyz", "/openapi.json", "/"))
            return Case("GET", path + draw.choice(("", "?", "?a=b&a=c", "?%00")), is_valid=True)
        words = draw.choice((*STRINGS[:10], *self.keys)).encode()
        if draw.random() < 0.3:
            words += draw.choice(BYTES)
        query = {"q": quote_from_bytes(words), "limit": str(draw.choice((1, 5, 100)))}
        if draw.random() < 0.4:
            name = draw.choice(("limit", "model", "q", "limit"))
            other = draw.choice((*NUMBERS[:9], "", "a", "%00", "5;", "planted", "q" * 5_000))
            return Case(
                "GET", "/v1/labels?" + "&".join(f"{key}={value}" for key, value in {**query, name: other}.items())
            )
        return Case("GET", "/v1/labels?" + "&".join(f"{key}={value}" for key, value in query.items()), is_valid=True)
