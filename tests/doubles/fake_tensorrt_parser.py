"""The ONNX parser and the network of the TensorRT double: it reads with `onnx` what TensorRT would, no more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import onnx
from onnx import TensorProto

from tests.doubles.fake_tensorrt_types import DataType
from tests.doubles.fake_tensorrt_world import World

_TYPES = {
    TensorProto.FLOAT: "FLOAT",
    TensorProto.FLOAT16: "HALF",
    TensorProto.BFLOAT16: "BF16",
    TensorProto.INT8: "INT8",
    TensorProto.INT32: "INT32",
    TensorProto.INT64: "INT64",
    TensorProto.UINT8: "UINT8",
    TensorProto.BOOL: "BOOL",
}
_SHAPE_TAKERS = {"Reshape", "Expand"}


@dataclass
class Tensor:
    """A network's input or output; `names` are those of its dynamic dimensions, "" where they have none."""

    name: str
    shape: tuple[int, ...]
    dtype: DataType
    is_shape_tensor: bool = False
    names: tuple[str, ...] = ()


class Network:
    """What a parser fills; `flags` are the bits that it was created with."""

    def __init__(self, world: World, flags: int) -> None:
        self.world = world
        self.flags = flags
        self.inputs: list[Tensor] = []
        self.outputs: list[Tensor] = []
        self.model: bytes = b""
        self.types: set[str] = set()

    @property
    def num_inputs(self) -> int:
        return len(self.inputs)

    def get_input(self, index: int) -> Tensor:
        return self.inputs[index]


@dataclass
class ParserError:
    """An error as 8.6 has it: the node's number is all it knows of the node."""

    index: int
    words: str

    def node(self) -> int:
        return self.index

    def desc(self) -> str:
        return self.words


@dataclass
class NamedParserError(ParserError):
    """An error as version 10 and later have it."""

    name: str = ""
    operator: str = ""

    def node_name(self) -> str:
        return self.name

    def node_operator(self) -> str:
        return self.operator


class OnnxParser:
    """Reads files; knows the operators of ONNX's own domain and a few types."""

    def __init__(self, network: Network, logger: Any) -> None:
        assert logger._is_initialised
        self._network = network
        self._world = network.world
        self._errors: list[ParserError] = []
        self.flags: list[Any] = []

    def set_flag(self, flag: Any) -> None:
        self.flags.append(flag)

    @property
    def num_errors(self) -> int:
        return len(self._errors)

    def get_error(self, index: int) -> ParserError:
        return self._errors[index]

    def parse_from_file(self, path: str) -> bool:
        try:
            model = onnx.load(path)
        except FileNotFoundError as error:
            self._refuse(-1, f"Failed to open file: {error}")
            return False
        for index, node in enumerate(model.graph.node):
            if node.domain not in {"", "ai.onnx"}:
                self._refuse(index, f"No importer registered for op: {node.op_type}", node)
        if self._errors or self._world.building.parser_is_silent:
            return False
        self._fill(model)
        return True

    def _fill(self, model: onnx.ModelProto) -> None:
        graph, network = model.graph, self._network
        taken = {node.input[1] for node in graph.node if node.op_type in _SHAPE_TAKERS}
        network.inputs = [self._tensor(value, taken) for value in graph.input]
        network.outputs = [self._tensor(value, set()) for value in graph.output]
        network.model = model.SerializeToString()
        types = {_TYPES.get(weight.data_type, "FLOAT") for weight in graph.initializer}
        network.types = types | {tensor.dtype.name for tensor in (*network.inputs, *network.outputs)}
        if not any(node.op_type == "QuantizeLinear" for node in graph.node):
            network.types -= {"INT8"}

    def _tensor(self, value: onnx.ValueInfoProto, shape_names: set[str]) -> Tensor:
        kind = value.type.tensor_type
        name = _TYPES[kind.elem_type]
        if name == "INT64" and self._world.generation == "8.6":
            name = "INT32"
        shape = tuple(dim.dim_value if dim.HasField("dim_value") else -1 for dim in kind.shape.dim)
        names = tuple(dim.dim_param for dim in kind.shape.dim)
        return Tensor(value.name, shape, DataType[name], value.name in shape_names, names)

    def _refuse(self, index: int, words: str, node: onnx.NodeProto | None = None) -> None:
        if self._world.generation == "8.6":
            self._errors.append(ParserError(index, words))
            return
        name, operator = ("", "") if node is None else (node.name, node.op_type)
        self._errors.append(NamedParserError(index, words, name, operator))
