from __future__ import annotations

from service.pipeline.needs import dtypes_text, tensors_text
from service.tensors import DType, TensorSpec


def test_tensors_are_named_with_their_dimensions() -> None:
    tensors = (TensorSpec("x", DType.FP32, ("batch", 3, "width")), TensorSpec("y", DType.INT64, ()))
    assert tensors_text(tensors) == "'x' FP32 [batch, 3, width], 'y' INT64 []"
    assert tensors_text(()) == ""


def test_dtypes_are_named_as_the_protocol_does() -> None:
    assert dtypes_text((DType.FP32, DType.UINT8)) == "FP32, UINT8"
