"""Device, pinned and registered memory.

The same cases on the double and on the real device, so that the double stays honest.
"""

from __future__ import annotations

import numpy as np
import pytest

from service.errors import DeviceError
from service.runtime.cuda.copies import copy_d2h, copy_h2d
from service.runtime.cuda.device import Cuda
from service.runtime.cuda.memory import DeviceBuffer, HostRegistration, PinnedBuffer
from service.runtime.cuda.stream import Stream
from tests.doubles.mapped_memory import mapped

MIB = 1 << 20


@pytest.mark.parametrize("nbytes", [1, 255, 257, 100_000])
def test_device_buffers_are_aligned(cuda: Cuda, nbytes: int) -> None:
    with DeviceBuffer(cuda, nbytes) as first, DeviceBuffer(cuda, nbytes) as second:
        assert first.address % 256 == second.address % 256 == 0
        assert abs(first.address - second.address) >= nbytes


def test_out_of_device_memory(cuda: Cuda) -> None:
    nbytes = 2 * cuda.memory_info().total_bytes
    with pytest.raises(
        DeviceError, match=f"^cudaErrorMemoryAllocation: out of memory, in cudaMalloc of {nbytes} bytes$"
    ):
        DeviceBuffer(cuda, nbytes)
    assert int(cuda.api.cudaPeekAtLastError()[0]) == 0
    DeviceBuffer(cuda, 100).close()


@pytest.mark.parametrize("kind", [PinnedBuffer, DeviceBuffer])
def test_empty_buffers_are_refused(cuda: Cuda, kind: type[PinnedBuffer] | type[DeviceBuffer]) -> None:
    with pytest.raises(DeviceError, match="of 0 bytes was asked for"):
        kind(cuda, 0)


def test_host_arrays_share_the_buffer(cuda: Cuda) -> None:
    with PinnedBuffer(cuda, 64) as pinned:
        floats = pinned.host(np.float32, (2, 3), 16)
        floats[:] = np.arange(6, dtype=np.float32).reshape(2, 3)
        raw = pinned.host(np.uint8, (64,))
        assert raw[16:40].view(np.float32).tolist() == [0, 1, 2, 3, 4, 5]
        assert floats.ctypes.data == pinned.address + 16
        assert floats.flags.c_contiguous
        assert pinned.host(np.int64, (8,)).nbytes == pinned.nbytes
        assert pinned.host(np.int64, (), 56).shape == ()
        assert pinned.host(np.int64, (0, 4), 64).shape == (0, 4)


@pytest.mark.parametrize(("shape", "offset"), [((9,), 0), ((8,), 8), ((1,), 4), ((1,), -8), ((1,), 64)], ids=str)
def test_host_arrays_stay_inside(cuda: Cuda, shape: tuple[int, ...], offset: int) -> None:
    with PinnedBuffer(cuda, 64) as pinned, pytest.raises(DeviceError, match="in a pinned buffer of 64 bytes"):
        pinned.host(np.int64, shape, offset)


def test_registered_memory(cuda: Cuda, stream: Stream) -> None:
    host, back = mapped(4 * MIB), mapped(4 * MIB)
    host[:] = np.random.default_rng(1).integers(0, 256, host.size, np.uint8)
    with (
        HostRegistration(cuda, host) as registration,
        HostRegistration(cuda, back),
        DeviceBuffer(cuda, host.nbytes) as buffer,
    ):
        assert (registration.address, registration.nbytes) == (host.ctypes.data, host.nbytes)
        copy_h2d(cuda, buffer.address, registration.address, host.nbytes, stream=stream)
        copy_d2h(cuda, back.ctypes.data, buffer.address, host.nbytes, stream=stream)
        stream.sync()
        assert np.array_equal(back, host)
        with pytest.raises(DeviceError, match=f"^cudaErrorHostMemoryAlreadyRegistered: .* of {host.nbytes} bytes$"):
            HostRegistration(cuda, host)
    HostRegistration(cuda, host).close()


@pytest.mark.parametrize("array", [np.zeros((4, 4))[:, :2], np.zeros(0)], ids=["gaps", "empty"])
def test_unfit_arrays_are_not_registered(cuda: Cuda, array: np.ndarray) -> None:
    with pytest.raises(DeviceError, match=r"contiguous|of 0 bytes"):
        HostRegistration(cuda, array)
