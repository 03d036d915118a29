"""Request and response bodies with examples, from which the OpenAPI document is generated."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, TypeVar

from fastapi import Request
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from starlette.requests import ClientDisconnect

from xmtc.core.constants import Redundant
from xmtc.core.errors import shown
from xmtc.server.errors import Problem, validation_problem
from xmtc.workflows.hosted_model import PredictOptions, VocabularyFilter
from xmtc.workflows.requests import required_use
from xmtc.workflows.serve import ServeRequest

AnyBody = TypeVar("AnyBody", bound="RequestBody")
MAX_SCORE = 1e38
"""Maximum absolute value of a threshold: scores are float32."""
MAX_FILTER_VALUES = 100
"""Maximum number of values of a condition on the vocabulary."""
DEFAULT_K, DEFAULT_K_WITH_THRESHOLD = 5, 50


def _positive_integer(value: Any) -> Any:
    """Accept an integer ≥ 1, written as 5 or 5.0 in JSON."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value // 1 or value < 1:
        raise ValueError(f"'k' must be an integer ≥ 1. Got {shown(repr(value))}.")
    return int(value)


def _threshold(value: Any) -> Any:
    if value is None or value == "auto":
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= MAX_SCORE:
        raise ValueError(f"'threshold' must be a number or 'auto'. Got {shown(repr(value))}.")
    return float(value)


class RequestBody(BaseModel):
    """A body without unknown fields and without conversions between types."""

    model_config = ConfigDict(extra="forbid", strict=True)
    example: ClassVar[dict[str, Any]]

    @classmethod
    def limit_schema(cls, properties: dict[str, Any], settings: ServeRequest) -> None:
        """Add the limits of the service to the JSON schema of the fields."""

    def check(self, settings: ServeRequest) -> None:
        """Refuse a body that exceeds the limits of the service."""


def _strings(description: str) -> Any:
    """A list of strings, validated up to the first invalid item."""
    return Field(description=description, fail_fast=True)


FilterValues = Annotated[list[str], Field(fail_fast=True, max_length=MAX_FILTER_VALUES)]
"""The values of a condition on the vocabulary."""
ModelName = Annotated[str | None, Field(description="Name of the model; default: the first one.")]


class PredictBody(RequestBody):
    """Texts to predict labels for."""

    example = {"texts": ["Rust on a cast iron pan", "Cheese for a pizza"], "k": 3}
    texts: Annotated[list[str], _strings("Texts; each gets its own labels.")]
    k: Annotated[
        int | None,
        BeforeValidator(_positive_integer, json_schema_input_type=int | None),
        Field(description="Number of labels per text (default: 5); with a threshold, the maximum number."),
    ] = None
    threshold: Annotated[
        float | Literal["auto"] | None,
        BeforeValidator(_threshold, json_schema_input_type=float | Literal["auto"] | None),
        Field(description="Minimum score of the returned labels, out of the best 50 or k; 'auto': tuned threshold."),
    ] = None
    model: ModelName = None
    allow: Annotated[Annotated[list[str], _strings("Keys of the only labels to return.")] | None, Field()] = None
    deny: Annotated[Annotated[list[str], _strings("Keys of labels never to return.")] | None, Field()] = None

    under: Annotated[
        FilterValues | None, Field(description="Return only these labels and those below, by key or name.")
    ] = None
    scheme: Annotated[FilterValues | None, Field(description="Return only labels of these concept schemes.")] = None
    collection: Annotated[FilterValues | None, Field(description="Return only labels of these collections.")] = None
    type: Annotated[FilterValues | None, Field(description="Return only labels of these types.")] = None
    only_used: Annotated[bool | None, Field(description="Return only labels with training documents.")] = None
    only_unused: Annotated[bool | None, Field(description="Return only labels without training documents.")] = None
    hierarchy: Annotated[
        Redundant | None,
        Field(
            description="Leave out labels if a narrower (or broader) one has at least half their score; default: keep."
        ),
    ] = None
    details: Annotated[bool | None, Field(description="Whether to add broader labels, notes and counts.")] = None

    @classmethod
    def limit_schema(cls, properties: dict[str, Any], settings: ServeRequest) -> None:
        properties["texts"] |= {"maxItems": settings.max_texts}
        properties["texts"]["items"] |= {"maxLength": settings.max_characters}
        properties["k"]["anyOf"][0] |= {"minimum": 1, "maximum": settings.max_k}
        properties["threshold"]["anyOf"][0] |= {"minimum": -MAX_SCORE, "maximum": MAX_SCORE}

    def check(self, settings: ServeRequest) -> None:
        count, most = len(self.texts), settings.max_texts
        if count > most:
            raise Problem(422, f"{count:,} texts exceed the limit of {most:,} per request. Send fewer texts.")
        _check_length(max(map(len, self.texts), default=0), "'texts'", settings.max_characters)
        if self.k is not None and self.k > settings.max_k:
            raise Problem(422, f"'k' must be at most {settings.max_k:,}. Got {shown(str(self.k), 20)}.")
        _ = self.used
        labels = count * (self.k or (DEFAULT_K if self.threshold is None else DEFAULT_K_WITH_THRESHOLD))
        most = settings.max_labels
        if labels > most:
            raise Problem(422, f"texts × k = {labels:,} exceeds the limit of {most:,}. Send fewer texts or lower k.")

    @property
    def used(self) -> bool | None:
        """Whether returned labels must have training documents, or must have none; None if both are returned."""
        return required_use(self.only_used, self.only_unused, ("'only_used'", "'only_unused'"))

    def options(self) -> PredictOptions:
        """The prediction options of the request."""
        allow, deny = (None if keys is None else tuple(dict.fromkeys(keys)) for keys in (self.allow, self.deny))
        under, schemes, collections, types = (
            tuple(dict.fromkeys(values or ())) for values in (self.under, self.scheme, self.collection, self.type)
        )
        vocabulary = VocabularyFilter(under, schemes, collections, types, self.used)
        hierarchy, details = self.hierarchy or "keep", bool(self.details)
        return PredictOptions(self.k, self.threshold, allow, deny, vocabulary, hierarchy, details)


class ExplainBody(RequestBody):
    """A text and one of its labels."""

    example = {"text": "Rust on a cast iron pan", "label": "cast-iron"}
    text: Annotated[str, Field(description="Text that the label was predicted for.")]
    label: Annotated[str, Field(description="Key or name of the label.", min_length=1)]
    model: ModelName = None

    @classmethod
    def limit_schema(cls, properties: dict[str, Any], settings: ServeRequest) -> None:
        properties["text"] |= {"maxLength": settings.max_explain_characters}

    def check(self, settings: ServeRequest) -> None:
        _check_length(len(self.text), "'text'", settings.max_explain_characters)


class FeedbackBody(RequestBody):
    """Feedback on the labels of a text."""

    example = {"text": "Rust on a cast iron pan", "accepted": ["cast-iron"], "rejected": ["pizza"]}
    text: Annotated[str, Field(description="Text that the feedback is about.")]
    accepted: Annotated[list[str], _strings("Keys of correct labels, including added ones.")] = []
    rejected: Annotated[list[str], _strings("Keys of wrong labels.")] = []
    complete: Annotated[bool, Field(description="Whether the accepted labels are all labels of the text.")] = False
    withdraw: Annotated[bool, Field(description="Withdraw earlier feedback on the text; requires no labels.")] = False
    model: ModelName = None

    @classmethod
    def limit_schema(cls, properties: dict[str, Any], settings: ServeRequest) -> None:
        properties["text"] |= {"maxLength": settings.max_characters}

    def check(self, settings: ServeRequest) -> None:
        _check_length(len(self.text), "'text'", settings.max_characters)
        both = set(self.accepted) & set(self.rejected)
        if both:
            raise Problem(422, f"label '{shown(min(both))}' is both accepted and rejected. Remove it from one list.")
        decides = bool(self.accepted or self.rejected or self.complete)
        if self.withdraw and decides:
            raise Problem(422, "'withdraw' cannot be combined with a decision. Leave out either of them.")
        if not self.withdraw and not decides:
            remedy = "Accept or reject a label, or set 'complete' (no label is correct) or 'withdraw'."
            raise Problem(422, f"the feedback contains no decision. {remedy}")


def _check_length(characters: int, field: str, most: int) -> None:
    if characters > most:
        raise Problem(422, f"a text in {field} has {characters:,} characters, more than {most:,}. Shorten it.")


class ResponseBody(BaseModel):
    """A JSON response body."""

    example: ClassVar[dict[str, Any] | None] = None


class LabelScore(BaseModel):
    """A label with its score."""

    key: str
    name: str
    score: float


class PredictedLabel(LabelScore):
    """A label with its score; the other fields are present with `details`."""

    broader: Annotated[list[str] | None, Field(description="Names of broader labels.")] = None
    description: str | None = None
    notes: list[str] | None = None
    schemes: list[str] | None = None
    documents: Annotated[int | None, Field(description="Number of training documents, if it is known.")] = None


class Prediction(BaseModel):
    """The labels of one text, best first. Texts without a known word get the same labels, and none at a threshold."""

    labels: list[PredictedLabel]
    known_words: Annotated[
        Literal[False] | None, Field(description="Present, and false, if the model knows no word of the text.")
    ] = None


class PredictResponse(ResponseBody):
    """The labels of each text, in the order of the texts."""

    example = {
        "model": "cooking",
        "predictions": [
            {"labels": [{"key": "cast-iron", "name": "Cast iron", "score": 0.93}]},
            {"labels": [{"key": "pizza", "name": "Pizza", "score": 0.81}]},
        ],
    }
    model: str
    predictions: list[Prediction]


class ExplainResponse(ResponseBody):
    """Explanation of a label; offsets are in Unicode code points."""

    example = {
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
            "features": [],
            "known_words": True,
        },
    }
    model: str
    label: LabelScore
    explanation: dict[str, Any]


class ModelsResponse(ResponseBody):
    """The served models and the limits of a request."""

    models: list[dict[str, Any]]
    limits: dict[str, int]


class MatchedLabel(BaseModel):
    """A label found by a search; `alternative` is the alternative name that matched."""

    key: str
    name: str
    alternative: str | None
    broader: list[str]
    description: str
    notes: list[str]
    schemes: list[str]
    documents: int


class LabelsResponse(ResponseBody):
    """Labels found by a search, best match first."""

    example = {
        "model": "cooking",
        "labels": [
            {
                "key": "cast-iron",
                "name": "Cast iron",
                "alternative": None,
                "broader": ["Cookware"],
                "description": "",
                "notes": [],
                "schemes": [],
                "documents": 212,
            }
        ],
        "more": False,
    }
    model: str
    labels: list[MatchedLabel]
    more: bool


class FeedbackResponse(ResponseBody):
    """Confirmation that feedback is saved."""

    example = {"id": 17, "model": "cooking"}
    id: int
    model: str


class StatusResponse(ResponseBody):
    """Status of the service."""

    status: str


class ProblemDetails(BaseModel):
    """Problem details (RFC 9457): what is wrong and how to fix it."""

    type: str
    title: str
    status: int
    detail: str


async def read_body(request: Request, kind: type[AnyBody], settings: ServeRequest) -> AnyBody:
    """Read and validate the body of a request; a body of the wrong content type is not read."""
    media_type = request.headers.get("content-type", "")
    if media_type.partition(";")[0].strip().lower() != "application/json":
        raise Problem(415, f"the body must be JSON. Send Content-Type: application/json, not '{shown(media_type)}'.")
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", ""):
        raise Problem(415, f"compressed bodies are not supported. Send no Content-Encoding, not '{shown(encoding)}'.")
    try:
        content = await request.body()
    except ClientDisconnect:
        raise Problem(400, "the client disconnected before the body was complete.") from None
    try:
        body = kind.model_validate_json(content)
    except ValidationError as error:
        raise validation_problem(error, list(kind.model_fields)) from None
    body.check(settings)
    return body


def request_body(kind: type[RequestBody], settings: ServeRequest) -> dict[str, Any]:
    """The OpenAPI schema of a request body, with the limits of this service."""
    schema = kind.model_json_schema()
    kind.limit_schema(schema["properties"], settings)
    content = {"application/json": {"schema": schema, "example": kind.example}}
    return {"requestBody": {"required": True, "content": content}}
