from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto

from service.bfloat16 import bfloat16_bits
from service.buckets import Bucket
from service.cards import ModelCard
from service.errors import ModelLoadFailed
from service.models import ModelSpec
from service.runtime.golden import ReferenceFailed, compare
from service.runtime.onnx.backend import OnnxBackend
from service.runtime.onnx.reference import open_reference
from service.tensors import DType, HostArray
from tests.doubles import onnx_models


def opened(path: Path, make: Callable[[Path], Path]) -> OnnxBackend:
    card = ModelCard(name="m", bucket_sizes={"batch": (1, 4)})
    return OnnxBackend.open(card, version="1", model_path=make(path / "model.onnx"), cpu_threads=1)


def with_input(spec: ModelSpec, dtype: DType) -> ModelSpec:
    return replace(spec, inputs=tuple(replace(tensor, dtype=dtype) for tensor in spec.inputs))


def test_a_lane_on_the_same_runtime_agrees_in_every_bucket(tmp_path: Path) -> None:
    backend = opened(tmp_path, onnx_models.make_cnn)
    reference = open_reference(tmp_path / "model.onnx", backend.spec, cpu_threads=1)
    lane = backend.create_lane(0)
    for bucket in backend.spec.buckets.known():
        lane.warm_up(bucket)
        assert compare(lane, reference, backend.spec, bucket).cosine > 0.99999
    lane.close()


@pytest.mark.parametrize(
    ("dtype", "host_x"),
    [
        (DType.FP32, np.ones((1, 16), np.float32)),
        (DType.FP16, np.ones((1, 16), np.float16)),
        (DType.BF16, bfloat16_bits(np.ones((1, 16), np.float32))),
        (DType.INT32, np.ones((1, 16), np.int32)),
    ],
)
def test_inputs_are_cast_to_what_the_model_wants(tmp_path: Path, dtype: DType, host_x: HostArray) -> None:
    spec = with_input(opened(tmp_path, onnx_models.make_identity).spec, dtype)
    reference = open_reference(tmp_path / "model.onnx", spec, cpu_threads=1)
    (host_y,) = reference.run([host_x])
    assert host_y.dtype == np.float32
    np.testing.assert_array_equal(host_y, np.ones((1, 16), np.float32))


def test_tensors_come_in_the_order_of_the_specification(tmp_path: Path) -> None:
    spec = opened(tmp_path, onnx_models.make_simple).spec
    turned = replace(spec, inputs=spec.inputs[::-1], outputs=spec.outputs[::-1])
    reference = open_reference(tmp_path / "model.onnx", turned, cpu_threads=1)
    seven, two = np.full((1, 16), 7, np.int32), np.full((1, 16), 2, np.int32)
    difference, total = reference.run([two, seven])
    assert (difference[0, 0], total[0, 0]) == (5, 9)


@pytest.mark.parametrize(
    ("role", "change", "told"),
    [
        ("inputs", lambda ts: (replace(ts[0], name="z"),), "input 'z' is not in the ONNX model"),
        ("outputs", lambda ts: (replace(ts[0], name="z"),), "output 'z' is not in the ONNX model"),
        ("inputs", lambda ts: ts[:1], r"has the inputs \['INPUT0', 'INPUT1'\], the plan \['INPUT0'\]"),
    ],
)
def test_another_model_is_refused(tmp_path: Path, role: str, change: Callable, told: str) -> None:
    spec = opened(tmp_path, onnx_models.make_simple).spec
    spec = replace(spec, **{role: change(getattr(spec, role))})
    with pytest.raises(ModelLoadFailed, match=told):
        open_reference(tmp_path / "model.onnx", spec, cpu_threads=1)


def test_inputs_that_clients_do_not_send_are_fed_with_their_fixed_values(tmp_path: Path) -> None:
    model_path = onnx_models.make_reshape(tmp_path / "model.onnx")
    spec = OnnxBackend.open(ModelCard(name="m"), version="1", model_path=model_path, cpu_threads=1).spec
    shown = replace(spec, inputs=spec.inputs[:1])
    fixed = {"shape": np.asarray([8, 4], np.int32)}  # as TensorRT 8.6 narrows it
    reference = open_reference(model_path, shown, cpu_threads=1, fixed_inputs=fixed)
    host_x = np.arange(32, dtype=np.float32).reshape(4, 8)
    (host_y,) = reference.run([host_x])
    np.testing.assert_array_equal(host_y, host_x.reshape(8, 4))
    with pytest.raises(ModelLoadFailed, match=r"has the inputs \['shape', 'x'\], the plan \['x'\]"):
        open_reference(model_path, shown, cpu_threads=1)
    with pytest.raises(ModelLoadFailed, match="input 'size' is not in the ONNX model"):
        open_reference(model_path, shown, cpu_threads=1, fixed_inputs={"size": fixed["shape"]})


def test_a_model_of_bf16_cannot_be_the_reference(tmp_path: Path) -> None:
    spec = opened(tmp_path, onnx_models.make_bf16).spec
    with pytest.raises(ModelLoadFailed, match="is BF16, which ONNX Runtime cannot compare"):
        open_reference(tmp_path / "model.onnx", spec, cpu_threads=1)


def test_a_run_that_fails_says_so_without_the_servers_paths(tmp_path: Path) -> None:
    make = partial(onnx_models.make_identity, element_type=TensorProto.FLOAT, dims=("batch", 16))
    spec = opened(tmp_path, make).spec
    reference = open_reference(tmp_path / "model.onnx", spec, cpu_threads=1)
    with pytest.raises(ReferenceFailed, match=r"cannot run model\.onnx as the reference") as caught:
        reference.run([np.ones((1, 3), np.float32)])
    assert str(tmp_path) not in caught.value.message


def test_a_bucket_of_the_specification_runs(tmp_path: Path) -> None:
    backend = opened(tmp_path, onnx_models.make_simple)
    lane = backend.create_lane(0)
    lane.warm_up(Bucket(4))
    agreement = compare(
        lane, open_reference(tmp_path / "model.onnx", backend.spec, cpu_threads=1), backend.spec, Bucket(4)
    )
    assert (agreement.cosine, agreement.largest_difference) == (1.0, 0.0)
    lane.close()


def test_a_model_that_takes_too_long_to_open_is_refused_and_plans_do_not_count(tmp_path: Path) -> None:
    spec = opened(tmp_path, onnx_models.make_cnn).spec
    model_path = tmp_path / "model.onnx"
    nbytes = model_path.stat().st_size
    (tmp_path / "model.plan").write_bytes(bytes(100))
    open_reference(model_path, spec, cpu_threads=1, max_bytes=nbytes)
    (tmp_path / "weights.bin").write_bytes(bytes(1))
    with pytest.raises(ModelLoadFailed, match=f"has {nbytes + 1} bytes .* up to {nbytes} are opened"):
        open_reference(model_path, spec, cpu_threads=1, max_bytes=nbytes)
    open_reference(model_path, spec, cpu_threads=1)
