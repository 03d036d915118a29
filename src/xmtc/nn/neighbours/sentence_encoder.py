"""Texts as vectors of a pretrained sentence encoder, which is not trained further: a Hugging Face folder, pooled."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xmtc.artifact.saved_state import SavedState
from xmtc.artifact.store import State
from xmtc.core.cancellation import check
from xmtc.core.errors import DataError, ModelFormatError, shown
from xmtc.core.parsing import read_json
from xmtc.core.progress import Progress, silent
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import as_dataset
from xmtc.labels.layout import unit_rows
from xmtc.nn.device import arithmetic, chosen_device, cpu_threads
from xmtc.nn.encoders.transformer import Backbone
from xmtc.nn.neighbours.word_means import leading_directions
from xmtc.nn.tensors import as_array, limited_parameters, load_weights, read_tensor
from xmtc.text.sequences import FIRST_WORD
from xmtc.text.subwords import PieceReader

TOKENS = {"cpu": 2048, "cuda": 1 << 16}
"""Subwords per batch, with padding."""
POOLINGS = ("mean", "cls", "max")
"""Supported ways of turning the states of a text into one vector."""
PARTS = ("Transformer", "Pooling", "Normalize")
"""Supported parts of a sentence encoder."""
ENCODER, WORDS, COMMON = "encoder.", "encoder_words", "encoder_common"
"""Prefix of the weights in a model's state, and names of the embeddings of the subwords and the common components."""
SAMPLE = 4096
"""Number of names that determine the common components."""

Vectors = NDArray[np.float32]


class SentenceEncoder:
    """A pretrained encoder with its tokeniser and pooling; the folder is not needed after it was read."""

    def __init__(
        self, backbone: Backbone, module: nn.Module, words: Tensor, reader: PieceReader, pooling: str, runtime: Runtime
    ) -> None:
        self._device = chosen_device(runtime)
        self._kind = arithmetic(runtime, self._device)
        self._config, self._reader, self._pooling = backbone.config, reader, pooling
        self._runtime = runtime
        self._module = module.to(self._device).eval().requires_grad_(False)
        self._words = words.to(self._device)  # (V, e)
        self._common = np.zeros((0, self.width), dtype=np.float32)  # (c, d) orthonormal

    @classmethod
    def read(cls, folder: Path, max_tokens: int, runtime: Runtime, progress: Progress = silent) -> SentenceEncoder:
        """Read the encoder in a folder. Longer texts are cut off at `max_tokens` or at its own limit, if smaller."""
        with progress.task("loading the encoder", total=1) as task:
            backbone = Backbone.read(folder)
            task.advance()
        try:
            content = (folder / "tokenizer.json").read_text(encoding="utf-8")
        except (OSError, ValueError):
            raise DataError(f"{folder / 'tokenizer.json'}: cannot be read. Copy the folder again.") from None
        limit = min(max_tokens, backbone.positions or max_tokens)
        reader = PieceReader(content, limit, backbone.pieces)
        words = torch.from_numpy(backbone.table()[FIRST_WORD:].copy())
        return cls(backbone, backbone.module(), words, reader, _pooling(folder), runtime)

    @property
    def width(self) -> int:
        """Dimension of the vectors."""
        return int(self._module.config.hidden_size)  # type: ignore[union-attr, arg-type]

    def remove_common(self, names: pa.ChunkedArray, components: int) -> None:
        """Remove from all vectors the components that are common to names, of which a sample is embedded."""
        chosen = np.linspace(0, len(names) - 1, min(len(names), SAMPLE)).astype(np.int64)
        if components and len(chosen):
            sample = self.embed(names.take(pa.array(chosen)))
            self._common = leading_directions((sample.T @ sample).astype(np.float64), components)

    def embed(self, texts: pa.ChunkedArray, progress: Progress = silent) -> Vectors:
        """(n, d) unit vectors; zero for texts without words."""
        dataset = as_dataset(texts)
        block = self._reader.encode(dataset, self._runtime)
        lengths = np.diff(block.indptr)
        order = np.argsort(lengths, kind="stable")
        vectors = np.zeros((len(texts), self.width), dtype=np.float32)
        with progress.task("embedding texts", len(texts)) as task, cpu_threads(self._runtime.threads):
            low = 0
            while low < len(order):
                check()
                high = self._batch_end(lengths, order, low)
                rows = order[low:high]
                ids = np.full((len(rows), int(lengths[rows[-1]])), -1, dtype=np.int64)
                for place, row in enumerate(rows.tolist()):
                    own = block.ids[block.indptr[row] : block.indptr[row + 1]]
                    ids[place, : len(own)] = own - FIRST_WORD
                vectors[rows] = self._encoded(torch.from_numpy(ids).to(self._device))
                task.advance(len(rows))
                low = high
        vectors[~self._reader.known_words(dataset, self._runtime)] = 0.0
        return vectors if not len(self._common) else unit_rows(vectors - (vectors @ self._common.T) @ self._common)

    def _batch_end(self, lengths: NDArray[np.int64], order: NDArray[np.int64], low: int) -> int:
        """The end of the batch from `low`: texts of ascending length, padded to that of the last."""
        most, high = TOKENS.get(self._device.type, TOKENS["cpu"]), low + 1
        while high < len(order) and (high + 1 - low) * int(lengths[order[high]]) <= most:
            high += 1
        return high

    @torch.inference_mode()
    def _encoded(self, ids: Tensor) -> Vectors:
        """Pooled unit vectors (B, d) of subwords (B, T); −1 as padding."""
        mask = ids >= 0
        mask[:, 0] = True  # a text without subwords has one position
        words = self._words[ids.clamp(min=0)]
        with torch.autocast(self._device.type, self._kind, enabled=self._kind != torch.float32):
            states = self._module(inputs_embeds=words, attention_mask=mask.long())[0]
        states, weights = states.float(), mask[..., None].float()
        if self._pooling == "cls":
            pooled = states[:, 0]
        elif self._pooling == "max":
            pooled = states.masked_fill(weights == 0, -torch.inf).amax(1)
        else:
            pooled = (states * weights).sum(1) / weights.sum(1)
        vectors: Vectors = nn.functional.normalize(pooled, dim=1).cpu().numpy()
        return vectors

    def fingerprint(self) -> str:
        """A hash of everything that the vectors depend on."""
        state, digest = self.state(), hashlib.blake2b(digest_size=16)
        digest.update(json.dumps([state.values, self._reader.content, str(self._kind)], sort_keys=True).encode())
        for name in sorted(state.arrays):
            digest.update(name.encode() + np.ascontiguousarray(state.arrays[name]).tobytes())
        return digest.hexdigest()

    def state(self) -> State:
        """The state to save: weights, embeddings of the subwords, configuration, pooling and tokeniser."""
        weights = {ENCODER + name: as_array(part) for name, part in self._module.named_parameters()}
        state = self._reader.state()
        state.arrays.update({**weights, WORDS: as_array(self._words), COMMON: self._common})
        state.values.update(encoder=self._config, pooling=self._pooling, max_tokens=self._reader.max_tokens)
        return state

    @classmethod
    def from_state(cls, state: SavedState, runtime: Runtime) -> SentenceEncoder:
        """Restore from a saved state."""
        pooling = state.value("pooling", str)
        if pooling not in POOLINGS:
            raise ModelFormatError(f"value 'pooling' is '{shown(pooling)}'. Copy or train the model again.")
        backbone = Backbone.restored(state.value("encoder", dict))
        reader = PieceReader.from_state(state.value("max_tokens", int, 1, 1 << 20), state)
        weights: dict[str, NDArray[Any]] = state.part(ENCODER).weights()
        try:
            with limited_parameters(2 * len(weights) + 64), torch.device("meta"):
                shapes = {name: part.shape for name, part in backbone.module().named_parameters()}
            for name, shape in shapes.items():
                if weights[name].shape != shape:
                    raise ValueError(f"{name} has shape {weights[name].shape}, expected {tuple(shape)}")
            module = backbone.module()
            load_weights(module, weights)
        except (KeyError, ValueError) as error:
            raise ModelFormatError(f"the encoder is damaged ({shown(error)}). Copy or train the model again.") from None
        config: Any = module.config
        width = getattr(config, "embedding_size", config.hidden_size)
        words = read_tensor(state.array(WORDS, np.float32, (reader.pieces, width)))
        made = cls(backbone, module, words, reader, pooling, runtime)
        made._common = state.array(COMMON, np.float32, (None, made.width))
        return made


def _pooling(folder: Path) -> str:
    """The pooling in the sentence settings of a folder; the mean if there are none."""
    try:
        parts = folder / "modules.json"
        kinds = [str(part["type"]).rpartition(".")[2] for part in read_json(parts)] if parts.is_file() else []
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{parts}: invalid ({shown(error)}). Copy the folder again.") from None
    other = next((kind for kind in kinds if kind not in PARTS), None)
    if other is not None:
        raise DataError(f"{parts}: a layer of type '{shown(other)}' is not supported. Use another encoder.")
    file = folder / "1_Pooling" / "config.json"
    if not file.is_file():
        return "mean"
    try:
        given = read_json(file, any_number=True)
        chosen = [str(given["pooling_mode"])] if isinstance(given.get("pooling_mode"), str) else []
        chosen += [name.removeprefix("pooling_mode_") for name, value in given.items() if value is True]
    except (OSError, ValueError, AttributeError) as error:
        raise DataError(f"{file}: invalid ({shown(error)}). Copy the folder again.") from None
    names = {"mean": "mean", "mean_tokens": "mean", "cls": "cls", "cls_token": "cls", "max": "max", "max_tokens": "max"}
    modes = [name for name in chosen if name != "include_prompt"] or ["mean"]
    if len(modes) > 1 or modes[0] not in names:
        what = shown(", ".join(modes))
        raise DataError(f"{file}: pooling '{what}' is not supported. Use an encoder with mean, cls or max pooling.")
    return names[modes[0]]
