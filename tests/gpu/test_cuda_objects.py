"""The life of CUDA's objects, and what a device says of itself.

The same cases on the double and on the real device, so that the double stays honest.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from service.errors import DeviceError
from service.runtime.cuda.device import Cuda, LiveCounts
from service.runtime.cuda.memory import DeviceBuffer, HostRegistration, PinnedBuffer
from service.runtime.cuda.stream import Event, Stream
from tests.doubles.mapped_memory import mapped

MAKERS: dict[str, Callable[[Cuda], Stream | Event | PinnedBuffer | DeviceBuffer | HostRegistration]] = {
    "stream": Stream,
    "event": lambda cuda: Event(cuda, timing_enabled=False, blocking_sync=True),
    "pinned": lambda cuda: PinnedBuffer(cuda, 100),
    "device": lambda cuda: DeviceBuffer(cuda, 100),
    "registration": lambda cuda: HostRegistration(cuda, mapped(100)),
}
COUNTS = {
    "stream": LiveCounts(streams=1),
    "event": LiveCounts(events=1),
    "pinned": LiveCounts(pinned_bytes=100),
    "device": LiveCounts(device_bytes=100),
    "registration": LiveCounts(registrations=1),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_live_counts(cuda: Cuda, kind: str) -> None:
    with MAKERS[kind](cuda) as made:
        assert cuda.live == COUNTS[kind]
        with MAKERS[kind](cuda):
            assert cuda.live == COUNTS[kind] + COUNTS[kind]
    assert cuda.live == LiveCounts()
    made.close()
    assert cuda.live == LiveCounts()


@pytest.mark.parametrize("kind", MAKERS)
def test_closed_is_refused(cuda: Cuda, kind: str) -> None:
    made = MAKERS[kind](cuda)
    made.close()
    with pytest.raises(DeviceError, match=f"{type(made).__name__} is used after it was closed"):
        _ = made.native
    attribute = "handle" if kind == "stream" else "address" if kind != "event" else "native"
    with pytest.raises(DeviceError, match="closed"):
        getattr(made, attribute)


def test_device_facts(cuda: Cuda) -> None:
    memory = cuda.memory_info()
    assert 0 < memory.free_bytes <= memory.total_bytes
    assert cuda.device_name(0)
    assert cuda.compute_capability(0) >= (5, 0)
    assert re.fullmatch(r"[0-9A-Fa-f]{4,8}(:[0-9A-Fa-f]{2}){2}\.[0-7]", cuda.pci_bus_id(0))
    assert min(cuda.driver_version, cuda.runtime_version) >= 12000


def test_no_such_device(cuda: Cuda) -> None:
    with pytest.raises(DeviceError) as raised:
        cuda.use_device(99)
    assert raised.value.message == "cudaErrorInvalidDevice: invalid device ordinal, in cudaSetDevice(99)"
    assert not raised.value.is_sticky
    cuda.memory_info()
