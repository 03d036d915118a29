"""AttentionXML: a bidirectional LSTM, attention of each label over the words, and a perceptron that labels share."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xmtc.core.config import Choices, Settings
from xmtc.core.explanation import Explanation, PathStep, TokenEvidence
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Csr, Dataset, as_dataset
from xmtc.labels.features import positive_features
from xmtc.labels.tree import LabelTree, TreeRevision, homes_of, shallow_sizes, shallow_tree
from xmtc.models.base import Labels, Mask, Scores
from xmtc.models.context import FitContext
from xmtc.models.neural import TABLE, NeuralModel, NeuralSettings, TrainingData, UpdateBatch, member_seed
from xmtc.nn.device import arithmetic, chosen_device, chunk_memory
from xmtc.nn.documents import Documents
from xmtc.nn.encoders.base import BiLstm, Encoder, LstmSettings
from xmtc.nn.heads.base import Head
from xmtc.nn.heads.label_attention import LabelAttention
from xmtc.nn.network import Network
from xmtc.nn.tensors import as_array, read_tensor
from xmtc.nn.training.fine_tuning import absent_from, made_of, settle
from xmtc.nn.training.loop import TrainingSettings, batch_size
from xmtc.nn.training.objectives import ROWS
from xmtc.nn.training.process_group import Group
from xmtc.nn.trees.device_tree import Levels
from xmtc.nn.trees.memory_plan import (
    LevelPlan,
    Sizes,
    described,
    free_memory,
    level_plan,
    member_size,
    place_of,
    placed,
    product_rate,
)
from xmtc.nn.trees.networks import TreeNetwork, best_in_trees, scores_in_trees
from xmtc.nn.trees.training import KINDS, TreeSettings, TreeTraining, load_level
from xmtc.text.features import DocumentFeatures
from xmtc.text.sequences import WordSequences
from xmtc.text.tfidf import TextSettings


@dataclass(frozen=True)
class AttentionSettings(Settings):
    """Attention of each label, and the shared perceptron."""

    hidden: Annotated[tuple[int, ...], Choices((256,), (512,), (512, 256))] = (256,)
    """Units of the perceptron's hidden layers."""
    tree: TreeSettings = field(default_factory=TreeSettings)
    """A tree over the labels; without one, every label is scored."""

    of = "head"

    def check(self) -> None:
        sizes = self.hidden or (0,)
        self.require("hidden", min(sizes) >= 1 and max(sizes) <= 1 << 16, "a list of integers from 1 to 65,536")


@dataclass(frozen=True)
class AttentionXmlSettings(NeuralSettings):
    """Settings of attention_xml."""

    encoder: LstmSettings = field(default_factory=LstmSettings)
    """The LSTM."""
    head: AttentionSettings = field(default_factory=AttentionSettings)
    """Attention and perceptron."""

    of = "attention_xml"


class _How(NamedTuple):
    """How the levels of a tree are trained."""

    tree: TreeSettings
    training: TrainingSettings


class AttentionXml(NeuralModel):
    """Words in order by a bidirectional LSTM; every label attends to the words that matter to it.

    AttentionXML: flat for up to some tens of thousands of labels; with `head.tree.height` a network for each level of
    a shallow and wide label tree, for up to millions. Members are trees of their own.
    """

    name = "attention_xml"
    Config = AttentionXmlSettings
    capabilities = frozenset({"text", "explain", "score_labels", "update"})
    ablations: ClassVar = {**NeuralModel.ablations, "all-words": {"training.skipped_words": 0.0}}

    _reader: WordSequences

    @property
    def _has_tree(self) -> bool:
        return bool(self.config.head.tree.height > 0)

    def _encoder(self, width: int) -> Encoder:
        return BiLstm(width, self.config.encoder)

    def _head(self, labels: int, width: int) -> Head:
        return LabelAttention(labels, width, self.config.head.hidden)

    # ---- training of trees

    def _train_member(self, member: int, material: TrainingData, group: Group, run: FitContext) -> tuple[Any, float]:
        if not self._has_tree:
            return super()._train_member(member, material, group, run)
        device, how = material.documents.device, _How(self.config.head.tree, self.config.training)
        sizes = shallow_sizes(len(self.label_counts), how.tree.cluster_size, how.tree.arity, how.tree.height)
        plans = self._planned(member, material, sizes, how, group, run.runtime)
        for line in described(plans, device) if member == 0 and group.leads else ():
            run.progress.say(line)
        levels = Levels(self._grown(member, material.train, member_seed(run.runtime, member), run), device)
        networks, score = self._tree_training(levels, material, plans, how, member, group, run).run()
        return TreeNetwork(levels, networks, how.tree.beam_width), score

    def _tree_training(
        self,
        levels: Levels,
        material: TrainingData,
        plans: list[LevelPlan],
        how: _How,
        member: int,
        group: Group,
        run: FitContext,
        starts: list[dict[str, NDArray[Any]]] | None = None,
    ) -> TreeTraining:
        """What trains the networks of a tree, the rows of each where its plan has them."""
        device = material.documents.device
        return TreeTraining(
            levels,
            material.documents,
            material.labels,
            material.watched,
            how.tree,
            how.training,
            lambda rows: self._network(material.table, rows, device, run.runtime),
            places=[torch.device("cpu") if plan.on_host else device for plan in plans],
            seed=member_seed(run.runtime, member),
            member=member,
            group=group,
            workspace=run.workspace,
            progress=run.progress,
            starts=starts,
        )

    def _planned(
        self,
        member: int,
        material: TrainingData,
        levels: list[tuple[int, int, int]],
        how: _How,
        group: Group,
        runtime: Runtime,
    ) -> list[LevelPlan]:
        """What each level's training takes, and where its rows are to be kept; refused where it cannot fit.

        Of a level there are its nodes, their parents, and the most children of one. Members that are trained before
        the last one stay on the device.
        """
        (tree, training), documents = how, material.documents
        compute = arithmetic(runtime, documents.device)
        sizes = Sizes(
            documents=len(documents),
            tokens=int(documents.lengths.sum()),
            labels=material.labels.nnz,
            words=len(material.table),
            word_width=material.table.shape[1],
            trained_words=not self.config.frozen,
            width=2 * self.config.encoder.units,
            hidden=self.config.head.hidden,
            batch=batch_size(training, len(documents), group) // group.size,
            processes=group.size,
            length=int(documents.lengths.max()),
            kept=KINDS[tree.rows].itemsize,
            averaged=training.averaging != "none",
            compute=compute.itemsize,
            chunk=chunk_memory(documents.device),
        )
        rate, kind = product_rate(documents.device, compute), documents.device.type
        plans = []
        for number, (nodes, parents, most) in enumerate(levels):
            epochs, followed = tree.training(training, number).epochs, min(tree.beam_width, parents)
            plans.append(level_plan(sizes, nodes, parents, most, followed, epochs, rate, kind))
        free, host = free_memory(documents.device)
        others = (self.config.members - 1 - member) * member_size(sizes, [nodes for nodes, _, _ in levels])
        return placed(plans, max(0, free - others), host)

    def _grown(self, member: int, train: Dataset, seed: int, run: FitContext) -> LabelTree:
        """The label tree of a member, by the words of the labels' documents; another seed gives another tree."""
        name, settings = f"tree-{member}", self.config.head.tree
        if not run.workspace.has(name):
            assert train.labels is not None
            threads = run.runtime.threads
            repeated = min(2, int(self._reader.vocabulary.frequencies.max()))  # words of one text say little
            text = TextSettings(idf="plain", min_df=repeated)
            _, rows = DocumentFeatures.fit(train, text, run.runtime, run.progress)
            features = positive_features(rows, train.labels, keep=settings.label_features, threads=threads)
            tree = shallow_tree(
                features,
                leaf_size=settings.cluster_size,
                fan_out=settings.arity,
                height=settings.height,
                seed=seed,
                threads=threads,
                progress=run.progress,
            )
            run.workspace.save(name, tree.state())
        return LabelTree.from_state(run.workspace.load(name)[0])

    # ---- trees that learn from new documents

    def _word_table(self) -> Tensor:
        return super()._word_table() if not self._has_tree else self._members[0].networks[0].table

    def _updated_member(self, number: int, member: Any, lesson: UpdateBatch, group: Group, run: FitContext) -> Any:
        if not self._has_tree:
            return super()._updated_member(number, member, lesson, group, run)
        labels, tree, device = lesson.change.labels, member.levels.tree, chosen_device(run.runtime)
        revision = tree.revised(labels.kept, homes_of(tree, lesson.change.relatives))
        levels, starts = Levels(revision.tree, device), []
        for level, network in enumerate(member.networks):
            weights = super()._member_arrays(network)
            weights[TABLE] = np.concatenate([weights[TABLE], lesson.words])
            weights[ROWS] = as_array(_revised_rows(network, tree, revision, level, lesson.carried))
            starts.append(weights)
        if lesson.documents is None:
            counts = [level.nodes for level in levels.levels]
            networks = [self._level_network(*given, device) for given in zip(starts, counts, strict=True)]
        else:
            fresh = np.flatnonzero(revision.places < 0)
            networks = self._levels_taught(number, levels, starts, fresh, lesson, group, run)
        return TreeNetwork(levels, networks, self.config.head.tree.beam_width)

    def _levels_taught(
        self,
        number: int,
        levels: Levels,
        starts: list[dict[str, NDArray[Any]]],
        fresh: NDArray[np.int64],
        lesson: UpdateBatch,
        group: Group,
        run: FitContext,
    ) -> list[Network]:
        """The networks of all levels after a short training, from `starts`; labels at `fresh` places are new."""
        assert lesson.documents is not None
        material = TrainingData(lesson.change.documents, starts[0][TABLE], lesson.documents, lesson.labels, None)
        tree, update = self.config.head.tree, self.config.update
        rate = tree.learning_rate if tree.learning_rate == "same" else update.learning_rate * tree.learning_rate
        short = dataclasses.replace(tree, epochs="same", average_from="same", learning_rate=rate)
        how = _How(short, update.training(self.config.training))
        sizes = [(level.nodes, level.parents, level.most) for level in levels.levels]
        plans = self._planned(number, material, sizes, how, group, run.runtime)
        networks, _ = self._tree_training(levels, material, plans, how, number, group, run, starts).run()
        for level, (network, start) in enumerate(zip(networks, starts, strict=True)):
            absent = absent_from(levels.tree.node_labels(lesson.labels, level + 1))
            own = fresh if level + 1 == levels.tree.depth else fresh[:0]
            settle(
                network,
                {name: read_tensor(array) for name, array in start.items()},
                update.retention,
                len(lesson.words),
                own,
                absent,
            )
        return networks

    # ---- answers of trees

    def _best(self, documents: Documents, k: int, allowed: Mask | None) -> tuple[Labels, Scores]:
        if self._has_tree:
            return best_in_trees(self._members, documents, k, allowed)
        return super()._best(documents, k, allowed)

    def _given(self, documents: Documents, candidates: Labels) -> Scores:
        if self._has_tree:
            return scores_in_trees(self._members, documents, candidates)
        return super()._given(documents, candidates)

    def _explain(self, text: str, label: int, score: float) -> Explanation:
        documents = self._documents(as_dataset([text]))
        words = self._reader.spans(text)
        length = int(documents.lengths[0])
        tokens = documents.tokens(torch.zeros(1, dtype=torch.int64, device=documents.device), length)
        shares = []
        for member in self._members:
            network, row = (member, label) if isinstance(member, Network) else member.last(label)
            states, mask = network.encode(tokens)
            assert isinstance(network.head, LabelAttention)
            shares.append(network.head.weights(states, mask, row))
        weights = torch.stack(shares).mean(0)[0].tolist()
        evidence = [
            TokenEvidence(word.token, word.start, word.end, weight)
            for word, weight in zip(words, weights, strict=False)
        ]
        evidence.sort(key=lambda item: -item.weight)
        path = self._path(documents, label) if self._has_tree else ()
        return Explanation("tokens", text, self.labels.name(label), score, tuple(evidence), path=path, shares=True)

    def _path(self, documents: Documents, label: int) -> tuple[PathStep, ...]:
        """In the tree that finds a label most likely, the nodes on the way there and frequent labels below each."""
        answers = [tree.path(documents, label) for tree in self._members]
        best = int(np.argmax([math.prod(path) for path in answers]))
        tree, steps = self._members[best], []
        for level, probability in enumerate(answers[best]):
            nodes = tree.levels.tree.node_of(level + 1)
            steps.append(self._path_step(level + 1, probability, np.flatnonzero(nodes == nodes[label])))
        return tuple(steps)

    # ---- what is kept of trees

    def _member_arrays(self, member: Any) -> dict[str, NDArray[Any]]:
        if not self._has_tree:
            return super()._member_arrays(member)
        arrays: dict[str, NDArray[Any]] = {f"tree.{name}": array for name, array in member.levels.tree.state().items()}
        for level, network in enumerate(member.networks):
            for name, array in super()._member_arrays(network).items():
                arrays[f"{level}.{name}"] = array
        if self.config.frozen:  # all levels have the same
            arrays[TABLE] = arrays["0.table"]
            arrays = {name: array for name, array in arrays.items() if not name.endswith(f".{TABLE}")}
        return arrays

    def _restored(self, arrays: dict[str, NDArray[Any]]) -> Any:
        if not self._has_tree:
            return super()._restored(arrays)
        device = chosen_device(self.runtime)
        parts = {name.removeprefix("tree."): array for name, array in arrays.items() if name.startswith("tree.")}
        tree = LabelTree.from_state(parts)
        if len(tree) != len(self.label_counts):
            raise ValueError(f"a label tree over {len(tree):,} labels and not {len(self.label_counts):,}")
        levels = Levels(tree, device)
        networks = []
        for number, level in enumerate(levels.levels):
            start = f"{number}."
            own = {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}
            own.setdefault(TABLE, arrays.get(TABLE, np.empty(0)))
            networks.append(self._level_network(own, level.nodes, device))
        return TreeNetwork(levels, networks, self.config.head.tree.beam_width)

    def _level_network(self, arrays: dict[str, NDArray[Any]], nodes: int, device: torch.device) -> Network:
        """The network of a level, of so many nodes."""
        network = self._network(self._checked_table(arrays[TABLE]), 1, device, self.runtime)
        load_level(network, arrays, nodes, place_of(arrays[ROWS].nbytes, device))
        return network.eval()


def _revised_rows(network: Network, tree: LabelTree, revision: TreeRevision, level: int, carried: Csr) -> Tensor:
    """Attention rows of a level's nodes after a tree was revised; labels are made of those of before by `carried`."""
    rows = network.get_parameter(ROWS).detach()
    if level + 1 < tree.depth:
        return rows[torch.from_numpy(revision.nodes[level + 1]).to(rows.device)]
    by_label = rows[torch.from_numpy(tree.place_of()).to(rows.device)]
    return made_of(by_label, carried)[torch.from_numpy(revision.tree.order)].to(rows.dtype)
