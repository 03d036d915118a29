"""Mutations of file contents for the fuzz tests."""

from __future__ import annotations

from hypothesis import strategies as st

TOKENS = st.sampled_from(
    [
        *(
            b"{",
            b"}",
            b"[",
            b"]",
            b'"',
            b":",
            b",",
            b"\n",
            b"\r\n",
            b" ",
            b"\t",
            b"0",
            b"1",
            b"-1",
            b"3 2 2\n",
            b"9" * 20,
        ),
        *(b"nan", b"NaN", b"inf", b"1e999", b"null", b"true", b"\\ud800", b"\\u0000", b"\xef\xbb\xbf", b"\xff\xfe"),
        *(
            b"\x1f\x8b\x08",
            b"\xfd7zXZ\x00",
            b"\x28\xb5\x2f\xfd",
            b"BZh9",
            b"PAR1",
            b"\x00",
            b"\xc3\xb6",
            b"\xed\xa0\x80",
        ),
        *(
            b'"text"',
            b'"labels"',
            b'"key"',
            b'"id"',
            b'"title"',
            b'"score"',
            b'{"text": "a", "labels": [',
            b"0:1",
            b"1,",
        ),
        *(
            b"__label__",
            b"__label__a ",
            b"<",
            b">",
            b"<a> ",
            b"text,labels\n",
            b"text\tlabels\n",
            b";",
            b"#",
            b"'",
            b"['a']",
        ),
        *(
            b'""',
            b'"target_ind"',
            b'"uid"',
            b'"\n',
            b'","',
            b"|",
            b"_",
            b"\x0b",
            b"\x0c",
            b"1e5",
            b".",
            b"\xe2\x80\xa8",
            b"\\",
        ),
    ]
)


EDITS = st.lists(
    st.tuples(
        st.floats(0, 1), st.sampled_from(["put", "replace", "cut", "double", "end"]), TOKENS | st.binary(max_size=3)
    ),
    min_size=1,
    max_size=4,
)


def mutated(content: bytes, edits: list[tuple[float, str, bytes]]) -> bytes:
    for where, how, piece in edits:
        at = int(where * len(content))
        before, after = content[:at], content[at:]
        content = {
            "put": before + piece + after,
            "replace": before + piece + after[len(piece) :],
            "cut": before + after[len(piece) + 1 :],
            "double": before + after[:20] * 2 + after[20:],
            "end": before + piece,
        }[how]
    return content
