"""Requests of front ends through shared memory and real sockets into real queues, and their answers back."""

import numpy as np
import pytest

from tests.doubles.held_repository import HeldRepository
from tests.doubles.transport_bench import TransportBench, request_of


def row(fill: float = 1.0, rows: int = 1):
    return np.full((rows, 4), fill, np.float32)


@pytest.fixture
async def repository(tmp_path):
    async with HeldRepository(tmp_path) as held:
        held.add("m")
        await held.registry.start(None)
        yield held


@pytest.fixture
async def bench(repository):
    async with TransportBench(repository.registry) as bench:
        yield bench


async def test_a_request_is_answered_and_leaves_no_memory_behind(bench):
    front_end = await bench.front_end().serves("m")
    request = request_of(row(3.0, rows=2))
    (answer,) = await front_end.submit(request)
    assert answer.tolist() == [[6.0] * 4] * 2
    assert front_end.room.held_bytes == 0
    stamps = request.stamps
    moments = [getattr(stamps, name) for name in ("prepared", "dispatched", "started", "copied_in", "computed")]
    moments += [stamps.copied_out, stamps.completed]
    assert moments == sorted(moments)
    assert all(moments)
