"""The buckets that a lane can run: each with its launches, and with graphs as far as their memory budget goes."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from service.buckets import Bucket
from service.device_figures import GraphMiss, MemoryOwner, MissReason
from service.runtime.trt.buffers import BufferSet
from service.runtime.trt.graph_budget import over_budget
from service.runtime.trt.launch import Launch
from service.runtime.trt.tally import Tally

_log = logging.getLogger(__name__)


class WarmBuckets:
    """Filled while the lane is warmed; once requests come, nothing about a bucket changes.

    Args:
        model_name: for messages.
        tally: is told of every bucket, of those without a graph, and of the memory that they hold.
    """

    def __init__(self, model_name: str, tally: Tally) -> None:
        self._model_name = model_name
        self._tally = tally
        self._launches: dict[Bucket, tuple[Launch, ...]] = {}

    def __contains__(self, bucket: Bucket) -> bool:
        return bucket in self._launches

    def launch(self, bucket: Bucket, turn: int) -> Launch:
        """The launch of a warm bucket on the buffer set whose turn it is."""
        return self._launches[bucket][turn]

    def add(self, bucket: Bucket, launches: Sequence[Launch], miss: GraphMiss | None, *, budget_bytes: int) -> None:
        """Takes a bucket, and takes graphs from the largest ones where those of all exceed the budget.

        Args:
            bucket: is warm now.
            launches: one per buffer set.
            miss: why it has no graph on all of them, if so.
            budget_bytes: device memory that the lane's graphs may take.
        """
        self._tally.add_bucket(bucket)
        self._launches[bucket] = tuple(launches)
        if miss is not None:
            self._go_eager(bucket, miss)
        graph_bytes = {each: sum(one.chain.graph_bytes for one in ones) for each, ones in self._launches.items()}
        for victim in over_budget(graph_bytes, budget_bytes):
            detail = (
                f"its graphs took {graph_bytes[victim]} bytes, and those of a lane may take {budget_bytes}; "
                "give graph_memory_bytes in [lanes] a larger number, or have fewer buckets"
            )
            self._go_eager(victim, GraphMiss(MissReason.MEMORY_BUDGET, detail))

    def count_memory(self, buffer_sets: Sequence[BufferSet]) -> None:
        """Tells what the buckets, and the buffer sets that they share, hold of the device, and what they allocated."""
        runs = [launch.run for launches in self._launches.values() for launch in launches]
        buffer_bytes = sum(buffers.device_bytes for buffers in buffer_sets)
        self._tally.set_memory(MemoryOwner.BUFFERS, buffer_bytes + sum(run.data_dependent_bytes for run in runs))
        self._tally.set_memory(MemoryOwner.CONTEXTS, sum(run.context_bytes for run in runs))
        outputs = [run.data_dependent for run in runs if run.data_dependent is not None]
        self._tally.set_allocations(
            sum(each.allocations for each in outputs), sum(each.allocation_ns for each in outputs)
        )
        graph_bytes = sum(each.chain.graph_bytes for launches in self._launches.values() for each in launches)
        self._tally.set_memory(MemoryOwner.GRAPHS, graph_bytes)

    def clear(self) -> None:
        """Forgets all buckets; their runs are closed by the lane."""
        self._launches.clear()

    def _go_eager(self, bucket: Bucket, miss: GraphMiss) -> None:
        for launch in self._launches[bucket]:
            launch.chain.close_graph()
            launch.prepare()
        self._tally.add_miss(bucket, miss)
        _log.warning("model '%s': bucket %s runs without a CUDA Graph: %s", self._model_name, bucket.label, miss.detail)
