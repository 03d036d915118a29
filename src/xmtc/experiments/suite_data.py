"""The documents of a suite's dataset: find, identify by content, read, split and add label noise."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from xmtc.core import config
from xmtc.core.errors import DataError
from xmtc.core.files import COMPRESSED, content_hash, make_folder, replace_file
from xmtc.core.progress import Progress, silent
from xmtc.data.dataset import Dataset
from xmtc.data.planted_corpus import PlantedCorpus
from xmtc.data.reading import read
from xmtc.data.records import ReadOptions
from xmtc.data.splitting import split
from xmtc.experiments.suites import DataSpec, PlantedSpec
from xmtc.labels.noise import corrupted

USES = ("train", "valid", "test", "labels")
SEED = 0
"""Seed of the held-out split: the same documents for every seed of a suite, so that models can be compared."""


@dataclass(frozen=True)
class SuiteData:
    """A dataset of a suite with its files."""

    name: str
    spec: DataSpec
    files: dict[str, Path]
    hashes: dict[str, str]

    def fingerprint(self) -> dict[str, Any]:
        """Files and options that identify the data of a run."""
        spec = config.to_mapping(self.spec)
        shaping = ("planted", "format", "hold_out", "noise", "unknown_labels", "propensity")
        fields = {key: spec[key] for key in ("text_fields", "label_field", "id_field") if spec[key]}
        separator = {} if self.spec.label_separator == ";" else {"label_separator": self.spec.label_separator}
        return {"files": self.hashes, **{key: spec[key] for key in shaping}, **fields, **separator}

    def documents(self, progress: Progress = silent) -> tuple[Dataset, Dataset | None]:
        """The training set, with label noise if requested, and the validation set."""
        train = self._read("train", progress)
        count = None if train.features is None else int(train.features.shape[1])
        valid = self._read("valid", progress, count) if "valid" in self.files else None
        if self.spec.hold_out:
            rows = split(train, self.spec.hold_out, seed=SEED)
            train, valid = train.take(rows["train"]), train.take(rows["test"])
        noise = self.spec.noise
        if noise is not None:
            train = train.used_labels() if train.whole_vocabulary else train  # noise needs no unused labels
            assert train.labels is not None
            train = replace(train, labels=corrupted(train.labels, noise.kind, noise.rate, SEED))
        return train, valid

    def test(self, feature_count: int | None = None, progress: Progress = silent) -> Dataset:
        """The test set."""
        return self._read("test", progress, feature_count)

    def valid(self, feature_count: int | None = None, progress: Progress = silent) -> Dataset | None:
        """The validation set, with the number of features of a trained model."""
        if "valid" in self.files:
            return self._read("valid", progress, feature_count)
        return self.documents(progress)[1] if self.spec.hold_out else None

    def _read(self, use: str, progress: Progress, feature_count: int | None = None) -> Dataset:
        spec = self.spec
        options = ReadOptions(
            file_format=spec.format,
            text_fields=spec.text_fields or None,
            label_field=spec.label_field or None,
            id_field=spec.id_field or None,
            label_separator=spec.label_separator,
            feature_count=feature_count,
        )
        unknown = "drop" if self.spec.unknown_labels == "drop" else "refuse"  # for labels missing from the vocabulary
        found = read(
            self.files[use],
            options,
            vocabulary=self.files.get("labels"),
            unknown_labels=unknown,
            whole_vocabulary=use == "train",
            progress=progress,
        )
        if found.labels is None or found.labels.nnz == 0:
            raise DataError(f"{self.files[use]}: no document has a label. Check the label field.")
        return found


def find(name: str, spec: DataSpec, folder: Path, made: Path) -> SuiteData | None:
    """A dataset with files in `folder`, or generated in `made`; None if it is optional and its files are missing."""
    files = _planted(spec.planted, made / name) if spec.planted is not None else _files(name, spec, folder)
    if files is None:
        return None
    return SuiteData(name, spec, files, {use: content_hash(path) for use, path in files.items()})


def _files(name: str, spec: DataSpec, folder: Path) -> dict[str, Path] | None:
    found: dict[str, Path] = {}
    for use in USES:
        given = getattr(spec, use)
        names = [given] if isinstance(given, str) else list(cast(Sequence[str], given))
        if not any(names):
            continue
        path = next((path for each in names if (path := _present(folder / each)) is not None), None)
        if path is None and spec.optional:
            return None
        if path is None:
            raise DataError(
                f"{folder / names[0]}: no such file (required by data set '{name}' of the suite). "
                "Pass the folder with the data sets as --data."
            )
        found[use] = path
    return found


def _present(path: Path) -> Path | None:
    """The file, plain or compressed."""
    places = (path, *(path.with_name(path.name + suffix) for suffix in COMPRESSED if path.name))
    return next((place for place in places if place.is_file()), None)


def _planted(spec: PlantedSpec, folder: Path) -> dict[str, Path]:
    """Write the synthetic corpus, unless it exists."""
    corpus = PlantedCorpus(documents=spec.documents + spec.test, labels=spec.labels, seed=SEED)
    files = {"train": folder / "train.jsonl", "test": folder / "test.jsonl"}
    bounds = {"train": (0, spec.documents), "test": (spec.documents, spec.documents + spec.test)}
    make_folder(folder)
    for use, path in files.items():
        text = io.StringIO()
        corpus.write_jsonl(text, *bounds[use])
        if not path.is_file() or path.read_text(encoding="utf-8") != text.getvalue():
            with replace_file(path) as stream:
                stream.write(text.getvalue().encode())
    return files
