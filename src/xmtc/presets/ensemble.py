"""The final model: the best candidate alone or several combined, with what is learnt from out-of-fold predictions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from xmtc.core.config import changed
from xmtc.core.errors import DataError
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Csr
from xmtc.data.topk import TopK
from xmtc.decisions.decision_rules import DEPTH, Decisions, decide
from xmtc.models.base import Model
from xmtc.models.consensus import Consensus
from xmtc.models.stacking import OutOfFold
from xmtc.presets.search_data import DEPTH_OF_ANSWERS, SearchData, Tried
from xmtc.presets.selection import Combine


def combine_models(
    chosen: Sequence[Tried], combine: Combine, data: SearchData, truth: Csr, runtime: Runtime
) -> tuple[Model, TopK]:
    """Combine trained models; return the model and its predictions for the validation documents.

    What it learns (weights, calibration, threshold) comes from the out-of-fold predictions of its members. `truth` has
    the labels of the validation documents.
    """
    if len(chosen) == 1:
        only = chosen[0]
        assert only.folder is not None
        assert only.answer is not None
        model = Model.load(only.folder, runtime)
        model.decisions = _decided(model, only.answer, truth)
        given = model.decisions.probabilities(only.answer.scores)
        return model, only.answer.relabelled(only.answer.labels, given)
    consensus = Consensus(
        members=[str(tried.folder) for tried in chosen],
        combine=combine,
        copy=True,
        depth=DEPTH_OF_ANSWERS,
    )
    answers = [tried.answer for tried in chosen if tried.answer is not None]
    out_of_fold = OutOfFold(answers, data.folds, data.counts, answers[0].index)
    answer = consensus.fit_out_of_fold(data.measured, out_of_fold, runtime=runtime)
    names = tuple(tried.entry.name for tried in chosen)
    consensus.config = changed(consensus.config, {"members": names})  # they are copied
    return consensus, answer


def _decided(model: Model, answer: TopK, truth: Csr) -> Decisions:
    """Calibration and threshold of a single model from its out-of-fold predictions."""
    numbers = model.labels.ids(answer.index.table["key"].combine_chunks())
    labels = np.where(answer.labels >= 0, numbers[answer.labels], -1)
    columns = np.flatnonzero(numbers >= 0)
    coo = truth[:, columns].tocoo()
    renumbered = sp.csr_array((coo.data, (coo.row, numbers[columns][coo.col])), shape=(len(answer), len(model.labels)))
    try:
        return decide(
            TopK(labels[:, :DEPTH], answer.scores[:, :DEPTH], model.labels),
            renumbered,
            method="isotonic",
            threshold="global",
            counts=model.label_counts,
        )
    except DataError:
        return model.decisions
