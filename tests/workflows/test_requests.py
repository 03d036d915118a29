"""Each request type: a line under every field, defaults that agree with the library, and one line for bad values."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from xmtc.core.config import field_docs
from xmtc.core.errors import XmtcError
from xmtc.core.request import BaseRequest, request_fields
from xmtc.decisions.decision_rules import DEPTH
from xmtc.experiments import requests as experiment_requests
from xmtc.experiments.requests import StudyRequest
from xmtc.models.update import MARGIN
from xmtc.workflows import data_requests, requests
from xmtc.workflows.data_requests import (
    ConvertRequest,
    HeadRequest,
    ReadingOptions,
    SplitRequest,
    VocabularyOptions,
)
from xmtc.workflows.requests import (
    BatchOptions,
    BatchPredictRequest,
    CalibrateRequest,
    CompareRequest,
    ComparisonOptions,
    EvaluateRequest,
    EvaluationOptions,
    ExplainRequest,
    FeedbackRequest,
    LabelMapRequest,
    LabelNeighboursRequest,
    PredictRequest,
    UpdateRequest,
)

DIR, FILE = Path("dir"), Path("file.jsonl")
TYPES = sorted(
    {
        kind
        for module in (requests, data_requests, experiment_requests)
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, BaseRequest) and kind is not BaseRequest
    },
    key=lambda kind: kind.__name__,
)


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.__name__)
def test_every_option_says_what_it_is(kind: type[BaseRequest]) -> None:
    docs = field_docs(kind)
    for field in request_fields(kind):
        if field.mark is not None:
            assert docs[field.name].endswith("."), field.name
    assert kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert all(each.kw_only for each in dataclasses.fields(kind))  # type: ignore[arg-type]


BAD: list[tuple[type[BaseRequest], dict[str, Any], str]] = [
    (ReadingOptions, {"on_bad_line": "no"}, "--on-bad-line must be refuse or skip. Got 'no'."),
    (ReadingOptions, {"text_field": "a,a"}, "a text field is given twice"),
    (VocabularyOptions, {"language": "en"}, "--language can only be used with --labels FILE."),
    (VocabularyOptions, {"unknown_labels": "count"}, "--unknown-labels must be refuse or drop."),
    (UpdateRequest, {"folder": DIR}, "nothing to update. Pass a file of new documents"),
    (UpdateRequest, {"folder": DIR, "new": FILE, "margin": -1}, "--margin must be a number ≥ 0. Got -1."),
    (PredictRequest, {"folder": DIR}, "predict requires either an INPUT file"),
    (PredictRequest, {"folder": DIR, "source": "-", "text": "a"}, "predict requires either an INPUT file"),
    (PredictRequest, {"folder": DIR, "source": "-", "k": 0}, "'k' must be an integer ≥ 1. Got 0."),
    (PredictRequest, {"folder": DIR, "source": "-", "threshold": "x"}, "--threshold must be a number such as 0.3"),
    (
        PredictRequest,
        {"folder": DIR, "text": "a", "candidates": FILE},
        "--candidates requires document ids and cannot be used with --text.",
    ),
    (BatchOptions, {"resume": True}, "--resume can only be used with --parts."),
    (BatchOptions, {"parts": 0}, "--parts must be an integer ≥ 1. Got 0."),
    (BatchOptions, {"parts": 5, "resume": True, "force": True}, "--resume and --force cannot be used together."),
    (EvaluateRequest, {"test": FILE}, "evaluate requires a model folder and a test file"),
    (
        EvaluateRequest,
        {"test": FILE, "folder": DIR, "train": FILE},
        "--train can only be used with --predictions FILE.",
    ),
    (EvaluateRequest, {"test": FILE, "predictions": FILE, "keep": True}, "--save-metrics requires a model."),
    (
        EvaluateRequest,
        {"test": FILE, "predictions": FILE, "options": EvaluationOptions(tail=True)},
        "--tail requires a model.",
    ),
    (EvaluationOptions, {"bootstrap": 3}, "--bootstrap must be 0 or from 10 to 1,000,000"),
    (EvaluationOptions, {"unknown_labels": "refuse"}, "--unknown-labels must be count or drop."),
    (CompareRequest, {"folders": (), "test": FILE}, "compare requires one or more model folders"),
    (
        CompareRequest,
        {
            "folders": (DIR,),
            "test": FILE,
            "options": ComparisonOptions(filter_file=FILE),
            "reading": ReadingOptions(on_bad_line="skip"),
        },
        "--filter refers to documents by number",
    ),
    (CalibrateRequest, {"folder": DIR}, "VALID is missing."),
    (CalibrateRequest, {"folder": DIR, "valid": FILE, "k": 0}, "'k' must be an integer ≥ 1."),
    (CalibrateRequest, {"folder": DIR, "valid": FILE, "method": "x"}, "--method must be isotonic or platt or none."),
    (CalibrateRequest, {"folder": DIR, "valid": FILE, "measure": "x"}, "--f1 must be micro or macro or document."),
    (LabelNeighboursRequest, {"folder": DIR, "label": "a", "k": 0}, "'k' must be an integer ≥ 1."),
    (LabelMapRequest, {"folder": DIR, "most": 0}, "'most' must be an integer ≥ 1."),
    (FeedbackRequest, {"folder": DIR, "since": "soon"}, "--since must be a date such as 2026-11-30. Got 'soon'."),
    (HeadRequest, {"source": FILE, "count": 0}, "'n' must be an integer ≥ 1."),
    (
        ConvertRequest,
        {"source": FILE, "target": FILE, "language": "en"},
        "--language can only be used with --labels FILE or --vocabulary.",
    ),
    (StudyRequest, {"train": FILE, "test": FILE, "out": DIR, "seeds": "x"}, "--seeds must be integers ≥ 0"),
    (StudyRequest, {"train": FILE, "test": FILE, "out": DIR}, "file.jsonl: no such file."),
]


@pytest.mark.parametrize(("kind", "given", "message"), BAD, ids=lambda value: getattr(value, "__name__", ""))
def test_bad_values_get_one_line(kind: type[BaseRequest], given: dict[str, Any], message: str) -> None:
    with pytest.raises(XmtcError) as refused:
        kind(**given)
    assert str(refused.value).startswith(message)
    assert "\n" not in str(refused.value)


def test_batches_need_a_file_and_a_folder() -> None:
    documents = PredictRequest(folder=DIR, source="-")
    batch = BatchOptions(parts=5)
    for given, message in (
        (
            {"predict": PredictRequest(folder=DIR, text="a"), "out": DIR, "batch": batch},
            "--parts cannot be used with --text",
        ),
        ({"predict": documents, "out": None, "batch": batch}, "--parts requires an output folder"),
        ({"predict": documents, "out": DIR, "batch": BatchOptions(parts=5, resume=True)}, "--resume cannot be used"),
    ):
        with pytest.raises(XmtcError, match=message):
            BatchPredictRequest(**given)  # type: ignore[arg-type]


def test_defaults_are_those_of_the_library() -> None:
    assert CalibrateRequest(folder=DIR, valid=FILE).k == DEPTH
    assert UpdateRequest(folder=DIR, new=FILE).margin / 100 == MARGIN


def test_values_are_normalised() -> None:
    assert PredictRequest(folder=DIR, source="-", threshold="0.5").threshold == 0.5
    assert EvaluationOptions(threshold="auto").threshold == "auto"
    assert ExplainRequest(folder=DIR, text="a\udcffb", label="l").text == "a?b"
    options = ReadingOptions(text_field="title, body", label_separator="tab").options
    assert options.text_fields == ("title", "body")
    assert options.label_separator == "\t"
    compared = CompareRequest(folders=(DIR,), test=FILE, options=ComparisonOptions(bootstrap=10)).evaluation
    assert compared == EvaluationOptions(bootstrap=10)
    assert SplitRequest(source=FILE, out=DIR).test == 0.2
    assert UpdateRequest(folder=DIR, new=FILE).target == DIR
    assert UpdateRequest(folder=DIR, new=FILE, out=FILE).target == FILE
