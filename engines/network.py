"""ONNX → TensorRT's network: how it is created on each version, and what the parser's refusals mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engines.onnx_facts import OnnxFacts
from engines.precision import Precision
from service.errors import ModelLoadFailed

_MAX_TOLD = 5

_UNSUPPORTED_TYPE = "INT8, INT32, INT64, FP16, BF16, FP32, UINT8 or BOOL"


def create_network(module: Any, builder: Any, precision: Precision) -> Any:
    """An empty network, typed as decided. Flags go by name: their numbers differ between versions."""
    flags = module.NetworkDefinitionCreationFlag
    bits = 0
    if precision.is_strongly_typed:
        bits |= 1 << int(flags.STRONGLY_TYPED)
    if hasattr(flags, "EXPLICIT_BATCH"):
        bits |= 1 << int(flags.EXPLICIT_BATCH)
    return builder.create_network(bits)


def parse(module: Any, network: Any, logger: Any, path: Path, facts: OnnxFacts) -> Any:
    """Fills a network from an ONNX file. Gives the parser, which must outlive the build: it owns the weights.

    Args:
        module: TensorRT.
        network: an empty network.
        logger: the builder's.
        path: the file; its weights may lie in others beside it.
        facts: of the file, for the names of nodes.

    Raises:
        ModelLoadFailed: TensorRT cannot run the model; the message names nodes, operators and what to do.
    """
    if hasattr(module, "init_libnvinfer_plugins"):
        module.init_libnvinfer_plugins(logger, "")
    parser = module.OnnxParser(network, logger)
    if any(node.op_type == "InstanceNormalization" for node in facts.nodes):
        # The plug-in that replaces it otherwise runs neither in version-compatible plans nor without cuDNN. Not asked
        # for in vain: on libraries of 8.6.0 under bindings of 8.6.1 every access to the parser's flags crashes.
        parser.set_flag(module.OnnxParserFlag.NATIVE_INSTANCENORM)
    if not parser.parse_from_file(str(path)):
        errors = [parser.get_error(index) for index in range(parser.num_errors)]
        raise ModelLoadFailed(explain(errors, path.name, facts))
    return parser


def shape_inputs(network: Any) -> frozenset[str]:
    """The inputs whose values TensorRT reads on the host."""
    tensors = (network.get_input(index) for index in range(network.num_inputs))
    return frozenset(tensor.name for tensor in tensors if tensor.is_shape_tensor)


def explain(errors: list[Any], name: str, facts: OnnxFacts) -> str:
    """The parser's errors as a message that names nodes, operators and a way out."""
    if not errors:
        return f"TensorRT's parser refuses {name} without a reason; check it with `onnx.checker`, export it again"
    told = list(dict.fromkeys(f"{_node(error, facts)}: {error.desc().strip()}" for error in errors))
    more = f"; and {len(told) - _MAX_TOLD} more" if len(told) > _MAX_TOLD else ""
    return f"TensorRT cannot run {name}: {'; '.join(told[:_MAX_TOLD])}{more}. {_mend(errors)}"


def _node(error: Any, facts: OnnxFacts) -> str:
    """The node that an error is about; until version 10 the parser tells its number alone."""
    if hasattr(error, "node_name"):
        name, operator = str(error.node_name()), str(error.node_operator())
        if name or operator:
            return f"node '{name}' ({operator})"
    index = int(error.node())
    if 0 <= index < len(facts.nodes):
        node = facts.nodes[index]
        return f"node '{node.name or index}' ({node.op_type})"
    return "the model"


def _mend(errors: list[Any]) -> str:
    words = " ".join(error.desc() for error in errors).lower()
    if "plugin" in words or "no importer" in words or "unsupported_node" in words or "unsupported operator" in words:
        return (
            "Replace the operator in the model by ones that TensorRT has, leave that part out of the model, or serve "
            "it with backend = 'onnxruntime'"
        )
    if "type" in words:
        return f"Cast to {_UNSUPPORTED_TYPE} inside the model, or serve it with backend = 'onnxruntime'"
    if "external" in words or "weights" in words or "open file" in words:
        return "Check that the files with the model's weights lie complete beside it"
    return "Export the model again with a newer opset and constants folded, or serve it with backend = 'onnxruntime'"
