from __future__ import annotations

from pathlib import Path

import pytest

from service.errors import InvalidInput
from service.shared_regions.region import RegionSpec
from service.shared_regions.registered import RegionLimits, RegisteredRegions
from tests.doubles.open_files import open_files

LIMITS = RegionLimits(max_regions=3, max_bytes=100)


class Follower:
    """Notes, each time that it is to know of a change, what it is told then."""

    def __init__(self, regions: RegisteredRegions) -> None:
        self.regions = regions
        self.told: list[list[str]] = []
        self.has_changed = False
        regions.tell(self)

    def changed(self) -> None:
        self.has_changed = True

    async def informed(self) -> None:
        assert self.has_changed
        self.has_changed = False
        self.told.append([region.spec.name for region in self.regions.all])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for key, nbytes in (("a", 40), ("b", 60), ("c", 1)):
        (tmp_path / key).write_bytes(bytes(nbytes))
    return tmp_path


@pytest.fixture
def regions(folder: Path) -> RegisteredRegions:
    return RegisteredRegions(LIMITS, folder)


def region(name: str, key: str, nbytes: int = 1) -> RegionSpec:
    return RegionSpec(name, f"/{key}", 0, nbytes)


async def test_regions_come_and_go_and_those_who_follow_know(regions: RegisteredRegions, folder: Path) -> None:
    follower = Follower(regions)
    await regions.register(region("r", "a"))
    await regions.register(region("s", "a", 40))
    assert regions.get("s").spec == region("s", "a", 40)
    await regions.unregister("r")
    await regions.unregister("r")
    with pytest.raises(InvalidInput, match="region 'r' is not registered; POST its key and size"):
        regions.get("r")
    await regions.register(region("r", "c"))
    await regions.unregister_all()
    await regions.unregister_all()
    assert follower.told == [["r"], ["r", "s"], ["s"], ["s", "r"], []]
    assert regions.all == ()
    assert open_files(folder) == []


@pytest.mark.parametrize(
    ("there", "asked", "message"),
    [
        ([("r", "a")], ("r", "b"), "region 'r' is registered already; unregister it first"),
        ([("r", "a"), ("s", "a"), ("t", "a")], ("u", "a"), "3 .* are registered, INFERLANE_MAX_SHARED_REGIONS is 3"),
        ([("r", "a"), ("s", "b")], ("t", "c"), "have 101 bytes, INFERLANE_MAX_SHARED_REGION_BYTES is 100"),
        ([], ("n" * 257, "a"), "has 257 characters, at most 256"),
        ([], ("r", "missing"), "'/missing' of region 'r' is not in"),
    ],
)
async def test_what_cannot_be_registered_changes_nothing(
    regions: RegisteredRegions, folder: Path, there: list[tuple[str, str]], asked: tuple[str, str], message: str
) -> None:
    for name, key in there:
        await regions.register(region(name, key))
    before, kept, follower = open_files(folder), regions.all, Follower(regions)
    with pytest.raises(InvalidInput, match=message):
        await regions.register(region(*asked))
    assert (open_files(folder), regions.all, follower.told) == (before, kept, [])
    regions.close()


async def test_an_object_with_two_regions_counts_once(regions: RegisteredRegions) -> None:
    await regions.register(region("r", "b"))
    await regions.register(region("s", "b"))
    await regions.register(region("t", "a"))
    assert len(regions.all) == 3
    regions.close()


async def test_a_region_in_use_outlives_its_registration(regions: RegisteredRegions) -> None:
    await regions.register(region("r", "a"))
    used = regions.get("r")
    used.retain()
    await regions.unregister("r")
    used.write(memoryview(b"x"), 0)
    await regions.register(region("r", "b"))
    assert regions.get("r") is not used
    used.release()
    regions.close()
