"""Encoders of several kinds with random weights, and batches of texts for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers

from xmtc.text.sequences import FIRST_WORD

SIZES = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 14,
    "pad_token_id": 1,
}
KINDS: dict[str, dict[str, Any]] = {
    "bert": {**SIZES, "pad_token_id": 0},
    "roberta": SIZES,
    "distilbert": {
        "vocab_size": 40,
        "dim": 16,
        "n_layers": 2,
        "n_heads": 2,
        "hidden_dim": 24,
        "max_position_embeddings": 14,
    },
    "mpnet": SIZES,
    "electra": {**SIZES, "embedding_size": 8},
    "xlm-roberta": SIZES,
    "deberta-v2": {**SIZES, "relative_attention": True, "position_buckets": 4, "pos_att_type": ["p2c", "c2p"]},
    "modernbert": {
        **SIZES,
        "bos_token_id": 2,
        "cls_token_id": 2,
        "eos_token_id": 3,
        "sep_token_id": 3,
        "global_attn_every_n_layers": 2,
        "local_attention": 4,
    },
}


def written(folder: Path, kind: str, **more: Any) -> tuple[Path, Any]:
    """A folder with random weights, larger than those that a training starts from, and the module they are from."""
    torch.manual_seed(5)
    config = transformers.AutoConfig.for_model(kind, **{**KINDS.get(kind, {}), **more})
    module = transformers.AutoModel.from_config(config).eval()
    with torch.no_grad():
        for part in module.parameters():
            part.add_(0.1 * torch.randn_like(part))
    module.save_pretrained(folder)
    (folder / "tokenizer.json").write_text("{}")
    return folder, module


def batch(lengths: list[int], padded: int, table: torch.Tensor) -> tuple[list[torch.Tensor], torch.Tensor, Any]:
    """Random texts of some lengths, and as (T, B, e) words padded on the left, with their mask."""
    random = torch.Generator().manual_seed(1)
    texts = [torch.randint(5, 40, (length,), generator=random) for length in lengths]
    tokens = torch.zeros(len(texts), padded, dtype=torch.int64)
    for row, text in enumerate(texts):
        tokens[row, padded - len(text) :] = text + FIRST_WORD
    return texts, table[tokens.t()], tokens != 0
