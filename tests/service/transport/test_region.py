from __future__ import annotations

import numpy as np
import pytest

from service.errors import Overloaded
from service.transport.arena import LEAST_SLOT_BYTES
from service.transport.memory import SharedMemory
from service.transport.region import Region, RegionBuffer

PAGES = 64


@pytest.fixture
def region() -> Region:
    shared = SharedMemory.create(2 * PAGES * LEAST_SLOT_BYTES)
    host_region = shared.region(1, 2)
    shared.close()
    return Region(host_region)


def test_a_tensor_in_a_body_is_found_with_its_body(region: Region) -> None:
    buffers = [region.take_buffer(nbytes) for nbytes in (100, 20_000, 5000, 30_000)]
    for buffer in buffers:
        found = region.find(buffer.host_buffer[64:80].view("<f4"))
        assert isinstance(buffer, RegionBuffer)
        assert found is not None
        assert found[0] is buffer.lease
        assert found[1] == buffer.lease.offset + 64


def test_what_lies_elsewhere_is_not_found(region: Region) -> None:
    assert region.find(np.zeros(4)) is None
    lease = region.take(4096)
    inside = np.frombuffer(region.host_region, np.uint8, 16, lease.offset)
    assert region.find(inside) is None  # no body: whoever took it places its tensors itself


def test_a_body_that_was_given_back_is_not_found(region: Region) -> None:
    buffer = region.take_buffer(5000)
    buffer.release()
    assert region.held_bytes == 0
    assert region.find(buffer.host_buffer[:4]) is None


def test_a_request_keeps_its_bodys_memory(region: Region) -> None:
    buffer = region.take_buffer(5000)
    found = region.find(buffer.host_buffer[:8])
    assert found is not None
    found[0].retain()
    buffer.release()
    assert region.held_bytes == 8192
    found[0].release()
    assert region.held_bytes == 0


def test_no_room_is_an_overload_that_says_how_to_mend_it(region: Region) -> None:
    held = region.take(PAGES * LEAST_SLOT_BYTES)
    for take in (region.take, region.take_buffer):
        with pytest.raises(Overloaded, match=r"hold 262144 of its 262144 bytes .*INFERLANE_ARENA_BYTES") as refused:
            take(1)
        assert refused.value.retry_after_s == 1.0
    held.release()
    assert region.take(1).offset % LEAST_SLOT_BYTES == 0


def test_bodies_leave_half_of_the_region_to_requests(region: Region) -> None:
    """However many clients announce large bodies and then send nothing."""
    quarter_bytes = PAGES * LEAST_SLOT_BYTES // 4
    stalled = [region.take_buffer(quarter_bytes) for _ in range(9)]
    assert [region.find(buffer.host_buffer) is not None for buffer in stalled] == [True] * 2 + [False] * 7
    assert {len(buffer.host_buffer) for buffer in stalled} == {quarter_bytes}
    assert region.held_bytes == 2 * quarter_bytes
    held = region.take(2 * quarter_bytes)
    with pytest.raises(Overloaded):
        region.take_buffer(1)  # refused before it arrives: it could not be handed on
    held.release()
    for buffer in stalled:
        buffer.release()
    assert region.held_bytes == 0
    assert region.find(region.take_buffer(2 * quarter_bytes).host_buffer) is not None


def test_what_a_body_has_released_leaves_room_for_other_bodies(region: Region) -> None:
    half_bytes = PAGES * LEAST_SLOT_BYTES // 2
    buffer = region.take_buffer(half_bytes)
    found = region.find(buffer.host_buffer)
    assert found is not None
    found[0].retain()
    buffer.release()
    assert region.find(region.take_buffer(half_bytes).host_buffer) is not None
    assert region.held_bytes == 2 * half_bytes


def test_the_engine_sees_what_a_front_end_writes() -> None:
    shared = SharedMemory.create(4 * LEAST_SLOT_BYTES)
    region, host_seen = Region(shared.region(0, 2)), shared.region(0, 2)
    buffer = region.take_buffer(3)
    buffer.host_buffer[:] = [1, 2, 3]
    assert isinstance(buffer, RegionBuffer)
    assert host_seen[buffer.lease.offset : buffer.lease.offset + 3].tolist() == [1, 2, 3]
    shared.close()
