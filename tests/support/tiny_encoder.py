"""A pretrained encoder that is small and knows nothing: BERT in the form of Hugging Face, made on the spot."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

MARKS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def write_tokeniser(folder: Path, words: Iterable[str]) -> int:
    """tokenizer.json that knows some words, and spells the others; returns the number of pieces."""
    known = dict.fromkeys([*words, *LETTERS, *(f"##{letter}" for letter in LETTERS), ".", "?"])
    pieces = {piece: number for number, piece in enumerate([*MARKS, *known])}
    marks = {mark: {"id": mark, "ids": [pieces[mark]], "tokens": [mark]} for mark in ("[CLS]", "[SEP]")}
    single = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    single.append({"SpecialToken": {"id": "[SEP]", "type_id": 0}})
    content = {
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0},
        "padding": {
            "strategy": {"Fixed": 9},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "[PAD]",
        },
        "added_tokens": [
            {
                "id": pieces[mark],
                "content": mark,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for mark in MARKS
        ],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": marks},
        "decoder": None,
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": pieces,
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(content))
    return len(pieces)


def write_encoder(
    folder: Path, words: Iterable[str], *, width: int = 32, layers: int = 1, positions: int = 128, seed: int = 0
) -> Path:
    """A whole folder, with weights drawn at random."""
    folder.mkdir(parents=True, exist_ok=True)
    pieces = write_tokeniser(folder, words)
    config = {
        "model_type": "bert",
        "architectures": ["BertModel"],
        "vocab_size": pieces,
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": 2,
        "intermediate_size": 2 * width,
        "max_position_embeddings": positions,
        "type_vocab_size": 2,
        "pad_token_id": 0,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }
    (folder / "config.json").write_text(json.dumps(config))
    random = np.random.default_rng(seed)
    weights: dict[str, np.ndarray] = {}

    def draw(name: str, *shape: int, spread: float | None = None) -> None:
        weights[f"{name}.weight"] = random.normal(0, spread or shape[-1] ** -0.5, shape).astype(np.float32)

    def even(name: str) -> None:
        weights[f"{name}.weight"], weights[f"{name}.bias"] = np.ones(width, np.float32), np.zeros(width, np.float32)

    draw("embeddings.word_embeddings", pieces, width, spread=1.0)
    draw("embeddings.position_embeddings", positions, width, spread=0.02)
    draw("embeddings.token_type_embeddings", 2, width, spread=0.02)
    even("embeddings.LayerNorm")
    for layer in range(layers):
        parts = {f"attention.self.{name}": (width, width) for name in ("query", "key", "value")}
        parts |= {"attention.output.dense": (width, width)}
        parts |= {"intermediate.dense": (2 * width, width), "output.dense": (width, 2 * width)}
        for name, shape in parts.items():
            draw(f"encoder.layer.{layer}.{name}", *shape)
            weights[f"encoder.layer.{layer}.{name}.bias"] = np.zeros(shape[0], np.float32)
        even(f"encoder.layer.{layer}.attention.output.LayerNorm")
        even(f"encoder.layer.{layer}.output.LayerNorm")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
