"""The search of the presets `good` and `best`: plan, train, predict out of fold, combine, refit on all documents.

Every finished step is a part of the workspace, so that a search continues after an interruption. The output folder has
a usable model from the first step on: the first choice, then the best combination so far.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from xmtc.artifact import store
from xmtc.artifact.workspace import Workspace
from xmtc.core.durations import whole_seconds
from xmtc.core.errors import ConfigError, DataError, XmtcError
from xmtc.core.progress import Progress, Task
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset, align_labels
from xmtc.data.label_index import LabelIndex
from xmtc.data.topk import TopK
from xmtc.models.base import Model
from xmtc.presets.candidate_training import CandidateTrainer
from xmtc.presets.candidates import Candidate, DataFacts, candidates, gpu_is_used
from xmtc.presets.clock import Clock, OutOfTime, TimedProgress
from xmtc.presets.ensemble import combine_models
from xmtc.presets.estimates import Estimate, folder_megabytes, predict_ms
from xmtc.presets.leaderboard import COMPLETE, FAILED, SKIPPED, STOPPED, Leaderboard, Moment, PlannedModel, TriedModel
from xmtc.presets.planning import NOT_MEASURED, RESERVE, ROUNDS, Planner
from xmtc.presets.scores import score_metrics
from xmtc.presets.search_data import SearchData, SearchOptions, Tried
from xmtc.presets.selection import LEAST_GAIN, Ballots, Combine, fits, joint_score, measured, select

SAVING, SELECTING = 0.02, 0.03
"""Fractions of the time: kept for learning the chosen combination and writing it, and the least for choosing it, even
if the time is used up, as after an interruption."""
LAST_STEPS, LONGEST_SELECTION = 10, 0.15
"""Time after members are selected, relative to that for measuring a combination; largest fraction of the time for
selecting them, which ends with the best found so far."""
MOST_TRIED = 20
"""Number of models with predictions at which a search ends."""
MORE_SEEDS = (1, 2, 3)
SEEDLESS = "knn", "one_vs_all", "lexical"
"""Models that hardly depend on the random seed."""
SAVING_INTERVAL, SAVING_SHARE = 30.0, 0.15
"""Minimum time between two intermediate models in the output folder: seconds, and a fraction of the limit."""


class ModelSearch:
    """One search, which may continue an interrupted one."""

    def __init__(
        self,
        options: SearchOptions,
        train: Dataset,
        divide: Callable[[int], SearchData],
        first: Candidate,
        out: Path,
        workspace: Workspace,
        runtime: Runtime,
        progress: Progress,
        clock: Clock,
    ) -> None:
        """`divide` returns the data with this many folds; with 1, a part of the documents is held out."""
        self._options, self._train, self._divide, self._first, self._out = options, train, divide, first, out
        self._workspace, self._runtime, self._progress, self.clock = workspace, runtime, progress, clock
        self._facts = DataFacts.of(train)
        self._trainer = CandidateTrainer(train, options.valid, workspace, runtime)
        self._planner = Planner(options, train, workspace, runtime, clock)
        self._estimates: dict[str, Estimate] = {}  # of the models that fit
        self._tried: dict[str, Tried] = {}
        self._reasons: dict[str, str] = {}
        self._last_saved = -math.inf
        self._spent: dict[str, float] = {}  # seconds that each model took
        self._combining = 0.0  # seconds to measure a combination
        self._answer: TopK | None = None  # of the final model for the validation documents
        self._members: list[str] = []  # of the best combination so far
        self._score = -math.inf
        self.board = Leaderboard(
            preset=options.preset,
            metric=options.measure.name,
            minutes=None if options.seconds is None else options.seconds / 60,
            documents=len(train),
            labels=self._facts.labels,
            validation="not planned yet",
            seed=runtime.seed,
            limits={"max_ms": options.max_ms, "max_mb": options.max_mb},
        )

    # ---- the steps

    def run(self) -> Model:
        """Train candidates until the time is used up; save and return the final model."""
        queue = candidates(
            self._facts,
            self._options.preset,  # type: ignore[arg-type]
            self._first,
            gpu_is_used(self._runtime),
            self._options.encoder,
        )
        self._reasons = {candidate.name: candidate.reason for candidate in queue}
        try:
            with self._progress.task("models") as task:
                self._train_first(TimedProgress(task, self._first.name, self.clock, math.inf))
                self._save_clock()
                if self._plan(queue[1:], task):
                    self._save_clock()
                    self._try_planned(queue, task)
                    self._try_unmeasured(queue, task)
                    self._try_seeds(queue, task)
        except KeyboardInterrupt:
            self._save_clock()
            raise
        return self._finish()

    def _save_clock(self) -> None:
        """Keep the time that was used, which counts after an interruption."""
        self._workspace.save("clock", {}, {"seconds": self.clock.elapsed})

    def _try_planned(self, queue: list[Candidate], task: Task) -> None:
        for candidate in queue:
            found = self._estimates.get(candidate.name)
            cost = None if found is None else self._cost(found)
            if (cost is not None or candidate is queue[0]) and self._try(candidate, cost, task):
                task.advance()

    def _try_unmeasured(self, queue: list[Candidate], task: Task) -> None:
        """Use the time that is left for candidates for which the time for planning was too short."""
        late = {each.name for each in self.board.plan if each.note == NOT_MEASURED}
        for each in queue:
            if each.name in late and self._time_left() > 0:
                found = self._planner.estimate(each, self.clock.elapsed + self._time_left(), task)
                if isinstance(found, Estimate) and not self._planner.obstacle(found, self._cost(found), 0.0):
                    self._estimates[each.name] = found
                    self._try(each, self._cost(found), task)

    def _try_seeds(self, queue: list[Candidate], task: Task) -> None:
        """Use the time that is left for the members with other random seeds, the best first."""
        by_score = sorted(
            (
                each
                for each in queue
                if each.name in self._members and each.name in self._estimates and each.model not in SEEDLESS
            ),
            key=lambda each: -(self._tried[each.name].entry.score or 0.0),
        )
        for seed, each in product(MORE_SEEDS, by_score):
            cost = self._spent.get(each.name, self._cost(self._estimates[each.name]))
            other = replace(each, name=f"{each.name}-{seed}", seed=seed, reason="the same with another random seed")
            if self._trainer.is_done(other) or (self._selected_count() < MOST_TRIED and cost <= self._time_left()):
                self._reasons[other.name] = other.reason
                self._try(other, cost, task)

    def _train_first(self, watched: TimedProgress) -> None:
        """Train the first choice on all documents, so that there is a usable model."""
        is_new = not store.is_model(self._trainer.folder(self._first))
        folder = self._trainer.trained(self._first, watched)
        if is_new or not store.is_model(self._out):
            self._save(Model.load(folder, self._runtime))

    def _plan(self, queue: list[Candidate], task: Task) -> bool:
        """Estimate the cost of each candidate, and choose the folds and what fits into time and memory.

        False if no documents can be held out, so that models cannot be compared.
        """
        estimates = self._planner.estimates(queue, task)
        try:
            self._data = self._divided(self._planner.folds(estimates.values()))
        except DataError as error:
            settings = dict(self._first.settings)
            note = f"models cannot be compared: {error}"
            self._record(Tried(TriedModel(self._first.name, self._first.model, settings, COMPLETE, None, note=note)))
            return False
        self._truth, _ = align_labels(self._data.measured, self._label_index)
        seconds = float(store.read_manifest(self._trainer.folder(self._first))["training"]["seconds"])
        first = self._first
        plan = [PlannedModel(first.name, first.model, dict(first.settings), first.reason, seconds, None, True)]
        total = self.clock.elapsed + seconds * (self._data.rounds - 1)
        for each in queue:
            found = estimates[each.name]
            note, cost, memory = found if isinstance(found, str) else "", None, None
            if isinstance(found, Estimate):
                cost, memory = self._cost(found), found.memory_megabytes
                if self._trainer.is_done(each):  # before an interruption; the time has been counted
                    self._estimates[each.name] = found
                elif not (note := self._planner.obstacle(found, cost, total + cost)):
                    self._estimates[each.name] = found
                    total += cost
            settings = dict(each.settings)
            plan.append(PlannedModel(each.name, each.model, settings, each.reason, cost, memory, not note, note))
        self.board = replace(self.board, plan=tuple(plan), validation=self._data.validation.describe())
        self._write_board()
        self._options.planned(self.board)
        return True

    def _divided(self, folds: int) -> SearchData:
        """The data with this many folds, or fewer if there are too few documents or groups of them."""
        for fewer in sorted((count for count in ROUNDS if count <= folds), reverse=True):
            try:
                return self._divide(fewer)
            except DataError as error:
                last = error
        raise last

    @property
    def _label_index(self) -> LabelIndex:
        assert self._train.label_index is not None
        return self._train.label_index

    def _cost(self, found: Estimate) -> float:
        """Seconds for out-of-fold predictions and the final training."""
        return found.train_seconds * self._data.rounds + found.predict_ms * len(self._data.measured) / 1000

    def _try(self, candidate: Candidate, cost: float | None, task: Task) -> bool:
        """Train a candidate and measure it, unless that was done before an interruption.

        `cost` are its estimated seconds; None for the first choice, without which there is no result.
        """
        entry = TriedModel(candidate.name, candidate.model, dict(candidate.settings), COMPLETE, None)
        left = self._time_left()
        was_done = self._trainer.is_done(candidate)  # before an interruption
        if cost is not None and cost > left and not was_done:
            note = f"would take {whole_seconds(cost)}, {whole_seconds(left)} left before models are combined"
            self._record(Tried(replace(entry, state=SKIPPED, note=note)))
            return False
        started = self.clock.elapsed
        watched = TimedProgress(task, candidate.name, self.clock, started + left)
        try:
            tried = self._trained(candidate, entry, watched)
        except OutOfTime:
            self._record(Tried(replace(entry, state=STOPPED, note="took longer than estimated")))
            return False
        except (XmtcError, MemoryError) as error:
            if cost is None:
                raise
            self._record(Tried(replace(entry, state=FAILED, note=str(error) or "out of memory")))
            return False
        if not was_done:
            self._spent[candidate.name] = self.clock.elapsed - started
        self._record(tried)
        self._after(tried)
        return True

    def _trained(self, candidate: Candidate, entry: TriedModel, watched: TimedProgress) -> Tried:
        """Predict out of fold, then train on all documents."""
        answer, seconds = self._trainer.predicted(candidate, self._data, watched)
        folder = self._trainer.trained(candidate, watched)
        metrics = score_metrics(answer.labels, self._truth)
        entry = replace(
            entry,
            score=self._options.measure(answer.labels, self._truth),
            metrics=metrics,
            train_seconds=float(store.read_manifest(folder)["training"]["seconds"]),
            predict_ms=1000 * seconds / max(len(answer), 1),
            megabytes=folder_megabytes(folder),
        )
        return Tried(entry, answer, folder)

    # ---- the combination

    def _ballots(self) -> Ballots:
        answers = {
            name: (tried.answer.labels, tried.answer.scores)
            for name, tried in self._tried.items()
            if tried.answer is not None
        }
        folds, counts = self._data.folds, self._data.counts
        return Ballots(answers, self._truth, lambda places, labels: np.log1p(counts[folds[places][:, None], labels]))

    def _costs(self) -> dict[str, tuple[float, float]]:
        return {
            name: (tried.entry.predict_ms or 0.0, tried.entry.megabytes or 0.0) for name, tried in self._tried.items()
        }

    def _grow(self, name: str) -> None:
        """Add a model to the members so far if it improves their combination."""
        started = time.perf_counter()
        seed, threads = self._runtime.seed, self._runtime.threads
        names = [*self._members, name]
        if fits(names, self._costs(), self._options.limits):
            score = joint_score(self._ballots(), names, self._options.measure, seed, threads)
            if score >= self._score + LEAST_GAIN or not self._members:
                self._members, self._score = names, score
        self._combining = time.perf_counter() - started

    def _selected_count(self) -> int:
        return sum(tried.answer is not None for tried in self._tried.values())

    def _reserve(self) -> float:
        """Seconds for the last selection and for writing the final model."""
        if not math.isfinite(self.clock.limit):
            return 0.0
        count = self._selected_count() + 1
        selecting = min(count * count / 2 * self._combining, LONGEST_SELECTION * self.clock.limit)
        return max(RESERVE * self.clock.limit, selecting + self._last_steps())

    def _last_steps(self) -> float:
        """Seconds to compare ways to combine the members on all validation documents, and to save the best."""
        return 2.0 + LAST_STEPS * self._combining

    def _time_left(self) -> float:
        """Seconds for further models."""
        return self.clock.left - self._reserve()

    def _after(self, tried: Tried) -> None:
        """Update the curve, the time and the model in the output folder after a candidate."""
        self._save_clock()
        self._grow(tried.entry.name)
        if not self._members:
            return
        moment = Moment(self.clock.elapsed, self._score, tried.entry.name)
        self.board = replace(self.board, curve=(*self.board.curve, moment), seconds=self.clock.elapsed)
        interval = max(SAVING_INTERVAL, SAVING_SHARE * self.clock.limit)
        if len(self._members) > 1 and interval < self.clock.elapsed - self._last_saved and math.isfinite(interval):
            model, _, members = self._combined(self._members, "learnt")
            self._save(model, members)
        self._write_board()

    def _combined(self, names: Sequence[str], combine: Combine) -> tuple[Model, TopK, Sequence[str]]:
        """A model, its predictions for the validation documents, and its members.

        If there are too few documents to learn a combination from, it is the best member alone.
        """
        chosen = [self._tried[name] for name in names]
        data, runtime = self._data, self._runtime
        try:
            return *combine_models(chosen, combine, data, self._truth, runtime), names
        except DataError:
            if len(names) == 1:
                raise
            best = max(chosen, key=lambda tried: tried.entry.score or 0.0)
            return *combine_models([best], combine, data, self._truth, runtime), [best.entry.name]

    def _save(self, model: Model, members: Sequence[str] = ()) -> None:
        model.training = {**model.training, "documents": len(self._train), "preset": self._described(members)}
        model.save(self._out, overwrite=True)
        self._last_saved = self.clock.elapsed

    def _described(self, members: Sequence[str]) -> dict[str, Any]:
        """What `xmtc models DIR` tells about the search."""
        return {
            "name": self._options.preset,
            "metric": self._options.measure.name,
            "validation": self.board.validation,
            "models": [
                {
                    "name": name,
                    "model": tried.entry.model,
                    "score": tried.entry.score,
                    "member": name in members,
                    "note": tried.entry.note or ("" if tried.entry.score is None else "no gain"),
                    "reason": self._reasons[name],
                }
                for name, tried in self._tried.items()
            ],
        }

    def _finish(self) -> Model:
        """Choose the members; without any predictions, the first choice alone is the final model."""
        if not self._selected_count():
            model = Model.load(self._trainer.folder(self._first), self._runtime)
            ms, megabytes = predict_ms(model, self._train), folder_megabytes(self._trainer.folder(self._first))
            if ms > self._options.limits[0] or megabytes > self._options.limits[1]:
                self._refuse_limits(ms)
            self._save(model)
            alone = replace(self._tried[self._first.name].entry, name=model.name, state=COMPLETE)
            self.board = replace(self.board, final=alone, seconds=self.clock.elapsed, complete=True)
            self._write_board()
            return model
        seed, threads = self._runtime.seed, self._runtime.threads
        limits_of, costs, ballots = self._options.limits, self._costs(), self._ballots()
        until = min((1 - SAVING) * self.clock.limit, self.clock.limit - self._last_steps())
        until = max(until, self.clock.elapsed + SELECTING * self.clock.limit)
        with self._progress.task("combining the models") as task:
            watched = TimedProgress(task, "combining", self.clock, until)
            selection = select(
                ballots,
                self._options.measure,
                costs=costs,
                most=limits_of,
                seed=seed,
                threads=threads,
                check=watched.check,
            )
        if selection is None:
            self._refuse_limits()
        names = selection.names
        model, self._answer, members = self._combined(names, selection.combine)
        model.training["seconds"] = round(self.clock.elapsed, 3)
        self._save(model, members)
        while len(members) > 1 and folder_megabytes(self._out) > limits_of[1]:  # of more than the members
            model, self._answer, members = self._combined(members[:-1], selection.combine)
            self._save(model, members)
        if len(members) < len(names):
            selection = measured(ballots, members, selection.combine, self._options.measure, seed, threads)
        for name, tried in self._tried.items():
            tried.entry = replace(tried.entry, member=name in members)
        chosen = [self._tried[name].entry for name in members]
        final = TriedModel(
            model.name,
            model.name,
            {"combine": selection.combine} if len(chosen) > 1 else dict(chosen[0].settings),
            COMPLETE,
            selection.score,
            score_metrics(selection.labels, self._truth),
            self.clock.elapsed,
            sum(entry.predict_ms or 0.0 for entry in chosen),
            folder_megabytes(self._out),
        )
        self.board = replace(self.board, final=final, seconds=self.clock.elapsed, complete=True)
        self._write_board()
        return model

    def _refuse_limits(self, *measured: float) -> NoReturn:
        """Raise the error that no model keeps to the limits, and delete the one that was trained first.

        `measured` has further prediction times in milliseconds.
        """
        store.remove_folder(self._out)
        limits = {"--max-ms": self._options.max_ms, "--max-mb": self._options.max_mb}
        text = " and ".join(f"{name} {limit:g}" for name, limit in limits.items() if limit is not None)
        sizes = [each.megabytes for each in self.board.entries if each.megabytes is not None]
        times = [*measured, *(each.predict_ms for each in self.board.entries if each.predict_ms is not None)]
        found = f"the smallest has {min(sizes, default=folder_megabytes(self._trainer.folder(self._first))):.3g} MiB"
        if times:
            found += f", the fastest takes {min(times):.3g} ms per document"
        raise ConfigError(f"no model keeps to {text}. Of those that were trained, {found}. Raise the limit.")

    def teacher(self) -> TopK:
        """The final model's out-of-fold predictions for the training documents; none for those not validated on."""
        if self._answer is None:
            raise ConfigError("no time was left to predict out of fold, which --distil needs. Raise --minutes.")
        held = np.concatenate([rows for _, rows in self._data.validation.parts])
        shape = (len(self._train), self._answer.k)
        labels, scores = np.full(shape, -1, dtype=np.int64), np.full(shape, -np.inf, dtype=np.float32)
        labels[held], scores[held] = self._answer.labels, self._answer.scores
        return TopK(labels, scores, self._answer.index)

    def _record(self, tried: Tried) -> None:
        self._tried[tried.entry.name] = tried
        self._write_board()

    def _write_board(self) -> None:
        entries = tuple(tried.entry for tried in self._tried.values())
        self.board = replace(self.board, entries=entries)
        self.board.save(leaderboard_file(self._out))


def leaderboard_file(out: Path) -> Path:
    """The file with the leaderboard, next to the model folder."""
    return out.with_name(f"{out.name}.leaderboard.json")
