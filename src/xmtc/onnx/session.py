"""A graph in onnxruntime, on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xmtc.core.errors import ConfigError, ModelFormatError, missing_extra, shown
from xmtc.onnx.graph import PROBABILITIES, TOKENS, OnnxGraph
from xmtc.text.batches import padded, sorted_batches
from xmtc.text.sequences import UNKNOWN
from xmtc.text.tokens import TokenBlock

WORDS, TEXTS = 1 << 13, 64
"""Words, including padding, and texts that are scored at once."""
VALUES = 1 << 25
"""Values of one layer that are computed at once."""
FATAL = 4
"""Level of messages that onnxruntime prints; errors are raised as well."""


class OnnxSession:
    """Scores texts with a graph; the graph may come from anyone, so it is tried once."""

    def __init__(self, graph: OnnxGraph, labels: int, words: int, values_per_label: int, threads: int) -> None:
        self.labels = labels
        self._values_per_label = values_per_label
        self._session, self._weights = _loaded(graph, threads)
        probe = np.array([[UNKNOWN, words - 1]])  # the lowest and the highest word number that texts have
        try:
            found = self._run(probe)
        except Exception as error:  # of onnxruntime, of many kinds
            raise _damaged(error) from None
        fits = found.shape == (1, labels) and found.dtype == np.float32
        if not fits or not bool(np.all((found >= 0) & (found <= 1))):
            raise ModelFormatError(f"the ONNX graph does not return {labels:,} probabilities. Export it again.")

    def scores(self, texts: TokenBlock) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """Score texts in batches: yields their rows (B,) and the probabilities of all labels (B, L)."""
        words, most = WORDS, min(TEXTS, max(1, VALUES // (self.labels * max(1, self._values_per_label))))
        if self._values_per_label:
            words = min(words, VALUES // self.labels)
        for batch in sorted_batches(np.diff(texts.indptr), words, most):
            if len(batch.rows) == 1:  # nothing to pad it to
                batch = batch._replace(length=int(texts.indptr[batch.rows[0] + 1] - texts.indptr[batch.rows[0]]))
            try:
                found = self._run(padded(texts, batch))
            except Exception as error:
                if "alloc" not in str(error).lower():
                    raise
                raise ConfigError("not enough memory to score a text. Use a machine with more memory.") from None
            yield batch.rows, found

    def _run(self, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        found: NDArray[np.float32] = self._session.run([PROBABILITIES], {TOKENS: tokens})[0]
        return found


def _loaded(graph: OnnxGraph, threads: int) -> tuple[Any, list[Any]]:
    """A session of onnxruntime, and the weights that it refers to."""
    try:
        import onnxruntime
    except ImportError:
        raise missing_extra("ONNX models need onnx and onnxruntime", "onnx") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # idle threads would keep cores busy
    options.log_severity_level = FATAL
    try:
        held = [onnxruntime.OrtValue.ortvalue_from_numpy(np.asarray(array)) for array in graph.weights.values()]
        options.add_external_initializers(list(graph.weights), held)
        return onnxruntime.InferenceSession(graph.nodes, options, providers=["CPUExecutionProvider"]), held
    except Exception as error:  # of onnxruntime, of many kinds
        raise _damaged(error) from None


def _damaged(error: Exception) -> ModelFormatError:
    reason = shown(str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__, 160)
    return ModelFormatError(
        f"onnxruntime cannot run the ONNX graph ({reason}). Export it again, or update onnxruntime."
    )
