"""An engine of one model `m`, whose batches finish when the test lets them, and front ends that may join it."""

import pytest

from tests.doubles.held_repository import HeldRepository
from tests.doubles.transport_bench import TransportBench


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
