"""Splits by a field: no group on both sides, or the latest documents held out; the field in files."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.reading import check_refusal, write
from xmtc.core.errors import ConfigError, DataError
from xmtc.data import read
from xmtc.data import split_by as split_by_module
from xmtc.data.dataset import Dataset, as_dataset, stacked
from xmtc.data.reading import read_some, stream
from xmtc.data.records import ReadOptions
from xmtc.data.split_by import SplitBy, is_time, split_by
from xmtc.workflows.train import data_digest


def made(values: list[str | None], texts: list[str] | None = None, complete: Any = None) -> Dataset:
    """Documents with these values, in two chunks."""
    texts = texts or [f"text {number}" for number in range(len(values))]
    labels = [["a"]] * len(values)
    dataset = as_dataset(texts, labels) if complete is None else as_dataset(texts, labels, complete=complete)
    half = len(values) // 2
    return replace(dataset, split_values=pa.chunked_array([values[:half], values[half:]], pa.string()))


@pytest.mark.parametrize(
    "values",
    [
        ["2019-05-03", "1999-12-31", "0800-12-25", "2020-02-29"],
        ["2019-05-03T10:00:00", "2019-05-03 09:59:59", "1066-10-14T00:00:00"],
        ["2019-05-03T10:00:00Z", "2019-05-03T10:00:00+02:00", "2019-05-03T09:00:00.250-0100"],
        ["2019-05-03T10:00:00.123456", "2019-05-03T10:00:00.123"],
    ],
)
def test_times_of_one_form_are_parsed_alike_all_at_once_and_one_by_one(values: list[str]) -> None:
    together = split_by_module._instants_of_arrow(pa.array(values))
    assert together is not None
    assert together.tolist() == pytest.approx([split_by_module._instant(value) for value in values], abs=1e-5)


def test_impossible_dates_are_groups() -> None:
    for values in (["2019-02-30", "2019-01-01"], ["2019-05-03T25:00:00", "2019-05-03T10:00:00"]):
        assert not is_time(made(values), SplitBy("f"))
        with pytest.raises(DataError, match=re.escape(f"'{values[0]}' in 'f' is not a time.")):
            is_time(made(values), SplitBy("f", "time"))


@pytest.mark.parametrize(
    ("text", "by"),
    [
        ("patient", SplitBy("patient")),
        ("year:time", SplitBy("year", "time")),
        ("year:group", SplitBy("year", "group")),
        ("dc:date", SplitBy("dc:date")),
        ("dc:date:time", SplitBy("dc:date", "time")),
    ],
)
def test_a_field_and_its_kind_in_one_word(text: str, by: SplitBy) -> None:
    assert SplitBy.parse(text) == by


@pytest.mark.parametrize("text", ["", " ", ":time", ":group"])
def test_no_field(text: str) -> None:
    message = f"'{text}' names no field to split by. Pass FIELD, FIELD:group or FIELD:time."
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        SplitBy.parse(text)


@pytest.mark.parametrize(
    ("values", "times"),
    [
        (["2020", "2019", "2020", "1999"], True),
        (["2019-05-03", "2018-12-31", "2019-05-03", "2020-01-01"], True),
        (["2019/05/03", "2018/12/31", "2020/01/01"], True),
        (["2019-05", "2018-12", "2019"], True),
        (["20190503", "20181231"], True),
        (["20190503", "2018"], True),
        (["2019-05-03T10:00:00Z", "2019-05-03 10:00:00.250+02:00"], True),
        (["1595376000", "1595376001", "1595376001", "1595376100"], True),  # rise, seldom repeated
        (["0.5", "1.5", "2"], True),
        (["7", "7", "7", "8", "8", "8"], False),  # sorted numbers of patients
        (["3", "1", "2"], False),
        (["1001", "9001", "4711"], False),  # not years
        (["20191399", "20181231"], False),  # no thirteenth month
        (["2019-05-03", "soon"], False),
        (["alice", "bob"], False),
        (["1234-05", "4711-06"], False),
    ],
)
def test_times_are_recognised_by_their_values(values: list[str | None], times: bool) -> None:
    dataset = made(values)
    assert is_time(dataset, SplitBy("f")) == times
    assert not is_time(dataset, SplitBy("f", "group"))


def test_no_group_is_on_both_sides_and_the_size_is_right() -> None:
    generator = np.random.default_rng(0)
    numbers = (60 * generator.random(1000) ** 2).astype(int)
    dataset = made([f"patient {number}" for number in numbers])
    for seed in range(20):
        found = split_by(dataset, SplitBy("patient"), 0.2, seed)
        assert found.kind == "group"
        assert sorted([*found.train, *found.held_out]) == list(range(1000))
        assert not set(numbers[found.train]) & set(numbers[found.held_out])
        assert 195 <= len(found.held_out) <= 205
        again = split_by(dataset, SplitBy("patient"), 0.2, seed)
        assert np.array_equal(found.held_out, again.held_out)
    other = split_by(dataset, SplitBy("patient"), 0.2, seed=1)
    assert not np.array_equal(found.held_out, other.held_out)


def test_groups_are_the_same_on_every_machine() -> None:
    dataset = made([f"author {number % 10}" for number in range(30)])
    assert split_by(dataset, SplitBy("author"), 0.2).held_out.tolist() == [2, 3, 12, 13, 22, 23]


def test_large_groups_come_as_close_as_they_can() -> None:
    dataset = made(["big"] * 60 + ["small"] * 40)
    assert split_by(dataset, SplitBy("f"), 0.1).held_out.tolist() == list(range(60, 100))
    dataset = made(["big"] * 50 + ["other"] * 50)
    assert len(split_by(dataset, SplitBy("f"), 0.9).held_out) == 50
    # 9 documents are wanted: 8 of one group are closer than 16 of two
    dataset = made([f"group {number // 8}" for number in range(96)])
    assert len(split_by(dataset, SplitBy("f"), 9 / 96).held_out) == 8
    # 14 are wanted: 16 are closer than 8
    assert len(split_by(dataset, SplitBy("f"), 14 / 96).held_out) == 16


def test_equal_texts_join_groups() -> None:
    texts = [f"text {number}" for number in range(40)]
    texts[20] = texts[0]  # group 0 and group 5
    dataset = made([f"group {number // 4}" for number in range(40)], texts)
    sides = []
    for seed in range(30):
        held = set(split_by(dataset, SplitBy("f"), 0.3, seed).held_out.tolist())
        assert (0 in held) == (20 in held)
        sides.append(0 in held)
    assert any(sides)
    apart = [set(split_by(dataset, SplitBy("f"), 0.3, seed, together=False).held_out) for seed in range(30)]
    assert any((0 in held) != (20 in held) for held in apart)


@pytest.mark.parametrize("fraction", [0.05, 0.1, 0.3, 0.7])
def test_all_times_held_out_are_later(fraction: float) -> None:
    generator = np.random.default_rng(0)
    days = generator.integers(0, 200, 1000)
    dates = [str(np.datetime64("2019-01-01") + np.timedelta64(int(day), "D")) for day in days]
    found = split_by(made(dates), SplitBy("date"), fraction)
    assert found.kind == "time"
    assert days[found.train].max() < days[found.held_out].min()
    assert found.since == min(dates[row] for row in found.held_out)
    assert sorted([*found.train, *found.held_out]) == list(range(1000))
    assert abs(len(found.held_out) - 1000 * fraction) <= np.bincount(days).max()


def test_equal_times_stay_together() -> None:
    years = ["2018"] * 50 + ["2019"] * 30 + ["2020"] * 20
    for fraction, since, count in ((0.01, "2020", 20), (0.3, "2020", 20), (0.36, "2019", 50), (0.99, "2019", 50)):
        found = split_by(made(years), SplitBy("year"), fraction)
        assert (found.since, len(found.held_out)) == (since, count)
    # as far from one as from the other: the smaller
    assert len(split_by(made(years), SplitBy("year"), 0.35).held_out) == 20


def test_dates_of_different_precision_are_compared_by_the_coarsest() -> None:
    dataset = made(["2019-05-31", "2020-01-31T08:00", "2020", "2019-12", "2018-01-01", "20200630"])
    found = split_by(dataset, SplitBy("date"), 0.2)
    assert found.held_out.tolist() == [1, 2, 5]
    dataset = made(["20190503", "2018", "2020", "20191231"])
    assert split_by(dataset, SplitBy("date"), 0.5).held_out.tolist() == [2]


def test_times_with_zones_are_compared_as_instants() -> None:
    dataset = made(["2019-05-03T10:00:00+05:00", "2019-05-03T06:00:00Z", "2019-05-03T05:30:00"])
    assert split_by(dataset, SplitBy("at"), 0.3).held_out.tolist() == [1]
    assert split_by(dataset, SplitBy("at"), 0.6).held_out.tolist() == [1, 2]


def test_the_kind_can_be_chosen() -> None:
    values = ["1003", "1001", "1002", "1001", "9000"]
    assert split_by(made(values), SplitBy("n"), 0.2).kind == "group"
    assert split_by(made(values), SplitBy("n", "time"), 0.2).held_out.tolist() == [4]
    assert split_by(made(["2019", "2020", "2019"]), SplitBy("year", "group"), 0.3).held_out.tolist() == [1]
    assert split_by(made(["1066-10-14", "0800-12-25"]), SplitBy("day", "time"), 0.5).held_out.tolist() == [0]


def test_partial_labels_are_never_held_out() -> None:
    complete = [number % 3 > 0 for number in range(60)]
    groups = [f"group {number // 6}" for number in range(60)]
    found = split_by(made(groups, complete=complete), SplitBy("f"), 0.2)
    assert len(found.held_out) == 8
    assert all(complete[row] for row in found.held_out)
    assert not {groups[row] for row in found.train} & {groups[row] for row in found.held_out}
    assert len(found.train) == 48  # the 4 partial documents of these two groups are on neither side
    years = [str(1960 + number) for number in range(60)]
    found = split_by(made(years, complete=complete), SplitBy("year"), 0.25)
    assert found.held_out.tolist() == [row for row in range(45, 60) if complete[row]]
    assert found.train.tolist() == list(range(found.held_out[0]))


@pytest.mark.parametrize(
    ("values", "by", "message"),
    [
        (
            ["a", None, "b", None],
            SplitBy("patient"),
            "2 of 4 documents have no 'patient' to split by. Add it to each document, or split by another field.",
        ),
        (
            ["2019", "03.05.2019"],
            SplitBy("day", "time"),
            "'03.05.2019' in 'day' is not a time. Write dates such as 2024-05-31, years or numbers, or pass day:group.",
        ),
        (["1", "9e999"], SplitBy("day", "time"), "'9e999' in 'day' is not a time."),
        (
            ["x", "x", "x"],
            SplitBy("patient"),
            "the documents cannot be split by 'patient': all have the same value, or values are connected by equal "
            "texts. Split by another field.",
        ),
        (
            ["2019"] * 3,
            SplitBy("year"),
            "all documents that can be held out have the earliest 'year' (2019), so none is later than the others. "
            "Split by another field.",
        ),
    ],
)
def test_values_that_cannot_be_split(values: list[str | None], by: SplitBy, message: str) -> None:
    with pytest.raises(DataError, match=f"^{re.escape(message)}"):
        split_by(made(values), by, 0.3)


def test_wrong_requests() -> None:
    with pytest.raises(
        ConfigError, match=r"^the fraction to hold out must be between 0 and 1, such as 0\.1\. Got 1\.$"
    ):
        split_by(made(["a", "b"]), SplitBy("f"), 1)
    with pytest.raises(ConfigError, match=r"'seed' of a split must be an integer ≥ 0\. Got -1"):
        split_by(made(["a", "b"]), SplitBy("f"), 0.5, -1)
    message = "the documents were read without 'year'. Read them with split_field=\"year\"."
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        split_by(as_dataset(["a", "b"]), SplitBy("year"), 0.5)
    with pytest.raises(DataError, match="no document has complete labels, so none can be held out"):
        split_by(made(["a", "b"], complete=False), SplitBy("f"), 0.5)


def test_a_hundred_thousand_different_dates_take_seconds() -> None:
    moments = np.datetime64("1990-01-01") + np.random.default_rng(0).integers(0, 10**9, 100_000).astype("m8[s]")
    dataset = made([str(moment) for moment in moments])
    started = time.process_time()
    found = split_by(dataset, SplitBy("at"), 0.1)
    assert time.process_time() - started < 5  # 0.4 s on a quiet machine
    assert abs(len(found.held_out) - 10_000) <= 2


# ---- the field in files

ROWS = [
    {"id": "a", "text": "one", "labels": ["x"], "year": 2019},
    {"id": "b", "text": "two", "labels": [], "year": 2020},
    {"id": "c", "text": "three", "labels": ["x", "y"], "year": 2018},
]


def table(rows: list[dict[str, Any]], separator: str) -> str:
    """The rows as a table."""
    cells = [["id", "text", "labels", "year"]]
    cells += [[str(row["id"]), row["text"], ";".join(row["labels"]), str(row["year"])] for row in rows]
    return "".join(separator.join(row) + "\n" for row in cells)


def written(folder: Path, kind: str, rows: list[dict[str, Any]]) -> Path:
    path = folder / f"train.{kind}"
    if kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text(table(rows, "," if kind == "csv" else "\t"))
    return path


KINDS = ["jsonl", "csv", "tsv", "parquet"]


@pytest.mark.parametrize("kind", KINDS)
def test_one_field_is_read(tmp_path: Path, kind: str) -> None:
    path = written(tmp_path, kind, ROWS)
    dataset = read(path, split_field="year")
    assert dataset.split_values is not None
    assert dataset.split_values.to_pylist() == ["2019", "2020", "2018"]
    assert dataset.text().to_pylist() == ["one", "two", "three"]
    assert list(dataset.fields) == ["text"]
    assert split_by(dataset, SplitBy("year"), 0.3).held_out.tolist() == [1]
    assert read(path).split_values is None
    by_id = read(path, split_field="id").split_values
    assert by_id is not None
    assert by_id.to_pylist() == ["a", "b", "c"]
    options = ReadOptions(split_field="year")
    assert read_some(path, 2, options).document_ids() == ["a", "b"]
    assert [len(batch) for batch in stream(path, options, size=2)] == [2, 1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([" Ann ", "Bob", "größer"], ["Ann", "Bob", "größer"]),
        ([1.5, 2.0, 1e300], ["1.5", "2", "1e+300"]),
        ([-3, 12345678901234567, 0], ["-3", "12345678901234567", "0"]),
    ],
)
def test_values_become_text(tmp_path: Path, kind: str, values: list[Any], texts: list[str]) -> None:
    if kind in ("csv", "tsv"):
        texts = [str(value).strip() for value in values]
    path = written(tmp_path, kind, [row | {"year": value} for row, value in zip(ROWS, values, strict=True)])
    dataset = read(path, split_field="year")
    assert dataset.split_values is not None
    assert dataset.split_values.to_pylist() == texts


def test_slow_and_fast_ways_agree(tmp_path: Path) -> None:
    """Numbers next to strings, and labels that are objects, are read line by line."""
    rows = [row | {"year": value} for row, value in zip(ROWS, [2.0, " 2.5", 7], strict=True)]
    found = read(write(tmp_path / "a.jsonl", *rows), split_field="year").split_values
    assert found is not None
    assert found.to_pylist() == ["2", "2.5", "7"]
    rows = [{"text": "t", "labels": [{"key": "x"}], "year": value} for value in (2.0, 2.5, 7)]
    found = read(write(tmp_path / "b.jsonl", *rows), split_field="year").split_values
    assert found is not None
    assert found.to_pylist() == ["2", "2.5", "7"]


def test_dates_of_parquet(tmp_path: Path) -> None:
    days = np.array(["2019-05-03", "2018-12-31", "2020-01-01"], dtype="M8[D]")
    texts = {"text": ["a", "b", "c"], "labels": [["x"], [], ["x"]]}
    for kind in (pa.date32(), pa.timestamp("ns"), pa.timestamp("ms", "UTC"), pa.dictionary(pa.int32(), pa.string())):
        column = pa.array(days.astype(str).tolist()).cast(pa.string())
        column = column.dictionary_encode() if pa.types.is_dictionary(kind) else column.cast(pa.date32()).cast(kind)
        pq.write_table(pa.table(texts | {"day": column}), tmp_path / "a.parquet")
        dataset = read(tmp_path / "a.parquet", split_field="day")
        assert dataset.split_values is not None
        assert [value[:10] for value in dataset.split_values.to_pylist()] == days.astype(str).tolist()
        found = split_by(dataset, SplitBy("day"), 0.3)
        assert (found.kind, found.held_out.tolist()) == ("time", [2])


@pytest.mark.parametrize(
    ("value", "kind"),
    [(True, "a boolean"), ([1], "a list"), ({"a": 1}, "an object")],
)
def test_values_of_other_types(tmp_path: Path, value: Any, kind: str) -> None:
    path = write(tmp_path / "a.jsonl", ROWS[0], ROWS[1] | {"year": value})
    assert f"'year' must be a string or a number. Got {kind}." in check_refusal(path, 2, split_field="year")
    path = written(tmp_path, "parquet", [row | {"year": value} for row in ROWS])
    assert "'year' must be a string or a number. Got " in check_refusal(path, 1, split_field="year")


def test_labels_are_no_field_to_split_by(tmp_path: Path) -> None:
    for kind in KINDS:
        line = 2 if kind in ("csv", "tsv") else 1
        message = check_refusal(written(tmp_path, kind, ROWS), line, split_field="labels")
        assert "'labels' must be a string or a number. Got a list." in message


def test_infinite_numbers(tmp_path: Path) -> None:
    path = written(
        tmp_path, "parquet", [row | {"year": value} for row, value in zip(ROWS, [1, np.inf, 2], strict=True)]
    )
    assert "'year' must be a string or a number. Got NaN or infinity." in check_refusal(path, 2, split_field="year")


@pytest.mark.parametrize("kind", KINDS)
def test_documents_without_a_value(tmp_path: Path, kind: str) -> None:
    missing = "" if kind in ("csv", "tsv") else None
    rows = [*ROWS, ROWS[0] | {"year": missing}, ROWS[1], ROWS[2] | {"year": missing}]
    path = written(tmp_path, kind, rows)
    line = 5 if kind in ("csv", "tsv") else 4
    message = (
        f"{path}:{line}: no 'year' to split by, as in 2 of 6 documents. Add it to each document, or split by another "
        "field."
    )
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        read(path, split_field="year")


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet"])
def test_a_table_without_the_column(tmp_path: Path, kind: str) -> None:
    path = written(tmp_path, kind, ROWS)
    with pytest.raises(DataError, match=r"no column 'yaer' for the split \(found: .*\)\. Did you mean 'year'\?"):
        read(path, split_field="yaer")
    with pytest.raises(DataError, match=r"no column 'patient' for the split \(found: .*\)\. Pass --split-by NAME\.$"):
        read(path, split_field="patient")


def test_formats_without_fields(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("__label__x one\n__label__y two\n")
    message = (
        f"{path}: the format 'fasttext' has no field 'year' to split by. "
        "Choose one of: csv, jsonl, parquet, tsv; or leave out --split-by."
    )
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        read(path, split_field="year")


def test_rows_keep_their_values() -> None:
    dataset = made(["a", "b", "c", "d", "e"])

    def values(part: Dataset) -> list[str | None]:
        assert part.split_values is not None
        return list(part.split_values.to_pylist())

    assert values(dataset.take([4, 0, 2])) == ["e", "a", "c"]
    assert values(dataset.slice(1, 4)) == ["b", "c", "d"]
    assert [values(batch) for batch in dataset.batches(2)] == [["a", "b"], ["c", "d"], ["e"]]
    assert values(dataset.complete_documents()) == ["a", "b", "c", "d", "e"]
    assert values(stacked([dataset.slice(0, 2), dataset.slice(3, 5)])) == ["a", "b", "d", "e"]
    other = replace(dataset, split_values=None)
    assert values(stacked([other.slice(0, 1), dataset.slice(3, 5)])) == [None, "d", "e"]
    assert stacked([other, other]).split_values is None
    with pytest.raises(DataError, match="split values 2"):
        replace(dataset, split_values=pa.chunked_array([["a", "b"]]))


def test_values_count_for_the_digest_of_data() -> None:
    one, same, other = made(["a", "b"]), made(["a", "b"]), made(["a", "c"])
    assert data_digest(one) == data_digest(same)
    assert data_digest(one) != data_digest(other)
    assert data_digest(one) != data_digest(replace(one, split_values=None))
