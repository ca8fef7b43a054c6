"""What stands in the way of turning fills into kernels costs nothing but the gain; the emulated device alone."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.fill import Fill
from kernels.graph_fills import fill_of, fills_as_kernels
from kernels.session import DeviceSession
from service.errors import DeviceError
from service.runtime.cuda.api import Handle
from service.runtime.cuda.copies import fill
from service.runtime.cuda.graph import Graph, capture
from service.tensors import DType
from tests.doubles.emulated_device import emulated_session
from tests.doubles.fake_cuda_types import cudaError_t as E
from tests.doubles.fake_cuda_types import cudaMemsetParams

FILLS = 3


@pytest.fixture
def session(tmp_path: Path) -> Iterator[DeviceSession]:
    with emulated_session(tmp_path) as session:
        yield session
        session.cuda.api._sticky = None  # type: ignore[attr-defined]
    assert session.cuda.api.violations == []  # type: ignore[attr-defined]
    assert session.cuda.api.live_objects() == {}  # type: ignore[attr-defined]


def fills_in_a_graph(session: DeviceSession, given: list[Handle | None]) -> Graph:
    """A graph of overlapping fills; `given` gets what was made of it."""
    memory = session.empty(DType.UINT8, 64)

    def enqueue() -> bool:
        for index in range(FILLS):
            fill(session.cuda, memory.address + 8 * index, index, 64 - 8 * index, stream=session.stream)
        return True

    def rework(graph: Handle) -> Handle | None:
        given.append(fills_as_kernels(session.kernels, graph))
        return given[-1]

    graph = capture(session.cuda, enqueue, stream=session.stream, rework=rework)
    graph.launch(stream=session.stream)
    expected = np.repeat([0, 1, 2], [8, 8, 48])
    np.testing.assert_array_equal(session.download(memory), expected)
    return graph


def natives(session: DeviceSession) -> dict[str, int]:
    live: dict[str, int] = session.cuda.api.live_objects()  # type: ignore[attr-defined]
    return {kind: count for kind, count in live.items() if kind in {"graph", "exec"}}


CALLS = {
    "cudaGraphGetNodes": (1, 2, 3, 4),
    "cudaGraphNodeGetType": (0, FILLS),
    "cudaGraphMemsetNodeGetParams": (0, FILLS),
    "cudaGraphClone": (0,),
    "cudaGraphNodeGetDependencies": (0, 1, 2),
    "cudaGraphNodeGetDependentNodes": (0, 1, 2, 3),
    "cudaGraphAddDependencies": (0, 1),
    "cudaGraphDestroyNode": (0, FILLS - 1),
}
"""What reads and changes a graph, and how many of each succeed before one fails. `capture` asks for nodes first."""


@pytest.mark.parametrize(("call", "after"), [(call, after) for call, counts in CALLS.items() for after in counts])
def test_whatever_cuda_refuses_the_captured_graph_is_used(
    session: DeviceSession, caplog: pytest.LogCaptureFixture, call: str, after: int
) -> None:
    caplog.set_level(logging.DEBUG, "kernels.graph_fills")
    session.cuda.api.inject(call, E.cudaErrorNotSupported, after=after)  # type: ignore[attr-defined]
    given: list[Handle | None] = []
    with fills_in_a_graph(session, given):
        assert given == [None]
        assert natives(session) == {"exec": 1}
    assert f"keeps its fills as they were captured: cudaErrorNotSupported: explained by CUDA, in {call}" in caplog.text
    assert session.cuda.api.cudaGetLastError() == (E.cudaSuccess,)  # type: ignore[attr-defined]


@pytest.mark.parametrize("call", ["cudaGraphInstantiate", "cudaGraphUpload"])
def test_a_graph_that_cannot_be_instantiated_again_is_used_as_it_was(session: DeviceSession, call: str) -> None:
    session.cuda.api.inject(call, E.cudaErrorNotSupported)  # type: ignore[attr-defined]
    given: list[Handle | None] = []
    with fills_in_a_graph(session, given):
        assert given != [None]
        assert session.cuda.api.calls[call] == 2  # type: ignore[attr-defined]
        assert natives(session) == {"exec": 1}


def test_a_node_that_the_driver_refuses(session: DeviceSession) -> None:
    session.kernels._driver.refuses = "cuGraphAddKernelNode"  # type: ignore[attr-defined]
    given: list[Handle | None] = []
    with fills_in_a_graph(session, given):
        assert given == [None]
        assert natives(session) == {"exec": 1}


def test_a_function_that_the_driver_lacks(session: DeviceSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*arguments: Any) -> None:
        raise RuntimeError('Function "cuGraphAddKernelNode" not found')

    monkeypatch.setattr(session.kernels._driver, "cuGraphAddKernelNode", missing)
    given: list[Handle | None] = []
    with fills_in_a_graph(session, given):
        assert given == [None]


@pytest.mark.parametrize("call", ["cudaGraphClone", "cudaGraphDestroyNode"])
def test_a_lost_device_is_told(session: DeviceSession, call: str) -> None:
    session.cuda.api.inject(call, E.cudaErrorIllegalAddress)  # type: ignore[attr-defined]
    with pytest.raises(DeviceError, match=call) as caught:
        fills_in_a_graph(session, [])
    assert caught.value.is_sticky
    session.cuda.api._sticky = None  # type: ignore[attr-defined]
    for number, value in [*session.cuda.api._handles.items()]:  # type: ignore[attr-defined]
        if type(value).__name__ == "Graph":
            del session.cuda.api._handles[number]  # type: ignore[attr-defined]


def test_closed_kernels_are_not_put_into_graphs(session: DeviceSession) -> None:
    session.kernels.close()
    given: list[Handle | None] = []
    with fills_in_a_graph(session, given):
        assert given == [None]


def test_the_binding_of_cuda_12(session: DeviceSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its functions of these names know nothing of edge data; those of CUDA 13 end in `_v2` there."""
    api = session.cuda.api

    def lossy(*arguments: Any) -> None:
        raise TypeError("takes one argument less")

    for name in ("cudaGraphNodeGetDependencies", "cudaGraphNodeGetDependentNodes", "cudaGraphAddDependencies"):
        monkeypatch.setattr(api, f"{name}_v2", getattr(api, name), raising=False)
        monkeypatch.setattr(api, name, lossy)
    given: list[Handle | None] = []
    with fills_in_a_graph(session, given):
        assert given != [None]


@pytest.mark.parametrize(
    ("memset", "wanted"),
    [
        (cudaMemsetParams(0x1000, 0, 7, 1, 10, 1), Fill(0x1000, 10, 0x07070707)),
        (cudaMemsetParams(0x1002, 99, 0x708, 2, 10, 1), Fill(0x1002, 20, 0x07080708)),
        (cudaMemsetParams(0x1004, 0, 0x01020304, 4, 1 << 33, 1), Fill(0x1004, 1 << 35, 0x01020304)),
        (cudaMemsetParams(0x1000, 10, 7, 1, 10, 2), None),
        (cudaMemsetParams(0x1000, 0, 7, 1, 10, 0), None),
    ],
)
def test_what_a_node_writes(memset: cudaMemsetParams, wanted: Fill | None) -> None:
    assert fill_of(memset) == wanted
