"""Preset `fast`: one linear model whose settings are chosen by cheap facts about the data and a few small trials.

The trials train on a sample of the documents. A setting replaces the default only if it is better on held-out documents
by more than the standard error of the paired difference. Data that are too small or too odd for trials get the default.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xmtc.core.config import merge
from xmtc.core.errors import XmtcError
from xmtc.core.kernel_cache import work_time
from xmtc.core.progress import Progress, silent
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset, align_labels
from xmtc.data.description import document_hashes
from xmtc.metrics.matching import match
from xmtc.metrics.ranking import NDCG, Parts, RankingMetric
from xmtc.metrics.registry import METRICS
from xmtc.models.base import Model
from xmtc.models.linear_tree import FEW_LABELS
from xmtc.models.registry import model_class
from xmtc.text.tokens import tokenise

FEW_DOCUMENTS = 500
"""With fewer documents, trials would measure noise, and the rules decide."""
SHORT, MEDIUM = 40, 100
"""Up to this many words per text, character n-grams and pairs of words are tried in large corpora."""
FEW_WORDS, MORE_WORDS = 1e6, 3.5e6
"""Words of all texts, or features of all documents, up to which training takes a second, and seconds."""
LOOKED_AT = 1000
"""Texts whose words are counted."""
WHOLE, WHOLE_WORDS = 15_000, 1.5e6
"""Documents of the trials of small corpora, and their words."""
SAMPLE, LONG_SAMPLE, SAMPLED_WORDS = 8_000, 6_000, 4e6
"""Documents of the trials of other corpora, of short and of long texts, and their words; a tenth if that is more."""
LARGEST_SAMPLE = 24_000
HELD_OUT = 0.25
"""Share of the sample that is held out."""
MOST_HELD_OUT = 3000
FEW_PAIRS = 5e7
"""Documents × labels up to which a trial with a tree takes about a second."""
FLAT_WORK, RICH_FLAT_WORK = 4e8, 8e8
"""Documents × features per document × labels up to which one_vs_all is tried: it then takes seconds. With n-grams, too,
more is allowed, since only corpora with few documents and words get there."""
LEAST_CHARACTER_GAIN, LEAST_PAIR_GAIN = 0.015, 0.005
"""Minimum gain of character n-grams on a sample, twice as much for texts of `SHORT` words, and of pairs of words."""
CHARACTER_COST = 0.45
"""Cost of errors with character n-grams in large corpora with many labels, half of the automatic one: samples are too
small to show what that gains, 0.7 to 0.8 points of nDCG@5."""
FEW_LEAVES = 1024
"""Up to this many labels, the trees of parabel have one or two leaves, and one_vs_all is about as accurate."""
LEAST_GAIN, LEAST_RICH_GAIN, LEAST_FLAT_GAIN = 0.001, 0.002, 0.003
"""Minimum gain of a setting, and of one_vs_all with and without n-grams, which predicts more slowly."""

ONLY_TREES = ("trees", "leaf_size", "negatives")
LONGER = {"tolerance": 0.02, "passes": 20, "prune": 0.02}
SOMEWHAT_LONGER = {"tolerance": 0.05, "passes": 12, "prune": 0.08}
"""More exact classifiers: twice the training time, and for large corpora about a sixth more."""
CHARACTERS = {"text": {"char_ngrams": (4, 4)}}
PAIRS = {"text": {"word_ngrams": 2}}
RICH = {"text": {"char_ngrams": (4, 4), "word_ngrams": 2}}


@dataclass(frozen=True)
class FastTrial:
    """Settings that were tried on the sample."""

    model: str
    settings: dict[str, Any]
    score: float
    seconds: float


@dataclass(frozen=True)
class FastChoice:
    """A model and its settings, with the reasons for them."""

    model: str
    settings: dict[str, Any]
    reasons: tuple[str, ...]
    trials: tuple[FastTrial, ...] = ()


class _DataFacts(NamedTuple):
    """What the rules look at."""

    documents: int
    labels: int
    has_text: bool
    size: float
    """Mean number of words of a text, or of features of a document."""

    @property
    def is_short(self) -> bool:
        return self.has_text and 0 < self.size <= SHORT

    @property
    def is_small(self) -> bool:
        """Whether training takes seconds, on n-grams, too."""
        return self.documents * self.labels <= FEW_PAIRS and self.documents * self.size <= MORE_WORDS

    @property
    def is_tiny(self) -> bool:
        """Whether training takes a second, so that many settings can be tried."""
        return self.is_small and self.documents * self.size <= FEW_WORDS

    @property
    def flat_work(self) -> float:
        return self.documents * self.size * self.labels

    @property
    def tree(self) -> dict[str, Any]:
        """What parabel's automatic settings are for all labels: the sample has fewer."""
        few = self.labels <= FEW_LABELS
        return {"trees": 1 if few else 2, "leaf_size": 512 if few else 256}


class _Option(NamedTuple):
    """A model, its settings that differ from the defaults, and what they are in words."""

    model: str
    settings: dict[str, Any]
    words: str
    least: float | None = LEAST_GAIN
    """Minimum gain, besides the standard error; None for a change that was good on all data and needs no proof."""

    def changed(self, words: str, more: Mapping[str, Any], least: float | None = LEAST_GAIN) -> _Option:
        return _Option(self.model, merge(self.settings, more), words, least)

    def differs(self, trial: FastTrial) -> bool:
        return (self.model, self.settings) != (trial.model, trial.settings)

    def flat(self) -> _Option:
        """The same settings without trees."""
        settings = {name: value for name, value in self.settings.items() if name not in ONLY_TREES}
        return _Option("one_vs_all", settings, "one_vs_all", LEAST_FLAT_GAIN)

    def rich_flat(self) -> _Option:
        """One classifier per label on all kinds of n-grams, which trees with their few negatives do not gain from.

        With so many features, errors cost half of the default if no better cost was found.
        """
        changes = RICH if "cost" in self.settings else {**RICH, "cost": 0.5}
        rich = self.changed("one_vs_all with pairs of words and character n-grams", changes)
        return rich.flat()._replace(words=rich.words, least=LEAST_RICH_GAIN)


class _Result(NamedTuple):
    option: _Option
    parts: Parts
    trial: FastTrial
    cost: float
    """The cost of errors that the model was trained with."""

    @property
    def text(self) -> dict[str, Any]:
        text: dict[str, Any] = self.option.settings.get("text", {})
        return text


_Step = Callable[[_Result], _Option | None]
"""Returns a change of the best option so far, or None."""


def choose_fast(
    documents: Dataset,
    *,
    valid: Dataset | None = None,
    measure: str = "nDCG@5",
    runtime: Runtime | None = None,
    progress: Progress = silent,
) -> FastChoice:
    """Choose a linear model and its settings for these documents; parabel's defaults if nothing is clearly better.

    Trials are scored by `measure`, on `valid` or on held-out documents of the sample. The same data and seed give the
    same choice, on fast and slow machines.
    """
    runtime = replace(runtime or Runtime(), cache=None)
    documents = documents.without_rejected_only().used_labels()
    facts = _facts(documents, runtime)
    default = _Option("parabel", {}, "the default settings")
    reasons = [_described(facts)]
    if facts.documents < FEW_DOCUMENTS or facts.labels < 2:
        return _by_rules(facts, default, reasons)
    try:
        return _by_trials(documents, valid, facts, default, reasons, measure, runtime, progress)
    except XmtcError:
        reasons.append("A sample cannot be trained on and scored: parabel keeps its default settings.")
        return FastChoice(default.model, {}, tuple(reasons))


def _by_rules(facts: _DataFacts, default: _Option, reasons: list[str]) -> FastChoice:
    """Without trials: few words occur in several short texts, but their parts do."""
    chosen = _with_characters(default, facts) if facts.is_short else default
    reasons.append(f"Fewer than {FEW_DOCUMENTS} documents or two labels, too few for trials: {chosen.words}.")
    return FastChoice(chosen.model, chosen.settings, tuple(reasons))


def _by_trials(
    documents: Dataset,
    valid: Dataset | None,
    facts: _DataFacts,
    default: _Option,
    reasons: list[str],
    measure: str,
    runtime: Runtime,
    progress: Progress,
) -> FastChoice:
    """Change one setting after the other, and keep each change that is better."""
    train, held = _parts(documents, valid, facts, runtime.seed)
    metric, k, name = _metric(measure)
    trials: list[FastTrial] = []

    def tried(option: _Option) -> _Result:
        model, parts, seconds = _scored(option, facts, train, held, metric, k, runtime)
        trials.append(FastTrial(option.model, option.settings, parts.value, round(seconds, 3)))
        cost = option.settings.get("cost", model.facts.get("cost", 1.0))
        return _Result(option, parts, trials[-1], float(cost))

    steps = _steps(facts)
    with progress.task("choosing settings", total=1 + len(steps)) as task:
        best = tried(default)
        task.advance()
        reasons.append(
            f"Trials: {len(train):,} documents to train on, {len(held):,} to score; parabel with default settings "
            f"has {name} {100 * best.parts.value:.2f}."
        )
        for step in steps:
            option = step(best)
            if option is not None and all(option.differs(trial) for trial in trials):
                words = option.words[0].upper() + option.words[1:]
                try:
                    result = tried(option)
                    gain, error = _difference(result.parts, best.parts)
                    is_better = gain > (0.0 if option.least is None else max(error, option.least))
                    reasons.append(
                        f"{words}: {name} {100 * result.parts.value:.2f} ({100 * gain:+.2f} ± {100 * error:.2f}), "
                        f"{'kept' if is_better else 'not clearly better'}."
                    )
                    best = result if is_better else best
                except XmtcError:  # such as a setting that needs more documents
                    reasons.append(f"{words}: cannot be tried on the sample.")
            task.advance()
    return FastChoice(best.option.model, best.option.settings, tuple(reasons), tuple(trials))


def _steps(facts: _DataFacts) -> list[_Step]:
    """The changes to try, in this order."""

    def characters(best: _Result) -> _Option:
        return _with_characters(best.option, facts)

    def flat(best: _Result) -> _Option:
        return best.option.flat()

    steps: list[_Step]
    is_rich = facts.has_text and facts.is_small and facts.flat_work <= RICH_FLAT_WORK
    if not facts.has_text:  # the automatic cost depends on the number of features
        steps = [_idf_columns, _lower_cost, _still_lower_cost, _longer if facts.is_tiny else _somewhat_longer]
    elif facts.is_tiny:
        steps = [characters, _lower_cost, _still_lower_cost, _steeper_idf, *([] if facts.is_short else [_plain_idf])]
        steps += [_pairs, _longer, *([_rich_flat] if is_rich else [])]
    elif facts.is_small:
        # the more documents, the more n-grams gain, and they take most of the time
        rich = [lambda best: _rich_flat(best)._replace(least=None)] if is_rich else []
        steps = [*rich, *map(_unless_characters, [characters, _steeper_idf, _plain_idf, _longer])]
    elif facts.is_short:
        steps = [characters, _steeper_idf, _unless_characters(_pairs_of_sample)]
    else:
        pairs = [_pairs_of_sample] if facts.size <= MEDIUM else []
        steps = [_steeper_idf, _plain_idf, *pairs, _somewhat_longer]
    if facts.flat_work <= FLAT_WORK and FEW_LEAVES < facts.labels <= FEW_LABELS:
        steps.append(flat)
    return steps


def _unless_characters(step: _Step) -> _Step:
    """A step that is left out after character n-grams, which take the time."""
    return lambda best: None if "char_ngrams" in best.text else step(best)


def _idf_columns(best: _Result) -> _Option:
    return best.option.changed("columns multiplied by idf", {"columns": "idf"})


def _steeper_idf(best: _Result) -> _Option:
    return best.option.changed("idf to the power of 1.5", {"text": {"idf_power": 1.5}})


def _plain_idf(best: _Result) -> _Option | None:
    """After a steeper idf, if that was better."""
    if "idf_power" not in best.text:
        return None
    return best.option.changed("plain idf to the power of 1.5", {"text": {"idf": "plain"}})


def _pairs(best: _Result) -> _Option:
    return best.option.changed("pairs of words", PAIRS)


def _pairs_of_sample(best: _Result) -> _Option:
    return best.option.changed("pairs of words", PAIRS, LEAST_PAIR_GAIN)


def _longer(best: _Result) -> _Option:
    return best.option.changed("longer training", LONGER, None)


def _somewhat_longer(best: _Result) -> _Option | None:
    """Pairs of words have taken the time."""
    return None if "word_ngrams" in best.text else best.option.changed("longer training", SOMEWHAT_LONGER, None)


def _rich_flat(best: _Result) -> _Option:
    return best.option.rich_flat()


def _with_characters(option: _Option, facts: _DataFacts) -> _Option:
    """Character n-grams; in large corpora with settings that take less time elsewhere.

    In a sample of a large corpus, more words are too rare to be learnt than in the corpus, so that parts of words gain
    more, the more the longer the texts are.
    """
    words = "character n-grams of length 4"
    if facts.is_small:
        return option.changed(words, CHARACTERS)
    least = LEAST_CHARACTER_GAIN * max(1.0, facts.size / (SHORT / 2))
    if facts.labels > FEW_LABELS:
        changes = {**CHARACTERS, "cost": CHARACTER_COST, "trees": 1, "leaf_size": 512}
        return option.changed(f"{words} in one tree, with half the cost of errors", changes, least)
    return option.changed(f"{words} with fewer negatives", {**CHARACTERS, "negatives": 2}, least)


def _lower_cost(best: _Result) -> _Option:
    """Half the cost of errors: many features separate documents that fewer would not."""
    return best.option.changed("half the cost of errors", {"cost": round(best.cost / 2, 3)})


def _still_lower_cost(best: _Result) -> _Option | None:
    """After a lower cost, if that was better."""
    return _lower_cost(best) if "cost" in best.option.settings else None


def _facts(documents: Dataset, runtime: Runtime) -> _DataFacts:
    labels = 0 if documents.labels is None else int(documents.labels.shape[1])
    if documents.has_text:
        looked = np.linspace(0, len(documents) - 1, min(len(documents), LOOKED_AT)).astype(np.int64)
        tokens = tokenise(documents.take(looked).text(), runtime.threads)
        size = sum(len(block.ids) for block in tokens.blocks) / max(1, len(looked))
    else:
        assert documents.features is not None
        size = documents.features.nnz / max(1, len(documents))
    return _DataFacts(len(documents), labels, documents.has_text, float(size))


def _described(facts: _DataFacts) -> str:
    unit = "words per text" if facts.has_text else "features per document"
    return f"{facts.documents:,} documents with {facts.labels:,} labels, {facts.size:.0f} {unit}."


def _parts(documents: Dataset, valid: Dataset | None, facts: _DataFacts, seed: int) -> tuple[Dataset, Dataset]:
    """Training and validation documents of the trials."""
    assert documents.labels is not None
    rng = np.random.default_rng(seed)
    most = WHOLE if facts.is_tiny else min(WHOLE, int(WHOLE_WORDS / max(facts.size, 1.0)))
    if not facts.is_small:
        least = min(SAMPLE if facts.is_short else LONG_SAMPLE, int(SAMPLED_WORDS / max(facts.size, 1.0)))
        most = min(max(least, len(documents) // 10, FEW_DOCUMENTS), LARGEST_SAMPLE)
    is_labelled = np.diff(documents.labels.indptr) > 0
    sample = documents.take(np.sort(rng.permutation(np.flatnonzero(is_labelled))[:most]))
    if valid is None or valid.labels is None:
        is_held = _held_out(sample, rng)
        train, held = sample.take(~is_held), sample.take(is_held)
    else:
        held = valid.complete_documents()
        train, held = sample, held.take(np.sort(rng.permutation(len(held))[:MOST_HELD_OUT]))
    return train.used_labels(), held


def _held_out(sample: Dataset, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Choose documents with complete labels, none of which repeats a training document."""
    hashes, empty = document_hashes(sample)
    is_held = np.zeros(len(sample), dtype=bool)
    complete = np.flatnonzero(~sample.partial_rows() & ~empty)
    is_held[rng.permutation(complete)[: min(MOST_HELD_OUT, int(HELD_OUT * len(sample)))]] = True
    is_held &= ~np.isin(hashes, hashes[~is_held])
    return is_held


def _metric(measure: str) -> tuple[RankingMetric, int, str]:
    """The metric that trials are scored by: nDCG@5 if `measure` has no contributions of documents."""
    parts = re.fullmatch(r"(.+)@([1-9][0-9]*)", measure)
    metric = METRICS[f"{parts[1]}@k"] if parts and f"{parts[1]}@k" in METRICS else None
    if parts is None or not isinstance(metric, RankingMetric) or metric.propensity_scored:
        return NDCG, 5, "nDCG@5"
    return metric, int(parts[2]), measure


def _scored(
    option: _Option, facts: _DataFacts, train: Dataset, held: Dataset, metric: RankingMetric, k: int, runtime: Runtime
) -> tuple[Model, Parts, float]:
    """Train and score a model; return it, the contributions of the documents, and the seconds of training."""
    settings = option.settings
    if option.model == "parabel":
        settings = merge(facts.tree, settings)
    started = work_time()
    model: Model = model_class(option.model)(**settings).fit(train, runtime=runtime)
    seconds = work_time() - started
    truth, _ = align_labels(held, model.labels)
    return model, metric.parts(match(model.predict(held, k), truth, [k]), k, None), seconds


def _difference(parts: Parts, others: Parts) -> tuple[float, float]:
    """Difference of two scores on the same documents, and its standard error."""
    gain = parts.value - others.value
    total = others.denominator.sum()
    if not total:
        return 0.0, math.inf
    each = (parts.numerator - others.numerator) * (len(others.denominator) / total)
    return gain, float(each.std() / math.sqrt(len(each)))
