"""A lane's totals, as another thread reads them."""

from __future__ import annotations

import threading

from service.buckets import Bucket
from service.device_figures import GraphMiss, MemoryOwner, MissReason
from service.runtime.trt.tally import Tally


def test_a_reader_keeps_what_it_read() -> None:
    tally = Tally()
    tally.add_bucket(Bucket(4))
    tally.set_memory(MemoryOwner.GRAPHS, 100)
    before = tally.figures()
    tally.add_batch(Bucket(4), is_replay=True, h2d_bytes=10, d2h_bytes=20)
    tally.add_batch(Bucket(4), is_replay=False, h2d_bytes=1, d2h_bytes=2)
    tally.set_memory(MemoryOwner.GRAPHS, 60)
    tally.set_allocations(3, 4000)
    tally.add_miss(Bucket(4), GraphMiss(MissReason.MEMORY_BUDGET, "too much"))
    after = tally.figures()
    assert (before.replays, before.eager_runs, before.h2d_bytes) == ({Bucket(4): 0}, {Bucket(4): 0}, 0)
    assert (before.graph_misses, before.device_bytes) == ({}, {MemoryOwner.GRAPHS: 100})
    assert (after.replays, after.eager_runs) == ({Bucket(4): 1}, {Bucket(4): 1})
    assert (after.h2d_bytes, after.d2h_bytes) == (11, 22)
    assert after.graph_misses[Bucket(4)].reason is MissReason.MEMORY_BUDGET
    assert after.device_bytes == {MemoryOwner.GRAPHS: 60}
    assert (before.allocations, before.allocation_ns) == (0, 0)
    assert (after.allocations, after.allocation_ns) == (3, 4000)


def test_a_closed_lane_holds_nothing() -> None:
    tally = Tally()
    tally.set_memory(MemoryOwner.SCRATCH, 5)
    tally.forget_memory()
    assert tally.figures().device_bytes == {}


def test_reading_while_buckets_are_added() -> None:
    tally = Tally()
    failures: list[BaseException] = []
    is_over = threading.Event()

    def read() -> None:
        try:
            while not is_over.is_set():
                tally.figures()
        except BaseException as error:
            failures.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for size in range(2000):
        tally.add_bucket(Bucket(size))
    is_over.set()
    reader.join()
    assert failures == []
    assert len(tally.figures().replays) == 2000
