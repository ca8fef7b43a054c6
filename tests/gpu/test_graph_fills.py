"""Captured fills as kernels, emulated and on a GPU: the same bytes in the same order, and no fill left in the graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

from kernels.graph_fills import fills_as_kernels
from kernels.launch import DeviceTensor
from kernels.session import DeviceSession
from service.runtime.cuda.api import Handle
from service.runtime.cuda.copies import copy_d2h, copy_h2d, fill
from service.runtime.cuda.graph import Graph, capture
from service.runtime.cuda.memory import PinnedBuffer
from service.tensors import DType
from tests.gpu.kernel_cases import device_session  # noqa: F401 - a fixture

ROOM = 1 << 16
KERNEL, COPY, FILL = "Kernel", "Memcpy", "Memset"


@dataclass
class Watched:
    """`fills_as_kernels`, and of what kinds the nodes were before and after."""

    session: DeviceSession
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)

    def __call__(self, graph: Handle) -> Handle | None:
        self.before = self._kinds(graph)
        reworked = fills_as_kernels(self.session.kernels, graph)
        self.after = self._kinds(graph if reworked is None else reworked)
        assert self._kinds(graph) == self.before, "the captured graph stays as it is"
        return reworked

    def _kinds(self, graph: Handle) -> list[str]:
        api = self.session.cuda.api
        nodes = api.cudaGraphGetNodes(graph, api.cudaGraphGetNodes(graph)[2])[1]
        return sorted(api.cudaGraphNodeGetType(node)[1].name[len("cudaGraphNodeType") :] for node in nodes)


def memset(session: DeviceSession, address: int, value: int, itemsize: int, count: int) -> None:
    """A fill by CUDA itself."""
    if itemsize == 1:
        fill(session.cuda, address, value, count, stream=session.stream)
        return
    driver = session.kernels._driver
    call = driver.cuMemsetD16Async if itemsize == 2 else driver.cuMemsetD32Async
    assert int(call(address, value, count, session.stream.native)[0]) == 0


def captured(session: DeviceSession, watched: Watched, work: Callable[[], object]) -> Graph:
    def enqueue() -> bool:
        work()
        return True

    return capture(session.cuda, enqueue, stream=session.stream, rework=watched)


def replayed(session: DeviceSession, memory: DeviceTensor, graph: Graph) -> np.ndarray:
    """What two replays leave of memory that is all 0xCD before each."""
    first, second = [], []
    for answer in (first, second):
        fill(session.cuda, memory.address, 0xCD, memory.nbytes, stream=session.stream)
        graph.launch(stream=session.stream)
        answer.append(session.download(memory))
    np.testing.assert_array_equal(first[0], second[0])
    return first[0]


PIECES = [
    (0, 1, 1),
    (1, 1, 3),
    (15, 1, 2),
    (17, 1, 1000),
    (0, 1, ROOM),
    (2, 2, 1),
    (30, 2, 9),
    (6, 2, 4001),
    (4, 4, 1),
    (12, 4, 7),
    (20, 4, 10007),
    (256, 4, 4096),
]
"""Offset, size of the items and their number."""


@pytest.mark.parametrize(("offset", "itemsize", "count"), PIECES)
def test_a_fill_writes_the_same_bytes(session, offset: int, itemsize: int, count: int) -> None:
    memory = session.empty(DType.UINT8, ROOM)
    value = 0xA1B2C3D4 & (1 << 8 * itemsize) - 1
    watched = Watched(session)
    with captured(session, watched, lambda: memset(session, memory.address + offset, value, itemsize, count)) as graph:
        assert (watched.before, watched.after) == ([FILL], [KERNEL])
        assert graph.node_count == 1
        expected = np.full(ROOM, 0xCD, np.uint8)
        item = np.frombuffer(value.to_bytes(itemsize, "little"), np.uint8)
        expected[offset : offset + itemsize * count] = np.tile(item, count)
        np.testing.assert_array_equal(replayed(session, memory, graph), expected)


def test_fills_that_overlap_keep_their_order(session) -> None:
    memory = session.empty(DType.UINT8, ROOM)
    watched = Watched(session)
    expected = np.full(ROOM, 0xCD, np.uint8)

    def work() -> None:
        for index in range(30):
            memset(session, memory.address + 1000 * index, index, 1, 1500 + 700 * (index % 3))

    for index in range(30):
        expected[1000 * index :][: 1500 + 700 * (index % 3)] = index
    with captured(session, watched, work) as graph:
        assert (watched.before, watched.after) == ([FILL] * 30, [KERNEL] * 30)
        np.testing.assert_array_equal(replayed(session, memory, graph), expected)


def test_fills_between_other_work_keep_their_places(session) -> None:
    memory = session.empty(DType.UINT8, 4096)
    watched, cuda, stream = Watched(session), session.cuda, session.stream
    with PinnedBuffer(cuda, 4096) as pinned_in, PinnedBuffer(cuda, 4096) as pinned_out:
        host_in, host_out = (pinned.host(np.uint8, (4096,)) for pinned in (pinned_in, pinned_out))

        def work() -> None:
            memset(session, memory.address, 1, 1, 4096)
            copy_h2d(cuda, memory.address + 1024, pinned_in.address, 2048, stream=stream)
            memset(session, memory.address + 2048, 0x0302, 2, 256)
            copy_d2h(cuda, pinned_out.address, memory.address, 4096, stream=stream)
            memset(session, memory.address, 4, 4, 1024)

        with captured(session, watched, work) as graph:
            assert watched.before == [COPY] * 2 + [FILL] * 3
            assert watched.after == [KERNEL] * 3 + [COPY] * 2
            for value in (5, 6):
                host_in[:], host_out[:] = value, 0
                left = replayed(session, memory, graph)
                expected = np.full(4096, 1, np.uint8)
                expected[1024:3072] = value
                expected[2048:2560] = [2, 3] * 256
                np.testing.assert_array_equal(host_out, expected)
                np.testing.assert_array_equal(left, [4, 0, 0, 0] * 1024)


def test_a_fill_of_rows_is_left_alone(session) -> None:
    memory = session.empty(DType.UINT8, 4096)
    watched, api = Watched(session), session.cuda.api

    def work() -> None:
        memset(session, memory.address, 1, 1, 4096)
        assert int(api.cudaMemset2DAsync(memory.address + 64, 512, 2, 100, 5, session.stream.native)[0]) == 0

    with captured(session, watched, work) as graph:
        assert (watched.before, watched.after) == ([FILL, FILL], [KERNEL, FILL])
        expected = np.full(4096, 1, np.uint8)
        for row in range(5):
            expected[64 + 512 * row :][:100] = 2
        np.testing.assert_array_equal(replayed(session, memory, graph), expected)


def test_a_graph_without_fills_is_used_as_it_is(session) -> None:
    memory, watched = session.empty(DType.UINT8, 256), Watched(session)
    with PinnedBuffer(session.cuda, 256) as pinned:
        pinned.host(np.uint8, (256,))[:] = 9

        def work() -> None:
            copy_h2d(session.cuda, memory.address, pinned.address, 256, stream=session.stream)

        with captured(session, watched, work) as graph:
            assert watched.before == watched.after == [COPY]
            np.testing.assert_array_equal(replayed(session, memory, graph), np.full(256, 9))


def test_nothing_is_left_behind(session) -> None:
    memory = session.empty(DType.UINT8, ROOM)
    live = session.cuda.live
    for _ in range(50):
        captured(session, Watched(session), lambda: memset(session, memory.address, 7, 1, ROOM)).close()
    assert session.cuda.live == live
    assert int(session.cuda.api.cudaGetLastError()[0]) == 0
