"""Runs our plugin through the real `tensorrt.plugin` of some bindings, in a process of its own; prints what came of it.

    python -m tests.nets.plugin_child BINDINGS_MODULE fp16|fp32 FIXED_WIDTH|-1 EPSILON

The bindings' libraries are stubs (see `bindings.py`), so what only TensorRT's core can do is doubled here: the registry
that a creator is put in, and the expressions that sizes are computed in. What stands between them, the checks of our
functions, the creator, the plugin that TensorRT would call and its launch parameters, is NVIDIA's own code.
"""

from __future__ import annotations

import importlib
import json
import operator
import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from engines.onnx_facts import OnnxFacts, OnnxNode
from engines.plugins import NAMESPACE, RESIDUAL_LAYERNORM, register_plugins
from service.errors import ModelLoadFailed
from service.runtime.trt.flavour import describe

OPERATIONS = {"SUM": operator.add, "PROD": operator.mul}


@dataclass(frozen=True)
class Expression:
    """A size: known when the plan is built, or known to be `value` only in this run."""

    value: int
    is_fixed: bool = True

    def is_constant(self) -> bool:
        return self.is_fixed

    def get_constant_value(self) -> int:
        assert self.is_fixed
        return self.value


class ExpressionBuilder:
    """TensorRT's own part in sizes."""

    def constant(self, value: int) -> Expression:
        return Expression(value)

    def operation(self, operation: Any, left: Expression, right: Expression) -> Expression:
        computed = OPERATIONS[operation.name](left.value, right.value)
        return Expression(computed, left.is_fixed and right.is_fixed)


class Registry:
    """Where creators are put and found."""

    def __init__(self) -> None:
        self.creators: dict[tuple[str, str, str], Any] = {}

    def register_creator(self, creator: Any, namespace: str) -> bool:
        self.creators[creator.name, creator.plugin_version, namespace] = creator
        return True

    def get_creator(self, name: str, version: str, namespace: str) -> Any:
        return self.creators[name, version, namespace]


class Dims(list[Any]):
    """As TensorRT's `DimsExprs`: made of its length."""

    def __init__(self, length: int) -> None:
        super().__init__([None] * length)


def facts() -> OnnxFacts:
    nodes = (OnnxNode("norm", RESIDUAL_LAYERNORM, NAMESPACE),)
    return OnnxFacts(inputs=(), outputs=(), nodes=nodes, precisions=frozenset(), opset=17, nbytes=1, sha256="0")


def opened(bindings: str) -> tuple[Any, Registry]:
    """The bindings by the name that the full package has, with our doubles in them."""
    module, registry = importlib.import_module(bindings), Registry()
    sys.modules["tensorrt"] = module
    module.get_plugin_registry = lambda: registry
    module.IDimensionExpr = Expression
    module.DimsExprs = Dims
    return module, registry


def described(module: Any, dtype: Any) -> Any:
    outer, inner = module.DynamicPluginTensorDesc(), module.PluginTensorDesc()
    inner.type, inner.format, inner.scale = dtype, module.TensorFormat.LINEAR, 1.0
    outer.desc = inner
    return outer


def plugin_of(module: Any, registry: Registry, epsilon: float) -> Any:
    """What the parser asks the creator for where a node says `aot`."""
    np = importlib.import_module("numpy")
    creator = registry.get_creator(RESIDUAL_LAYERNORM, "1", NAMESPACE)
    field = module.PluginField("epsilon", np.array([epsilon], np.float32), module.PluginFieldType.FLOAT32)
    fields = module.PluginFieldCollection([field])
    request = module.QuickPluginCreationRequest.STRICT_AOT
    return creator.create_plugin(RESIDUAL_LAYERNORM, NAMESPACE, fields, module.TensorRTPhase.BUILD, request)


def launch(module: Any, plugin: Any, dtypes: list[Any], width: Expression) -> dict[str, Any]:
    """What TensorRT asks a plugin while it builds."""
    rows = [Expression(8, is_fixed=False), Expression(128)]
    shapes = [[*rows, width], [*rows, width], [width], [width]]
    types = plugin.get_output_data_types(dtypes, [3, 3, 1, 1])
    sizes = plugin.get_output_shapes(shapes, [], ExpressionBuilder())
    tensors = [described(module, dtype) for dtype in (*dtypes, types[0])]
    formats = plugin.get_supported_format_combinations(tensors, 4)
    plugin.set_tactic(0)
    parameters, arguments = SimpleNamespace(), Arguments()
    plugin.get_launch_params(shapes, tensors, 4, parameters, arguments, ExpressionBuilder())
    name, code = plugin.get_kernel([each.desc for each in tensors[:4]], [tensors[4].desc])
    return {
        "output_type": types[0].name,
        "output_shape": [each.value for each in sizes[0]],
        "formats": sorted({f"{each.type.name} {each.format.name}" for each in formats}),
        "kernel": name,
        "code": code.decode(),
        "launch": {name: size.value for name, size in vars(parameters).items()},
        "arguments": [size.value for size in arguments],
    }


class Arguments(list[Any]):
    """TensorRT's list of a kernel's further arguments, which is given its length first."""

    @property
    def nbSymExprs(self) -> int:
        return len(self)

    @nbSymExprs.setter
    def nbSymExprs(self, length: int) -> None:
        self[:] = [None] * length


def main(bindings: str, precision: str, width: int, epsilon: float) -> dict[str, Any]:
    """Registers, creates, asks."""
    module, registry = opened(bindings)
    flavour = describe("tensorrt", module)
    for _ in range(2):
        register_plugins(flavour, facts())
    types = {"fp16": module.DataType.HALF, "fp32": module.DataType.FLOAT, "int32": module.DataType.INT32}
    # What carries a size over to TensorRT takes the address of TensorRT's own.
    importlib.import_module("tensorrt.plugin._tensor").SymExprImpl = operator.attrgetter("_expr")  # type: ignore[attr-defined]
    plugin = plugin_of(module, registry, epsilon)
    size = Expression(abs(width), is_fixed=width > 0)
    try:
        outcome = launch(module, plugin, [types[precision]] * 4, size)
    except ModelLoadFailed as error:
        return {"error": error.message}
    return {"error": "", "creators": len(registry.creators), **outcome}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))))
