"""The generations of the TensorRT double: what each lacks, and the world that all objects of one module share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.doubles.fake_cuda import FakeCuda

VERSIONS = {
    "8.6": (8, 6, 1, 6),
    "10.0": (10, 0, 1, 6),
    "10": (10, 13, 3, 9),
    "11": (11, 4, 0, 106),
    "11-lean": (11, 4, 0, 106),
}
GENERATIONS = tuple(VERSIONS)

_NOT_IN_8 = {
    "device_memory_size_v2",
    "get_tensor_profile_values",
    "get_device_memory_size_for_profile",
    "get_device_memory_size_for_profile_v2",
    "set_device_memory",
}
_NOT_IN_10 = {"get_profile_shape_input"}
_NOT_IN_10_0 = _NOT_IN_10 | {"device_memory_size_v2", "get_device_memory_size_for_profile_v2", "set_device_memory"}
_NOT_IN_11 = _NOT_IN_10 | {
    "device_memory_size",
    "get_device_memory_size_for_profile",
    "create_execution_context_without_device_memory",
}
MISSING: Mapping[str, set[str]] = {
    "8.6": _NOT_IN_8,
    "10.0": _NOT_IN_10_0,
    "10": _NOT_IN_10,
    "11": _NOT_IN_11,
    "11-lean": _NOT_IN_11,
}


@dataclass
class Faults:
    """What goes wrong next; set by tests. `reports` says of which runs profilers hear nothing: `replays` or `all`."""

    runtime: bool = False
    engine: str = ""
    context: str = ""
    shapes: str = ""
    enqueues: int = 0
    addresses: frozenset[str] = frozenset()
    reports: str = ""


@dataclass
class Building:
    """What goes wrong when plans are built, and what was asked of the builder; the former set by tests.

    Attributes:
        builder_is_broken: no builder can be made.
        parser_is_silent: the parser refuses every model without a word.
        error: the words with which every build fails.
        refuses_own_cache: as 8.6.0, a build fails that loads a timing cache of an earlier one.
        configs: the configurations that were made.
    """

    builder_is_broken: bool = False
    parser_is_silent: bool = False
    error: str = ""
    refuses_own_cache: bool = False
    configs: list[Any] = field(default_factory=list)


@dataclass
class World:
    """What all objects of one fake module share."""

    cuda: FakeCuda
    generation: str
    faults: Faults = field(default_factory=Faults)
    deaths: list[str] = field(default_factory=list)
    static_contexts: int = 0
    layer_ms: Callable[[], float] = lambda: 0.5
    building: Building = field(default_factory=Building)

    def take_memory(self, nbytes: int) -> int:
        """Takes memory of the calling thread's device, and says which that is."""
        device = self.cuda._current_device
        self.cuda.library_bytes[device] += nbytes
        return device

    def give_memory(self, device: int, nbytes: int) -> None:
        self.cuda.library_bytes[device] -= nbytes


def surface(base: type, world: World) -> type:
    """`base` as the generation has it."""
    missing = MISSING[world.generation] | {"__dict__", "__weakref__"}
    return type(base.__name__, (), {name: value for name, value in vars(base).items() if name not in missing})
