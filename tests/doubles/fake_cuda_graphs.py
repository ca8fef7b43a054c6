"""Graphs of the CUDA double: a capture that nothing broke becomes a graph, whose launch repeats the captured work."""

from __future__ import annotations

import threading
from typing import Any

from tests.doubles.fake_cuda_core import api_call
from tests.doubles.fake_cuda_memory import FakeMemory
from tests.doubles.fake_cuda_types import Capture, Exec, Failed, Graph, Handle, cudaError_t, cudaStreamCaptureMode

E = cudaError_t


class FakeGraphs(FakeMemory):
    """Captures streams, and keeps graphs and what is instantiated of them, which takes device memory."""

    @api_call()
    def cudaStreamBeginCapture(self, stream: Any, mode: cudaStreamCaptureMode) -> None:
        found = self._stream(stream)
        if found.capture is not None:
            raise Failed(E.cudaErrorIllegalState)
        found.capture = Capture(mode, threading.get_ident())

    @api_call(values=1)
    def cudaStreamEndCapture(self, stream: Any) -> tuple[Handle]:
        found = self._stream(stream)
        capture = found.capture
        if capture is None:
            raise Failed(E.cudaErrorIllegalState)
        is_bound = capture.mode is not cudaStreamCaptureMode.cudaStreamCaptureModeRelaxed
        if is_bound and capture.thread != threading.get_ident():
            raise Failed(E.cudaErrorStreamCaptureWrongThread)
        found.capture = None
        self._require_valid(capture)
        return (self._new_handle(Graph(capture.nodes)),)

    @api_call(values=2)
    def cudaGraphGetNodes(self, graph: Any, numNodes: int = 0) -> tuple[list[Handle], int]:
        nodes = self._find(graph, Graph).nodes
        return [Handle(index + 1) for index in range(min(numNodes, len(nodes)))], len(nodes)

    @api_call(values=1)
    def cudaGraphInstantiate(self, graph: Any, flags: int) -> tuple[Handle]:
        self._unsafe()
        nodes = self._find(graph, Graph).nodes
        if self.graph_bytes > self._free_bytes:
            raise Failed(E.cudaErrorMemoryAllocation)
        return (self._new_handle(Exec(self._current_device, tuple(nodes))),)

    @api_call()
    def cudaGraphUpload(self, graphExec: Any, stream: Any) -> None:
        self._find(graphExec, Exec)
        self._stream(stream)

    @api_call()
    def cudaGraphLaunch(self, graphExec: Any, stream: Any) -> None:
        nodes = self._find(graphExec, Exec).nodes

        def replay() -> None:
            for node in nodes:
                node()

        self._enqueue(self._stream(stream), replay)

    @api_call()
    def cudaGraphDestroy(self, graph: Any) -> None:
        self._find(graph, Graph)
        del self._handles[int(graph)]

    @api_call()
    def cudaGraphExecDestroy(self, graphExec: Any) -> None:
        self._find(graphExec, Exec)
        del self._handles[int(graphExec)]
