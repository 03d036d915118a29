"""The parameters of tuning and of the studies, from which options are derived. Nothing heavy is imported."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from xmtc.core.errors import ConfigError, DataError, shown
from xmtc.core.request import Argument, BaseRequest, Option
from xmtc.workflows.data_requests import ReadingOptions, VocabularyOptions
from xmtc.workflows.requests import UnseenLabels


@dataclass(frozen=True, kw_only=True)
class TuneRequest(BaseRequest):
    """A search for the best settings of a model."""

    model: Annotated[str, Argument("NAME", complete="models")]
    """Model to tune."""
    train_file: Annotated[Path, Argument("TRAIN")]
    """Training set in any supported format."""
    out: Annotated[Path, Option("DIR", short="-o")]
    """Folder for the trials, the recipe and the model."""
    valid: Annotated[Path | None, Option("FILE")] = None
    """Validation set (default: a tenth of TRAIN)."""
    trials: Annotated[int, Option("N")] = 30
    """Maximum number of trials."""
    minutes: Annotated[float | None, Option("M")] = None
    """Start no new trial after this many minutes (default: no limit)."""
    assignments: Annotated[tuple[str, ...], Option("KEY=VALUE", "--set")] = ()
    """Fix a setting for all trials; can be repeated."""
    search: Annotated[tuple[str, ...], Option("KEY[=VALUES]")] = ()
    """Search only this setting, optionally with a range KEY=LOW..HIGH or values KEY=[a, b]; can be repeated."""
    recipe: Annotated[str | None, Option("RECIPE", "--config", complete="recipes")] = None
    """Recipe with the settings to start from: a TOML file, or the name of a built-in recipe."""
    measure: Annotated[str, Option("NAME", "--metric")] = "nDCG@5"
    """Metric to optimise."""
    force: Annotated[bool, Option()] = False
    """Replace an earlier search in the folder."""
    resume: Annotated[bool, Option()] = False
    """Resume an interrupted search."""
    refit: Annotated[bool, Option()] = True
    """At the end, train on all of TRAIN with the best settings."""
    vocabulary: VocabularyOptions = field(default_factory=VocabularyOptions)
    reading: ReadingOptions = field(default_factory=ReadingOptions)


@dataclass(frozen=True, kw_only=True)
class StudyRequest(BaseRequest):
    """The files, settings and seeds of a study."""

    train: Annotated[Path, Argument("TRAIN")]
    """Training set."""
    test: Annotated[Path, Argument("TEST")]
    """Test set."""
    out: Annotated[Path, Option("DIR", short="-o")]
    """Folder for the runs, the figure and the table."""
    valid: Annotated[Path | None, Option("FILE")] = None
    """Validation set; not for noise studies, which hold out their own."""
    assignments: Annotated[tuple[str, ...], Option("KEY=VALUE", "--set")] = ()
    """Change a setting of all models; can be repeated."""
    seeds: Annotated[str, Option("N,…")] = "0"
    """Random seeds, such as 0,1,2; each model is trained once per seed."""
    labels: Annotated[Path | None, Option("FILE")] = None
    """Label vocabulary: JSONL, TSV, CSV, SKOS or a list."""
    unknown_labels: Annotated[UnseenLabels, Option()] = "count"
    """Test labels that do not occur in training: count them as missed, or drop them."""
    only: Annotated[tuple[str, ...], Option("PATTERN")] = ()
    """Runs to include, such as 'cooking/parabel/*'; can be repeated."""
    force: Annotated[bool, Option()] = False
    """Repeat runs whose settings or data have changed."""
    keep_models: Annotated[bool, Option()] = False
    """Keep the trained models."""
    reading: ReadingOptions = field(default_factory=ReadingOptions)

    def check(self) -> None:
        if self.reading.on_bad_line == "skip":
            raise ConfigError(
                "--on-bad-line skip cannot be used with studies. Remove the bad lines first with xmtc data convert."
            )
        if not all(each.strip().isdecimal() and len(each) < 20 for each in self.seeds.split(",")):
            raise ConfigError(f"--seeds must be integers ≥ 0, such as 0,1,2. Got '{shown(self.seeds)}'.")
        for path in (self.train, self.test, self.valid, self.labels):
            if path is not None and not path.is_file():
                raise DataError(f"{path}: no such file. Check the path.")

    @property
    def seed_numbers(self) -> list[int]:
        """The seeds as numbers."""
        return [int(each) for each in self.seeds.split(",")]

    def dataset_settings(self) -> dict[str, Any]:
        """The reading options as settings of a suite."""
        options = self.reading.options
        given = {
            "format": options.file_format,
            "text_fields": None if options.text_fields is None else list(options.text_fields),
            "label_field": options.label_field,
            "id_field": options.id_field,
            "label_separator": options.label_separator,
            "unknown_labels": self.unknown_labels,
        }
        return {key: value for key, value in given.items() if value}
