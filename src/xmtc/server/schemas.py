"""What a request may hold and what is answered, with examples: the source of the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from fastapi import Request
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from starlette.requests import ClientDisconnect

from xmtc.core.errors import shown
from xmtc.server.errors import Problem, invalid
from xmtc.server.limits import Limits

Asked = TypeVar("Asked", bound="Body")
MOST_SCORE = 2.0**127
"""Scores are float32."""
FEW, MANY = 5, 50
"""Labels of a text where nothing says how many: at most so many without a threshold, and with one."""


def _whole(value: Any) -> Any:
    """A whole number ≥ 1, written as JSON may write it: 5 or 5.0."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value // 1 or value < 1:
        raise ValueError(f"'k' must be an integer ≥ 1. Got {shown(repr(value))}.")
    return int(value)


def _threshold(value: Any) -> Any:
    if value is None or value == "auto":
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < MOST_SCORE:
        raise ValueError(f"'threshold' must be a number or auto. Got {shown(repr(value))}.")
    return float(value)


class Body(BaseModel):
    """What all requests have in common: nothing is taken for what it is not."""

    model_config = ConfigDict(extra="forbid", strict=True)

    def check(self, limits: Limits) -> None:
        """Refuse what is beyond the limits."""


def listed(description: str) -> Any:
    """A list of strings; the first that is none is all that is told, however many there are."""
    return Field(description=description, fail_fast=True)


ModelName = Annotated[str | None, Field(description="Which model; the first where none is named.")]


class PredictBody(Body):
    """Texts to tag."""

    texts: Annotated[list[str], listed("Texts, each tagged by itself.")]
    k: Annotated[
        int | None,
        BeforeValidator(_whole, json_schema_input_type=int | None),
        Field(description="Labels of each text: 5 where nothing is said; with a threshold, at most so many."),
    ] = None
    threshold: Annotated[
        float | Literal["auto"] | None,
        BeforeValidator(_threshold, json_schema_input_type=float | Literal["auto"] | None),
        Field(description="Of the 50 best labels those with at least this score; auto where one was tuned."),
    ] = None
    model: ModelName = None
    allow: Annotated[Annotated[list[str], listed("Keys of labels: only these are returned.")] | None, Field()] = None
    deny: Annotated[Annotated[list[str], listed("Keys of labels: never these.")] | None, Field()] = None

    def check(self, limits: Limits) -> None:
        if len(self.texts) > limits.texts:
            raise Problem(422, f"{len(self.texts):,} texts; at most {limits.texts:,} go together. Send fewer at once.")
        longest = max(map(len, self.texts), default=0)
        check_text(longest, "'texts'", limits.characters)
        if self.k is not None and self.k > limits.k:
            raise Problem(422, f"'k' must be at most {limits.k:,} here. Got {shown(str(self.k), 20)}.")
        wanted = len(self.texts) * (self.k or (FEW if self.threshold is None else MANY))
        if wanted > limits.labels:
            raise Problem(
                422, f"{wanted:,} labels are asked for; at most {limits.labels:,} go together. Send fewer texts."
            )


class ExplainBody(Body):
    """A text and one of its labels."""

    text: Annotated[str, Field(description="The text.")]
    label: Annotated[str, Field(description="A label, by key or name.", min_length=1)]
    model: ModelName = None

    def check(self, limits: Limits) -> None:
        check_text(len(self.text), "'text'", limits.explained)


class FeedbackBody(Body):
    """What a person decided about the labels of a text."""

    text: Annotated[str, Field(description="The text.")]
    accepted: Annotated[list[str], listed("Keys of labels that are right, added ones among them.")] = []
    rejected: Annotated[list[str], listed("Keys of labels that are wrong.")] = []
    model: ModelName = None

    def check(self, limits: Limits) -> None:
        check_text(len(self.text), "'text'", limits.characters)
        both = set(self.accepted) & set(self.rejected)
        if both:
            raise Problem(422, f"label '{shown(min(both))}' is both accepted and rejected. Decide on one.")


def check_text(characters: int, what: str, most: int) -> None:
    if characters > most:
        raise Problem(422, f"a text of {what} has {characters:,} characters; at most {most:,} are taken. Cut it.")


class Label(BaseModel):
    """A label and its score."""

    key: str
    name: str
    score: float


class Tagged(BaseModel):
    """The labels of one text, best first."""

    labels: list[Label]


class PredictResponse(BaseModel):
    """The labels of each text, in the order of the texts."""

    model: str
    predictions: list[Tagged]


class Explained(BaseModel):
    """Why a text gets a label; offsets count Unicode code points."""

    model: str
    label: Label
    explanation: dict[str, Any]


class Models(BaseModel):
    """The models that are served, and what a request may hold."""

    models: list[dict[str, Any]]
    limits: dict[str, int]


class FoundLabel(BaseModel):
    """A label that a search found; `alternative` is the other name by which it did."""

    key: str
    name: str
    alternative: str | None
    documents: int


class FoundLabels(BaseModel):
    """Labels that a search found, the likeliest first."""

    model: str
    labels: list[FoundLabel]
    more: bool


class Kept(BaseModel):
    """Feedback that is on disk."""

    id: int
    model: str


class Status(BaseModel):
    """How the service is."""

    status: str


class ProblemBody(BaseModel):
    """What is wrong, and what to do."""

    type: str
    title: str
    status: int
    detail: str


EXAMPLES: dict[type[Body], dict[str, Any]] = {
    PredictBody: {"texts": ["Rust on a cast iron pan", "Cheese for a pizza"], "k": 3},
    ExplainBody: {"text": "Rust on a cast iron pan", "label": "cast-iron"},
    FeedbackBody: {"text": "Rust on a cast iron pan", "accepted": ["cast-iron"], "rejected": ["pizza"]},
}
ANSWERS: dict[type[BaseModel], dict[str, Any]] = {
    PredictResponse: {
        "model": "cooking",
        "predictions": [
            {"labels": [{"key": "cast-iron", "name": "Cast iron", "score": 0.93}]},
            {"labels": [{"key": "pizza", "name": "Pizza", "score": 0.81}]},
        ],
    },
    Explained: {
        "model": "cooking",
        "label": {"key": "cast-iron", "name": "Cast iron", "score": 0.93},
        "explanation": {
            "kind": "tokens",
            "text": "Rust on a cast iron pan",
            "label": "Cast iron",
            "score": 0.93,
            "evidence": [{"text": "iron", "start": 15, "end": 19, "weight": 1.2}],
            "constant": -0.4,
            "path": [],
            "shares": False,
        },
    },
    FoundLabels: {
        "model": "cooking",
        "labels": [{"key": "cast-iron", "name": "Cast iron", "alternative": None, "documents": 212}],
        "more": False,
    },
    Kept: {"id": 17, "model": "cooking"},
}


async def read_body(request: Request, kind: type[Asked], limits: Limits) -> Asked:
    """The body of a request, checked."""
    sent = request.headers.get("content-type", "")
    if sent.partition(";")[0].strip().lower() != "application/json":
        raise Problem(415, f"the body must be JSON. Send Content-Type: application/json, not '{shown(sent)}'.")
    try:
        content = await request.body()
    except ClientDisconnect:
        raise Problem(400, "the request ended before its body did.") from None
    try:
        body = kind.model_validate_json(content)
    except ValidationError as error:
        raise invalid(error, list(kind.model_fields)) from None
    body.check(limits)
    return body


def body_schema(kind: type[Body], limits: Limits) -> dict[str, Any]:
    """What OpenAPI says of a body, with the limits of this service."""
    schema = kind.model_json_schema()
    fields = schema["properties"]
    if "texts" in fields:
        fields["texts"] |= {"maxItems": limits.texts}
        fields["texts"]["items"] |= {"maxLength": limits.characters}
        fields["k"]["anyOf"][0] |= {"minimum": 1, "maximum": limits.k}
        fields["threshold"]["anyOf"][0] |= {"minimum": -1e38, "maximum": 1e38}
    else:
        fields["text"] |= {"maxLength": limits.explained if kind is ExplainBody else limits.characters}
    return {
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": schema, "example": EXAMPLES[kind]}},
        }
    }
