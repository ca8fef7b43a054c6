"""A captured graph with kernels where it had fills: the same bytes, for less of the host's time at every launch.

With driver 580 on an H200 every fill in a graph (a memset node) adds about 2.4 us of the host's time to each launch,
and a kernel next to nothing; TensorRT 8.6 captures 30 of them for ResNet-50 with 128 images. Whatever stands in the way
leaves the graph as it was captured.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeAlias, cast

from kernels.fill import ENTRY, Fill
from kernels.launch import Kernels
from service.errors import DeviceError
from service.runtime.cuda.api import Code, Handle, MemsetParameters, RuntimeApi
from service.runtime.cuda.check import check

_Neighbours: TypeAlias = Callable[[Handle, int], tuple[Code, list[Handle], list[object], int]]
_AddDependencies: TypeAlias = Callable[[Handle, list[Handle], list[Handle], None, int], tuple[Code]]

_log = logging.getLogger(__name__)


def fills_as_kernels(kernels: Kernels, graph: Handle) -> Handle | None:
    """A copy of a graph in which kernels write what fills wrote; called on a thread that uses the kernels' device.

    A fill becomes a kernel if it writes one row; those of several rows stay what they are.

    Args:
        kernels: hold the source `fill`, and outlive whatever is instantiated of the copy.
        graph: captured, and not changed.

    Returns:
        The copy, which the caller destroys; None where there is no fill to replace, or CUDA refuses.

    Raises:
        DeviceError: the device is lost.
    """
    try:
        return _reworked(kernels, graph)
    except Exception as error:  # the binding's own too, of functions or kinds of nodes that it does not know
        if isinstance(error, DeviceError) and error.is_sticky:
            raise
        _log.debug("a graph keeps its fills as they were captured: %s", error)
        return None


def fill_of(memset: MemsetParameters) -> Fill | None:
    """What a memset node writes; None if it has several rows, which need not lie one after another.

    Raises:
        DeviceError: its elements are none that CUDA fills.
    """
    if memset.height != 1:
        return None
    return Fill.of(int(memset.dst), memset.value, memset.elementSize, memset.width)


def _reworked(kernels: Kernels, graph: Handle) -> Handle | None:
    api = kernels.cuda.api
    if not _fills(api, graph):
        return None
    copy = check(api, "cudaGraphClone", api.cudaGraphClone(graph))
    try:
        fills = _fills(api, copy)
        for node, fill in fills:
            _replace(kernels, copy, node, fill)
    except BaseException:
        api.cudaGraphDestroy(copy)  # unchecked: what went wrong first is what must be told
        raise
    _log.debug("%d fills of a graph are kernels", len(fills))
    return copy


def _fills(api: RuntimeApi, graph: Handle) -> list[tuple[Handle, Fill]]:
    """The nodes that can be replaced, and what they write."""
    _, count = check(api, "cudaGraphGetNodes", api.cudaGraphGetNodes(graph))
    nodes, _ = check(api, "cudaGraphGetNodes", api.cudaGraphGetNodes(graph, count))
    fills = []
    for node in nodes:
        kind = check(api, "cudaGraphNodeGetType", api.cudaGraphNodeGetType(node))
        if kind != api.cudaGraphNodeType.cudaGraphNodeTypeMemset:
            continue
        fill = fill_of(check(api, "cudaGraphMemsetNodeGetParams", api.cudaGraphMemsetNodeGetParams(node)))
        if fill is not None:
            fills.append((node, fill))
    return fills


def _replace(kernels: Kernels, graph: Handle, node: Handle, fill: Fill) -> None:
    """Puts a kernel between a fill's neighbours and takes the fill away.

    The new edges are plain ones. Whatever is noted at an edge of the fill (its "edge data", such as that a kernel's
    end need not be awaited) only ever allows more than a plain edge does. It is not read: until 2026 the binding gave
    it out after its memory had been freed (cuda-python, issue 1804).
    """
    api = kernels.cuda.api
    before = _neighbours(api, "cudaGraphNodeGetDependencies", node)
    after = _neighbours(api, "cudaGraphNodeGetDependentNodes", node)
    kernel = kernels.add_node(graph, ENTRY, fill.geometry, fill.arguments, dependencies=before)
    if after:
        add = cast(_AddDependencies, _of_cuda_13(api, "cudaGraphAddDependencies"))
        check(api, "cudaGraphAddDependencies", add(graph, [kernel] * len(after), after, None, len(after)))
    check(api, "cudaGraphDestroyNode", api.cudaGraphDestroyNode(node))


def _neighbours(api: RuntimeApi, name: str, node: Handle) -> list[Handle]:
    get = cast(_Neighbours, _of_cuda_13(api, name))
    _, _, count = check(api, name, get(node, 0))
    if not count:
        return []
    nodes, _, _ = check(api, name, get(node, count))
    return nodes


def _of_cuda_13(api: RuntimeApi, name: str) -> object:
    """The function as CUDA 13 has it; the bindings of 12.x have that one under a name of its own."""
    return getattr(api, f"{name}_v2", None) or getattr(api, name)
