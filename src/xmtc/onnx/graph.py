"""ONNX graphs whose weights are apart, as arrays: a model folder stores them like those of other models.

A graph reads word numbers (B, T), with padding (0) on the left, and returns probabilities (B, L).
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from xmtc.artifact.saved_state import SavedState
from xmtc.artifact.store import State
from xmtc.core.errors import DataError, ModelFormatError, missing_extra, shown
from xmtc.core.files import replace_file
from xmtc.text.sequences import WordSequences
from xmtc.text.subwords import PieceReader

TOKENS, PROBABILITIES = "tokens", "probabilities"
"""Names of the input and the output of a graph."""
NODES, WEIGHTS = "nodes", "weights"
"""Names in a model's state: the graph without its weights, and the prefix of the weights."""
SMALL = 1024
"""Bytes of arrays that stay in the graph: shapes and other constants."""
LARGEST_FILE = (1 << 31) - (1 << 20)
"""Maximum size of an .onnx file, a limit of Protocol Buffers."""
DOMAINS = frozenset({"", "ai.onnx", "com.microsoft"})
"""Sets of operators that onnxruntime has built in."""
TYPES = tuple(np.dtype(kind) for kind in (np.float32, np.float16, np.int8, np.uint8, np.int32, np.int64))
"""Types of weights."""
QUANTISED = ("MatMul", "Gather")
"""Operators with 8-bit weights: convolutions are slower with them, and the weights of an LSTM include `CLOSED_GATE`."""


class OnnxExport(NamedTuple):
    """A trained network as a graph, and what else predictions require."""

    graph: OnnxGraph
    reader: WordSequences | PieceReader
    """Converts texts to the input of the graph."""
    values_per_label: int
    """Values per label and document that the graph computes besides one per label and word; 0 if it has no such."""


@dataclass(frozen=True)
class OnnxGraph:
    """A graph, serialised without its weights, and these."""

    nodes: bytes
    weights: dict[str, NDArray[Any]]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read an .onnx file, whose weights may be in further files of its folder."""
        onnx = _onnx()
        model = onnx.load(str(path), load_external_data=False)
        _join_copies(model.graph)
        weights = {}
        for held in model.graph.initializer:
            array = _content(onnx, held, path.parent)
            if array.nbytes >= SMALL:
                weights[held.name] = array
                _take_out(onnx, held)
        for held in _tensors(model.graph):
            if held.data_location == onnx.TensorProto.EXTERNAL and held.name not in weights:
                held.CopyFrom(onnx.numpy_helper.from_array(_content(onnx, held, path.parent), held.name))
        return cls(model.SerializeToString(), weights)

    @property
    def bytes(self) -> int:
        """Size in bytes."""
        return len(self.nodes) + sum(array.nbytes for array in self.weights.values())

    def model(self) -> Any:
        """The graph with its weights as a ModelProto."""
        onnx = _onnx()
        model = onnx.load_model_from_string(self.nodes)
        for held in model.graph.initializer:
            if held.name in self.weights:
                held.CopyFrom(onnx.numpy_helper.from_array(self.weights[held.name], held.name))
        return model

    def write(self, path: Path, facts: dict[str, str]) -> None:
        """Write a single .onnx file for other programs, with facts about the model as its metadata."""
        if self.bytes > LARGEST_FILE:
            raise DataError(f"{path}: an .onnx file cannot be larger than 2 GiB. Pass a folder instead.")
        model = self.model()
        for key, value in facts.items():
            model.metadata_props.add(key=key, value=value)
        with replace_file(path) as stream:
            stream.write(model.SerializeToString())

    def quantised(self) -> OnnxGraph:
        """The same graph with 8-bit weights; activations are quantised when it runs."""
        onnx, quantization = _onnx(), _quantization()
        with tempfile.TemporaryDirectory(prefix="xmtc-onnx-") as folder:
            source, target = Path(folder) / "float.onnx", Path(folder) / "int8.onnx"
            onnx.save_model(self.model(), str(source), save_as_external_data=True, location="weights")
            before = logging.root.manager.disable
            logging.disable(logging.WARNING)  # advice on preprocessing, which does not apply
            try:
                quantization.quantize_dynamic(
                    str(source),
                    str(target),
                    op_types_to_quantize=list(QUANTISED),
                    weight_type=quantization.QuantType.QInt8,
                    per_channel=True,
                    reduce_range=True,  # to 7 bits: processors without VNNI add two products in 16 bits
                    use_external_data_format=True,
                )
            finally:
                logging.disable(before)
            return OnnxGraph.read(target)

    def state(self) -> State:
        """The state to save."""
        arrays = {f"{WEIGHTS}.{name}": array for name, array in self.weights.items()}
        return State(arrays={NODES: np.frombuffer(self.nodes, np.uint8), **arrays})

    @classmethod
    def from_state(cls, state: SavedState) -> Self:
        """Restore from a saved state; raise `ModelFormatError` unless the graph refers to these weights and no files.

        What onnxruntime accepts is checked when the graph is loaded into it.
        """
        onnx, part = _onnx(), state.part(f"{WEIGHTS}.")
        nodes = state.array(NODES, np.uint8, (None,)).tobytes()
        try:
            model = onnx.load_model_from_string(nodes)
        except Exception as error:  # of the Protocol Buffers library
            raise ModelFormatError(f"the ONNX graph is damaged ({shown(str(error), 80)}). Export it again.") from None
        foreign = {opset.domain for opset in model.opset_import} - DOMAINS
        if foreign or model.functions or model.graph.sparse_initializer:
            what = f"operators of '{shown(min(foreign))}'" if foreign else "functions or sparse weights"
            raise ModelFormatError(f"the ONNX graph uses {what}, which xmtc does not export. Export it again.")
        weights = {}
        for held in _tensors(model.graph):
            if held.data_location != onnx.TensorProto.EXTERNAL:
                continue
            if [(entry.key, entry.value) for entry in held.external_data] != [("location", WEIGHTS)]:
                raise ModelFormatError("the ONNX graph refers to other files. Export it again.")
            kind = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(held.data_type))
            if kind not in TYPES:
                raise ModelFormatError(f"the ONNX graph has weights of type {kind}. Export it again.")
            weights[held.name] = part.array(held.name, kind, tuple(held.dims))
        return cls(nodes, weights)


def _join_copies(graph: Any) -> None:
    """Let nodes read a weight itself instead of its copy: quantisation does not recognise copies as weights.

    The exporter stores equal weights, such as word vectors that several members share, once, with copies in the graph.
    """
    weights = {held.name for held in graph.initializer}
    copies = [node for node in graph.node if node.op_type == "Identity" and node.input[0] in weights]
    original = {node.output[0]: node.input[0] for node in copies}
    for node in copies:
        graph.node.remove(node)
    for node in graph.node:
        for place, name in enumerate(node.input):
            node.input[place] = original.get(name, name)


def _tensors(graph: Any) -> Iterator[Any]:
    """All tensors of a graph and of the graphs in its nodes."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from _tensors(inner)


def _take_out(onnx: Any, held: Any) -> None:
    """Replace the content of a tensor by a reference to the weights."""
    for field in ("raw_data", "float_data", "int32_data", "int64_data", "external_data"):
        held.ClearField(field)
    held.data_location = onnx.TensorProto.EXTERNAL
    held.external_data.add(key="location", value=WEIGHTS)


def _content(onnx: Any, held: Any, folder: Path) -> NDArray[Any]:
    """The content of a tensor, which may be in another file."""
    if held.data_location != onnx.TensorProto.EXTERNAL:
        array: NDArray[Any] = onnx.numpy_helper.to_array(held)
        return array
    place = {entry.key: entry.value for entry in held.external_data}
    kind, shape = onnx.helper.tensor_dtype_to_np_dtype(held.data_type), tuple(held.dims)
    count, start = int(np.prod(shape, dtype=np.int64)), int(place.get("offset", 0))
    return np.fromfile(folder / place["location"], dtype=kind, count=count, offset=start).reshape(shape)


def _onnx() -> Any:
    try:
        import onnx
        import onnx.numpy_helper
    except ImportError:
        raise missing_extra("ONNX models need onnx and onnxruntime", "onnx") from None
    return onnx


def _quantization() -> Any:
    try:
        from onnxruntime import quantization
    except ImportError:
        raise missing_extra("ONNX models need onnx and onnxruntime", "onnx") from None
    return quantization
