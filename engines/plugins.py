"""Our kernels as operators that an ONNX model can name: TensorRT plugins, registered for the build that needs them.

They are "quickly deployable plugins" with ahead-of-time implementations (`tensorrt.plugin`, full TensorRT from 10.9):
at the build TensorRT is given PTX and how to launch it, and keeps both in the plan. So a plan needs neither this module
nor Python to run. The parser finds a plugin by the node's operator, `plugin_version` and `plugin_namespace`, the newer
ones by the node's domain too; `aot` = 1 asks for the ahead-of-time implementation (NVIDIA's sample
quickly_deployable_plugins).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Mapping, Sequence
from inspect import Parameter, Signature
from types import GenericAlias, ModuleType
from typing import Any

from engines.onnx_facts import OnnxFacts
from kernels.compile import compile_ptx
from kernels.layernorm import BLOCK, MAX_WIDTH, PACK_BYTES
from service.errors import ModelLoadFailed
from service.runtime.trt.flavour import Flavour

NAMESPACE = "inferlane"
"""The domain of the nodes, and the namespace of the plugins."""

RESIDUAL_LAYERNORM = "residual_layernorm"
"""`y = residual_layernorm(x, residual, gamma, beta)`: LayerNorm of x + residual over the last dimension.

x, residual and y are all FP16[..., D] or all FP32[..., D], gamma and beta are [D] of the same type; D is fixed, a row
is a multiple of 16 bytes, and D at most 8192. The attribute `epsilon`, a float, has no default. Sums are FP32.
"""

_TENSORS = ("x", "residual", "gamma", "beta")

_EPSILON_BYTES = 4
"""The attribute is taken as the bytes of its FP32, which are what the kernel wants. As a `float`, TensorRT 10 cannot
convert it under newer NumPys, and as an array cannot describe it under newer Pythons."""


def register_plugins(flavour: Flavour, facts: OnnxFacts) -> None:
    """Registers the plugins that a model names with TensorRT, before its parser meets them; once a process.

    Args:
        flavour: the TensorRT that will parse it.
        facts: of the model.

    Raises:
        ModelLoadFailed: the model names one of ours that there is not, this TensorRT takes no such plugins, or the
            kernels cannot be compiled here.
    """
    named = {node.op_type for node in facts.nodes if node.domain == NAMESPACE}
    if not named:
        return
    if unknown := sorted(named - {RESIDUAL_LAYERNORM}):
        raise ModelLoadFailed(
            f"the model names operators {unknown} of the domain '{NAMESPACE}', which has {RESIDUAL_LAYERNORM} alone; "
            "correct the nodes' op_type"
        )
    plugin = _plugin_module(flavour)
    if not hasattr(getattr(plugin.op, NAMESPACE, None), RESIDUAL_LAYERNORM):
        _register_residual_layernorm(flavour.module, plugin, compile_ptx("layernorm"))


def _plugin_module(flavour: Flavour) -> Any:
    name = f"{flavour.name}.plugin"
    try:
        plugin: ModuleType = importlib.import_module(name)
    except ImportError as error:
        raise _refused(flavour, f"{name} does not import ({error})") from error
    if not hasattr(plugin, "aot_impl"):
        raise _refused(flavour, f"its {name} has no aot_impl")
    return plugin


def _refused(flavour: Flavour, reason: str) -> ModelLoadFailed:
    return ModelLoadFailed(
        f"the model names {NAMESPACE}.{RESIDUAL_LAYERNORM}, which {flavour.name} {flavour.version} cannot take: "
        f"{reason}; build with the full TensorRT of version 10.9 or later, or write the node as Add and "
        "LayerNormalization"
    )


def _register_residual_layernorm(module: Any, plugin: Any, code: bytes) -> None:
    entries = {module.DataType.HALF: ("layernorm_fp16", 2), module.DataType.FLOAT: ("layernorm_fp32", 4)}

    def describe(*inputs: Any, epsilon: bytes) -> Any:
        _require_types(inputs, frozenset(entries))
        return inputs[0].like()

    def implement(*given: Any) -> Any:
        x, epsilon = given[0], given[len(_TENSORS)]
        entry, element_bytes = entries[x.dtype]
        launch = plugin.KernelLaunchParams()
        launch.grid_x, launch.block_x = _rows(x.shape_expr), BLOCK[0]
        arguments = plugin.SymIntExprs(2)
        arguments[0] = plugin.SymInt32(_fixed_width(x.shape_expr, element_bytes))
        arguments[1] = plugin.SymInt32(_bits(epsilon))
        return entry, code, launch, arguments

    inputs = {**dict.fromkeys(_TENSORS, plugin.TensorDesc), "epsilon": bytes}
    outputs = {"outputs": GenericAlias(tuple, (plugin.TensorDesc,)), "tactic": int}
    answer = GenericAlias(tuple, (str, bytes, plugin.KernelLaunchParams, plugin.SymIntExprs))
    plugin_id = f"{NAMESPACE}::{RESIDUAL_LAYERNORM}"
    plugin.register(plugin_id)(_with_signature(describe, inputs, plugin.TensorDesc))
    plugin.aot_impl(plugin_id)(_with_signature(implement, {**inputs, **outputs}, answer))


def _with_signature(function: Callable[..., Any], parameters: Mapping[str, Any], returned: Any) -> Callable[..., Any]:
    """TensorRT learns tensors and attributes from a function's signature, whose types are classes that it brings."""
    kind = Parameter.POSITIONAL_OR_KEYWORD
    each = [Parameter(name, kind, annotation=annotation) for name, annotation in parameters.items()]
    function.__signature__ = Signature(each, return_annotation=returned)  # type: ignore[attr-defined]
    return function


def _require_types(tensors: Sequence[Any], allowed: Collection[Any]) -> None:
    types = {tensor.dtype for tensor in tensors}
    if len(types) > 1 or not types <= set(allowed):
        raise ModelLoadFailed(
            f"{NAMESPACE}.{RESIDUAL_LAYERNORM} got {', '.join(str(tensor.dtype) for tensor in tensors)}; its four "
            "inputs are FP16, or all of them FP32: cast them in the model"
        )


def _bits(epsilon: bytes) -> int:
    if len(epsilon) != _EPSILON_BYTES:
        raise ModelLoadFailed(
            f"{NAMESPACE}.{RESIDUAL_LAYERNORM} got an epsilon of {len(epsilon)} bytes; the attribute is one float"
        )
    return int.from_bytes(epsilon, "little", signed=True)


def _fixed_width(dims: Any, element_bytes: int) -> int:
    """The last dim, which the kernel keeps in shared memory and moves in packs."""
    if len(dims) < 2:
        raise ModelLoadFailed(
            f"{NAMESPACE}.{RESIDUAL_LAYERNORM} got one row without a batch; add a dimension before it"
        )
    last = dims[len(dims) - 1]
    width = last.constant_value() if last.is_constant else 0
    lanes = PACK_BYTES // element_bytes
    if not 0 < width <= MAX_WIDTH or width % lanes:
        raise ModelLoadFailed(
            f"{NAMESPACE}.{RESIDUAL_LAYERNORM} got rows of {width or 'any number of'} elements; their number must be "
            f"fixed, a multiple of {lanes} and at most {MAX_WIDTH}"
        )
    return int(width)


def _rows(dims: Any) -> Any:
    """All dims but the last, multiplied: a block for each row."""
    rows = dims[0]
    for axis in range(1, len(dims) - 1):
        rows = rows * dims[axis]
    return rows
