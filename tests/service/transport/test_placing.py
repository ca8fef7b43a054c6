"""Tensors into a region and back: no byte changes, nothing overlaps, nothing outside is touched."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from service.buckets import Form
from service.tensors import HOST_ALIGNMENT_BYTES, DType, TensorSpec
from service.transport.descriptors import INLINE, Placed
from service.transport.placing import ResultSizes, aligned, place, take_up
from service.transport.wire import Malformed
from tests.doubles.requests import make_media_spec, make_spec

REGION_BYTES = 4096
DTYPES = [DType.BOOL, DType.UINT8, DType.INT16, DType.FP16, DType.BF16, DType.FP32, DType.INT64, DType.FP64]


def region(fill=7):
    return np.full(REGION_BYTES, fill, np.uint8)


def spec_of(dtype):
    return TensorSpec("t", dtype, ("batch", "any"))


ARRAYS = st.lists(
    st.sampled_from(DTYPES).flatmap(
        lambda dtype: st.tuples(
            st.just(dtype), npst.arrays(dtype.numpy, npst.array_shapes(min_dims=0, max_side=5, min_side=0))
        )
    ),
    max_size=5,
)


@given(ARRAYS, st.integers(0, 16), st.integers(0, 1024))
def test_arrays_come_back_as_they_were(typed, start, nbytes):
    host_region, offset = region(), start * HOST_ALIGNMENT_BYTES
    arrays = [array for _, array in typed]
    placed, inline = place(arrays, host_region.data, offset, nbytes)
    got = take_up(placed, memoryview(b"".join(inline)), [spec_of(dtype) for dtype, _ in typed], host_region.data)
    for array, came in zip(arrays, got, strict=True):
        assert came.dtype == array.dtype
        assert came.shape == array.shape
        assert came.tobytes() == array.tobytes()
        assert came.flags.aligned
    assert (host_region[:offset] == 7).all()
    assert (host_region[offset + nbytes :] == 7).all()


def test_texts_travel_inline():
    texts = np.array([[b"a", b""], [b"caf\xc3\xa9", bytes(300)]], np.object_)
    placed, inline = place([texts], region().data, 0, REGION_BYTES)
    assert placed[0].offset == INLINE
    (got,) = take_up(placed, memoryview(inline[0]), [spec_of(DType.BYTES)], region().data)
    assert got.tolist() == texts.tolist()


@pytest.mark.parametrize(
    ("placed", "dtype"),
    [
        pytest.param(Placed(REGION_BYTES - 4, 8, (2,)), DType.FP32, id="beyond the end"),
        pytest.param(Placed(-8, 8, (2,)), DType.FP32, id="before the beginning"),
        pytest.param(Placed(0, 4, (2,)), DType.FP32, id="another size"),
        pytest.param(Placed(0, 8, (-2,)), DType.FP32, id="a negative extent"),
        pytest.param(Placed(0, 0, (1 << 62, 1 << 62)), DType.FP32, id="a shape beyond all memory"),
        pytest.param(Placed(0, 8, (1,)), DType.BYTES, id="texts in the region"),
        pytest.param(Placed(INLINE, 8, (2,)), DType.FP32, id="more inline than came"),
        pytest.param(Placed(INLINE, -1, (2,)), DType.FP32, id="less than nothing inline"),
        pytest.param(Placed(INLINE, 4, (2,)), DType.FP32, id="another size inline"),
        pytest.param(Placed(INLINE, 4, (1,)), DType.BYTES, id="no texts"),
    ],
)
def test_what_does_not_fit_is_malformed(placed, dtype):
    with pytest.raises(Malformed):
        take_up([placed], memoryview(b"abcd"), [spec_of(dtype)], region().data)


def test_another_number_of_tensors_is_malformed():
    with pytest.raises(Malformed, match="expected 1"):
        take_up([], memoryview(b""), [spec_of(DType.FP32)], region().data)


@given(st.integers(0, 1 << 40))
def test_aligned_is_the_next_multiple(nbytes):
    assert nbytes <= aligned(nbytes) < nbytes + HOST_ALIGNMENT_BYTES
    assert aligned(nbytes) % HOST_ALIGNMENT_BYTES == 0


def test_results_of_known_size_are_counted():
    sizes = ResultSizes(make_spec(dims={"width": (8, 16)}))
    assert sizes.nbytes(3, (5,), (0,), Form.TENSORS) == aligned(3 * 5 * 4)
    assert sizes.nbytes(3, (5,), (), Form.TENSORS) == 0


def test_results_of_media_are_those_of_their_form():
    sizes = ResultSizes(make_media_spec())
    assert sizes.nbytes(1, (), (0, 1), Form.MEDIA) == aligned(4) + aligned(8)


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr("service.transport.placing.MAX_KNOWN_SIZES", 4)
    sizes = ResultSizes(make_spec(exact=("width",)))
    assert [sizes.nbytes(1, (width,), (0,), Form.TENSORS) for width in range(1, 12)] == [
        aligned(4 * width) for width in range(1, 12)
    ]
    assert len(sizes._known) <= 4
