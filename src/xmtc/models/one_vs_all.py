"""One linear classifier per label, each trained on all documents; small weights are pruned."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from xmtc.core.config import Range
from xmtc.core.explanation import Explanation
from xmtc.data.dataset import Dataset
from xmtc.linear.beam_search import SIGMOID
from xmtc.linear.forest import Forest, SearchParameters, train_flat
from xmtc.linear.node_training import LinearObjective, Rows, numbers_by_frequency
from xmtc.models.context import FitContext
from xmtc.models.linear_tree import ForestModel, TrainingRows, require_name_weight
from xmtc.nn.neighbours.text_vectors import DenseSettings
from xmtc.text.features import Weighing
from xmtc.text.tfidf import TextSettings


@dataclass(frozen=True)
class OneVsAllSettings(LinearObjective):
    """Settings of one_vs_all."""

    cost: Annotated[float | Literal["auto"], Range(0.05, 10, log=True)] = "auto"
    """Inverse regularisation strength C of the classifiers; 'auto' is 0.2 (features / 500)^0.3, from 0.25 to 1."""
    tolerance: float = 0.05
    """Stopping tolerance on the gradients of the dual problem; documents within it are skipped."""
    passes: int = 20
    """Maximum number of passes over the training set."""
    prune: float = 0.01
    """Prune weights with an absolute value below this, times the cost if it is less than 1."""
    label_names: float | Literal["auto"] = "auto"
    """Weight of a label's names as a training document, 0 for none; 'auto' is 2 if there are names or keys of words."""
    keep_replay: int = 0
    """Number of training documents stored in the model folder for replay in updates; 0 for none."""
    columns: Weighing = "given"
    """Weighting of feature matrices: as given, or multiplied by idf. Text always uses tf-idf."""
    text: TextSettings = field(default_factory=TextSettings)
    """Settings of the tf-idf features."""
    dense: DenseSettings = field(default_factory=DenseSettings)
    """Vectors of the texts as further features."""

    of = "one_vs_all"

    def check(self) -> None:
        super().check()
        self.require_range("keep_replay", 0)
        require_name_weight(self)


class OneVsAll(ForestModel):
    """One linear classifier per label on tf-idf features.

    Classifiers are L2-regularised, and small weights are pruned. A score is the logistic function of the margin.
    """

    name = "one_vs_all"
    Config = OneVsAllSettings
    _sees_all = True
    ablations: ClassVar = {
        "nothing-pruned": {"prune": 0.0},
        "no-label-names": {"label_names": 0.0},
        "logistic": {"loss": "logistic"},
        "plain-counts": {"text.sublinear": False},
    }

    def _fit(self, train: Dataset, valid: Dataset | None, run: FitContext) -> None:
        rows, names = self._fit_features(train, run)
        objective = self._objective(int(rows.shape[1]))
        training = TrainingRows.of(train, rows, names, self._name_importance)
        numbers = numbers_by_frequency(training.rows)
        flat = train_flat(
            Rows.build(training.rows, numbers, training.importance),
            int(training.rows.shape[1]),
            training.labels,
            objective,
            seed=run.runtime.seed,
            threads=run.runtime.threads,
            workspace=run.workspace,
            progress=run.progress,
            partial=training.partial,
        )
        self._forest = Forest([flat], numbers, self._search())

    def _search(self) -> SearchParameters:
        return SearchParameters(beam=0, link=SIGMOID)

    def _explain(self, text: str, label: int, score: float) -> Explanation:
        evidence, vector, reasons = self._evidence(text, label)
        name = self.labels.name(label)
        return Explanation("tokens", text, name, score, evidence, reasons.bias, text_vector=vector)
