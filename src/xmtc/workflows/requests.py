"""The parameters of each command: one frozen request type per command, from which its options are derived.

Nothing heavy is imported here, so that `xmtc --help` starts fast.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from xmtc.core.constants import PROPENSITY_A, PROPENSITY_B, Redundant
from xmtc.core.errors import ConfigError, check_positive, shown
from xmtc.core.request import Argument, BaseRequest, Option
from xmtc.workflows.data_requests import NotInLabels, ReadingOptions, VocabularyOptions

ModelFolder = Annotated[Path, Argument("DIR")]
UnseenLabels = Literal["count", "drop"]


def parse_threshold(given: float | str | None) -> float | str | None:
    """A score, 'auto' for the threshold tuned by `xmtc calibrate`, or None for no threshold."""
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
    """Options of the evaluation of each model in a comparison."""

    bootstrap: Annotated[int, Option("N")] = 0
    """Number of bootstrap resamples for 95% confidence intervals, such as 1000; 0 for none."""
    filter_file: Annotated[Path | None, Option("FILE", "--filter")] = None
    """File of 'document label' pairs to exclude from predictions and true labels."""
    unknown_labels: Annotated[UnseenLabels, Option()] = "count"
    """Test labels that cannot be predicted, without training documents: count them as missed, or drop them."""
    seed: Annotated[int, Option("N")] = 0
    """Random seed of the resamples."""
    hierarchy: Annotated[bool, Option()] = False
    """Also compute metrics that credit predictions near a true label in the hierarchy of the labels."""

    def check(self) -> None:
        if self.bootstrap and not 10 <= self.bootstrap <= 1_000_000:
            raise ConfigError(f"--bootstrap must be 0 or from 10 to 1,000,000. Got {self.bootstrap}.")


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions(ComparisonOptions):
    """Options of the evaluation of one model or file of predictions."""

    threshold: Annotated[str | float | None, Option("auto|SCORE")] = None
    """Also compute F1 of the sets of labels with at least this score (default: auto if the model is calibrated)."""
    groups: Annotated[bool, Option()] = False
    """Also report AUC and AUPR by label frequency."""
    tail: Annotated[bool, Option()] = False
    """Also rank all documents for each of the ten rarest labels and report P@k."""
    propensity_a: Annotated[float, Option("A")] = PROPENSITY_A
    """Parameter A of the propensity model."""
    propensity_b: Annotated[float, Option("B")] = PROPENSITY_B
    """Parameter B of the propensity model."""

    def check(self) -> None:
        super().check()
        object.__setattr__(self, "threshold", parse_threshold(self.threshold))


def _clean(request: BaseRequest, *names: str) -> None:
    """Replace bytes that are not UTF-8 with question marks."""
    for name in names:
        value = getattr(request, name)
        if value is not None:
            object.__setattr__(request, name, value.encode("utf-8", "replace").decode())


def _check_filter(options: ComparisonOptions, reading: ReadingOptions) -> None:
    if options.filter_file is not None and reading.on_bad_line == "skip":
        raise ConfigError(
            "--filter refers to documents by number and cannot be used with --on-bad-line skip. Leave out one of them."
        )


@dataclass(frozen=True, kw_only=True)
class PresetOptions(BaseRequest):
    """Options of a preset, which chooses models and settings for the data."""

    preset: Annotated[Literal["fast", "good", "best"] | None, Option()] = None
    """Choose models for the data: one (the default if no model is named), several combined, or also networks."""
    minutes: Annotated[float | None, Option("N")] = None
    """Time limit of --preset good (default: 10) and best (default: 60)."""
    metric: Annotated[str, Option("METRIC")] = "nDCG@5"
    """Metric by which a preset chooses, such as nDCG@5, P@1 or PSP@3."""
    max_ms: Annotated[float | None, Option("MS")] = None
    """Maximum prediction time of the model, in milliseconds per document on this machine."""
    max_mb: Annotated[float | None, Option("MIB")] = None
    """Maximum size of the model folder in MiB."""
    split_by: Annotated[str | None, Option("FIELD")] = None
    """Hold out whole groups, or the latest documents, by this field; FIELD:group or FIELD:time if it is not clear."""
    distil: Annotated[str | None, Option("NAME", complete="models")] = None
    """Train this model on what the combined models have learnt, and save it instead of them."""
    encoder: Annotated[Path | None, Option("FOLDER")] = None
    """With --preset best: a pretrained Hugging Face encoder, which is fine-tuned if there is a GPU or time."""
    unlabelled: Annotated[Path | None, Option("FILE")] = None
    """With --distil: documents without labels, which the combined models label for training."""

    def check(self) -> None:
        searches = self.preset in ("good", "best")
        if self.unlabelled is not None and self.distil is None:
            raise ConfigError("--unlabelled can only be used with --distil. Add --distil NAME, or leave it out.")
        if self.encoder is not None and self.preset != "best":
            raise ConfigError("--encoder can only be used with --preset best. Add it, or leave out --encoder.")
        if self.distil is not None and (self.max_ms is not None or self.max_mb is not None):
            raise ConfigError("--max-ms and --max-mb limit combined models. Leave them out, or --distil.")
        for name in ("minutes", "max_ms", "max_mb", "split_by", "distil"):
            value = getattr(self, name)
            if value is None:
                continue
            option = f"--{name.replace('_', '-')}"
            if not searches:
                raise ConfigError(f"{option} can only be used with --preset good or best. Add one of them.")
            if isinstance(value, (int, float)) and not 0 < value < math.inf:
                raise ConfigError(f"{option} must be a finite number > 0. Got {value:g}.")

    def check_with_validation(self) -> None:
        """Refuse options that a given validation set excludes."""
        for name, option in (("distil", "--distil"), ("split_by", "--split-by")):
            if getattr(self, name) is not None:
                why = "needs predictions for training documents" if name == "distil" else "holds out training documents"
                raise ConfigError(f"{option} {why} and cannot be used with --valid. Leave out one of them.")


@dataclass(frozen=True, kw_only=True)
class TrainRequest(BaseRequest):
    """A model to train, its settings and the training files."""

    train_file: Annotated[Path, Argument("TRAIN")]
    """Training set in any supported format."""
    out: Annotated[Path, Option("DIR", short="-o")]
    """Folder to write the model to."""
    model: Annotated[str | None, Option("NAME", complete="models")] = None
    """Model to train (default: chosen by --preset fast). `xmtc models` lists them."""
    auto: PresetOptions = field(default_factory=PresetOptions)
    valid: Annotated[Path | None, Option("FILE")] = None
    """Validation set."""
    recipe: Annotated[str | None, Option("RECIPE", "--config", complete="recipes")] = None
    """Recipe with settings: a TOML file, or the name of a built-in recipe."""
    assignments: Annotated[tuple[str, ...], Option("KEY=VALUE", "--set")] = ()
    """Change a setting, such as text.min_df=3; can be repeated."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings as a mapping; `assignments` take precedence."""
    force: Annotated[bool, Option()] = False
    """Replace an existing model or an interrupted training run."""
    resume: Annotated[bool, Option()] = False
    """Resume an interrupted training run."""
    vocabulary: VocabularyOptions = field(default_factory=VocabularyOptions)
    reading: ReadingOptions = field(default_factory=ReadingOptions)

    def check(self) -> None:
        named = {"--model": self.model, "--config": self.recipe, "--set": self.assignments or None}
        for option, value in named.items():
            if value is not None and self.auto.preset is not None:
                raise ConfigError(f"--preset chooses the model and its settings. Leave out {option}, or --preset.")
            if value is not None and self.auto.metric != PresetOptions.metric:
                raise ConfigError(f"--metric can only be used with a preset. Leave out --metric, or {option}.")
        if self.valid is not None:
            self.auto.check_with_validation()

    @property
    def uses_preset(self) -> bool:
        """Whether a preset chooses the model: neither a model nor settings are given."""
        return not (self.model or self.recipe or self.assignments or self.settings)


@dataclass(frozen=True, kw_only=True)
class UpdateRequest(BaseRequest):
    """A saved model, and new documents and label changes to update it with."""

    folder: ModelFolder
    """Model folder."""
    new: Annotated[Path | None, Argument("NEW")] = None
    """New documents with labels, in any supported format."""
    out: Annotated[Path | None, Option("DIR2", short="-o")] = None
    """Folder to write the updated model to (default: replace the model in DIR)."""
    valid: Annotated[Path | None, Option("FILE")] = None
    """Validation set to check the update with (default: a tenth of NEW, if it has at least 500 documents)."""
    replay: Annotated[Path | None, Option("FILE")] = None
    """Earlier training documents to train on again (default: the sample stored with the model)."""
    retire: Annotated[Path | None, Option("FILE")] = None
    """Labels to remove, one key per line."""
    merge: Annotated[Path | None, Option("FILE")] = None
    """Labels to rename or merge: old key, tab and new key on each line."""
    margin: Annotated[float, Option("POINTS")] = 2.0
    """Reject the update if nDCG@5 drops by more than this many points."""
    force: Annotated[bool, Option()] = False
    """Save the update even if nDCG@5 drops too far or no label of --labels is known; replace a model in --out."""
    vocabulary: VocabularyOptions = field(default_factory=VocabularyOptions)
    reading: ReadingOptions = field(default_factory=ReadingOptions)

    def check(self) -> None:
        if not self.margin >= 0:
            raise ConfigError(f"--margin must be a number ≥ 0. Got {self.margin:g}.")
        if self.new is None and self.retire is None and self.merge is None and self.vocabulary.labels is None:
            options = "--retire FILE, --merge FILE or --labels FILE"
            raise ConfigError(f"nothing to update. Pass a file of new documents, {options}.")

    @property
    def target(self) -> Path:
        """The folder of the updated model."""
        return self.folder if self.out is None else self.out


def required_use(only_used: bool | None, only_unused: bool | None, names: tuple[str, str]) -> bool | None:
    """True for labels with training documents only, False for those without, None for both."""
    if only_used and only_unused:
        raise ConfigError(f"{names[0]} and {names[1]} exclude all labels. Leave out one of them.")
    return True if only_used else False if only_unused else None


@dataclass(frozen=True, kw_only=True)
class VocabularyFilterOptions(BaseRequest):
    """Labels that may be returned, by what the vocabulary says about them."""

    under: Annotated[tuple[str, ...], Option("LABEL")] = ()
    """Return only this label, by key or name, and the labels below it; can be repeated."""
    scheme: Annotated[tuple[str, ...], Option("NAME")] = ()
    """Return only labels of this concept scheme, a URI in SKOS, any string in JSON Lines; can be repeated."""
    collection: Annotated[tuple[str, ...], Option("NAME")] = ()
    """Return only labels of this collection; can be repeated."""
    label_type: Annotated[tuple[str, ...], Option("NAME", "--type")] = ()
    """Return only labels of this type, a URI in SKOS, any string in JSON Lines; can be repeated."""
    only_used: Annotated[bool, Option()] = False
    """Return only labels with training documents."""
    only_unused: Annotated[bool, Option()] = False
    """Return only labels without training documents."""

    def check(self) -> None:
        _ = self.used

    @property
    def used(self) -> bool | None:
        """Whether returned labels must have training documents, or must have none; None if both are returned."""
        return required_use(self.only_used, self.only_unused, ("--only-used", "--only-unused"))


@dataclass(frozen=True, kw_only=True)
class PredictRequest(BaseRequest):
    """Documents, and the selection of labels to return."""

    folder: ModelFolder
    """Model folder."""
    source: Annotated[str | None, Argument("INPUT|-")] = None
    """Documents in any supported format, or one text per line; - is standard input."""
    text: Annotated[str | None, Option("TEXT")] = None
    """Text to label, instead of INPUT."""
    k: Annotated[int | None, Option("N", "-k")] = None
    """Number of labels per document (default: 5; with --threshold, up to 50)."""
    threshold: Annotated[str | float | None, Option("auto|SCORE")] = None
    """Return the labels with at least this score; auto is the threshold tuned by xmtc calibrate."""
    allow: Annotated[Path | None, Option("FILE")] = None
    """Return only the labels in this list or vocabulary."""
    deny: Annotated[Path | None, Option("FILE")] = None
    """Never return the labels in this list or vocabulary."""
    candidates: Annotated[Path | None, Option("FILE")] = None
    """Candidate labels for each document: JSONL with id and labels."""
    vocabulary: VocabularyFilterOptions = field(default_factory=VocabularyFilterOptions)
    hierarchy: Annotated[Redundant, Option()] = "keep"
    """With narrowest (broadest), leave out a label if a narrower (broader) one has at least half its score."""
    details: Annotated[bool, Option()] = False
    """Add broader labels, description, notes, schemes and training documents to each label, as JSON Lines."""
    reading: ReadingOptions = field(default_factory=ReadingOptions)

    def check(self) -> None:
        if (self.source is None) == (self.text is None):
            both = "" if self.text is None else ", not both"
            raise ConfigError(f"predict requires either an INPUT file (or - for standard input) or --text TEXT{both}.")
        object.__setattr__(self, "threshold", parse_threshold(self.threshold))
        _clean(self, "text")
        if self.k is not None:
            check_positive("k", self.k)
        if self.text is not None and self.candidates is not None:
            raise ConfigError("--candidates requires document ids and cannot be used with --text. Pass an INPUT file.")


@dataclass(frozen=True, kw_only=True)
class BatchOptions(BaseRequest):
    """Options for predictions as a folder of Parquet parts."""

    parts: Annotated[int | None, Option("N")] = None
    """Write a folder of Parquet files with N documents each to --out."""
    resume: Annotated[bool, Option()] = False
    """With --parts: resume an interrupted run."""
    force: Annotated[bool, Option()] = False
    """With --parts: replace existing parts."""

    def check(self) -> None:
        if self.parts is None and (self.resume or self.force):
            option = "--resume" if self.resume else "--force"
            raise ConfigError(f"{option} can only be used with --parts. Add --parts N, or leave out {option}.")
        if self.parts is not None and self.parts < 1:
            raise ConfigError(f"--parts must be an integer ≥ 1. Got {self.parts}.")
        if self.resume and self.force:
            raise ConfigError("--resume and --force cannot be used together. Leave out one of them.")


@dataclass(frozen=True, kw_only=True)
class BatchPredictRequest(BaseRequest):
    """Predictions for many documents, and the folder to write the parts to."""

    predict: PredictRequest
    out: Path | None
    """Folder for the parts."""
    batch: BatchOptions

    def check(self) -> None:
        if self.predict.source is None:
            raise ConfigError("--parts cannot be used with --text. Pass an INPUT file.")
        if self.out is None:
            raise ConfigError("--parts requires an output folder. Add --out FOLDER.")
        if self.batch.resume and self.predict.source == "-":
            raise ConfigError("--resume cannot be used with standard input. Pass a file, or start over with --force.")


@dataclass(frozen=True, kw_only=True)
class EvaluateRequest(BaseRequest):
    """A model or a file of predictions, and the test set to evaluate it on."""

    test: Path
    """Test set: documents with labels."""
    folder: Path | None = None
    """Model folder."""
    predictions: Annotated[Path | None, Option("FILE")] = None
    """Evaluate the predictions in FILE instead of a model."""
    predictions_format: Annotated[str | None, Option("NAME")] = None
    """Format of the predictions: jsonl, parquet, tsv, csv, fasttext, npz or xc (default: detected)."""
    train: Annotated[Path | None, Option("FILE")] = None
    """With --predictions: the training set, needed for PSP and PSnDCG."""
    labels: Annotated[Path | None, Option("FILE")] = None
    """Label vocabulary: JSONL, TSV, CSV, SKOS or a list."""
    keep: Annotated[bool, Option(names="--save-metrics")] = False
    """Save the metrics alongside the model; xmtc models and xmtc serve show them."""
    options: EvaluationOptions = field(default_factory=EvaluationOptions)
    reading: ReadingOptions = field(default_factory=ReadingOptions)

    def check(self) -> None:
        if (self.folder is None) == (self.predictions is None):
            raise ConfigError(
                "evaluate requires a model folder and a test file, or --predictions FILE and a test file."
            )
        if self.options.tail and self.predictions is not None:
            raise ConfigError("--tail requires a model. Leave out --tail or --predictions.")
        if self.keep and self.predictions is not None:
            raise ConfigError("--save-metrics requires a model. Leave out --save-metrics or --predictions.")
        _check_filter(self.options, self.reading)
        for option, given in (("--train", self.train), ("--predictions-format", self.predictions_format)):
            if given is not None and self.predictions is None:
                raise ConfigError(f"{option} can only be used with --predictions FILE. Leave it out.")


@dataclass(frozen=True, kw_only=True)
class CompareRequest(BaseRequest):
    """Models to evaluate on the same test set."""

    folders: tuple[Path, ...]
    """Model folders; differences are relative to the first."""
    test: Path
    """Test set: documents with labels."""
    labels: Annotated[Path | None, Option("FILE")] = None
    """Label vocabulary: JSONL, TSV, CSV, SKOS or a list."""
    options: ComparisonOptions = field(default_factory=ComparisonOptions)
    reading: ReadingOptions = field(default_factory=ReadingOptions)

    def check(self) -> None:
        if not self.folders:
            raise ConfigError("compare requires one or more model folders, followed by a test file.")
        _check_filter(self.options, self.reading)

    @property
    def evaluation(self) -> EvaluationOptions:
        """The options of the evaluation of each model."""
        return EvaluationOptions(**dataclasses.asdict(self.options))


@dataclass(frozen=True, kw_only=True)
class CalibrateRequest(BaseRequest):
    """Calibration of a model's scores and tuning of its threshold."""

    folder: ModelFolder
    """Model folder."""
    valid: Annotated[Path | None, Argument("VALID")] = None
    """Validation set: documents with labels that the model was not trained on."""
    method: Annotated[Literal["isotonic", "platt", "none"], Option()] = "isotonic"
    """Calibration method; none returns the scores unchanged."""
    threshold: Annotated[Literal["global", "document", "label", "none"], Option()] = "global"
    """Tune one threshold for all labels, the best label set of each document, one threshold per label, or none."""
    measure: Annotated[Literal["micro", "macro", "document"] | None, Option(names="--f1")] = None
    """Average of F1 to maximise (default: micro; document with --threshold document)."""
    k: Annotated[int, Option("N", "-k")] = 50
    """Number of labels per document to consider."""
    labels: Annotated[Path | None, Option("FILE")] = None
    """Label vocabulary: JSONL, TSV, CSV, SKOS or a list."""
    unknown_labels: Annotated[NotInLabels, Option()] = "refuse"
    """Labels that are not in --labels: stop with an error, or drop them."""
    reading: ReadingOptions = field(default_factory=ReadingOptions)

    def check(self) -> None:
        check_positive("k", self.k)
        if self.measure is not None and self.threshold == "none":
            raise ConfigError("--f1 cannot be used with --threshold none. Leave out one of them.")
        if self.threshold == "document" and self.measure not in (None, "document"):
            raise ConfigError(f"--threshold document optimises document-F1, not {self.measure}-F1. Leave out --f1.")
        if self.valid is None and not (self.method == "none" and self.threshold == "none"):
            raise ConfigError("VALID is missing. Pass documents with labels that the model was not trained on.")


@dataclass(frozen=True, kw_only=True)
class ExportRequest(BaseRequest):
    """A neural model to export."""

    folder: ModelFolder
    """Model folder."""
    onnx: Annotated[Path, Option("OUT")]
    """Export to ONNX: a model folder, or a file that ends in .onnx and has the network only."""
    int8: Annotated[bool, Option()] = False
    """Store 8-bit weights: a smaller and faster model with slightly different probabilities."""
    check_file: Annotated[Path | None, Option("FILE", "--check")] = None
    """Compare predictions on documents of FILE (default: texts of random words)."""
    force: Annotated[bool, Option()] = False
    """Replace OUT if it exists."""
    reading: ReadingOptions = field(default_factory=ReadingOptions)


@dataclass(frozen=True, kw_only=True)
class ExplainRequest(BaseRequest):
    """A text and the label to explain."""

    folder: ModelFolder
    """Model folder."""
    text: Annotated[str, Option("TEXT")]
    """Text to explain."""
    label: Annotated[str, Option("NAME")]
    """Label to explain, by name or key."""

    def check(self) -> None:
        _clean(self, "text", "label")


@dataclass(frozen=True, kw_only=True)
class LabelNeighboursRequest(BaseRequest):
    """A label whose nearest neighbours to list."""

    folder: ModelFolder
    """Model folder."""
    label: Annotated[str, Argument("LABEL")]
    """Label, by name, alternative name or key."""
    k: Annotated[int, Option("N", "-k")] = 10
    """Number of neighbours."""

    def check(self) -> None:
        _clean(self, "label")
        check_positive("k", self.k)


@dataclass(frozen=True, kw_only=True)
class LabelMapRequest(BaseRequest):
    """A model whose labels to draw on a map."""

    folder: ModelFolder
    """Model folder."""
    most: Annotated[int, Option("N")] = 50_000
    """Maximum number of labels; the most frequent ones are drawn."""

    def check(self) -> None:
        check_positive("most", self.most)


@dataclass(frozen=True, kw_only=True)
class FeedbackRequest(BaseRequest):
    """Feedback on a model."""

    folder: Annotated[Path, Argument("DIR")]
    """Model folder, or a .feedback.sqlite file."""
    since: Annotated[str | None, Option("DATE")] = None
    """Use only feedback from this date on, such as 2026-11-30 (UTC unless it has a time zone)."""

    def check(self) -> None:
        _ = self.start

    @property
    def start(self) -> datetime | None:
        """`since` as a date."""
        if self.since is None:
            return None
        try:
            date = datetime.fromisoformat(self.since)
        except ValueError:
            raise ConfigError(f"--since must be a date such as 2026-11-30. Got '{shown(self.since)}'.") from None
        return date if date.tzinfo else date.replace(tzinfo=UTC)
