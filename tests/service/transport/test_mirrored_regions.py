"""Regions of clients' shared memory, registered in an engine and known to its front ends."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from service.errors import InvalidInput, NotReady
from service.shared_regions.region import RegionSpec, SharedRegion
from service.shared_regions.registered import RegionLimits, RegisteredRegions
from service.transport.mirrored_regions import MirroredRegions
from service.transport.publish import published_region
from tests.doubles.held_repository import HeldRepository, until
from tests.doubles.open_files import open_files
from tests.doubles.transport_bench import TransportBench

SPEC = RegionSpec("r", "/frames", 0, 8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "shm"
    folder.mkdir()
    (folder / "frames").write_bytes(b"contents")
    return folder


@pytest.fixture
async def regions(folder: Path) -> AsyncIterator[RegisteredRegions]:
    regions = RegisteredRegions(RegionLimits(max_regions=4, max_bytes=100), folder)
    yield regions
    regions.close()
    assert open_files(folder) == []


def content(region: SharedRegion) -> bytes:
    host_buffer = bytearray(8)
    region.read_into(memoryview(host_buffer), 0)
    return bytes(host_buffer)


async def test_what_the_engine_has_registered_every_front_end_may_use_at_once(
    repository: HeldRepository, regions: RegisteredRegions, folder: Path
) -> None:
    async with TransportBench(repository.registry, regions=regions) as bench:
        first, second = await bench.front_end(0).serves("m"), await bench.front_end(1).serves("m")
        await regions.register(SPEC)
        (folder / "frames").unlink()
        kept = first.regions.get("r")
        assert [content(front_end.regions.get("r")) for front_end in (first, second)] == [b"contents"] * 2
        kept.retain()
        (folder / "frames").write_bytes(b"another.")
        await regions.unregister("r")
        for front_end in (first, second):
            with pytest.raises(InvalidInput, match="'r' is not registered"):
                front_end.regions.get("r")
        await regions.register(SPEC)
        assert [content(front_end.regions.get("r")) for front_end in (first, second)] == [b"another."] * 2
        assert content(kept) == b"contents"
        kept.release()
        await bench.vanish()
        await until(lambda: not first.link.is_up and not second.link.is_up)


async def test_a_front_end_that_comes_later_knows_what_is_registered(
    repository: HeldRepository, regions: RegisteredRegions
) -> None:
    async with TransportBench(repository.registry, regions=regions) as bench:
        await regions.register(SPEC)
        late = await bench.front_end(1).serves("m")
        region = late.regions.get("r")
        await regions.register(replace(SPEC, name="s"))
        assert late.regions.get("r") is region, "what stays registered stays open"
        await bench.vanish()
        await until(lambda: not late.link.is_up)
        with pytest.raises(InvalidInput, match="'r' is not registered"):
            late.regions.get("r")


async def test_what_a_front_end_cannot_open_is_not_the_clients_fault(
    regions: RegisteredRegions, caplog: pytest.LogCaptureFixture
) -> None:
    await regions.register(SPEC)
    mirrored = MirroredRegions()
    with caplog.at_level(logging.WARNING):
        mirrored.follow([replace(published_region(regions.get("r")), fd=1 << 30)])
    assert "shared memory region 'r' cannot be opened" in caplog.text
    with pytest.raises(NotReady, match="'r' cannot be opened by this front end"):
        mirrored.get("r")
    mirrored.follow(())
