"""The builder of the TensorRT double: checks what TensorRT checks, and builds plans that the fake runtime runs.

A plan holds its ONNX model, which ONNX Runtime computes. What fails is logged as an error and answered with None.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from tests.doubles.fake_tensorrt_builder_types import PRECISION_FLAGS, Severity, builder_enums
from tests.doubles.fake_tensorrt_model import FakeModel, Range, plan_of
from tests.doubles.fake_tensorrt_parser import Network, OnnxParser, Tensor
from tests.doubles.fake_tensorrt_types import DataType
from tests.doubles.fake_tensorrt_world import VERSIONS, World

SCRATCH_BYTES = 2048


class ILogger:
    """Base of loggers; like pybind11's, it must be initialised by the subclass."""

    Severity = Severity

    def __init__(self) -> None:
        self._is_initialised = True


class IProgressMonitor:
    """Base of progress monitors; likewise."""

    def __init__(self) -> None:
        self._is_initialised = True


class Profile:
    """Takes ranges of shapes and of values, and refuses what is not ascending."""

    def __init__(self) -> None:
        self.shapes: dict[str, Range] = {}
        self.values: dict[str, Range] = {}

    def set_shape(self, name: str, low: Any, best: Any, high: Any) -> None:
        self.shapes[name] = self._checked(name, low, best, high)

    def set_shape_input(self, name: str, low: Any, best: Any, high: Any) -> None:
        self.values[name] = self._checked(name, low, best, high)

    def _checked(self, name: str, *ends: Any) -> Range:
        low, best, high = map(tuple, ends)
        if not len(low) == len(best) == len(high):
            raise ValueError(f"Shape provided for min is inconsistent with other shapes: {name}")
        return low, best, high


class TimingCache:
    """What was timed, for one version of TensorRT."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def serialize(self) -> bytes:
        return self.content


class Config:
    """A builder's configuration: it takes no attribute that its generation does not have."""

    _ATTRIBUTES = (
        "builder_optimization_level",
        "hardware_compatibility_level",
        "max_aux_streams",
        "profiling_verbosity",
        "progress_monitor",
    )

    def __init__(self, world: World, enums: SimpleNamespace) -> None:
        own = {
            "world": world,
            "enums": enums,
            "flags": {enums.BuilderFlag.TF32},
            "pools": {},
            "sources": (1 << len(enums.TacticSource)) - 1,
            "features": set(),
            "cache": None,
            "profiles": [],
            "builder_optimization_level": 3,
            "max_aux_streams": -1,
        }
        vars(self).update(own)
        if world.generation.startswith("10"):
            self.features.add(enums.PreviewFeature.PROFILE_SHARING_0806)
        world.building.configs.append(self)

    def __setattr__(self, name: str, value: Any) -> None:
        is_missing = name == "progress_monitor" and self.world.generation == "8.6"
        if name not in self._ATTRIBUTES or is_missing:
            raise AttributeError(f"'IBuilderConfig' object has no attribute '{name}'")
        vars(self)[name] = value

    def set_flag(self, flag: Any) -> None:
        self.flags.add(self.enums.BuilderFlag(flag))

    def set_memory_pool_limit(self, pool: Any, nbytes: int) -> None:
        self.pools[self.enums.MemoryPoolType(pool)] = nbytes

    def get_tactic_sources(self) -> int:
        sources: int = self.sources
        return sources

    def set_tactic_sources(self, sources: int) -> bool:
        vars(self)["sources"] = sources
        return True

    def get_preview_feature(self, feature: Any) -> bool:
        return feature in self.features

    def set_preview_feature(self, feature: Any, enable: bool) -> None:
        assert enable
        self.features.add(self.enums.PreviewFeature(feature))

    def create_timing_cache(self, content: bytes) -> TimingCache | None:
        if content and not content.startswith(b"cache of "):
            return None
        return TimingCache(content)

    def set_timing_cache(self, cache: TimingCache, ignore_mismatch: bool) -> bool:
        assert not ignore_mismatch
        if cache.content and cache.content != cache_of(self.world):
            return False
        vars(self)["cache"] = cache
        return True

    def get_timing_cache(self) -> TimingCache | None:
        cache: TimingCache | None = self.cache
        return cache

    def add_optimization_profile(self, profile: Profile) -> int:
        for low, best, high in (*profile.shapes.values(), *profile.values.values()):
            if not all(a <= b <= c for a, b, c in zip(low, best, high, strict=True)):
                return -1
        self.profiles.append(profile)
        return len(self.profiles) - 1


class Builder:
    """Makes networks, configurations, profiles and plans."""

    def __init__(self, world: World, enums: SimpleNamespace, logger: Any) -> None:
        if world.building.builder_is_broken:
            raise TypeError("pybind11::init(): factory function returned nullptr")
        assert logger._is_initialised
        self._world = world
        self._enums = enums
        self._logger = logger

    def create_network(self, flags: int = 0) -> Network:
        return Network(self._world, flags)

    def create_builder_config(self) -> Config:
        return Config(self._world, self._enums)

    def create_optimization_profile(self) -> Profile:
        return Profile()

    def build_serialized_network(self, network: Network, config: Config) -> Any:
        for problem in self._problems(network, config):
            self._logger.log(Severity.ERROR, problem)
            return None
        self._logger.log(Severity.WARNING, "weights were cast to a narrower type")
        self._logger.log(Severity.VERBOSE, "a tactic was timed")
        if not _progress(config):
            return None
        if config.cache is not None:
            config.cache.content = cache_of(self._world)
        return memoryview(plan_of(_model(network, config), VERSIONS[self._world.generation]))

    def _problems(self, network: Network, config: Config) -> Iterator[str]:
        building, flags = self._world.building, self._enums.NetworkDefinitionCreationFlag
        if building.error:
            yield building.error
        if config.cache is not None and config.cache.content and building.refuses_own_cache:
            yield "Error Code 10: Internal Error (Myelin error from unknown graph)"
        if self._world.generation == "8.6" and not network.flags & (1 << int(flags.EXPLICIT_BATCH)):
            yield "Network must have explicit batch"
        yield from _typing_problems(network, config)
        dynamic = [tensor for tensor in network.inputs if tensor.is_shape_tensor or -1 in tensor.shape]
        if dynamic and not config.profiles:
            yield "Network has dynamic or shape inputs, but no optimization profile has been defined."
        for profile in config.profiles:
            for tensor in dynamic:
                given = profile.values if tensor.is_shape_tensor else profile.shapes
                if tensor.name not in given:
                    yield f"the optimization profile lacks {tensor.name}"
                elif not tensor.is_shape_tensor and not _agrees(tensor.shape, given[tensor.name]):
                    yield f"the optimization profile contradicts the dimensions of {tensor.name}"


def cache_of(world: World) -> bytes:
    """What the fake's timing caches hold."""
    return f"cache of {world.generation}".encode()


def add_builder(module: Any, world: World) -> None:
    """Gives the fake module what the full TensorRT has and the lean one lacks."""
    enums = builder_enums(world.generation)
    for name, enum in vars(enums).items():
        setattr(module, name, enum)
    module.ILogger = ILogger
    module.Builder = lambda logger: Builder(world, enums, logger)
    module.OnnxParser = OnnxParser
    module.init_libnvinfer_plugins = lambda logger, namespace: True
    if world.generation != "8.6":
        module.IProgressMonitor = IProgressMonitor
    else:
        members = {each.name: each for each in DataType if each.name not in {"INT64", "BF16"}}
        module.DataType = SimpleNamespace(**members)


def _agrees(dims: tuple[int, ...], ends: Range) -> bool:
    return all(
        len(end) == len(dims) and all(dim in (-1, extent) for dim, extent in zip(dims, end, strict=True))
        for end in ends
    )


def _typing_problems(network: Network, config: Config) -> Iterator[str]:
    names = {flag.name for flag in config.flags}
    strong = getattr(config.enums.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
    is_strong = strong is not None and bool(network.flags & (1 << int(strong)))
    if is_strong or config.world.generation == "11":
        if names & set(PRECISION_FLAGS.values()):
            yield "precision flags cannot be set for a strongly typed network"
        return
    for kind in sorted(network.types & set(PRECISION_FLAGS)):
        if PRECISION_FLAGS[kind] not in names:
            yield f"the network has tensors of {kind}, but {PRECISION_FLAGS[kind]} is not set in the builder config"


def _progress(config: Config) -> bool:
    """Reports phases and steps as TensorRT does; False once a step was answered with False."""
    monitor = getattr(config, "progress_monitor", None)
    if monitor is None:
        return True
    assert monitor._is_initialised
    profiles = max(1, len(config.profiles))
    monitor.phase_start("Building Engine", None, profiles)
    goes_on = True
    for index in range(profiles):
        phase = f"Profile {index}"
        monitor.phase_start(phase, "Building Engine", 2)
        goes_on = all(monitor.step_complete(phase, step) for step in range(2))
        monitor.phase_finish(phase)
        goes_on = goes_on and monitor.step_complete("Building Engine", index)
        if not goes_on:
            break
    monitor.phase_finish("Building Engine")
    return goes_on


def _model(network: Network, config: Config) -> FakeModel:
    static = {tensor.name: (tensor.shape,) * 3 for tensor in network.inputs}
    profiles = tuple({**static, **profile.shapes, **profile.values} for profile in config.profiles) or (static,)
    features = {feature.name for feature in config.features}
    pinned = _pinned(network, profiles)
    return FakeModel(
        inputs={tensor.name: (tensor.dtype.name, _fixed(tensor, pinned)) for tensor in network.inputs},
        outputs={tensor.name: (tensor.dtype.name, _fixed(tensor, pinned)) for tensor in network.outputs},
        profiles=profiles,
        program="onnx",
        onnx=network.model,
        scratch=(SCRATCH_BYTES,) * len(profiles),
        host_tensors=frozenset(tensor.name for tensor in network.inputs if tensor.is_shape_tensor),
        shares_profiles="PROFILE_SHARING_0806" in features,
    )


def _pinned(network: Network, profiles: tuple[Mapping[str, Range], ...]) -> dict[str, int]:
    """The dynamic dimensions, by name, for which all profiles have one and the same size: TensorRT fixes them."""
    sizes: dict[str, set[int]] = {}
    for tensor in network.inputs:
        for axis, name in enumerate(tensor.names):
            ends = {end[axis] for profile in profiles for end in profile[tensor.name] if not tensor.is_shape_tensor}
            sizes.setdefault(name, set()).update(ends)
    return {name: ends.pop() for name, ends in sizes.items() if name and len(ends) == 1}


def _fixed(tensor: Tensor, pinned: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(pinned.get(name, extent) for name, extent in zip(tensor.names, tensor.shape, strict=True))
