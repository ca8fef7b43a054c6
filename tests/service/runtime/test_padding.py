from __future__ import annotations

import numpy as np
import pytest

from service.cards import ModelCard
from service.errors import CardError
from service.models import ModelSpec, build_spec
from service.runtime.padding import pad_values
from service.tensors import DType, TensorSpec


def spec_of(dtype: DType, pad: float | None) -> ModelSpec:
    return build_spec(
        ModelCard(name="m", pad_values={} if pad is None else {"x": pad}),
        version="1",
        platform="test",
        inputs=(TensorSpec("x", dtype, ("n", 4)),),
        outputs=(TensorSpec("y", dtype, ("n", 4)),),
    )


@pytest.mark.parametrize("dtype", DType)
def test_default_is_zero_of_the_host_type(dtype: DType) -> None:
    (value,) = pad_values(spec_of(dtype, None))
    if dtype is DType.BYTES:
        assert value == b""
    else:
        assert value == 0
        assert np.asarray(value).dtype == dtype.numpy


@pytest.mark.parametrize(
    ("dtype", "pad", "value"),
    [
        (DType.INT64, -1, -1),
        (DType.UINT8, 255, 255),
        (DType.BOOL, 1, True),
        (DType.FP32, 0.5, 0.5),
        (DType.FP16, float("-inf"), float("-inf")),
        (DType.BF16, 1.0, 0x3F80),
    ],
)
def test_card_value(dtype: DType, pad: float, value: object) -> None:
    assert pad_values(spec_of(dtype, pad)) == (value,)


@pytest.mark.parametrize(
    ("dtype", "pad", "mend"),
    [
        (DType.UINT8, 256, "whole number from 0 to 255"),
        (DType.INT64, 0.5, "whole number from -9223372036854775808 to 9223372036854775807"),
        (DType.INT8, float("nan"), "whole number from -128 to 127"),
        (DType.BOOL, 2, "give 0 or 1"),
        (DType.FP16, 1e6, "from -65504 to 65504"),
        (DType.BYTES, 1, "leave it out"),
    ],
)
def test_value_that_does_not_fit(dtype: DType, pad: float, mend: str) -> None:
    with pytest.raises(CardError, match=rf"x = {pad} in \[padding\] does not fit {dtype.value}; .*{mend}"):
        pad_values(spec_of(dtype, pad))


@pytest.mark.parametrize("dtype", [DType.FP16, DType.FP32])
def test_a_value_that_would_become_infinite_is_refused(dtype: DType) -> None:
    spec = build_spec(
        ModelCard(name="m", pad_values={"x": 1e40}),
        version="1",
        platform="test",
        inputs=(TensorSpec("x", dtype, ("batch", 4)),),
        outputs=(TensorSpec("y", dtype, ("batch", 4)),),
    )
    with pytest.raises(CardError, match="give a value from"):
        pad_values(spec)
