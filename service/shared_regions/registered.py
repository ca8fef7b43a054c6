"""The regions that clients have registered: by name, and within bounds of number and bytes.

Any client may unregister any region, as in Triton. A request that has begun with a region keeps it to its end.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from service.client_text import name_text
from service.errors import InvalidInput
from service.repository.catalogue import Audience, Nobody
from service.shared_regions.region import FOLDER, RegionSpec, SharedRegion, open_region

MAX_NAME_CHARS = 256


class Regions(Protocol):
    """Where the regions of requests are looked up. On the event loop."""

    def get(self, name: str) -> SharedRegion:
        """The region of a name, which the caller may retain.

        Raises:
            InvalidInput: none is registered under it.
            NotReady: it is, and cannot be reached from here.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionLimits:
    """How much clients may register; an object stays in memory for as long as it is registered, whoever removes it.

    Attributes:
        max_regions: most regions.
        max_bytes: most bytes of the objects that they lie in, each object counted once.
    """

    max_regions: int
    max_bytes: int


class RegisteredRegions:
    """All regions of a server; `Regions`. On the event loop.

    Args:
        limits: how much may be registered.
        folder: of the objects.
    """

    def __init__(self, limits: RegionLimits, folder: Path = FOLDER) -> None:
        self._limits = limits
        self._folder = folder
        self._by_name: dict[str, SharedRegion] = {}
        self._audience: Audience = Nobody()

    def __repr__(self) -> str:
        return f"<RegisteredRegions {len(self._by_name)}/{self._limits.max_regions}>"

    @property
    def all(self) -> tuple[SharedRegion, ...]:
        """What is registered, in the order of registration."""
        return tuple(self._by_name.values())

    def tell(self, audience: Audience) -> None:
        """Whoever follows from elsewhere; told of every change from now on."""
        self._audience = audience

    def get(self, name: str) -> SharedRegion:
        """See `Regions`."""
        region = self._by_name.get(name)
        if region is None:
            raise unknown_region(name)
        return region

    async def register(self, spec: RegionSpec) -> None:
        """Opens a region; returns once requests anywhere may name it.

        Raises:
            InvalidInput: the name is taken, the region does not exist as it is described, or there are too many.
        """
        self._check_name(spec.name)
        region = open_region(spec, self._folder)
        try:
            self._check_room(region)
        except InvalidInput:
            region.release()
            raise
        self._by_name[spec.name] = region
        await self._changed()

    async def unregister(self, name: str) -> None:
        """Forgets a region, if there is one; returns once no further request may name it."""
        region = self._by_name.pop(name, None)
        if region is not None:
            region.release()
            await self._changed()

    async def unregister_all(self) -> None:
        """Forgets all regions, likewise."""
        if self._by_name:
            self.close()
            await self._changed()

    def close(self) -> None:
        """Forgets all regions, and tells nobody."""
        regions, self._by_name = self.all, {}
        for region in regions:
            region.release()

    async def _changed(self) -> None:
        self._audience.changed()
        await self._audience.informed()

    def _check_name(self, name: str) -> None:
        if len(name) > MAX_NAME_CHARS:
            raise InvalidInput(
                f"the name of a shared memory region has {len(name)} characters, at most {MAX_NAME_CHARS} are allowed"
            )
        if name in self._by_name:
            raise InvalidInput(
                f"shared memory region {name_text(name)} is registered already; unregister it first, or take another "
                "name"
            )
        if len(self._by_name) >= self._limits.max_regions:
            raise InvalidInput(
                f"{len(self._by_name)} shared memory regions are registered, INFERLANE_MAX_SHARED_REGIONS is "
                f"{self._limits.max_regions}; unregister those that nobody uses"
            )

    def _check_room(self, region: SharedRegion) -> None:
        held = {other.identity: other.object_bytes for other in self._by_name.values()}
        held[region.identity] = region.object_bytes
        nbytes = sum(held.values())
        if nbytes > self._limits.max_bytes:
            raise InvalidInput(
                f"shared memory region {name_text(region.spec.name)} lies in an object of {region.object_bytes} bytes; "
                f"with it the registered objects have {nbytes} bytes, INFERLANE_MAX_SHARED_REGION_BYTES is "
                f"{self._limits.max_bytes}; unregister what nobody uses"
            )


def unknown_region(name: str) -> InvalidInput:
    """What a request is told that names a region that is not registered."""
    return InvalidInput(
        f"shared memory region {name_text(name)} is not registered; POST its key and size to "
        "/v2/systemsharedmemory/region/<name>/register, again where the server was restarted meanwhile"
    )
