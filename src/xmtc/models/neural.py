"""What the neural models have in common: numbered words, word vectors, training, members and answers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xmtc.artifact.store import State
from xmtc.core.config import Settings
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Csr, Dataset
from xmtc.metrics import ndcg
from xmtc.models.base import Labels, Mask, Model, Scores
from xmtc.models.context import FitContext
from xmtc.models.update import Change
from xmtc.nn.device import arithmetic, chosen_device, chunk_memory, cpu_threads, memory_told
from xmtc.nn.documents import Documents
from xmtc.nn.encoders.base import Encoder
from xmtc.nn.heads.base import Head
from xmtc.nn.network import Network
from xmtc.nn.prediction import best_labels, candidate_scores
from xmtc.nn.tensors import as_array, load_weights
from xmtc.nn.training.fine_tuning import UpdateSettings, absent_from, carry_weights, settle
from xmtc.nn.training.loop import Trainer, TrainingSettings
from xmtc.nn.training.optimisers import Adam, Optimiser
from xmtc.nn.training.process_group import Group
from xmtc.text.sequences import FIRST_WORD, PADDING, SequenceSettings, WordSequences
from xmtc.text.subwords import PieceReader
from xmtc.text.tokens import TokenBlock
from xmtc.text.weighted_bags import BagReader, Numbered, taken
from xmtc.text.word2vec import CorpusVectorSettings, train_vectors
from xmtc.text.word_vectors import read_vectors

TABLE = "table"
"""The name of the word table among a network's weights."""
SPREAD = 0.3
"""Standard deviation of the numbers in vectors that are made here; those of GloVe are spread about as much."""


@dataclass(frozen=True)
class NetworkSettings(Settings):
    """Settings of models that are networks."""

    members: int = 1
    """Networks, trained from different seeds, whose probabilities are averaged."""
    training: TrainingSettings = field(default_factory=TrainingSettings)
    """How the network is trained."""

    def check(self) -> None:
        self.require_range("members", 1, 1000)


@dataclass(frozen=True)
class UpdatableSettings(Settings):
    """Settings of networks that go on to learn from new documents."""

    keep_replay: int = 0
    """Training documents kept in the model folder, to be seen again in updates; 0 keeps none."""
    update: UpdateSettings = field(default_factory=UpdateSettings)
    """How an update goes on with the training."""

    def check(self) -> None:
        super().check()
        self.require_range("keep_replay", 0)


@dataclass(frozen=True)
class WordNetworkSettings(NetworkSettings):
    """Settings of models that start from word vectors."""

    vectors: str = "corpus"
    """Word vectors to start from: 'corpus' trains them on the training texts, 'random' draws them, or a file."""
    frozen: bool = False
    """Keep the word vectors as they are."""
    corpus: CorpusVectorSettings = field(default_factory=CorpusVectorSettings)
    """How vectors are trained on the corpus; `width` holds for random ones too."""

    def check(self) -> None:
        super().check()
        self.require("vectors", bool(self.vectors), "'corpus', 'random' or a file")


@dataclass(frozen=True)
class NeuralSettings(UpdatableSettings, WordNetworkSettings):
    """Settings of models that read words in order."""

    text: SequenceSettings = field(default_factory=SequenceSettings)
    """How text becomes a sequence of words."""


class TrainingData(NamedTuple):
    """What the members of a model are trained with."""

    train: Dataset
    table: NDArray[np.float32]  # (V, e) words as training begins
    documents: Documents
    labels: Csr
    """Of these documents."""
    watched: tuple[Documents, Csr] | None


class UpdateBatch(NamedTuple):
    """What the members of a model learn in an update."""

    change: Change
    carried: Csr  # (L, L before) what each label is made of
    words: NDArray[np.float32]  # (new words, e) as the update begins
    documents: Documents | None
    """New and replayed ones with their labels; None where nothing is new but labels went."""
    labels: Csr
    """Of these documents."""


class NeuralModel(Model):
    """Word vectors, an encoder and a head; the settings `encoder` and `head` are each model's own."""

    capabilities = frozenset({"text", "score_labels"})
    less_memory: ClassVar[str] = "Lower training.batch_size, text.max_tokens, or the sizes in encoder and head."
    """What to do where memory does not suffice."""
    ablations: ClassVar = {
        "random-vectors": {"vectors": "random"},
        "frozen-vectors": {"frozen": True},
        "no-dropout": {"encoder.dropout": 0.0, "encoder.word_dropout": 0.0},
        "no-averaging": {"training.averaging": "none"},
    }
    _reader: WordSequences | BagReader | PieceReader
    _members: list[Any]
    """What was trained from each seed: networks, unless a model says otherwise."""

    @abstractmethod
    def _encoder(self, width: int) -> Encoder:
        """A new encoder of words that are `width` wide; its `width` is that of its states or vectors."""

    @abstractmethod
    def _head(self, labels: int, width: int) -> Head:
        """A new head on states or vectors of this width."""

    def _fit(self, train: Dataset, valid: Dataset | None, run: FitContext) -> None:
        assert train.labels is not None
        device = chosen_device(run.runtime)
        group = Group(run.runtime, device)
        numbered = self._read(train, run)
        self.facts = {}
        table = self._table(numbered, group, run)
        learnt, watched = self._split(train, numbered, valid, run)
        seen = None if watched is None else (Documents(watched[0], None, device), watched[1])
        material = TrainingData(train, table, Documents(*learnt, device), learnt[1], seen)
        self._members = []
        scores = []
        for member in range(self.config.members):
            with _surrounded(run.runtime, device, self.less_memory):
                trained, score = self._train_member(member, material, group, run)
            self._members.append(trained)
            scores.append(score)
        if watched is not None:
            self.facts["nDCG@5 held out"] = round(float(np.mean(scores)), 4)
        self._conclude(numbered, material, run)

    def _conclude(self, numbered: Numbered, material: TrainingData, run: FitContext) -> None:
        """What is left to do when all members are trained; `numbered` are all training documents."""
        return

    def _judged(self, network: Network, material: TrainingData) -> float:
        """nDCG@5 of a network on the watched documents."""
        assert material.watched is not None
        seen, truth = material.watched
        return ndcg(best_labels([network], seen, min(5, truth.shape[1]))[0], truth, 5)

    def _read(self, train: Dataset, run: FitContext) -> Numbered:
        """Choose the words that are known, and number those of the training documents."""
        self._reader, sequences = WordSequences.fit(train, self.config.text, run.runtime, run.progress)
        return sequences

    def _train_member(self, member: int, material: TrainingData, group: Group, run: FitContext) -> tuple[Any, float]:
        """One network, from its finished part, its checkpoint or its start, and its score on the watched documents."""
        torch.manual_seed(member_seed(run.runtime, member))
        network = self._network(material.table, len(self.label_counts), material.documents.device, run.runtime)
        network.head.start_from(torch.from_numpy(self.label_counts / len(material.train)).float())
        judge = None if material.watched is None else lambda: self._judged(network, material)
        return network, self._taught(network, member, material.documents, self.config.training, judge, group, run)

    def _taught(
        self,
        network: Network,
        member: int,
        documents: Documents,
        settings: TrainingSettings,
        judge: Callable[[], float] | None,
        group: Group,
        run: FitContext,
    ) -> float:
        """Train a network, from its finished part, its checkpoint or as it is; its score by `judge`."""
        done, begun = f"member-{member}", f"checkpoint-{member}"
        if run.workspace.has(done):
            arrays, values = run.workspace.load(done)
            load_weights(network, arrays)
            network.eval()
            return float(values["score"])
        trainer = Trainer(
            network,
            documents,
            settings,
            seed=member_seed(run.runtime, member),
            free=chunk_memory(documents.device),
            validate=judge,
            log=lambda line: run.workspace.log({"member": member, **line}),
            group=group,
            optimiser=self._optimiser,
        )
        trainer.run(run.progress, run.workspace, begun)
        if group.leads:
            run.workspace.save(done, _arrays(network), {"score": trainer.course.best_score})
            run.workspace.drop(begun)
        return trainer.course.best_score

    # ---- learning from new documents

    def _update(self, change: Change, run: FitContext) -> None:
        """Networks for the labels and words of now, made of those of before, learn from new and replayed documents."""
        device = chosen_device(run.runtime)
        group = Group(run.runtime, device)
        before = self._reader.size
        self._reader = self._reader.grown(change.new, change.documents_before + len(change.new), run.runtime)
        words = self._more_words(self._reader.size - before, run.runtime)
        documents, labels = self._seen_in_update(change, device, run)
        lesson = UpdateBatch(change, change.carried(change.counts_before), words, documents, labels)
        members = []
        for number, member in enumerate(self._members):
            with _surrounded(run.runtime, device, self.less_memory):
                members.append(self._updated_member(number, member, lesson, group, run))
        self._members = members

    def _seen_in_update(self, change: Change, device: torch.device, run: FitContext) -> tuple[Documents | None, Csr]:
        """A mixture of new and replayed documents, and their labels; none where nothing is new."""
        replayed = 0 if change.replay is None else len(change.replay)
        rows = self.config.update.mixture(len(change.new), replayed, run.runtime.seed)
        assert change.documents.labels is not None
        labels = change.documents.labels[rows]
        if not len(rows):
            return None, labels
        numbered = self._reader.encode(change.documents, run.runtime)
        return Documents(taken(numbered, rows), labels, device), labels

    def _updated_member(self, number: int, member: Any, lesson: UpdateBatch, group: Group, run: FitContext) -> Any:
        """A member for the labels of now, which has learnt from new documents; `member` stays as it is."""
        torch.manual_seed(member_seed(run.runtime, number))
        table = np.concatenate([as_array(member.table), lesson.words])
        network = self._network(table, len(self.label_counts), chosen_device(run.runtime), run.runtime)
        change = lesson.change
        shares = self.label_counts / (change.documents_before + len(change.new))
        carry_weights(network, member, lesson.carried, change.labels.added, shares)
        if lesson.documents is not None:
            settings = self.config.update.training(self.config.training)
            start = {name: part.detach().clone() for name, part in network.named_parameters()}
            self._taught(network, number, lesson.documents, settings, None, group, run)
            fresh = np.arange(len(change.labels.kept), len(self.label_counts))
            settle(network, start, self.config.update.kept, len(lesson.words), fresh, absent_from(lesson.labels))
        return network.eval()

    def _more_words(self, count: int, runtime: Runtime) -> NDArray[np.float32]:
        """(count, e) words that nobody knew, at random and spread as the others are."""
        table = as_array(self._word_table())[FIRST_WORD:]
        spread = np.sqrt(3) * table.std()
        random = np.random.default_rng([runtime.seed, 4, len(table)])
        return random.uniform(-spread, spread, (count, table.shape[1])).astype(np.float32)

    def _word_table(self) -> Tensor:
        """(V, e) the words of the first member."""
        table: Tensor = self._members[0].table
        return table

    def _network(self, table: NDArray[np.float32], labels: int, device: torch.device, runtime: Runtime) -> Network:
        """A new network with a head for so many labels."""
        encoder = self._encoder(table.shape[1])
        network = Network(
            torch.from_numpy(np.array(table)),
            encoder,
            self._head(labels, encoder.width),
            trained_words=not self._frozen,
            compute=arithmetic(runtime, device),
            straight=self._straight,
        )
        return network.to(device)

    @property
    def _frozen(self) -> bool:
        """Whether the word table stays as it is, and is the same for all members."""
        return bool(self.config.frozen)

    def _optimiser(self, parameters: Mapping[str, Tensor], rows: frozenset[str]) -> Optimiser:
        """What moves the weights."""
        return Adam(parameters, rows, self._shares(parameters))

    def _shares(self, parameters: Mapping[str, Tensor]) -> dict[str, float]:
        """Parameters that learn at a share of the rate."""
        return {}

    @property
    def _straight(self) -> bool:
        """Whether the head gets the words themselves as well."""
        return False

    def _table(self, numbered: Numbered, group: Group, run: FitContext) -> NDArray[np.float32]:
        """(V, e) the word table to start from, and to go on with when a training is resumed."""
        if not run.workspace.has("vectors"):
            table, facts = self._made_table(numbered, run)
            if not group.leads:
                self.facts.update(facts)
                return table
            run.workspace.save("vectors", {"table": table}, facts)
        arrays, facts = run.workspace.load("vectors")
        self.facts.update(facts)
        return arrays["table"]

    def _made_table(self, numbered: Numbered, run: FitContext) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """The table and what is known about it; words without a vector are drawn at random, padding is zero."""
        count, facts = self._reader.size - FIRST_WORD, {}
        known = np.ones(count, dtype=bool)
        if self.config.vectors == "corpus":
            assert isinstance(numbered, TokenBlock)
            found = self._trained_vectors(numbered, run)
        elif self.config.vectors == "random":
            found = np.zeros((count, self.config.corpus.width), dtype=np.float32)
            known[:] = False
        else:
            words = self._reader.words
            named = np.array([bool(word) for word in words])  # parts of words have no name, and no vector
            read = read_vectors(Path(self.config.vectors), [word for word in words if word], run.progress)
            found, known = read.matrix, read.found
            if not named.all():
                known = np.zeros(count, dtype=bool)
                known[named] = read.found
                found = np.zeros((count, read.matrix.shape[1]), dtype=np.float32)
                found[named] = read.matrix
            facts = {
                "words with a vector": f"{100 * read.coverage:.1f} %",
                "running words with a vector": f"{100 * _running(numbered, known):.1f} %",
            }
        spread = np.sqrt(3) * (found[known].std() if known.any() else SPREAD)  # drawn ones as the others are
        random = np.random.default_rng([run.runtime.seed, 1])
        table = random.uniform(-spread, spread, (count + FIRST_WORD, found.shape[1])).astype(np.float32)
        table[FIRST_WORD:][known] = found[known]
        table[PADDING] = 0.0
        return table, facts

    def _trained_vectors(self, sequences: TokenBlock, run: FitContext) -> NDArray[np.float32]:
        """Vectors (words, e) learnt from the training texts, about their mean: few texts leave them much in common."""
        ids = sequences.ids - np.int32(FIRST_WORD)
        frequencies = np.bincount(ids[ids >= 0], minlength=self._reader.size - FIRST_WORD).astype(np.int64)
        made = train_vectors(sequences.indptr, ids, frequencies, self.config.corpus, run.runtime.seed, run.progress)
        made -= made.mean(0)
        return made * np.float32(SPREAD / max(float(made.std()), 1e-12))

    def _split(
        self, train: Dataset, numbered: Numbered, valid: Dataset | None, run: FitContext
    ) -> tuple[tuple[Numbered, Csr], tuple[Numbered, Csr] | None]:
        """Words and labels to learn from, and those to watch: the ones given, or held out of the training."""
        assert train.labels is not None
        random = np.random.default_rng([run.runtime.seed, 2])
        most = self.config.training.validation_size
        if valid is not None and len(valid) and most:
            assert valid.labels is not None
            chosen = np.sort(random.permutation(len(valid))[:most])
            part = valid.take(chosen)
            return (numbered, train.labels), (self._reader.encode(part, run.runtime), valid.labels[chosen])
        count = min(most, len(train) // 10)
        if not count:
            return (numbered, train.labels), None
        order = random.permutation(len(train))
        held, kept = np.sort(order[:count]), np.sort(order[count:])
        return (
            (taken(numbered, kept), train.labels[kept]),
            (taken(numbered, held), train.labels[held]),
        )

    def _documents(self, batch: Dataset) -> Documents:
        return Documents(self._reader.encode(batch, self.runtime), None, chosen_device(self.runtime))

    def _predict(self, batch: Dataset, k: int, allowed: Mask | None) -> tuple[Labels, Scores]:
        with cpu_threads(self.runtime.threads), memory_told(self.less_memory):
            return self._best(self._documents(batch), k, allowed)

    def _score_labels(self, batch: Dataset, candidates: Labels) -> Scores:
        with cpu_threads(self.runtime.threads), memory_told(self.less_memory):
            return self._given(self._documents(batch), candidates)

    def _best(self, documents: Documents, k: int, allowed: Mask | None) -> tuple[Labels, Scores]:
        """(n, k) labels and probabilities of all members together."""
        return best_labels(self._members, documents, k, allowed)

    def _given(self, documents: Documents, candidates: Labels) -> Scores:
        """(n, c) probabilities of given labels."""
        return candidate_scores(self._members, documents, candidates)

    def _state(self) -> State:
        state = self._reader_state()
        for number, member in enumerate(self._members):
            for name, array in self._member_arrays(member).items():
                if number == 0 or name != TABLE or not self._frozen:  # a frozen table is everybody's
                    state.arrays[f"{number}.{name}"] = array
        return state

    def _reader_state(self) -> State:
        """What to keep of the words that are known."""
        assert isinstance(self._reader, WordSequences)
        return State(tables={"words": self._reader.state()})

    def _restore_reader(self, state: State) -> None:
        """Take up what was kept of the words."""
        self._reader = WordSequences.from_state(self.config.text, state.tables["words"])

    def _restore(self, state: State) -> None:
        self._restore_reader(state)
        self._members = []
        for number in range(self.config.members):
            start = f"{number}."
            arrays = {name.removeprefix(start): a for name, a in state.arrays.items() if name.startswith(start)}
            if self._frozen:
                arrays[TABLE] = state.arrays[f"0.{TABLE}"]
            # The weights that are drawn are replaced at once.
            with torch.random.fork_rng(devices=[]), memory_told("Use device 'cpu', or a machine with more memory."):
                self._members.append(self._restored(arrays))

    def _member_arrays(self, member: Any) -> dict[str, NDArray[Any]]:
        """What to keep of a member."""
        return _arrays(member)

    def _restored(self, arrays: dict[str, NDArray[Any]]) -> Any:
        """A member out of what was kept of it."""
        network = self._network(
            self._checked_table(arrays[TABLE]), len(self.label_counts), chosen_device(self.runtime), self.runtime
        )
        self._lighten(network)
        load_weights(network, arrays)
        return network.eval()

    def _lighten(self, network: Network) -> None:
        """Drop what a network needs in training alone, and what was therefore not kept."""
        return

    def _checked_table(self, table: NDArray[Any]) -> NDArray[Any]:
        if table.ndim != 2 or len(table) != self._reader.size:
            shape = " × ".join(map(str, table.shape))
            raise ValueError(f"word vectors of {shape} for {self._reader.size:,} words")
        return table


def member_seed(runtime: Runtime, member: int) -> int:
    """The seed that a member starts from."""
    return runtime.seed + 104_729 * member


@contextmanager
def _surrounded(runtime: Runtime, device: torch.device, less_memory: str) -> Iterator[None]:
    """What a training runs in: threads, the word on memory, and random numbers that are nobody else's."""
    with (
        cpu_threads(runtime.threads),
        memory_told(less_memory),
        torch.random.fork_rng(devices=[device] if device.type == "cuda" else []),
    ):
        yield


def _arrays(network: Network) -> dict[str, NDArray[Any]]:
    return {name: as_array(part) for name, part in network.named_parameters()}


def _running(numbered: Numbered, known: NDArray[np.bool_]) -> float:
    """Share of the running words that have a vector."""
    ids = numbered.ids - FIRST_WORD
    return float(known[ids[ids >= 0]].mean()) if (ids >= 0).any() else 0.0
