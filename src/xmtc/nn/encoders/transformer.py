"""A pretrained transformer as an encoder: a folder in the form that Hugging Face writes, read without running its code.

The vectors of its word pieces leave it: they are the network's table, which several encoders share.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from xmtc.core.config import Range, Settings
from xmtc.core.errors import ConfigError, DataError, missing_extra, shown
from xmtc.nn.encoders.base import AttentionPooling, Encoder, initialise, linear
from xmtc.text.sequences import FIRST_WORD

PRETRAINED = "pretrained"
"""What the name of every weight that comes from the folder has in it, between dots."""
FORGOTTEN = ("_name_or_path", "auto_map", "dtype", "torch_dtype", "transformers_version")
"""What a configuration says that is not kept: where it lay, code to run, and the type of its file."""


@dataclass(frozen=True)
class TransformerSettings(Settings):
    """A pretrained transformer, whose states are averaged by attention, and a layer."""

    path: str = ""
    """Folder of the pretrained encoder: config.json, tokenizer.json and weights as safetensors."""
    hidden: Annotated[int, Range(128, 512, log=True)] = 256
    """Numbers of the vector, which is what a layer makes of the averaged states."""
    dropout: Annotated[float, Range(0, 0.5)] = 0.1
    """Share of the vector's numbers that are left out in training; inside it is as the folder says."""
    freeze: int = 0
    """Layers, the lowest ones, that stay as they are, and with them what lies below."""
    checkpointing: bool = False
    """Keep less of each layer in training and compute it again: less memory, more time."""
    rate: Annotated[float, Range(0.01, 0.2, log=True)] = 0.05
    """Learning rate of the pretrained weights as a share of `training.learning_rate`; 0 keeps them as they are."""

    of = "encoder"

    def check(self) -> None:
        self.require_range("hidden", 1, 1 << 16)
        self.require_range("freeze", 0)
        self.require_range("rate", 0)
        self.require("dropout", 0 <= self.dropout < 1, "a number from 0 to below 1")


class Backbone:
    """What is read of a folder: its configuration, and its weights, which a saved model has elsewhere."""

    def __init__(self, config: dict[str, Any], module: nn.Module | None = None, words: Tensor | None = None) -> None:
        self.config = config
        self._module, self._words = module, words  # words: (V, e)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Everything that a folder says of an encoder, checked."""
        config = _read_config(folder)
        module = _read_module(folder)
        words = module.get_input_embeddings().weight.detach()
        sample = [number for number in range(min(len(words), 9)) if number != config.get("pad_token_id")]
        ids = torch.tensor([sample])
        with torch.no_grad():
            expected = _called(folder, module, input_ids=ids)
            _strip(module)
            embedded = words[ids]
            states = _called(folder, module, inputs_embeds=embedded)
            if not torch.allclose(states, expected, atol=1e-4):
                raise DataError(f"{folder}: this kind of encoder does not take vectors of words. Use another, as BERT.")
            embedded[:, 1] = 0.0  # what the first word must see, even through a narrow window
            if torch.equal(_called(folder, module, inputs_embeds=embedded)[:, 0], states[:, 0]):
                raise DataError(f"{folder}: a decoder, which reads from left to right alone. Use an encoder, as BERT.")
        return cls(config, module, words)

    def table(self) -> NDArray[np.float32]:
        """(V + FIRST_WORD, e) vectors of word pieces, after those of padding and the unknown word, which are zero."""
        assert self._words is not None
        return np.concatenate([np.zeros((FIRST_WORD, self._words.shape[1]), np.float32), self._words.numpy()])

    @property
    def pieces(self) -> int:
        """Pieces of words that it has vectors for."""
        assert self._words is not None
        return len(self._words)

    def module(self) -> nn.Module:
        """A new module with the pretrained weights; with weights that mean nothing where only the rest is known."""
        return _from_config(self.config) if self._module is None else copy.deepcopy(self._module)

    @property
    def positions(self) -> int | None:
        """Pieces of a text that it has places for; None where there is no limit."""
        return positions_of(self.module() if self._module is None else self._module)

    def check(self, settings: TransformerSettings) -> None:
        """Refuse settings that this encoder cannot have."""
        _layers(self._module, settings)

    def without_weights(self) -> Backbone:
        """What is left to know when networks have the weights."""
        return Backbone(self.config)

    def words(self) -> str:
        """What it is, in a few words."""
        settings = _settings(self.config)
        return f"{settings.model_type}, {settings.num_hidden_layers} layers, {settings.hidden_size} wide"


class Transformer(Encoder):
    """Document vectors (B, hidden): states of a pretrained transformer, averaged by attention, then a layer."""

    captures = False  # its code asks the device what the mask is like

    def __init__(self, module: Any, settings: TransformerSettings) -> None:
        super().__init__()
        self.pretrained = module
        self.dropout, self.positions = settings.dropout, positions_of(module)
        width = int(self.pretrained.config.hidden_size)
        self.pooling = AttentionPooling(width)
        self.layer = nn.Linear(width, settings.hidden)
        initialise(self.layer)
        self.width = settings.hidden
        _freeze(self.pretrained, settings)
        if settings.checkpointing:
            self.pretrained.config.use_cache = False  # which decoders have, and which would be warned of
            self.pretrained.gradient_checkpointing_enable({"use_reentrant": False})

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        states, inside, _ = self.states(words, mask)
        return F.dropout(linear(self.layer, self.pooling(states, inside)), self.dropout, self.training)

    def states(self, words: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(B, S, d) states from a text's start on, which of them are (B, S) its own, and where (B, S) they stand in it.

        Padding goes behind the text, as every kind of encoder then gives the places that it was trained with. S is T,
        or as many places as there are: no text is longer. A text without words has one, which is padding.
        """
        length = mask.sum(1, keepdim=True)
        place = torch.arange(mask.shape[1], device=mask.device)[None, : self.positions]
        inside = place < length.clamp(min=1)
        source = (place - length) % mask.shape[1]  # (B, S)
        ordered = words.transpose(0, 1).gather(1, source[..., None].expand(-1, -1, words.shape[2]))
        with torch.autocast(words.device.type, torch.bfloat16, enabled=words.dtype == torch.bfloat16):
            states = self.pretrained(inputs_embeds=ordered, attention_mask=inside.long())[0]
        return states.to(words.dtype), inside, source

    def attention(self, words: Tensor, mask: Tensor) -> Tensor:
        """(B, T) each piece's share of the attention, 0 at padding."""
        states, inside, source = self.states(words, mask)
        shares = self.pooling.shares(states, inside) * inside
        return shares.new_zeros(mask.shape).scatter_(1, source, shares)


def positions_of(module: Any) -> int | None:
    """Places that a module has; some kinds leave the first ones out, up to that of padding."""
    for name, part in module.named_modules():
        if name.rpartition(".")[2] == "position_embeddings" and isinstance(part, nn.Embedding):
            return part.num_embeddings - (0 if part.padding_idx is None else part.padding_idx + 1)
    limit = getattr(module.config, "max_position_embeddings", None)
    return int(limit) if isinstance(limit, int) and limit > 0 else None


def _freeze(module: Any, settings: TransformerSettings) -> None:
    """Take gradients from the lowest layers and what lies below them, or from everything."""
    frozen = tuple(f"{_layers(module, settings)}.{number}." for number in range(settings.freeze))
    for name, weight in module.named_parameters():
        if settings.rate == 0 or (settings.freeze and name.startswith(("embeddings", *frozen))):
            weight.requires_grad_(False)


def _layers(module: Any, settings: TransformerSettings) -> str:
    """Where the layers stand in a module; refuses settings that do not suit them."""
    if settings.checkpointing and not module.supports_gradient_checkpointing:
        raise ConfigError(f"this encoder has no checkpointing. Use {settings.of}.checkpointing = false.")
    count = int(module.config.num_hidden_layers)
    lists = {name: len(part) for name, part in module.named_modules() if isinstance(part, nn.ModuleList)}
    found = next((name for name, length in lists.items() if length == count), None)
    if settings.freeze > (count if found is not None else 0):
        have = f"{count} layers" if found is not None else "one layer that is gone through again and again"
        raise ConfigError(f"'freeze' of {settings.of} is {settings.freeze}; the encoder has {have}. Lower it.")
    return found or ""


# ---- reading a folder


def _read_config(folder: Path) -> dict[str, Any]:
    """config.json, when all that an encoder consists of is there."""
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder. Give that of a pretrained encoder.")
    for name in ("config.json", "tokenizer.json"):
        if not (folder / name).is_file():
            raise DataError(f"{folder}: no {name} in it, so not the folder of a pretrained encoder.")
    if not any(folder.glob("*.safetensors")):
        if any(folder.glob("*.bin")):
            raise DataError(f"{folder}: weights as a pickle, which could run code. Convert them to safetensors.")
        raise DataError(f"{folder}: no *.safetensors in it, which hold the weights.")
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        kind = config["model_type"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder / 'config.json'}: not the configuration of an encoder ({shown(error)}).") from None
    if config.get("is_encoder_decoder") or config.get("is_decoder"):
        what = "an encoder with a decoder" if config.get("is_encoder_decoder") else "a decoder"
        raise DataError(f"{folder}: {what} ({shown(kind)}). Use an encoder, as BERT.")
    return {name: value for name, value in config.items() if name not in FORGOTTEN}


def _read_module(folder: Path) -> Any:
    """The module of a folder in float32; weights that are missing would be drawn at random, and are refused."""
    transformers = _transformers()
    with _quiet():
        try:
            module, loading_info = transformers.AutoModel.from_pretrained(
                str(folder),
                local_files_only=True,
                use_safetensors=True,
                trust_remote_code=False,
                output_loading_info=True,
            )
        except Exception as error:  # of many kinds, and all mean that it cannot be read
            raise DataError(f"{folder}: cannot be read as an encoder ({_first_line(error)}).") from None
    missing = sorted(name for name in loading_info["missing_keys"] if "pooler" not in name)
    if missing or loading_info["mismatched_keys"]:
        lacking = missing or [str(loading_info["mismatched_keys"])]
        raise DataError(f"{folder}: weights are missing, or of another shape: {shown(', '.join(lacking))}.")
    return module.float().eval()


def _from_config(config: dict[str, Any]) -> nn.Module:
    """A module with drawn weights."""
    with _quiet():
        module = _transformers().AutoModel.from_config(_settings(config), trust_remote_code=False)
    _strip(module)
    made: nn.Module = module.float()
    return made


def _settings(config: dict[str, Any]) -> Any:
    return _transformers().CONFIG_MAPPING[config["model_type"]].from_dict(config)


def _strip(module: Any) -> None:
    """Take out the words, which the network has, and what is made of the first state, which nobody asks for."""
    module.set_input_embeddings(nn.Identity())
    if getattr(module, "pooler", None) is not None:
        module.pooler = None


def _called(folder: Path, module: Any, **given: Tensor) -> Tensor:
    """The states that a module gives."""
    try:
        states: Tensor = module(**given, attention_mask=torch.ones(1, next(iter(given.values())).shape[1]))[0]
    except Exception as error:  # whatever its code comes to
        raise DataError(f"{folder}: does not work as an encoder of text ({_first_line(error)}).") from None
    return states


def _transformers() -> Any:
    try:
        import transformers
    except ImportError:
        raise missing_extra("a pretrained encoder needs transformers", "transformers") from None
    return transformers


@contextmanager
def _quiet() -> Iterator[None]:
    """Neither bars nor warnings of the library."""
    logging = _transformers().utils.logging
    before, had_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        if had_bars:
            logging.enable_progress_bar()


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return shown(lines[0] if lines else type(error).__name__, 160)
