"""A pretrained transformer as an encoder, read from a Hugging Face folder without executing its code.

The embeddings of its subwords are moved out of it: they become the network's word table, which several encoders share.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
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
from xmtc.core.encoders import read_encoder_config
from xmtc.core.errors import ConfigError, DataError, MissingExtraError, ModelFormatError, missing_extra, shown
from xmtc.nn.encoders.base import AttentionPooling, Encoder, initialise, linear
from xmtc.nn.encoders.bert_layers import BertLayers
from xmtc.text.sequences import FIRST_WORD

PRETRAINED = "pretrained"
"""Part of the name, between dots, of every weight that comes from the folder."""
UNSAFE = ("attn_implementation", "experts_implementation", "quantization_config")
"""Configuration entries, also with a leading underscore, that make the library load further code; not restored."""


@dataclass(frozen=True)
class TransformerSettings(Settings):
    """A pretrained transformer."""

    path: str = ""
    """Folder of the pretrained encoder: config.json, tokenizer.json and safetensors weights."""
    hidden: Annotated[int, Range(128, 512, log=True)] = 256
    """Units of the layer after attention pooling; the size of the document vector."""
    dropout: Annotated[float, Range(0, 0.5)] = 0.1
    """Dropout rate of the states or document vector; inside the encoder, the hidden rate in its config.json applies."""
    layers: int = 0
    """Number of lowest layers to use; 0 for all."""
    freeze: int = 0
    """Number of lowest layers to freeze, together with the embeddings."""
    checkpointing: bool = False
    """Use gradient checkpointing: less memory, more time."""
    rate: Annotated[float, Range(0.01, 0.2, log=True)] = 0.05
    """Learning rate of the pretrained weights relative to `training.learning_rate`; 0 freezes them."""
    layer_decay: Annotated[float, Range(0.7, 1.0)] = 1.0
    """Factor of the learning rate from each layer to the one below."""

    of = "encoder"

    def check(self) -> None:
        self.require_range("hidden", 1, 1 << 16)
        self.require_range("layers", 0)
        self.require_range("freeze", 0)
        self.require_range("rate", 0)
        self.require("layer_decay", 0 < self.layer_decay <= 1, "a number > 0 and ≤ 1")
        self.require("dropout", 0 <= self.dropout < 1, "a number ≥ 0 and < 1")


class Backbone:
    """The configuration of a pretrained encoder and, before training, its weights."""

    def __init__(self, config: dict[str, Any], module: nn.Module | None = None, words: Tensor | None = None) -> None:
        self.config = config
        self._module, self._words = module, words  # words: (V, e)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read and check the encoder in a folder."""
        config = read_encoder_config(folder)
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
                raise DataError(f"{folder}: this encoder does not accept input embeddings. Use another, such as BERT.")
            embedded[:, 1] = 0.0  # the first word must see this one, even through a narrow attention window
            if torch.equal(_called(folder, module, inputs_embeds=embedded)[:, 0], states[:, 0]):
                raise DataError(f"{folder}: this is a decoder (left-to-right attention). Use an encoder, such as BERT.")
        if config["model_type"] not in _text_encoders():
            raise DataError(f"{folder}: {config['model_type']} is not a text encoder. Use an encoder, such as BERT.")
        return cls(config, module, words)

    @classmethod
    def restored(cls, config: dict[str, Any]) -> Self:
        """The encoder of a model folder, which may be damaged; raise `ModelFormatError` unless it is a text encoder."""
        kind = config.get("model_type")
        if not isinstance(kind, str) or kind not in _text_encoders():
            found = shown(repr(kind)[:60])
            raise ModelFormatError(f"the encoder is of kind {found}, which is not a text encoder. Train it again.")
        return cls({name: value for name, value in config.items() if not name.lstrip("_").startswith(UNSAFE)})

    def table(self) -> NDArray[np.float32]:
        """(V + FIRST_WORD, e) subword embeddings, after zero rows for padding and the unknown word."""
        assert self._words is not None
        return np.concatenate([np.zeros((FIRST_WORD, self._words.shape[1]), np.float32), self._words.numpy()])

    @property
    def pieces(self) -> int:
        """Number of subwords with an embedding."""
        assert self._words is not None
        return len(self._words)

    def module(self) -> nn.Module:
        """A new module with the pretrained weights; with random weights if only the configuration is available."""
        return _from_config(self.config) if self._module is None else copy.deepcopy(self._module)

    @property
    def positions(self) -> int | None:
        """Maximum number of subwords of a text; None if there is no limit."""
        return positions_of(self.module() if self._module is None else self._module)

    @property
    def layers(self) -> int:
        """Number of layers."""
        return int(_settings(self.config).num_hidden_layers)

    @property
    def width(self) -> int:
        """Width of the states."""
        return int(_settings(self.config).hidden_size)

    def check(self, settings: TransformerSettings) -> None:
        """Raise ConfigError for settings that this encoder does not support."""
        _layers(self._module, settings)

    def without_weights(self) -> Backbone:
        """The configuration only, for when the networks have the weights."""
        return Backbone(self.config)

    def words(self) -> str:
        """A short description of the encoder."""
        settings = _settings(self.config)
        return f"{settings.model_type}, {settings.num_hidden_layers} layers, {settings.hidden_size} wide"


class PretrainedEncoder(Encoder):
    """The states of a pretrained transformer.

    Layers like BERT's are computed by `BertLayers`, all others by the library's code. Texts of up to `max_tokens`
    subwords that do not fit into the encoder's positions are read in windows of equal size.
    """

    def __init__(self, module: Any, settings: TransformerSettings, max_tokens: int = 0) -> None:
        super().__init__()
        self.pretrained = module
        self.dropout, self.positions = settings.dropout, positions_of(module)
        self._longest = None if self.positions is None else max(self.positions, max_tokens)
        _drop_layers(module, settings)
        _freeze(module, settings)
        self._bert = BertLayers(module, settings.checkpointing) if BertLayers.supports(module) else None
        self.captures = self._bert is not None and not settings.checkpointing  # other code reads the mask back
        if settings.checkpointing and self._bert is None:
            module.config.use_cache = False  # would only cause a warning
            module.gradient_checkpointing_enable({"use_reentrant": False})

    @property
    def has_windows(self) -> bool:
        """Whether there can be texts that are read in several windows."""
        return self._longest != self.positions

    @property
    def state_width(self) -> int:
        """Width of the states."""
        return int(self.pretrained.config.hidden_size)

    def states(self, words: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(B, S, d) states from the start of a text, which of them are real (B, S), and their source positions (B, S).

        Padding is moved behind the text, since every kind of encoder then uses the positions that it was trained with.
        An empty text has one position, which is padding.
        """
        layers, inside, source = self.layer_states(words, mask)
        return layers[-1], inside, source

    def layer_states(self, words: Tensor, mask: Tensor) -> tuple[list[Tensor], Tensor, Tensor]:
        """Like `states`, with those after each layer; words (T, B, e), mask (B, T).

        S is T, or the length of the longest text that there can be, if smaller.
        """
        length = mask.sum(1, keepdim=True)
        place = torch.arange(mask.shape[1], device=mask.device)[None, : self._longest]
        inside = place < length.clamp(min=1)
        source = (place - length) % mask.shape[1]  # (B, S)
        ordered = words.transpose(0, 1).gather(1, source[..., None].expand(-1, -1, words.shape[2]))
        count = 1 if self.positions is None else -(-place.shape[1] // self.positions)
        if count == 1:
            return self._computed(ordered, inside), inside, source
        padded = -place.shape[1] % count
        parts = F.pad(ordered, (0, 0, 0, padded)).unflatten(1, (count, -1)).flatten(0, 1)  # (B · count, window, e)
        real = F.pad(inside, (0, padded)).unflatten(1, (count, -1)).flatten(0, 1)
        found = [layer.unflatten(0, (-1, count)).flatten(1, 2) for layer in self._computed(parts, real)]
        return [layer[:, : place.shape[1]] for layer in found], inside, source

    def _computed(self, words: Tensor, inside: Tensor) -> list[Tensor]:
        """(B, S, d) states after each layer."""
        if self._bert is not None:
            return list(self._bert(words, inside, self.training))
        with torch.autocast(words.device.type, torch.bfloat16, enabled=words.dtype == torch.bfloat16):
            made = self.pretrained(inputs_embeds=words, attention_mask=inside.long(), output_hidden_states=True)
        layers = [*made.hidden_states[1:-1], made.last_hidden_state]  # some kinds normalise the last states once more
        return [layer.to(words.dtype) for layer in layers]


class Transformer(PretrainedEncoder):
    """Document vectors (B, hidden): a pretrained transformer, attention pooling, then a linear layer."""

    def __init__(self, module: Any, settings: TransformerSettings, max_tokens: int = 0) -> None:
        super().__init__(module, settings, max_tokens)
        self.pooling = AttentionPooling(self.state_width)
        self.layer = nn.Linear(self.state_width, settings.hidden)
        initialise(self.layer)
        self.width = settings.hidden

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        states, inside, _ = self.states(words, mask)
        return F.dropout(linear(self.layer, self.pooling(states, inside)), self.dropout, self.training)

    def attention(self, words: Tensor, mask: Tensor) -> Tensor:
        """(B, T) attention weight of each subword, 0 at padding."""
        states, inside, source = self.states(words, mask)
        shares = self.pooling.shares(states, inside) * inside
        return shares.new_zeros(mask.shape).scatter_(1, source, shares)


class TransformerStates(PretrainedEncoder):
    """The states (B, T, d) of a pretrained transformer, 0 at padding."""

    def __init__(self, module: Any, settings: TransformerSettings, max_tokens: int = 0) -> None:
        super().__init__(module, settings, max_tokens)
        self.width = self.state_width

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        states, _, _ = self.states(words, mask)
        states = F.dropout(states, self.dropout, self.training)
        place = torch.arange(mask.shape[1], device=mask.device)[None]  # back to padding on the left
        source = (place - mask.shape[1] + mask.sum(1, keepdim=True)).clamp(min=0)  # (B, T)
        return states.gather(1, source[..., None].expand(-1, -1, states.shape[2])) * mask[..., None]


def positions_of(module: Any) -> int | None:
    """Maximum number of positions; some kinds reserve the first ones, up to the padding index."""
    for name, part in module.named_modules():
        if name.rpartition(".")[2] == "position_embeddings" and isinstance(part, nn.Embedding):
            return part.num_embeddings - (0 if part.padding_idx is None else part.padding_idx + 1)
    limit = getattr(module.config, "max_position_embeddings", None)
    return int(limit) if isinstance(limit, int) and limit > 0 else None


def _freeze(module: Any, settings: TransformerSettings) -> None:
    """Disable gradients of the lowest layers and the embeddings below them, or of everything."""
    frozen = tuple(f"{_layers(module, settings)}.{number}." for number in range(settings.freeze))
    for name, weight in module.named_parameters():
        if settings.rate == 0 or (settings.freeze and name.startswith(("embeddings", *frozen))):
            weight.requires_grad_(False)


def _drop_layers(module: Any, settings: TransformerSettings) -> None:
    """Keep the lowest `settings.layers` layers."""
    if settings.layers:
        name = _layers(module, settings)
        parent, _, own = name.rpartition(".")
        setattr(module.get_submodule(parent), own, module.get_submodule(name)[: settings.layers])
        module.config.num_hidden_layers = settings.layers


def layer_rates(names: Iterable[str], settings: TransformerSettings) -> dict[str, float]:
    """The learning rate of each pretrained weight, relative to that of other weights: lower layers learn slower."""
    numbers = {name: _layer_number(name) for name in names}
    top = max(numbers.values(), default=0)
    return {name: settings.rate * settings.layer_decay ** (top - number) for name, number in numbers.items()}


def _layer_number(name: str) -> int:
    """The number of the layer that a weight belongs to, counted from 1; 0 for embeddings."""
    own = [int(part) + 1 for part in name.split(".") if part.isdigit()]
    return own[0] if own and PRETRAINED in name else 0


def _layers(module: Any, settings: TransformerSettings) -> str:
    """Name of the module list with the layers; raises ConfigError for settings that do not fit."""
    if settings.checkpointing and not module.supports_gradient_checkpointing:
        remedy = f"Use {settings.of}.checkpointing = false."
        raise ConfigError(f"this encoder does not support gradient checkpointing. {remedy}")
    count = int(module.config.num_hidden_layers)
    lists = {name: len(part) for name, part in module.named_modules() if isinstance(part, nn.ModuleList)}
    found = next((name for name, length in lists.items() if length == count), None)
    for setting in ("layers", "freeze"):
        if getattr(settings, setting) > (count if found is not None else 0):
            have = f"{count} layers" if found is not None else "a single layer that is applied repeatedly"
            wanted = getattr(settings, setting)
            raise ConfigError(f"'{setting}' of {settings.of} is {wanted}, but the encoder has {have}. Lower it.")
    return found or ""


# ---- reading a folder


def _read_module(folder: Path) -> Any:
    """Load the module of a folder in float32; missing weights are an error, as they would be drawn at random."""
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
        except Exception as error:  # of many kinds; all mean that it cannot be read
            raise DataError(f"{folder}: cannot be loaded ({_first_line(error)}). Use another encoder.") from None
    missing = sorted(name for name in loading_info["missing_keys"] if "pooler" not in name)
    if missing or loading_info["mismatched_keys"]:
        lacking = missing or [str(loading_info["mismatched_keys"])]
        raise DataError(f"{folder}: missing or wrong weights: {shown(', '.join(lacking))}. Copy the folder again.")
    return module.float().eval()


def _from_config(config: dict[str, Any]) -> nn.Module:
    """A module with random weights; raise `ModelFormatError` for a configuration that the library does not accept."""
    try:
        with _quiet():
            module = _transformers().AutoModel.from_config(_settings(config), trust_remote_code=False)
        _strip(module)
        made: nn.Module = module.float()
    except (MissingExtraError, MemoryError):
        raise
    except Exception as error:  # of many kinds
        reason = _first_line(error)
        raise ModelFormatError(
            f"the configuration of the encoder is damaged ({reason}). Copy or train the model again."
        ) from None
    return made


def _text_encoders() -> frozenset[str]:
    """Kinds of encoders in the library that read masked text."""
    _transformers()
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

    return frozenset(MODEL_FOR_MASKED_LM_MAPPING_NAMES)


def _settings(config: dict[str, Any]) -> Any:
    return _transformers().CONFIG_MAPPING[config["model_type"]].from_dict(config)


def _strip(module: Any) -> None:
    """Remove the word embeddings, which the network has, and the pooler, which is not used."""
    module.set_input_embeddings(nn.Identity())
    if getattr(module, "pooler", None) is not None:
        module.pooler = None


def _called(folder: Path, module: Any, **given: Tensor) -> Tensor:
    """Run a module and return its states."""
    try:
        states: Tensor = module(**given, attention_mask=torch.ones(1, next(iter(given.values())).shape[1]))[0]
    except Exception as error:  # any error of third-party code
        raise DataError(f"{folder}: not a text encoder ({_first_line(error)}). Use another, such as BERT.") from None
    return states


def _transformers() -> Any:
    try:
        import transformers
    except ImportError:
        raise missing_extra("a pretrained encoder needs transformers", "transformers") from None
    return transformers


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the library's progress bars and warnings."""
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
