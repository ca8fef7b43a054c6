"""Graphs of the CUDA double: a capture that nothing broke becomes a graph, whose launch repeats the captured work.

A launch keeps the edges' order and no other: among the nodes that are ready, the one that was added last runs first.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from tests.doubles.fake_cuda_core import api_call
from tests.doubles.fake_cuda_memory import FakeMemory
from tests.doubles.fake_cuda_types import (
    Capture,
    Exec,
    Failed,
    Graph,
    Handle,
    Node,
    cudaError_t,
    cudaGraphNodeType,
    cudaMemsetParams,
    cudaStreamCaptureMode,
)

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
        return (self._new_graph(capture.nodes),)

    @api_call(values=1)
    def cudaGraphInstantiate(self, graph: Any, flags: int) -> tuple[Handle]:
        self._unsafe()
        nodes = _in_order(self._find(graph, Graph).nodes.values())
        if self.graph_bytes > self._free_bytes:
            raise Failed(E.cudaErrorMemoryAllocation)
        return (self._new_handle(Exec(self._current_device, tuple(node.run for node in nodes))),)

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

        self._enqueue(self._stream(stream), replay, cudaGraphNodeType.cudaGraphNodeTypeGraph)

    @api_call()
    def cudaGraphDestroy(self, graph: Any) -> None:
        self._find(graph, Graph)
        del self._handles[int(graph)]

    @api_call()
    def cudaGraphExecDestroy(self, graphExec: Any) -> None:
        self._find(graphExec, Exec)
        del self._handles[int(graphExec)]

    # What a graph is made of

    @api_call(values=1)
    def cudaGraphClone(self, originalGraph: Any) -> tuple[Handle]:
        nodes = [*self._find(originalGraph, Graph).nodes.values()]
        copies = {node: replace(node, dependencies=[]) for node in nodes}
        for node, copy in copies.items():
            copy.dependencies += [copies[each] for each in node.dependencies]
        return (self._new_graph(copies.values()),)

    @api_call(values=2)
    def cudaGraphGetNodes(self, graph: Any, numNodes: int = 0) -> tuple[list[Handle], int]:
        nodes = self._find(graph, Graph).nodes
        return [Handle(number) for number in [*nodes][:numNodes]], len(nodes)

    @api_call(values=1)
    def cudaGraphNodeGetType(self, node: Any) -> tuple[cudaGraphNodeType]:
        return (self._node(node)[1].kind,)

    @api_call(values=1)
    def cudaGraphMemsetNodeGetParams(self, node: Any) -> tuple[cudaMemsetParams]:
        memset = self._node(node)[1].memset
        if memset is None:
            raise Failed(E.cudaErrorInvalidValue)
        return (replace(memset),)

    @api_call(values=3)
    def cudaGraphNodeGetDependencies(
        self, node: Any, pNumDependencies: int = 0
    ) -> tuple[list[Handle], list[object], int]:
        graph, found = self._node(node)
        return _listed(graph, found.dependencies, pNumDependencies)

    @api_call(values=3)
    def cudaGraphNodeGetDependentNodes(
        self, node: Any, pNumDependentNodes: int = 0
    ) -> tuple[list[Handle], list[object], int]:
        graph, found = self._node(node)
        return _listed(graph, [each for each in graph.nodes.values() if found in each.dependencies], pNumDependentNodes)

    @api_call()
    def cudaGraphAddDependencies(
        self, graph: Any, from_: Sequence[Any], to: Sequence[Any], edgeData: Any, numDependencies: int
    ) -> None:
        nodes = self._find(graph, Graph).nodes
        if not len(from_) == len(to) == numDependencies or edgeData is not None:
            raise Failed(E.cudaErrorInvalidValue)
        for first, then in zip(from_, to, strict=True):
            before, after = nodes[int(first)], nodes[int(then)]
            if before in after.dependencies:
                raise Failed(E.cudaErrorInvalidValue)
            after.dependencies.append(before)

    @api_call()
    def cudaGraphDestroyNode(self, node: Any) -> None:
        graph, found = self._node(node)
        del graph.nodes[int(node)]
        for each in graph.nodes.values():
            each.dependencies = [before for before in each.dependencies if before is not found]

    @api_call(values=1)
    def _addNode(self, graph: Any, node: Node, dependencies: Sequence[Any]) -> tuple[Handle]:
        """What the driver adds to a graph of the runtime."""
        nodes = self._find(graph, Graph).nodes
        node.dependencies += [nodes[int(each)] for each in dependencies]
        self._next_handle += 0x10
        nodes[self._next_handle] = node
        return (Handle(self._next_handle),)

    def _new_graph(self, nodes: Iterable[Node]) -> Handle:
        graph = Graph({})
        for node in nodes:
            self._next_handle += 0x10
            graph.nodes[self._next_handle] = node
        return self._new_handle(graph)

    def _node(self, node: Any) -> tuple[Graph, Node]:
        for graph in self._handles.values():
            if isinstance(graph, Graph) and int(node) in graph.nodes:
                return graph, graph.nodes[int(node)]
        return self._violation(f"node {node!r} does not exist", E.cudaErrorInvalidResourceHandle)


def _listed(graph: Graph, nodes: Sequence[Node], most: int) -> tuple[list[Handle], list[object], int]:
    numbers = {node: number for number, node in graph.nodes.items()}
    return [Handle(numbers[node]) for node in nodes[:most]], [None] * min(most, len(nodes)), len(nodes)


def _in_order(nodes: Iterable[Node]) -> list[Node]:
    """Every node after its dependencies; a cycle is refused."""
    left, done = [*nodes], []
    while left:
        ready = next((node for node in reversed(left) if all(each in done for each in node.dependencies)), None)
        if ready is None:
            raise Failed(E.cudaErrorInvalidValue)
        left.remove(ready)
        done.append(ready)
    return done
