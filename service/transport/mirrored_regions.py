"""The regions of clients' shared memory as a front end knows them: those that the engine has registered.

A front end opens each by the engine's descriptor of it, for the object's key may be removed, or mean another one, by
the time that it hears of the region.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from service.client_text import name_text
from service.errors import NotReady
from service.shared_regions.region import SharedRegion, reopen_region
from service.shared_regions.registered import unknown_region
from service.transport.objects import PublishedRegion

_log = logging.getLogger(__name__)


class MirroredRegions:
    """`Regions` of a front end. On the event loop."""

    def __init__(self) -> None:
        self._open: dict[PublishedRegion, SharedRegion | None] = {}
        self._by_name: dict[str, SharedRegion | None] = {}

    def get(self, name: str) -> SharedRegion:
        """See `Regions`."""
        region = self._by_name.get(name)
        if region is not None:
            return region
        if name in self._by_name:
            raise NotReady(
                f"shared memory region {name_text(name)} cannot be opened by this front end; send the tensors in the "
                "body, or run the server without front ends"
            )
        raise unknown_region(name)

    def follow(self, published: Iterable[PublishedRegion]) -> None:
        """Knows these and no others from now on; a request that has begun with another one keeps it."""
        before, self._open = self._open, {}
        for each in published:
            self._open[each] = before.pop(each) if each in before else _opened(each)
        self._by_name = {each.spec.name: region for each, region in self._open.items()}
        for region in before.values():
            if region is not None:
                region.release()


def _opened(published: PublishedRegion) -> SharedRegion | None:
    path = Path("/proc", str(published.pid), "fd", str(published.fd))
    try:
        return reopen_region(published.spec, path, published.identity)
    except OSError as error:
        _log.warning("shared memory region %s cannot be opened: %s", name_text(published.spec.name), error)
        return None
