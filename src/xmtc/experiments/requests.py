"""What tuning and the studies take; command-line options are derived from these types. Nothing heavy is imported."""

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
    """A search for the settings that suit a corpus best."""

    model: Annotated[str, Argument("NAME")]
    """Which model."""
    train_file: Annotated[Path, Argument("TRAIN")]
    """Documents with labels, in any known format."""
    out: Annotated[Path, Option("DIR")]
    """Folder for trials, recipe and model."""
    valid: Annotated[Path | None, Option("FILE")] = None
    """Validation set (default: a tenth of TRAIN)."""
    trials: Annotated[int, Option("N")] = 30
    """Settings to try, at most."""
    minutes: Annotated[float | None, Option("M")] = None
    """Begin no trial after this time (default: no limit)."""
    assignments: Annotated[tuple[str, ...], Option("KEY=VALUE", "--set")] = ()
    """One setting that all trials have; may be repeated."""
    search: Annotated[tuple[str, ...], Option("KEY")] = ()
    """Search only this; KEY=LOW..HIGH or KEY=[a, b] say what to try."""
    recipe: Annotated[str | None, Option("RECIPE", "--config")] = None
    """Settings to start from, a TOML recipe."""
    measure: Annotated[str, Option("NAME")] = "nDCG@5"
    """Metric to optimise."""
    force: Annotated[bool, Option()] = False
    """Replace an earlier search."""
    resume: Annotated[bool, Option()] = False
    """Go on with an unfinished search."""
    refit: Annotated[bool, Option()] = True
    """Train on all of TRAIN with the best."""
    vocabulary: VocabularyOptions = field(default_factory=VocabularyOptions)
    reading: ReadingOptions = field(default_factory=ReadingOptions)


@dataclass(frozen=True, kw_only=True)
class StudyRequest(BaseRequest):
    """The files, settings and seeds of a study."""

    train: Annotated[Path, Argument("TRAIN")]
    """Training set."""
    test: Annotated[Path, Argument("TEST")]
    """Test set."""
    out: Annotated[Path, Option("DIR")]
    """Folder for cells, figure and table."""
    valid: Annotated[Path | None, Option("FILE")] = None
    """Validation set."""
    assignments: Annotated[tuple[str, ...], Option("KEY=VALUE", "--set")] = ()
    """One setting of the models; may be repeated."""
    seeds: Annotated[str, Option("N,…")] = "0"
    """Seeds, such as 0,1,2."""
    labels: Annotated[Path | None, Option("FILE")] = None
    """Label names: JSONL, TSV, SKOS or a list."""
    unknown_labels: Annotated[UnseenLabels, Option()] = "count"
    """Test labels unseen in training: missed, or left out."""
    only: Annotated[tuple[str, ...], Option("PATTERN")] = ()
    """Cells to run, such as 'cooking/parabel/*'; may be repeated."""
    force: Annotated[bool, Option()] = False
    """Run cells anew whose settings or data changed."""
    keep_models: Annotated[bool, Option()] = False
    """Keep the trained models too."""
    reading: ReadingOptions = field(default_factory=ReadingOptions)

    def check(self) -> None:
        if self.reading.on_bad_line == "skip":
            raise ConfigError(
                "a study reads its files many times. Mend the bad lines first: xmtc data convert skips them."
            )
        if not all(each.strip().isdecimal() and len(each) < 20 for each in self.seeds.split(",")):
            raise ConfigError(f"--seeds must be integers ≥ 0, such as 0,1,2. Got '{shown(self.seeds)}'.")
        for path in (self.train, self.test, self.valid, self.labels):
            if path is not None and not path.is_file():
                raise DataError(f"{path}: no such file. Check the path.")

    @property
    def seed_numbers(self) -> list[int]:
        return [int(each) for each in self.seeds.split(",")]

    def dataset_settings(self) -> dict[str, Any]:
        """How its files are read, as a suite says it."""
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
