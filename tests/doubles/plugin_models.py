"""ONNX models that name our TensorRT plugins; no other runtime can run them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from engines.plugins import NAMESPACE, RESIDUAL_LAYERNORM


def make_residual_layernorm(path: Path, *, operator: str = RESIDUAL_LAYERNORM) -> Path:
    """`x, residual: FP32[batch, 64] -> y` of the same shape."""
    attributes = {"epsilon": 1e-5, "plugin_namespace": NAMESPACE, "plugin_version": "1", "aot": 1}
    names = ["x", "residual", "gamma", "beta"]
    node = helper.make_node(operator, names, ["y"], name="norm", domain=NAMESPACE, **attributes)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 64]) for name in ("x", "residual", "y")]
    weights = [numpy_helper.from_array(np.ones(64, np.float32), name) for name in ("gamma", "beta")]
    graph = helper.make_graph([node], "norm", values[:2], values[2:], weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(NAMESPACE, 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path
