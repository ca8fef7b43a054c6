from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto

from service.errors import ModelLoadFailed
from service.runtime.onnx.session import input_tensors, open_session, output_tensors, refuses, without_paths
from service.tensors import DType, TensorSpec
from tests.doubles import onnx_models


@pytest.mark.parametrize(
    ("element_type", "dtype"),
    [
        (TensorProto.BOOL, DType.BOOL),
        (TensorProto.UINT8, DType.UINT8),
        (TensorProto.UINT16, DType.UINT16),
        (TensorProto.UINT32, DType.UINT32),
        (TensorProto.UINT64, DType.UINT64),
        (TensorProto.INT8, DType.INT8),
        (TensorProto.INT16, DType.INT16),
        (TensorProto.INT32, DType.INT32),
        (TensorProto.INT64, DType.INT64),
        (TensorProto.FLOAT16, DType.FP16),
        (TensorProto.BFLOAT16, DType.BF16),
        (TensorProto.FLOAT, DType.FP32),
        (TensorProto.DOUBLE, DType.FP64),
        (TensorProto.STRING, DType.BYTES),
    ],
)
def test_types(tmp_path: Path, element_type: int, dtype: DType) -> None:
    session = open_session(onnx_models.make_identity(tmp_path / "m.onnx", element_type=element_type), threads=1)
    assert input_tensors(session) == (TensorSpec("x", dtype, ("batch", 16)),)
    assert output_tensors(session) == (TensorSpec("y", dtype, ("batch", 16)),)


def test_every_dynamic_dim_has_a_name(tmp_path: Path) -> None:
    path = onnx_models.make_identity(tmp_path / "m.onnx", dims=("n", None, "?", "", 3))
    session = open_session(path, threads=1)
    assert input_tensors(session)[0].dims == ("n", "x_1", "x_2", "x_3", 3)
    assert output_tensors(session)[0].dims == ("n", "y_1", "y_2", "y_3", 3)


def test_unsupported_type_names_the_tensor(tmp_path: Path) -> None:
    session = open_session(onnx_models.make_sequence_typed(tmp_path / "m.onnx"), threads=1)
    with pytest.raises(ModelLoadFailed, match=r"output 'y' has type seq\(tensor\(float\)\), supported are tensor"):
        output_tensors(session)


def write_garbage(path: Path) -> Path:
    path.write_bytes(b"not a model")
    return path


@pytest.mark.parametrize("make", [lambda path: path, write_garbage], ids=["missing", "garbage"])
def test_refused_model_shows_no_folder(tmp_path: Path, make: partial[Path]) -> None:
    with pytest.raises(ModelLoadFailed, match=r"cannot load the model: .*model\.onnx") as caught:
        open_session(make(tmp_path / "model.onnx"), threads=1)
    assert str(tmp_path) not in caught.value.message


def test_onnxruntime_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ModelLoadFailed, match=r"pip install -e '.\[cpu\]'"):
        open_session(tmp_path / "model.onnx", threads=1)


@pytest.mark.parametrize(
    ("make", "values", "is_refused"),
    [
        pytest.param(onnx_models.make_bounded_lookup, np.int64([9]), True, id="an index out of bounds"),
        pytest.param(onnx_models.make_bounded_lookup, np.int64([1]), False, id="good values"),
        pytest.param(onnx_models.make_bf16, np.zeros((1, 16), np.uint16), False, id="BF16 cannot be asked about"),
        pytest.param(onnx_models.make_bounded_lookup, object(), False, id="another failure, which is ours"),
    ],
)
def test_what_the_values_are_to_blame_for(
    tmp_path: Path, make: Callable[[Path], Path], values: object, is_refused: bool
) -> None:
    session = open_session(make(tmp_path / "m.onnx"), threads=1)
    assert refuses(session, input_tensors(session), [values]) is is_refused  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("Load model from /srv/models/m/1/model.onnx failed", "Load model from model.onnx failed"),
        ("data /srv/models/m/1/weights.bin is short", "data weights.bin is short"),
        ("/build/core/op_kernel.cc:87 shape mismatch", "shape mismatch"),
        ("Node '/encoder/layer.0/MatMul' failed", "Node '/encoder/layer.0/MatMul' failed"),
    ],
)
def test_without_paths(message: str, shown: str) -> None:
    assert without_paths(message, Path("/srv/models/m/1/model.onnx")) == shown
