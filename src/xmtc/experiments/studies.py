"""Studies as suites: label noise, ablation and tail labels.

A study is a suite generated here, run like any other, and reported as one plot with its table.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from xmtc.core import config
from xmtc.core.errors import ConfigError, DataError, UnsupportedError, XmtcError, shown
from xmtc.core.files import plain_name
from xmtc.experiments.records import Cell, Results
from xmtc.experiments.suites import Suite, parsed
from xmtc.experiments.tables import NOTHING, Row, Runs, Table, TableEntry, mean_of, runs_of, spread, with_best
from xmtc.models.registry import MODELS, model_class
from xmtc.recipes import find_recipe

RATES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
KINDS = {"missing": "missing labels", "flip": "missing and wrong labels"}
CLEAN = 0.2
"""Fraction of the training documents held out as a clean validation set."""
TAIL_CUTS = ("P@1", "P@10", "P@20")
_FULL = "full model"


@dataclass(frozen=True)
class StudyFiles:
    """The files that a study uses."""

    train: Path
    test: Path
    valid: Path | None = None
    labels: Path | None = None
    reading: dict[str, Any] = field(default_factory=dict)
    """Reading options, as in a suite."""

    @property
    def name(self) -> str:
        """Name of the dataset: that of the file, or of its folder if the file is named train."""
        stem = plain_name(self.train).partition(".")[0]
        name = self.train.resolve().parent.name if stem in ("train", "trn") else stem
        return re.sub(r"[^A-Za-z0-9._+-]", "-", name).strip(".-_+")[:60] or "data"

    def section(self) -> dict[str, Any]:
        """The dataset section of a suite."""
        given = {"train": self.train, "valid": self.valid, "test": self.test, "labels": self.labels}
        paths = {use: str(path.resolve()) for use, path in given.items() if path is not None}
        return paths | self.reading


def model_section(given: str, settings: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Name and suite section of a model given by its name or by a recipe.

    A model given by a recipe has the name of the recipe, so that variants of a model can be compared.
    """
    if given in MODELS:
        return given, {"model": given, "settings": dict(settings)}
    if "/" not in given and not Path(given).is_file():
        model_class(given)  # raises an error that lists the models
    path = find_recipe(given)
    name, _ = config.read_recipe(path)
    if name is None:
        raise ConfigError(f'{given}: the recipe does not name its model. Add model = "NAME".')
    place = given if Path(given) != path else str(path.resolve())
    return path.stem, {"model": name, "recipe": place, "settings": dict(settings)}


def _models(models: Sequence[str], settings: Mapping[str, Any]) -> dict[str, Any]:
    sections = [model_section(given, settings) for given in models]
    names = [name for name, _ in sections]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"model '{name}' is given twice. Give each once, or write a suite for xmtc bench.")
    return dict(sections)


def noise_suite(
    files: StudyFiles,
    models: Sequence[str],
    *,
    rates: Sequence[float] = RATES,
    kinds: Sequence[str] = tuple(KINDS),
    settings: Mapping[str, Any],
    seeds: Sequence[int],
) -> Suite:
    """Label noise in the training set at increasing rates; the validation set stays clean."""
    if files.valid is not None:
        raise ConfigError("a noise study holds out its own clean validation set. Leave out --valid.")
    rates, kinds = sorted(set(rates)), list(dict.fromkeys(kinds))
    if not rates or not all(0 <= rate < 1 for rate in rates):
        raise ConfigError("noise rates must be numbers ≥ 0 and < 1, such as 0,0.2,0.4.")
    for kind in kinds:
        if kind not in KINDS:
            raise ConfigError(f"unknown kind of noise '{shown(kind)}'. Available: {', '.join(KINDS)}.")
    base = files.section() | {"hold_out": CLEAN, "made_from": files.name}
    datasets: dict[str, Any] = {}
    for kind in kinds:
        for rate in rates:
            name = f"{files.name}-{kind}-{100 * rate:g}" if rate else f"{files.name}-clean"
            datasets[name] = base | {"noise": {"kind": kind if rate else "missing", "rate": rate}}
    about = f"Label noise: accuracy on {files.name} when training labels are missing or wrong."
    study = {"kind": "noise", "kinds": list(kinds), "measure": "P@1"}
    return parsed("noise", _content(about, seeds, study, datasets, _models(models, settings)))


def ablation_suite(files: StudyFiles, model: str, *, settings: Mapping[str, Any], seeds: Sequence[int]) -> Suite:
    """A model, and variants with one component removed or reset to its published form.

    Components that the given settings do not use are skipped.
    """
    name, section = model_section(model, settings)
    without = model_class(section["model"]).ablations
    if not without:
        able = ", ".join(each for each in MODELS if _has_parts(each))
        raise UnsupportedError(f"{name} has no components to ablate. Models with components: {able}.")
    models = {name: section}
    for part, change in without.items():
        changed = section | {"settings": config.merge(section["settings"], change)}
        if _config(changed) != _config(section):
            models[f"{name}-{part}"] = changed
    about = f"Ablation of {name} on {files.name}: effect of each component."
    study = {"kind": "ablation", "model": name, "measure": "nDCG@5"}
    return parsed("ablation", _content(about, seeds, study, {files.name: files.section()}, models))


def _config(section: Mapping[str, Any]) -> Any:
    """Settings of the model in a suite section."""
    recipe = config.read_recipe(find_recipe(section["recipe"]))[1] if "recipe" in section else {}
    return model_class(section["model"])(**config.merge(recipe, section["settings"])).config


def _has_parts(name: str) -> bool:
    try:
        return bool(model_class(name).ablations)
    except XmtcError:
        return False


def tail_suite(files: StudyFiles, models: Sequence[str], *, settings: Mapping[str, Any], seeds: Sequence[int]) -> Suite:
    """Accuracy on the rarest labels."""
    about = f"Tail labels: accuracy on the ten rarest labels of {files.name}."
    sections = _models(models, settings)
    return parsed("tail", _content(about, seeds, {"kind": "tail"}, {files.name: files.section()}, sections))


def _content(
    about: str, seeds: Sequence[int], study: dict[str, Any], datasets: dict[str, Any], models: dict[str, Any]
) -> dict[str, Any]:
    own = {"datasets": list(datasets), "models": list(models)}  # the folder may contain others
    return {"about": about, "seeds": list(seeds), "study": study | own, "datasets": datasets, "models": models}


# ---- results


def study_figure(results: Results) -> tuple[str, Table]:
    """The plot of a study as SVG, and its table."""
    kinds = {"noise": _noise_figure, "ablation": _ablation_figure, "tail": _tail_figure}
    draw = kinds.get(str(results.study.get("kind")))
    if draw is None:
        kind = shown(results.study.get("kind"))
        raise UnsupportedError(
            f"{results.source}: this version of xmtc does not support the study '{kind}'. Update xmtc."
        )
    try:
        datasets, models = results.study["datasets"], results.study["models"]
        own = [cell for cell in results.cells if cell.name.dataset in datasets and cell.name.model in models]
        if not own:
            raise UnsupportedError(f"{results.source}: contains no complete run of the study. Run it first.")
        return draw(replace(results, cells=own))
    except XmtcError:
        raise
    except (KeyError, TypeError):
        raise DataError(f"{results.head_place}: damaged. Run the study again.") from None


def _noise_figure(results: Results) -> tuple[str, Table]:
    from xmtc.views.charts import line_chart
    from xmtc.views.svg import stacked

    measure = str(results.study["measure"])
    charts, rows = [], []
    columns: set[float] = set()
    means: dict[tuple[str, str], dict[float, list[float]]] = {}  # (kind, model) → rate → value of each seed
    for kind in results.study["kinds"]:
        for cell in results.cells:
            noise = _noise_of(results, cell)
            if noise["kind"] == kind or not noise["rate"]:
                found = means.setdefault((kind, cell.name.model), {})
                found.setdefault(noise["rate"], []).append(100 * cell.metrics[measure])
                columns.add(noise["rate"])
    rates = sorted(columns)
    for kind in dict.fromkeys(kind for kind, _ in means):
        of_kind = {model: found for (each, model), found in means.items() if each == kind}
        series = {
            model: [(100 * rate, mean_of(found[rate])) for rate in sorted(found)] for model, found in of_kind.items()
        }
        errors = {model: [_deviation(found[rate]) for rate in sorted(found)] for model, found in of_kind.items()}
        title, ylabel = KINDS[kind].capitalize(), f"{measure} (%)"
        chart = line_chart(title, series, errors=errors, xlabel="noise (% of labels)", ylabel=ylabel)
        charts.append(chart.svg())
        values = [[mean_of(found.get(rate, [])) for rate in rates] for found in of_kind.values()]
        entries = [tuple(TableEntry(spread(found.get(rate, []))) for rate in rates) for found in of_kind.values()]
        named = [Row(f"{model}, {kind}", each) for model, each in zip(of_kind, entries, strict=True)]
        rows += with_best(named, [[value / 100 for value in row] for row in values])
    note = (
        f"The validation set ({100 * CLEAN:g} % of the training documents) keeps its labels; "
        "the test set has no noise added."
    )
    heads = tuple(f"{100 * rate:g} %" for rate in rates)
    return stacked(charts), Table(f"{measure} by noise rate (%)", "model", heads, tuple(rows), note)


def _noise_of(results: Results, cell: Cell) -> dict[str, Any]:
    """kind and rate; an interrupted suite may not have described its datasets yet."""
    record = results.datasets.get(cell.name.dataset)
    found: dict[str, Any] = record.noise if record is not None else cell.made_of["data"]["noise"]
    return found


def _deviation(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def _ablation_figure(results: Results) -> tuple[str, Table]:
    from xmtc.views.charts import dot_chart

    whole, measure = str(results.study["model"]), str(results.study["measure"])
    runs = runs_of(results.cells)
    runs.sort(key=lambda each: each.model != whole)  # the full model first, the others by accuracy
    points = {}
    for each in runs:
        values = [100 * cell.metrics[measure] for cell in each.cells]
        points[_part(each, whole)] = (mean_of(values), _deviation(values))
    base = points.get(_FULL, (None, 0.0))[0]
    figure = dot_chart(f"Ablation of {whole}", points, xlabel=f"{measure} (%)", line=base).svg()
    columns = ("P@1", "P@3", "P@5", "nDCG@5")
    rows = []
    for each in runs:
        entries = [TableEntry(each.formatted(_taken(name))) for name in columns]
        change = NOTHING if base is None else f"{points[_part(each, whole)][0] - base:+.2f}".replace("-", "−")
        changed = NOTHING if base is None else _changed(each, runs[0])
        rows.append(Row(_part(each, whole), (*entries, TableEntry(change), TableEntry(changed))))
    heads = (*columns, f"change in {measure}", "settings")
    return figure, Table(f"{whole} with one component changed", "model", heads, tuple(rows))


def _taken(name: str) -> Any:
    return lambda cell: cell.metrics.get(name)


def _part(runs: Runs, whole: str) -> str:
    return _FULL if runs.model == whole else runs.model.removeprefix(f"{whole}-")


def _changed(runs: Runs, whole: Runs) -> str:
    """The settings that differ."""

    base, mine = config.flat(whole.first.settings), config.flat(runs.first.settings)
    return ", ".join(f"{key}={value}" for key, value in mine.items() if base.get(key) != value) or NOTHING


def _tail_figure(results: Results) -> tuple[str, Table]:
    from xmtc.views.charts import line_chart

    runs = [each for each in runs_of(results.cells) if each.first.tail]
    if not runs:
        raise UnsupportedError(
            f"{results.source}: no model in these results can score given labels, which tail metrics require."
        )
    ks = [int(cut.partition("@")[2]) for cut in TAIL_CUTS]
    places = list(range(len(ks)))  # equidistant, although the cuts are not
    series, errors, rows, values = {}, {}, [], []
    for each in runs:
        found = {way: {cut: each.values(_tail_value(way, cut)) for cut in TAIL_CUTS} for way in ("min", "max")}
        means = [100 * mean_of(found["min"][cut]) for cut in TAIL_CUTS]
        series[each.model] = list(zip(places, means, strict=True))
        errors[each.model] = [100 * _deviation(found["min"][cut]) for cut in TAIL_CUTS]
        tail_entries = [
            TableEntry(spread([100 * value for value in found[way][cut]])) for way in found for cut in TAIL_CUTS
        ]
        rows.append(Row(each.model, tuple(tail_entries)))
        values.append([mean_of(found[way][cut]) for way in found for cut in TAIL_CUTS])
    marks = [(float(place), f"top {k}") for place, k in zip(places, ks, strict=True)]
    figure = line_chart(
        "The ten rarest labels",
        series,
        errors=errors,
        marks=marks,
        xlabel="top-ranked documents per label",
        ylabel="tail P@k (%)",
    ).svg()
    heads = tuple(f"{cut}, {way}" for way in ("min", "max") for cut in TAIL_CUTS)
    note = (
        "For each label, all test documents are ranked; hits are divided by the sum over labels of min(documents, k) "
        "or, as published, of max(documents, k), with which rare labels cannot reach 100%."
    )
    return figure, Table("Tail P@k (%)", "model", heads, tuple(with_best(rows, values)), note)


def _tail_value(way: str, cut: str) -> Any:
    return lambda cell: cell.tail.get(way, {}).get(cut)
