"""Every name of TensorRT's API that we use exists in the real bindings of 8.6, 10.0, 10.16 and 11.4, full and lean.

No TensorRT and no GPU is needed: see `bindings.py` and `uses.py`. Where versions differ our modules ask with `hasattr`;
such a name must exist in one of the bindings at least. What is used where a name is absent is in `INSTEAD_OF`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from service.runtime.trt.engine import _DTYPES
from tests.nets.bindings import NEWEST, OLDEST, WHEELS, Bindings, describe
from tests.nets.uses import FOREIGN, MODULE, Analysis, Use, analyse

ROOT = Path(__file__).parents[2]
RUNTIME = tuple(sorted((ROOT / "service/runtime/trt").glob("*.py")))
PLUGINS = ROOT / "engines/plugins.py"  # its objects are those of `tensorrt.plugin`, which `test_plugin.py` runs
BUILDER = tuple(sorted(set((ROOT / "engines").glob("*.py")) - {PLUGINS}))

OBJECTS = {
    ".module": MODULE,
    ".native": "ICudaEngine",
    "._native": "IExecutionContext",
    "._runtime": "Runtime",
    "._logger": "Logger",
    "._recorder": "IErrorRecorder",
    ".builder": "Builder",
    ".logger": "ILogger",
    ".monitor": "IProgressMonitor",
    ".network": "INetworkDefinition",
    ".parser": "OnnxParser",
    ".plan": FOREIGN,
    "allocator": "IOutputAllocator",
    "builder": "Builder",
    "code": "ErrorCodeTRT",
    "config": "IBuilderConfig",
    "context.py:native": "IExecutionContext",
    "data_dependent.py:base": "class IOutputAllocator",
    "default": FOREIGN,
    "engine.py:base": "class IErrorRecorder",
    "error": "ParserError",
    "errors": "list[ParserError]",
    "inspector": "EngineInspector",
    "layer_times.py:base": "class IProfiler",
    "logger": "ILogger",
    "module": MODULE,
    "network": "INetworkDefinition",
    "option": FOREIGN,
    "plan": FOREIGN,
    "profiler": "IProfiler",
    "severity": "ILogger.Severity",
    "shape": "Dims",
    "shape_inputs.py:native": "ICudaEngine",
}
"""What our variables and, with a point before them, our attributes of type Any are."""

INSTEAD_OF = {
    "create_execution_context_without_device_memory": "ExecutionContextAllocationStrategy",
    "device_memory_size": "get_device_memory_size_for_profile_v2",
    "get_profile_shape_input": "get_tensor_profile_values",
}
"""What is used where another name is absent: bindings must have one of the two."""

TOGETHER_WITH = {
    "create_execution_context": "ExecutionContextAllocationStrategy",
    "node_operator": "node_name",
    "progress_monitor": "IProgressMonitor",
    "reallocate_output_async": "ExecutionContextAllocationStrategy",
}
"""What is used, or called with arguments, only where another name is present."""


@pytest.fixture(scope="module")
def newest() -> list[Bindings]:
    """Every test needs them, to know what calls return."""
    return [describe(wheel) for wheel in NEWEST]


def analyses(paths: Iterable[Path], known: list[Bindings]) -> list[Analysis]:
    def returns(owner: str, name: str) -> str | None:
        for bindings in known:
            for _, returned in bindings.classes.get(owner, {}).get(name, {}).get("signatures", ()):
                # Such as `tensorrt_bindings.tensorrt.ICudaEngine`, or the C++ name where pybind11 knew no other.
                last = returned.rpartition(".")[2].rpartition(":")[2]
                return next((found for found in (last, last[1:]) if found in bindings.classes), None)
        return None

    return [analyse(path, OBJECTS, returns) for path in paths]


def has(bindings: Bindings, owner: str, name: str) -> bool:
    if owner == MODULE:
        return name in bindings.names
    return name in bindings.classes.get(owner, {})


def anywhere(bindings: Bindings, name: str) -> bool:
    return name in bindings.names or any(name in members for members in bindings.classes.values())


def complaint(bindings: Bindings, use: Use, probed: set[str]) -> str | None:
    """What is wrong with a use on these bindings."""
    owner, name = use.owner_class, use.name
    is_left_out = name in TOGETHER_WITH and not anywhere(bindings, TOGETHER_WITH[name])
    if not has(bindings, owner, name):
        is_replaced = name in INSTEAD_OF and anywhere(bindings, INSTEAD_OF[name])
        is_excused = is_left_out or is_replaced or {name, owner} & probed
        return None if is_excused else f"{use.place}: {bindings.label} has no {owner}.{name}"
    if owner == MODULE or is_left_out:
        return None
    member = bindings.classes[owner][name]
    if use.is_written and not member["is_writable"]:
        return f"{use.place}: {owner}.{name} cannot be written in {bindings.label}"
    # The first parameter is `self`.
    signatures = [parameters[1:] for parameters, _ in member["signatures"]]
    if signatures and not any(takes(parameters, use) for parameters in signatures):
        return f"{use.place}: {owner}.{name} takes {signatures} in {bindings.label}"
    return None


def takes(parameters: list[str], use: Use) -> bool:
    """Whether a call fits; that it lacks nothing is not checked, for defaults are not known."""
    return set(use.keywords) <= set(parameters[use.positions :]) and use.positions <= len(parameters)


def test_every_object_is_understood(newest: list[Bindings]) -> None:
    found = analyses((*RUNTIME, *BUILDER), newest)
    assert [problem for analysis in found for problem in analysis.problems] == []
    assert sum(len(analysis.uses) for analysis in found) > 60


@pytest.mark.parametrize("wheel", WHEELS, ids=lambda wheel: wheel.label)
def test_every_name_that_we_use_exists(wheel: object, newest: list[Bindings]) -> None:
    bindings = describe(wheel)  # type: ignore[arg-type]
    found = analyses(RUNTIME if bindings.is_lean else (*RUNTIME, *BUILDER), newest)
    everything = analyses((*RUNTIME, *BUILDER), newest)
    probed = {use.name for analysis in everything for use in analysis.uses if use.is_probed}
    uses = [use for analysis in found for use in analysis.uses if not use.is_probed]
    assert [words for use in uses if (words := complaint(bindings, use, probed))] == []


def test_every_name_that_we_ask_for_exists_somewhere(newest: list[Bindings]) -> None:
    oldest = describe(OLDEST)
    for analysis in analyses((*RUNTIME, *BUILDER), newest):
        asked = {use.name for use in analysis.uses if use.is_probed} | analysis.words
        unknown = [name for name in asked if not any(anywhere(each, name) for each in (oldest, *newest))]
        assert unknown == []


def test_the_types_that_we_serve_are_those_of_the_newest(newest: list[Bindings]) -> None:
    for bindings in newest:
        assert set(_DTYPES) <= set(bindings.classes["DataType"]), bindings.label
