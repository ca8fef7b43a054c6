from __future__ import annotations

from typing import Any

import pytest

from service.api.oip_config import config_dtype, model_config
from service.api.schemas import ModelConfiguration
from service.cards import BatchingCard, LanesCard, ModelCard, ShapeRange
from service.models import ModelSpec, build_spec
from service.tensors import DType, TensorSpec
from service.units import NS_PER_MS

PROFILES = ({"x": ShapeRange((1, 3), (4, 3), (8, 3))}, {"x": ShapeRange((1, 3), (16, 3), (16, 3))})


def spec_of(platform: str = "onnxruntime_onnx", **card: Any) -> ModelSpec:
    return build_spec(
        ModelCard(name="m", **card),
        version="7",
        platform=platform,
        inputs=(TensorSpec("x", DType.FP32, ("n", 3)), TensorSpec("flags", DType.BOOL, ("n",))),
        outputs=(TensorSpec("y", DType.BYTES, ("n", "words")),),
    )


@pytest.mark.parametrize("dtype", DType)
def test_dtype_names(dtype: DType) -> None:
    assert config_dtype(dtype) == ("TYPE_STRING" if dtype is DType.BYTES else "TYPE_" + dtype.value)


def test_batching_model() -> None:
    batching = BatchingCard(
        max_batch_size=6, max_queue_delay_ns=NS_PER_MS // 2, max_queued_requests=9, default_timeout_ns=3 * NS_PER_MS
    )
    config = model_config(spec_of(batching=batching), lane_count=3)
    assert config["max_batch_size"] == 6
    assert [tensor["dims"] for tensor in config["input"]] == [[3], []]
    assert config["output"] == [{"name": "y", "data_type": "TYPE_STRING", "dims": [-1], "label_filename": ""}]
    assert config["dynamic_batching"] == {
        "preferred_batch_size": [1, 2, 4, 6],
        "max_queue_delay_microseconds": 500,
        "preserve_ordering": False,
        "priority_levels": 2,
        "default_priority_level": 2,
        "default_queue_policy": {
            "timeout_action": "REJECT",
            "default_timeout_microseconds": 3000,
            "allow_timeout_override": True,
            "max_queue_size": 9,
        },
    }
    assert config["instance_group"] == [{"name": "m_0", "kind": "KIND_CPU", "count": 3, "gpus": [], "profile": []}]


def test_model_without_batch_dimension() -> None:
    config = model_config(spec_of(batching=BatchingCard(max_batch_size=0)), lane_count=1)
    assert config["max_batch_size"] == 0
    assert [tensor["dims"] for tensor in config["input"]] == [[-1, 3], [-1]]
    assert "dynamic_batching" not in config


def test_tensorrt_model() -> None:
    config = model_config(
        spec_of("tensorrt_plan", profiles=PROFILES, lanes=LanesCard(device=1), labels=("a", "b")), lane_count=2
    )
    assert (config["platform"], config["backend"]) == ("tensorrt_plan", "tensorrt")
    assert config["instance_group"] == [
        {"name": "m_0", "kind": "KIND_GPU", "count": 2, "gpus": [1], "profile": ["0", "1"]}
    ]
    assert config["output"][0]["label_filename"] == "labels.txt"


@pytest.mark.parametrize("max_batch_size", [None, 0, 4])
@pytest.mark.parametrize("platform", ["onnxruntime_onnx", "tensorrt_plan"])
def test_agrees_with_its_documentation(max_batch_size: int | None, platform: str) -> None:
    config = model_config(spec_of(platform, batching=BatchingCard(max_batch_size=max_batch_size)), lane_count=1)
    assert ModelConfiguration.model_validate(config).model_dump(exclude_unset=True) == config


@pytest.mark.parametrize(("levels", "default"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_default_priority_level(levels: int, default: int) -> None:
    assert BatchingCard(priority_levels=levels).default_priority == default
