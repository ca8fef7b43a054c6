"""A served model in the words of Triton's ModelConfig, for clients that configure themselves by it.

Every value states what this server does with the model; fields of ModelConfig that have no meaning here are absent.
"""

from __future__ import annotations

from typing import Any

from service.models import TENSORRT_PLATFORM, ModelSpec
from service.tensors import DType, TensorSpec
from service.units import NS_PER_US

LABEL_FILENAME = "labels.txt"
"""Stands for the card's labels, which the classification extension adds to an output."""

_BACKENDS = {TENSORRT_PLATFORM: "tensorrt", "ensemble": ""}


def model_config(spec: ModelSpec, *, lane_count: int) -> dict[str, Any]:
    """The ModelConfig of one model version, ready for JSON.

    Args:
        spec: the model version.
        lane_count: batches of it that run at once; 0 for a model that is composed of others.
    """
    config: dict[str, Any] = {
        "name": spec.name,
        "platform": spec.platform,
        "backend": _BACKENDS.get(spec.platform, "onnxruntime"),
        "version_policy": {"latest": {"num_versions": 1}},
        "max_batch_size": spec.max_batch_size,
        "input": [_tensor(spec, tensor) | {"is_shape_tensor": False, "optional": False} for tensor in spec.inputs],
        "output": [_tensor(spec, tensor) | _label_filename(spec) for tensor in spec.outputs],
        "instance_group": [_instance_group(spec, lane_count)] if lane_count else [],
        "model_transaction_policy": {"decoupled": False},
        "response_cache": {"enable": False},
    }
    if spec.has_batch_dim:
        config["dynamic_batching"] = _dynamic_batching(spec)
    return config


def config_dtype(dtype: DType) -> str:
    """ModelConfig's name of a data type, which differs from the wire's in its prefix, and for BYTES altogether."""
    return "TYPE_STRING" if dtype is DType.BYTES else f"TYPE_{dtype.value}"


def _tensor(spec: ModelSpec, tensor: TensorSpec) -> dict[str, Any]:
    dims = tensor.wire_shape[1:] if spec.has_batch_dim else tensor.wire_shape
    return {"name": tensor.name, "data_type": config_dtype(tensor.dtype), "dims": dims}


def _label_filename(spec: ModelSpec) -> dict[str, str]:
    return {"label_filename": LABEL_FILENAME if spec.card.labels else ""}


def _dynamic_batching(spec: ModelSpec) -> dict[str, Any]:
    batching = spec.card.batching
    return {
        "preferred_batch_size": list(spec.buckets.batch_sizes),
        "max_queue_delay_microseconds": batching.max_queue_delay_ns // NS_PER_US,
        "preserve_ordering": False,
        "priority_levels": batching.priority_levels,
        "default_priority_level": batching.default_priority,
        "default_queue_policy": {
            "timeout_action": "REJECT",
            "default_timeout_microseconds": batching.default_timeout_ns // NS_PER_US,
            "allow_timeout_override": True,
            "max_queue_size": batching.max_queued_requests,
        },
    }


def _instance_group(spec: ModelSpec, lane_count: int) -> dict[str, Any]:
    if not _is_tensorrt(spec):
        return {"name": f"{spec.name}_0", "kind": "KIND_CPU", "count": lane_count, "gpus": [], "profile": []}
    return {
        "name": f"{spec.name}_0",
        "kind": "KIND_GPU",
        "count": lane_count,
        "gpus": [spec.card.lanes.device],
        "profile": [str(index) for index in range(len(spec.card.profiles))],
    }


def _is_tensorrt(spec: ModelSpec) -> bool:
    return spec.platform == TENSORRT_PLATFORM
