"""Pretrained encoders: read from folders made on the spot, held against the library that they are made for."""

from __future__ import annotations

import copy
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import xmtc
from tests.support.tiny_encoder import write_encoder
from xmtc.artifact.saved_state import SavedState
from xmtc.core.errors import ConfigError, DataError, MissingExtraError, UnsupportedError
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import as_dataset
from xmtc.models.registry import model_class
from xmtc.nn.encoders.transformer import (
    Backbone,
    PretrainedEncoder,
    Transformer,
    TransformerSettings,
    TransformerStates,
    layer_rates,
)
from xmtc.nn.training.optimisers import Adam
from xmtc.text.sequences import FIRST_WORD
from xmtc.text.subwords import PieceReader

pytest.importorskip("transformers", reason="transformers is not installed")

from tests.support.encoder_kinds import KINDS, batch, written

PLACES = {
    "bert": 14,
    "roberta": 12,
    "distilbert": 14,
    "mpnet": 12,
    "electra": 14,
    "xlm-roberta": 12,
    "deberta-v2": 14,
    "modernbert": 14,
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    words = "salt pepper lemon iron steel copper and naïve cafe"
    return write_encoder(tmp_path_factory.mktemp("encoder"), words.split(), width=16, layers=2, positions=14)


class TestStates:
    @pytest.mark.parametrize("kind", KINDS)
    def test_are_those_of_the_library(self, tmp_path: Path, kind: str) -> None:
        folder, module = written(tmp_path, kind)
        backbone = Backbone.read(folder)
        table = torch.from_numpy(backbone.table())
        assert table.shape == (42, module.get_input_embeddings().weight.shape[1])
        assert not table[:FIRST_WORD].any()
        assert backbone.positions == PLACES[kind]
        encoder = Transformer(backbone.module(), TransformerSettings(hidden=6)).eval()
        assert not [name for name, _ in encoder.named_parameters() if "word_embeddings" in name or "pooler" in name]
        texts, words, mask = batch([12, 3, 7], 16, table)  # padded to more than there are places
        with torch.no_grad():
            states, inside, _ = encoder.states(words, mask)
            for row, text in enumerate(texts):
                expected = module(input_ids=text[None]).last_hidden_state[0]
                torch.testing.assert_close(states[row, : len(text)], expected, atol=1e-5, rtol=1e-4)
                assert inside[row].sum() == len(text)

    @pytest.mark.parametrize("kind", ["bert", "mpnet", "distilbert", "modernbert"])
    def test_after_each_layer(self, tmp_path: Path, kind: str) -> None:
        folder, module = written(tmp_path, kind)
        backbone = Backbone.read(folder)
        texts, words, mask = batch([12, 3], 12, torch.from_numpy(backbone.table()))
        encoder = PretrainedEncoder(backbone.module(), TransformerSettings()).eval()
        with torch.no_grad():
            layers, inside, _ = encoder.layer_states(words, mask)
            for row, text in enumerate(texts):
                expected = module(input_ids=text[None], output_hidden_states=True)
                for layer, states in zip(layers[:-1], expected.hidden_states[1:-1], strict=True):
                    torch.testing.assert_close(layer[row, inside[row]], states[0], atol=1e-5, rtol=1e-4)
        lowest = PretrainedEncoder(backbone.module(), TransformerSettings(layers=1)).eval()
        if kind != "modernbert":  # it normalises the states of the last layer once more
            with torch.no_grad():
                torch.testing.assert_close(lowest.states(words, mask)[0], layers[0])
        assert len(list(lowest.parameters())) < len(list(encoder.parameters()))

    def test_long_texts_in_windows(self, tmp_path: Path) -> None:
        """Windows are of equal size: 26 subwords are read as 13 and 13 where 14 are possible."""
        folder, module = written(tmp_path, "bert")
        backbone = Backbone.read(folder)
        texts, words, mask = batch([26, 5], 26, torch.from_numpy(backbone.table()))
        encoder = TransformerStates(backbone.module(), TransformerSettings(dropout=0.0), 28).eval()
        assert encoder.has_windows
        with torch.no_grad():
            states = encoder(words, mask)
            halves = [module(input_ids=part[None]).last_hidden_state[0] for part in texts[0].split(13)]
            short = module(input_ids=texts[1][None]).last_hidden_state[0]
        torch.testing.assert_close(states[0], torch.cat(halves), atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(states[1, 21:], short, atol=1e-5, rtol=1e-4)
        assert not states[1, :21].any()

    @pytest.mark.parametrize("kind", ["bert", "mpnet", "electra", "distilbert"])
    def test_gradients_are_those_of_the_library(self, tmp_path: Path, kind: str) -> None:
        folder, module = written(tmp_path, kind)
        backbone = Backbone.read(folder)
        texts, words, mask = batch([9], 9, torch.from_numpy(backbone.table()))
        encoder = TransformerStates(backbone.module(), TransformerSettings(dropout=0.0)).eval()
        encoder(words, mask).square().sum().backward()
        module(input_ids=texts[0][None]).last_hidden_state.square().sum().backward()
        expected = dict(module.named_parameters())
        for name, part in encoder.pretrained.named_parameters():
            if part.requires_grad:
                wanted = expected[name].grad
                torch.testing.assert_close(part.grad, wanted, atol=2e-3, rtol=1e-3, msg=lambda m, n=name: f"{n}: {m}")

    def test_do_not_depend_on_padding(self, tiny: Path) -> None:
        backbone = Backbone.read(tiny)
        encoder = Transformer(backbone.module(), TransformerSettings(hidden=6)).eval()
        table = torch.from_numpy(backbone.table())
        _, words, mask = batch([9, 2], 9, table)
        _, wide, wide_mask = batch([9, 2], 13, table)
        with torch.no_grad():
            torch.testing.assert_close(encoder(words, mask), encoder(wide, wide_mask), atol=1e-6, rtol=1e-5)
            shares = encoder.attention(wide, wide_mask)
        assert not shares[~wide_mask].any()
        torch.testing.assert_close(shares.sum(1), torch.ones(2))

    def test_a_text_without_words_gives_numbers(self, tiny: Path) -> None:
        backbone = Backbone.read(tiny)
        encoder = Transformer(backbone.module(), TransformerSettings(hidden=6)).eval()
        with torch.no_grad():
            assert encoder(torch.zeros(4, 1, 16), torch.zeros(1, 4, dtype=torch.bool)).isfinite().all()

    @pytest.mark.filterwarnings("ignore:mkldnn_matmul")  # of CPUs without it
    def test_bfloat16(self, tiny: Path) -> None:
        backbone = Backbone.read(tiny)
        encoder = Transformer(backbone.module(), TransformerSettings(hidden=6)).eval()
        _, words, mask = batch([9, 2], 9, torch.from_numpy(backbone.table()))
        with torch.no_grad():
            exact, rough = encoder(words, mask), encoder(words.bfloat16(), mask)
        assert rough.dtype == torch.bfloat16
        torch.testing.assert_close(rough.float(), exact, atol=0.05, rtol=0.05)

    def test_half_precision_files_are_read_exactly(self, tmp_path: Path) -> None:
        folder, module = written(tmp_path, "bert")
        module.half().save_pretrained(folder)
        backbone = Backbone.read(folder)
        read = dict(backbone.module().named_parameters())
        assert {part.dtype for part in read.values()} == {torch.float32}
        name = "encoder.layer.1.output.dense.weight"
        assert torch.equal(read[name], module.state_dict()[name].float())
        assert torch.equal(
            torch.from_numpy(backbone.table()[FIRST_WORD:]), module.get_input_embeddings().weight.float()
        )

    def test_what_is_kept_makes_the_same_module(self, tmp_path: Path) -> None:
        folder, _ = written(tmp_path, "electra")
        backbone = Backbone.read(folder)
        kept = json.loads(json.dumps(backbone.without_weights().config))
        assert str(tmp_path) not in json.dumps(kept)
        module, again = backbone.module(), Backbone(kept).module()
        again.load_state_dict(module.state_dict())
        _, words, mask = batch([4, 6], 6, torch.from_numpy(backbone.table()))
        with torch.no_grad():
            for left, right in zip(
                *(Transformer(m, TransformerSettings()).eval().states(words, mask) for m in (module, again)),
                strict=True,
            ):
                assert torch.equal(left, right)


class TestRefused:
    def refused(self, folder: Path, message: str) -> None:
        with pytest.raises(DataError, match=message) as said:
            Backbone.read(folder)
        assert "\n" not in str(said.value)

    def test_what_is_not_there(self, tmp_path: Path, tiny: Path) -> None:
        self.refused(tmp_path / "none", "no such folder")
        for name in ("config.json", "tokenizer.json"):
            shutil.copytree(tiny, tmp_path / name)
            (tmp_path / name / name).unlink()
            self.refused(tmp_path / name, f"{name} is missing")
        folder = Path(shutil.copytree(tiny, tmp_path / "weights"))
        (folder / "model.safetensors").unlink()
        self.refused(folder, r"\(\*\.safetensors\) are missing")
        (folder / "pytorch_model.bin").write_bytes(b"not read")
        self.refused(folder, "Convert them to safetensors")

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"is_encoder_decoder": True}, r"an encoder-decoder \(bert\)"),
            ({"is_decoder": True}, "a decoder"),
            ({"model_type": "no-such-thing"}, "cannot be loaded"),
            ({"model_type": None}, "cannot be loaded"),
            ({"num_hidden_layers": 3}, r"missing or wrong weights.*encoder\.layer\.2"),
            ({"intermediate_size": 20}, "encoder"),
        ],
    )
    def test_other_configurations(self, tmp_path: Path, tiny: Path, change: dict[str, Any], message: str) -> None:
        folder = Path(shutil.copytree(tiny, tmp_path / "encoder"))
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **change}))
        self.refused(folder, message)

    @pytest.mark.parametrize("content", ["", "[]", "{}", "\xff"])
    def test_no_configuration(self, tmp_path: Path, tiny: Path, content: str) -> None:
        folder = Path(shutil.copytree(tiny, tmp_path / "encoder"))
        (folder / "config.json").write_text(content, encoding="latin-1")
        self.refused(folder, "config.json: invalid")

    def test_damaged_weights(self, tmp_path: Path, tiny: Path) -> None:
        folder = Path(shutil.copytree(tiny, tmp_path / "encoder"))
        content = (folder / "model.safetensors").read_bytes()
        (folder / "model.safetensors").write_bytes(content[:-100])
        self.refused(folder, "cannot be loaded")

    def test_a_decoder(self, tmp_path: Path) -> None:
        sizes = {"vocab_size": 40, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 14}
        folder, _ = written(tmp_path, "gpt2", **sizes)
        self.refused(folder, r"a decoder \(left-to-right attention\)")

    def test_without_the_package(self, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "transformers", None)
        with pytest.raises(MissingExtraError, match=r'pip install "xmtc\[transformers\]"'):
            Backbone.read(tiny)
        monkeypatch.setitem(sys.modules, "tokenizers", None)
        with pytest.raises(MissingExtraError, match=r'pip install "xmtc\[transformers\]"'):
            PieceReader("{}", 10, 10)


class TestLearning:
    def encoder(self, tiny: Path, **settings: Any) -> tuple[Transformer, torch.Tensor]:
        backbone = Backbone.read(tiny)
        torch.manual_seed(3)
        made = Transformer(backbone.module(), TransformerSettings(hidden=6, dropout=0.0, **settings))
        return made.train(), torch.from_numpy(backbone.table())

    def test_frozen_layers_have_no_gradient(self, tiny: Path) -> None:
        encoder, _ = self.encoder(tiny, freeze=1)
        learnt = {name for name, part in encoder.named_parameters() if part.requires_grad}
        frozen = {name for name, part in encoder.named_parameters() if not part.requires_grad}
        assert all("layer.0" in name or name.startswith("pretrained.embeddings") for name in frozen)
        assert not any("layer.0" in name or "embeddings" in name for name in learnt)
        assert {name for name in learnt if "layer.1" in name}
        encoder, _ = self.encoder(tiny, rate=0.0)
        assert not [n for n, part in encoder.named_parameters() if part.requires_grad and n.startswith("pretrained")]
        with pytest.raises(ConfigError, match=r"'freeze' of encoder is 3, but the encoder has 2 layers"):
            self.encoder(tiny, freeze=3)

    def test_checkpointing_changes_no_gradient(self, tiny: Path) -> None:
        found = []
        for checkpointing in (False, True):
            encoder, table = self.encoder(tiny, checkpointing=checkpointing)
            _, words, mask = batch([9, 2], 9, table)
            loss = encoder(words, mask).square().sum()
            found.append(torch.autograd.grad(loss, list(encoder.parameters())))
        for left, right in zip(*found, strict=True):
            torch.testing.assert_close(left, right)

    def test_lower_layers_learn_slower(self) -> None:
        names = ["table", "encoder.pretrained.encoder.layer.0.q", "encoder.pretrained.encoder.layer.1.q"]
        rates = layer_rates(names, TransformerSettings(rate=0.1, layer_decay=0.5))
        assert list(rates.values()) == pytest.approx([0.025, 0.05, 0.1])

    def test_rates_by_parameter(self) -> None:
        """Adam's first step moves every number by the rate, whatever its gradient."""
        parameters = {name: torch.zeros(3, 2) for name in ("whole", "part", "table")}
        optimiser = Adam(parameters, frozenset({"table"}), {"part": 0.25, "table": 0.5})
        optimiser.rate.fill_(0.1)
        for parameter in parameters.values():
            parameter.grad = torch.tensor([[1.0, -3.0], [0.5, 2.0], [-1.0, 1.0]])
        optimiser.step({"table": torch.tensor([0, 2])})
        signs = -torch.sign(parameters["whole"].grad)
        torch.testing.assert_close(parameters["whole"], 0.1 * signs)
        torch.testing.assert_close(parameters["part"], 0.025 * signs)
        torch.testing.assert_close(parameters["table"], 0.05 * signs * torch.tensor([[1.0], [0.0], [1.0]]))


class TestPieces:
    @pytest.fixture
    def content(self, tiny: Path) -> str:
        return (tiny / "tokenizer.json").read_text()

    def numbers(self, reader: PieceReader, *texts: str) -> list[list[str]]:
        block = reader.encode(as_dataset(list(texts)), Runtime())
        names = ["", "", *reader.words]
        return [[names[number] for number in part] for part in np.split(block.ids, block.indptr[1:-1])]

    def test_pieces_of_texts(self, content: str) -> None:
        """The file says to cut at 4 and to pad to 9, which is not what a network is given."""
        reader = PieceReader(content, 8, 80)
        assert self.numbers(reader, "Salt and lime", "", "salt salt salt salt salt salt salt") == [
            ["[CLS]", "salt", "and", "l", "##i", "##m", "##e", "[SEP]"],
            ["[CLS]", "[SEP]"],
            ["[CLS]", *["salt"] * 6, "[SEP]"],
        ]
        assert reader.size == 82
        assert reader.grown(as_dataset(["more"]), 9, Runtime()) is reader

    def test_characters(self, content: str) -> None:
        reader = PieceReader(content, 30, 80)
        text = "🙂 Iron, and  café lime"
        assert [text[start:end] for _, start, end in reader.spans(text)] == [
            *["", "🙂", "Iron", ",", "and", "café", "l", "i", "m", "e", ""]
        ]
        shares = [0.1 * place for place in range(11)]
        words = {text[start:end]: weight for start, end, weight in reader.by_word(text, shares)}
        assert words["lime"] == pytest.approx(0.6 + 0.7 + 0.8 + 0.9)
        assert words["café"] == pytest.approx(0.5)
        assert list(words) == ["🙂", "Iron", ",", "and", "café", "lime"]

    def test_kept_whole(self, content: str) -> None:
        reader = PieceReader(content, 8, 80)
        again = PieceReader.from_state(8, SavedState(reader.state()))
        assert again.size == reader.size
        assert self.numbers(again, "lemon steel") == self.numbers(reader, "lemon steel")

    def test_mistakes_get_one_line(self, content: str) -> None:
        with pytest.raises(ConfigError, match=r"'max_tokens' of text must be an integer > 2"):
            PieceReader(content, 2, 80)
        with pytest.raises(DataError, match=r"but the encoder has embeddings for 20"):
            PieceReader(content, 8, 20)
        with pytest.raises(DataError, match=r"tokenizer\.json cannot be read"):
            PieceReader("{}", 8, 80)
        with pytest.raises(UnsupportedError, match="requires text"):
            PieceReader(content, 8, 80).encode(as_dataset(np.ones((2, 3))), Runtime())


TEXTS = ["salt and pepper", "pepper and lemon", "iron and steel", "steel and copper"] * 8
LABELS = [["spice"], ["spice", "fruit"], ["metal"], ["metal"]] * 8
QUICK = {
    "encoder.hidden": 16,
    "encoder.rate": 1.0,
    "training.epochs": 12,
    "training.batch_size": 8,
    "text.max_tokens": 14,
}
QUICK |= {"training.learning_rate": 0.01, "training.warmup_steps": 4}


class TestModel:
    @pytest.mark.parametrize("kind", ["label_attention", "pooled"])
    def test_learns_and_needs_its_folder_no_more(self, tmp_path: Path, tiny: Path, kind: str) -> None:
        folder = Path(shutil.copytree(tiny, tmp_path / "encoder"))
        settings = {**QUICK, "encoder.path": str(folder), "encoder.freeze": 1, "head.kind": kind}
        model = model_class("transformer")(**settings)
        here = Runtime(threads=1, seed=2, device="cpu")
        model.fit(TEXTS, LABELS, runtime=here)
        asked = ["lemon and pepper", "copper and iron", "salt"]
        assert [names[0] for names in model.predict(asked, 1).names()] == ["spice", "metal", "spice"]
        model.save(tmp_path / "m")
        shutil.rmtree(folder)
        again = xmtc.load(tmp_path / "m", here)
        assert (again.predict(asked, 3).scores == model.predict(asked, 3).scores).all()
        read = dict(Backbone.read(tiny).module().named_parameters())
        kept = dict(again._members[0].network.encoder.pretrained.named_parameters())
        assert read.keys() == kept.keys()
        moved = {name for name in read if not torch.equal(read[name], kept[name])}
        assert moved
        assert not [name for name in moved if "layer.0." in name or "embeddings" in name]
        again.update(["lemon and salt", "steel"] * 4, [["fruit"], ["metal"]] * 4, force=True)
        assert again.predict(asked, 3).labels.shape == (3, 3)

        reasons = again.explain("Lemon & pepper", "fruit")
        assert reasons.shares
        assert {item.text for item in reasons.evidence} == {"Lemon", "&", "pepper"}
        assert sum(item.weight for item in reasons.evidence) == pytest.approx(1.0)
        assert all("Lemon & pepper"[item.start : item.end] == item.text for item in reasons.evidence)

    def test_folders_without_a_kind_of_head_are_pooled(self, tiny: Path) -> None:
        settings = {**QUICK, "encoder.path": str(tiny), "training.epochs": 1}
        model = model_class("transformer")(**settings, **{"head.kind": "pooled"}).fit(TEXTS, LABELS)
        older = copy.copy(model)
        older.config = model_class("transformer")(**settings).config
        older._restore(SavedState(model._state()))
        assert older.config.head.kind == "pooled"
        assert (older.predict(["lemon"], 3).scores == model.predict(["lemon"], 3).scores).all()

    def test_mistakes_get_one_line(self, tiny: Path) -> None:
        for settings, message in (
            ({}, r"'path' of encoder must be the folder"),
            ({"encoder.path": str(tiny), "text.max_tokens": 1000}, r"'max_tokens' of text must be ≤ 896.* Got 1,000"),
            ({"encoder.path": str(tiny), "text.max_tokens": 14, "encoder.freeze": 9}, "the encoder has 2 layers"),
            ({"encoder.path": str(tiny), "text.max_tokens": 14, "encoder.layers": 3}, "'layers' of encoder is 3, but"),
        ):
            with pytest.raises(ConfigError, match=message) as said:
                model_class("transformer")(**settings).fit(TEXTS, LABELS)
            assert "\n" not in str(said.value)
        with pytest.raises(ConfigError, match=r"'correlation.blocks' of transformer must be 0 with a label tree"):
            model_class("transformer")(**{"correlation.blocks": 1, "head.tree.height": 1})


@pytest.mark.long
def test_a_real_encoder_learns_words_it_was_not_shown() -> None:
    """Words near in meaning to those of the training texts, which only a pretrained encoder can know."""
    path = os.environ.get("XMTC_ENCODER")
    if not path:
        pytest.skip("XMTC_ENCODER names no folder of a pretrained encoder")
    words = {
        "spice": ["salt", "pepper", "cumin", "ginger", "basil", "thyme", "saffron", "garlic"],
        "metal": ["iron", "steel", "copper", "silver", "gold", "nickel", "lead", "bronze"],
    }
    pairs = [(f"{one} and {other}", [label]) for label, of in words.items() for one in of for other in of]
    settings = {"encoder.path": path, "text.max_tokens": 16, "training.epochs": 3, "training.batch_size": 8}
    model = model_class("transformer")(**settings, **{"training.warmup_steps": 10}).fit(
        *map(list, zip(*pairs, strict=True))
    )
    found = model.predict(["zinc and aluminium", "cinnamon and oregano", "titanium", "paprika"], 1).names()
    assert [names[0] for names in found] == ["metal", "spice", "metal", "spice"]
