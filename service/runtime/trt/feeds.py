"""How the requests of a batch get into a bucket's upload memory: small batches by one copy, large ones in parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from service.requests import Batch
from service.runtime.rows import TensorPlan, gather
from service.runtime.trt.copy_threads import PARALLEL_FROM_BYTES
from service.runtime.trt.routes import DIRECT_FROM_BYTES, InputPlace, IsPageLocked, Route, route_batch
from service.tensors import HostArray


class Feed(Protocol):
    """One bucket's inputs on one buffer set; used by the lane's thread."""

    def is_small(self, batch: Batch) -> bool:
        """Whether looking for a better way than `gather` would cost more than it gives."""

    def gather(self, batch: Batch) -> None:
        """Writes a small batch into pinned memory, padding included: all that the bucket's upload copies."""

    def route(self, batch: Batch, is_page_locked: IsPageLocked) -> Route:
        """Finds the cheapest way of everything in a batch.

        Raises:
            ExecutionFailed: the batch does not fit the bucket.
        """


class TensorFeed:
    """Tensors whose rows lie one after another.

    Args:
        plans: how requests lie in each input.
        hosts: dtype[padded shape] pinned, per input.
        offsets: where each begins in the upload memory, in bytes.
        nbytes: of the upload.
    """

    def __init__(
        self, plans: tuple[TensorPlan, ...], hosts: tuple[HostArray, ...], offsets: Sequence[int], nbytes: int
    ) -> None:
        self._plans = plans
        self._hosts = hosts
        self._places = tuple(map(InputPlace.of, plans, hosts, offsets))
        self._nbytes = nbytes

    def is_small(self, batch: Batch) -> bool:
        """By the sizes of the upload and of every request."""
        if self._nbytes >= PARALLEL_FROM_BYTES:
            return False
        return all(request.nbytes < DIRECT_FROM_BYTES for request in batch.requests)

    def gather(self, batch: Batch) -> None:
        """Copies all rows and clears those after them."""
        gather(batch, self._plans, self._hosts)

    def route(self, batch: Batch, is_page_locked: IsPageLocked) -> Route:
        """As `routes.route_batch`."""
        return route_batch(batch, self._places, is_page_locked)
