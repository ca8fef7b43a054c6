"""Where tensors lie in a buffer, and what a buffer set leaves behind."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import DeviceError
from service.runtime.cuda.device import Cuda, LiveCounts
from service.runtime.trt.buffers import ALIGNMENT_BYTES, BufferSet, Layout, MediaBytes
from service.tensors import DType, TensorSpec, element_count
from tests.doubles.fake_cuda import FakeCuda

DTYPES = st.sampled_from([dtype for dtype in DType if dtype is not DType.BYTES])
SHAPES = st.lists(st.integers(1, 9), max_size=4).map(tuple)


@given(st.lists(st.tuples(DTYPES, SHAPES), min_size=1, max_size=6))
def test_tensors_are_aligned_and_apart(parts: list[tuple[DType, tuple[int, ...]]]) -> None:
    tensors = [TensorSpec(f"t{index}", dtype, shape) for index, (dtype, shape) in enumerate(parts)]
    layout = Layout.of(tensors, [shape for _, shape in parts])
    end = 0
    for offset, (dtype, shape) in zip(layout.offsets, parts, strict=True):
        assert offset % ALIGNMENT_BYTES == 0
        assert end <= offset < end + ALIGNMENT_BYTES
        end = offset + element_count(shape) * dtype.itemsize
    assert layout.nbytes == end


@pytest.mark.parametrize("call", ["cudaHostAlloc", "cudaMalloc", "cudaEventCreateWithFlags"])
@pytest.mark.parametrize("after", [0, 1])
def test_a_set_that_cannot_be_made_leaves_nothing(call: str, after: int) -> None:
    api = FakeCuda()
    cuda = Cuda(api)
    api.inject(call, api.cudaError_t.cudaErrorMemoryAllocation, after=after)
    with pytest.raises(DeviceError, match="out of memory"):
        BufferSet(cuda, input_bytes=10, output_bytes=10)
    assert cuda.live == LiveCounts()


def test_closing_twice() -> None:
    cuda = Cuda(FakeCuda())
    buffers = BufferSet(cuda, input_bytes=10, output_bytes=20)
    assert cuda.live.device_bytes == cuda.live.pinned_bytes == 30
    buffers.close()
    buffers.close()
    assert cuda.live == LiveCounts()


def test_media_share_what_they_can_with_tensors() -> None:
    """Pinned memory serves either; on the device media have memory of their own, but for what the engine reads."""
    cuda = Cuda(FakeCuda())
    media = MediaBytes(upload=100, inputs=15, device=70, results=5)
    buffers = BufferSet(cuda, input_bytes=10, output_bytes=20, media=media)
    assert (buffers.pinned_inputs.nbytes, buffers.device_inputs.nbytes) == (100, 15)
    assert (buffers.pinned_outputs.nbytes, buffers.device_outputs.nbytes) == (20, 20)
    assert buffers.device_media is not None
    assert buffers.device_bytes == cuda.live.device_bytes == 15 + 20 + 70
    buffers.close()
    assert cuda.live == LiveCounts()
