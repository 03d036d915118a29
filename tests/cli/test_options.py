"""Command-line options equal the fields of the requests that they are derived from."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
import typer

from xmtc.cli.main import app
from xmtc.core.config import field_docs
from xmtc.core.request import BaseRequest, Option, RequestField, request_fields
from xmtc.experiments.requests import StudyRequest, TuneRequest
from xmtc.workflows import data_requests as data
from xmtc.workflows import requests as models

VERBS: dict[str, tuple[tuple[type[BaseRequest], ...], set[str]]] = {
    "train": ((models.TrainRequest,), {"seed", "threads", "device", "precision", "json_target"}),
    "update": ((models.UpdateRequest,), {"seed", "threads", "device", "precision", "json_target"}),
    "tune": ((TuneRequest,), {"seed", "threads", "device", "precision", "json_target"}),
    "predict": (
        (models.PredictRequest, models.BatchOptions),
        {"output", "output_format", "json_target", "threads", "device"},
    ),
    "evaluate": ((models.EvaluateRequest,), {"paths", "json_target", "per_label", "reliability", "threads", "device"}),
    "compare": ((models.CompareRequest,), {"paths", "json_target", "threads", "device"}),
    "calibrate": ((models.CalibrateRequest,), {"json_target", "threads", "device"}),
    "explain": ((models.ExplainRequest,), {"html", "json_target", "device"}),
    "labels neighbours": ((models.LabelNeighboursRequest,), {"json_target"}),
    "labels map": ((models.LabelMapRequest,), {"out", "seed", "force", "threads", "json_target"}),
    "feedback export": ((models.FeedbackRequest,), {"output"}),
    "feedback show": ((models.FeedbackRequest,), {"json_target"}),
    "data describe": ((data.DescribeRequest,), {"plot", "json_target"}),
    "data head": ((data.HeadRequest,), {"json_target"}),
    "data split": ((data.SplitRequest,), {"json_target"}),
    "data convert": ((data.ConvertRequest,), {"json_target"}),
    "data get": ((data.FetchRequest,), {"json_target"}),
    "experiment noise": (
        (StudyRequest,),
        {"models", "rates", "kinds", "json_target", "threads", "device", "precision"},
    ),
    "experiment ablation": ((StudyRequest,), {"model", "json_target", "threads", "device", "precision"}),
    "experiment tail": ((StudyRequest,), {"models", "json_target", "threads", "device", "precision"}),
}
"""Verb → its requests, and what the command adds: the machine it runs on, and where its output goes."""


def marked(request: type[BaseRequest]) -> Iterator[tuple[type[BaseRequest], RequestField]]:
    """The fields of a request and of its groups that are on the command line."""
    for field in request_fields(request):
        if isinstance(field.kind, type) and issubclass(field.kind, BaseRequest):
            yield from marked(field.kind)
        elif field.mark is not None:
            yield request, field


@pytest.mark.parametrize("verb", VERBS)
def test_options_are_the_fields_of_the_request(verb: str) -> None:
    command = typer.main.get_command(app)
    for word in verb.split():
        command = command.commands[word]  # type: ignore[attr-defined]
    parameters = {parameter.name: parameter for parameter in command.params}
    requests, others = VERBS[verb]
    fields = {field.name: (owner, field) for request in requests for owner, field in marked(request)}
    assert set(parameters) == set(fields) | others | {"quiet"}
    for name, (owner, field) in fields.items():
        parameter, mark = parameters[name], field.mark
        assert getattr(parameter, "help", None) == " ".join(field_docs(owner)[name].split())
        (default,) = (each.default for each in dataclasses.fields(owner) if each.name == name)  # type: ignore[arg-type]
        assert parameter.required == (default is dataclasses.MISSING)
        if default is not dataclasses.MISSING and default != ():
            assert parameter.default == default
        if isinstance(mark, Option):
            shown = mark.names or f"--{name.replace('_', '-')}"
            assert shown in parameter.opts
            assert parameter.metavar == (mark.metavar or "|".join(field.choices) or None)
        else:
            assert parameter.param_type_name == "argument"
