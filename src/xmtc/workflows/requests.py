"""What each verb takes: one frozen request type per verb. Command-line options are derived from them.

Nothing heavy is imported here, so that a command line that only prints its help starts at once.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from xmtc.core.constants import PROPENSITY_A, PROPENSITY_B
from xmtc.core.errors import ConfigError, check_positive, shown
from xmtc.core.request import Argument, BaseRequest, Option
from xmtc.workflows.data_requests import NotInLabels, ReadingOptions, VocabularyOptions

ModelFolder = Annotated[Path, Argument("DIR")]
UnseenLabels = Literal["count", "drop"]


def parse_threshold(given: float | str | None) -> float | str | None:
    """A score, or 'auto' for what was tuned with a model; None where no sets are wanted."""
    if not isinstance(given, str) or given == "auto":
        return given
    try:
        value = float(given)
    except ValueError:
        value = math.nan
    if not abs(value) < 2**127:  # scores are float32
        raise ConfigError(f"--threshold must be a number such as 0.3, or auto. Got '{shown(given)}'.")
    return value


@dataclass(frozen=True, kw_only=True)
class ComparisonOptions(BaseRequest):
    """What is measured of every system of a comparison."""

    bootstrap: Annotated[int, Option("N")] = 0
    """Resamples for 95 % confidence intervals, such as 1000."""
    filter_file: Annotated[Path | None, Option("FILE", "--filter")] = None
    """Pairs 'document label' to leave out of predictions and truth."""
    unknown_labels: Annotated[UnseenLabels, Option()] = "count"
    """Test labels that training never saw: count them as missed, or drop them."""
    seed: Annotated[int, Option("N")] = 0
    """Seed of the resamples."""

    def check(self) -> None:
        if self.bootstrap and not 10 <= self.bootstrap <= 1_000_000:
            raise ConfigError(f"'bootstrap' must be 0, or between 10 and 1,000,000 resamples. Got {self.bootstrap}.")


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions(ComparisonOptions):
    """What is measured of one system."""

    threshold: Annotated[str | float | None, Option("auto|SCORE")] = None
    """F1 of the sets of labels with at least this score (default: auto, if tuned by xmtc calibrate)."""
    groups: Annotated[bool, Option()] = False
    """AUC and AUPR of frequent and rare labels apart."""
    tail: Annotated[bool, Option()] = False
    """P@k of the ten rarest labels over all documents."""
    propensity_a: Annotated[float, Option("A")] = PROPENSITY_A
    """A of the propensity model."""
    propensity_b: Annotated[float, Option("B")] = PROPENSITY_B
    """B of the propensity model."""

    def check(self) -> None:
        super().check()
        object.__setattr__(self, "threshold", parse_threshold(self.threshold))


def _clean(request: BaseRequest, *names: str) -> None:
    """Bytes of an argument that were not UTF-8 become question marks."""
    for name in names:
        value = getattr(request, name)
        if value is not None:
            object.__setattr__(request, name, value.encode("utf-8", "replace").decode())


def _check_filter(options: ComparisonOptions, reading: ReadingOptions) -> None:
    if options.filter_file is not None and reading.on_bad_line == "skip":
        raise ConfigError(
            "--filter counts documents, of which --on-bad-line skip may leave some out. Give one of them."
        )


@dataclass(frozen=True, kw_only=True)
class TrainRequest(BaseRequest):
    """A model to train and the files to train it on."""

    train_file: Annotated[Path, Argument("TRAIN")]
    """Documents with labels, in any known format."""
    out: Annotated[Path, Option("DIR")]
    """Folder for the model."""
    model: Annotated[str | None, Option("NAME")] = None
    """Which model (default: the best here)."""
    valid: Annotated[Path | None, Option("FILE")] = None
    """Validation set."""
    recipe: Annotated[str | None, Option("RECIPE", "--config")] = None
    """Settings from a TOML recipe."""
    assignments: Annotated[tuple[str, ...], Option("KEY=VALUE", "--set")] = ()
    """One setting; may be repeated."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings as a mapping, which `assignments` override."""
    force: Annotated[bool, Option()] = False
    """Replace a model or an unfinished training."""
    resume: Annotated[bool, Option()] = False
    """Go on with an unfinished training."""
    vocabulary: VocabularyOptions = field(default_factory=VocabularyOptions)
    reading: ReadingOptions = field(default_factory=ReadingOptions)


@dataclass(frozen=True, kw_only=True)
class UpdateRequest(BaseRequest):
    """A saved model and what it has to learn."""

    folder: ModelFolder
    """Model folder."""
    new: Annotated[Path | None, Argument("NEW")] = None
    """New documents with labels, in any known format."""
    out: Annotated[Path | None, Option("DIR2")] = None
    """Put the updated model here (default: in its place)."""
    valid: Annotated[Path | None, Option("FILE")] = None
    """Validation set to judge the update by (default: some of NEW)."""
    replay: Annotated[Path | None, Option("FILE")] = None
    """Earlier training documents to train on again (default: those stored with the model)."""
    retire: Annotated[Path | None, Option("FILE")] = None
    """Labels to remove."""
    merge: Annotated[Path | None, Option("FILE")] = None
    """Labels that become another: old key, a tab, new key."""
    margin: Annotated[float, Option("POINTS")] = 2.0
    """Refuse an update that lowers nDCG@5 by more points than this."""
    force: Annotated[bool, Option()] = False
    """Keep an update that is worse; replace a model in --out."""
    vocabulary: VocabularyOptions = field(default_factory=VocabularyOptions)
    reading: ReadingOptions = field(default_factory=ReadingOptions)

    def check(self) -> None:
        if not self.margin >= 0:
            raise ConfigError(f"--margin must be a number ≥ 0. Got {self.margin:g}.")
        if self.new is None and self.retire is None and self.merge is None:
            raise ConfigError("there is nothing to learn from. Name a file of new documents, --retire or --merge.")

    @property
    def target(self) -> Path:
        """The folder that the updated model goes to."""
        return self.folder if self.out is None else self.out


@dataclass(frozen=True, kw_only=True)
class PredictRequest(BaseRequest):
    """Documents and which of their labels to return."""

    folder: ModelFolder
    """Model folder."""
    source: Annotated[str | None, Argument("INPUT|-")] = None
    """Documents in any known format, or a text a line; - is standard input."""
    text: Annotated[str | None, Option()] = None
    """One text, instead of a file."""
    k: Annotated[int | None, Option("N", "-k")] = None
    """Labels for each document (default: 5), at most N of a set."""
    threshold: Annotated[str | float | None, Option("auto|SCORE")] = None
    """Sets: of the 50 best labels those with at least this score, or auto, as xmtc calibrate tuned it."""
    allow: Annotated[Path | None, Option("FILE")] = None
    """Return only the labels of this list or vocabulary."""
    deny: Annotated[Path | None, Option("FILE")] = None
    """Never return the labels of this one."""
    candidates: Annotated[Path | None, Option("FILE")] = None
    """Choose among labels given for each document: JSONL with id and labels."""
    reading: ReadingOptions = field(default_factory=ReadingOptions)

    def check(self) -> None:
        if (self.source is None) == (self.text is None):
            both = "" if self.text is None else ", not both"
            raise ConfigError(f"predict needs either an INPUT file (or - for standard input) or --text TEXT{both}.")
        object.__setattr__(self, "threshold", parse_threshold(self.threshold))
        _clean(self, "text")
        if self.k is not None:
            check_positive("k", self.k)
        if self.text is not None and self.candidates is not None:
            raise ConfigError("--candidates knows documents by their ids. Leave it out with --text.")


@dataclass(frozen=True, kw_only=True)
class BatchOptions(BaseRequest):
    """Predictions as a folder of Parquet parts."""

    parts: Annotated[int | None, Option("N")] = None
    """Make --output a folder of Parquet parts of N documents each."""
    resume: Annotated[bool, Option()] = False
    """Go on with unfinished parts."""
    force: Annotated[bool, Option()] = False
    """Replace parts that are there."""

    def check(self) -> None:
        if self.parts is None and (self.resume or self.force):
            option = "--resume" if self.resume else "--force"
            raise ConfigError(f"{option} goes with --parts. Leave it out, or add --parts N.")
        if self.parts is not None and self.parts < 1:
            raise ConfigError(f"the size of parts must be an integer ≥ 1. Got {self.parts}.")
        if self.resume and self.force:
            raise ConfigError("--resume goes on and --force starts over. Give one of them.")


@dataclass(frozen=True, kw_only=True)
class BatchPredictRequest(BaseRequest):
    """Predictions for many documents, and the folder for their parts."""

    predict: PredictRequest
    out: Path | None
    """Folder for the parts."""
    batch: BatchOptions

    def check(self) -> None:
        if self.predict.source is None:
            raise ConfigError("--parts is for many documents. Give an INPUT file in place of --text.")
        if self.out is None:
            raise ConfigError("--parts needs a folder to put them in. Add --output FOLDER.")
        if self.batch.resume and self.predict.source == "-":
            raise ConfigError("standard input cannot be read again. Resume with a file, or start over with --force.")


@dataclass(frozen=True, kw_only=True)
class EvaluateRequest(BaseRequest):
    """A model or a file of predictions, and the test documents to measure it on."""

    test: Path
    """Documents with labels."""
    folder: Path | None = None
    """Model folder."""
    predictions: Annotated[Path | None, Option("FILE")] = None
    """Score this file of predictions instead of a model."""
    predictions_format: Annotated[str | None, Option("NAME")] = None
    """jsonl, parquet, tsv, csv, fasttext, npz or xc (default: detected from the content)."""
    train: Annotated[Path | None, Option("FILE")] = None
    """With --predictions: training documents, for PSP."""
    labels: Annotated[Path | None, Option("FILE")] = None
    """Label names: JSONL, TSV, SKOS or a list."""
    keep: Annotated[bool, Option()] = False
    """Save the metrics beside the model, where xmtc serve shows them."""
    options: EvaluationOptions = field(default_factory=EvaluationOptions)
    reading: ReadingOptions = field(default_factory=ReadingOptions)

    def check(self) -> None:
        if (self.folder is None) == (self.predictions is None):
            raise ConfigError("evaluate needs a model folder and a test file, or --predictions FILE and a test file.")
        if self.options.tail and self.predictions is not None:
            raise ConfigError("--tail scores given labels, which takes a model. Leave it out with --predictions.")
        if self.keep and self.predictions is not None:
            raise ConfigError("--keep puts measures beside a model. Leave it out with --predictions.")
        _check_filter(self.options, self.reading)
        for option, given in (("--train", self.train), ("--predictions-format", self.predictions_format)):
            if given is not None and self.predictions is None:
                raise ConfigError(f"{option} goes with --predictions FILE. Leave it out, or name the predictions.")


@dataclass(frozen=True, kw_only=True)
class CompareRequest(BaseRequest):
    """Models to measure on the same test documents."""

    folders: tuple[Path, ...]
    """Model folders; differences are to the first."""
    test: Path
    """Documents with labels."""
    options: ComparisonOptions = field(default_factory=ComparisonOptions)
    reading: ReadingOptions = field(default_factory=ReadingOptions)

    def check(self) -> None:
        if not self.folders:
            raise ConfigError("compare needs one or more model folders and then a test file.")
        _check_filter(self.options, self.reading)

    @property
    def evaluation(self) -> EvaluationOptions:
        """What is measured of each model."""
        return EvaluationOptions(**dataclasses.asdict(self.options))


@dataclass(frozen=True, kw_only=True)
class CalibrateRequest(BaseRequest):
    """How a model's scores become probabilities, and how its sets of labels are chosen."""

    folder: ModelFolder
    """Model folder."""
    valid: Annotated[Path | None, Argument("VALID")] = None
    """Documents with labels that the model was not trained on."""
    method: Annotated[Literal["isotonic", "platt", "none"], Option()] = "isotonic"
    """How scores become probabilities."""
    threshold: Annotated[Literal["global", "document", "label", "none"], Option()] = "global"
    """Sets of labels: one threshold for all, the best set of each document, or one for each label."""
    measure: Annotated[Literal["micro", "macro", "document"] | None, Option(names="--f1")] = None
    """The F1 that the threshold is the best for (default: micro; document for --threshold document)."""
    k: Annotated[int, Option("N", "-k")] = 50
    """Labels of each document to look at."""
    labels: Annotated[Path | None, Option("FILE")] = None
    """Label names: JSONL, TSV, SKOS or a list."""
    unknown_labels: Annotated[NotInLabels, Option()] = "refuse"
    """Labels that are not in --labels."""
    reading: ReadingOptions = field(default_factory=ReadingOptions)

    def check(self) -> None:
        check_positive("k", self.k)
        if self.measure is not None and self.threshold == "none":
            raise ConfigError("--f1 says what the threshold is the best for, and there is none. Leave out one of them.")
        if self.threshold == "document" and self.measure not in (None, "document"):
            raise ConfigError(
                f"--threshold document gives the best document-F1, not {self.measure}-F1. Leave out --f1."
            )
        if self.valid is None and not (self.method == "none" and self.threshold == "none"):
            raise ConfigError("VALID is missing. Name documents with labels that the model was not trained on.")


@dataclass(frozen=True, kw_only=True)
class ExplainRequest(BaseRequest):
    """A text and one of its labels."""

    folder: ModelFolder
    """Model folder."""
    text: Annotated[str, Option()]
    """The text."""
    label: Annotated[str, Option("NAME")]
    """A label by name or key."""

    def check(self) -> None:
        _clean(self, "text", "label")


@dataclass(frozen=True, kw_only=True)
class LabelNeighboursRequest(BaseRequest):
    """A label whose nearest labels are wanted."""

    folder: ModelFolder
    """Model folder."""
    label: Annotated[str, Argument("LABEL")]
    """A label by name, alternative name or key."""
    k: Annotated[int, Option("N", "-k")] = 10
    """How many."""

    def check(self) -> None:
        _clean(self, "label")
        check_positive("k", self.k)


@dataclass(frozen=True, kw_only=True)
class LabelMapRequest(BaseRequest):
    """A model whose labels are drawn on a map."""

    folder: ModelFolder
    """Model folder."""
    most: Annotated[int, Option("N")] = 50_000
    """Draw at most so many labels, the most frequent ones."""

    def check(self) -> None:
        check_positive("most", self.most)


@dataclass(frozen=True, kw_only=True)
class FeedbackRequest(BaseRequest):
    """Feedback on a model."""

    folder: Annotated[Path, Argument("DIR")]
    """Model folder, or a .feedback.sqlite file."""
    since: Annotated[str | None, Option("DATE")] = None
    """Only feedback from then on (UTC unless it says otherwise)."""

    def check(self) -> None:
        _ = self.start

    @property
    def start(self) -> datetime | None:
        """The date of `since`."""
        if self.since is None:
            return None
        try:
            date = datetime.fromisoformat(self.since)
        except ValueError:
            raise ConfigError(f"--since must be a date such as 2026-11-30. Got '{shown(self.since)}'.") from None
        return date if date.tzinfo else date.replace(tzinfo=UTC)
