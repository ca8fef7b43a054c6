from __future__ import annotations

from typing import Any

import pytest

from engines.config import BuildSettings, configure, decide
from engines.precision import Precision
from engines.request import BuildOptions
from service.cards import BuildCard, ModelCard
from service.errors import ModelLoadFailed
from tests.doubles.fake_cuda import FakeCuda
from tests.doubles.fake_tensorrt import fake_tensorrt
from tests.doubles.fake_tensorrt_builder import ILogger

FULL = ("8.6", "10.0", "10", "11")
SETTINGS = BuildSettings(
    optimization_level=2,
    workspace_bytes=4096,
    hardware_compatibility="none",
    is_version_compatible=False,
    is_weak_typing_allowed=True,
)
STRONG = Precision("as-is", is_strongly_typed=True)


def configured(generation: str, precision: Precision = STRONG, **changes: Any) -> tuple[Any, Any]:
    module = fake_tensorrt(FakeCuda(), generation)
    config = module.Builder(ILogger()).create_builder_config()
    settings = {name: getattr(SETTINGS, name) for name in SETTINGS.__slots__}
    configure(module, config, BuildSettings(**{**settings, **changes}), precision)
    return module, config


def card(**keys: Any) -> ModelCard:
    return ModelCard(name="m", build=BuildCard(**keys))


def test_without_a_word_half_of_the_free_memory_is_workspace_and_the_rest_tensorrts_own() -> None:
    assert decide(BuildOptions(), card(), free_bytes=1000) == BuildSettings(
        optimization_level=None,
        workspace_bytes=500,
        hardware_compatibility="none",
        is_version_compatible=False,
        is_weak_typing_allowed=True,
    )


def test_the_card_decides_where_the_command_line_says_nothing() -> None:
    said = card(
        optimization_level=1,
        workspace_bytes=77,
        hardware_compatibility="ampere+",
        is_version_compatible=True,
        is_weak_typing_allowed=False,
    )
    expected = BuildSettings(
        optimization_level=1,
        workspace_bytes=77,
        hardware_compatibility="ampere+",
        is_version_compatible=True,
        is_weak_typing_allowed=False,
    )
    assert decide(BuildOptions(), said, free_bytes=1000) == expected


def test_the_command_line_wins_even_with_values_that_are_false() -> None:
    said = card(optimization_level=1, is_version_compatible=True, is_weak_typing_allowed=True, workspace_bytes=77)
    options = BuildOptions(
        optimization_level=0,
        workspace_bytes=88,
        hardware_compatibility="none",
        is_version_compatible=False,
        is_weak_typing_allowed=False,
    )
    assert decide(options, said, free_bytes=1000) == BuildSettings(
        optimization_level=0,
        workspace_bytes=88,
        hardware_compatibility="none",
        is_version_compatible=False,
        is_weak_typing_allowed=False,
    )


def test_a_compatibility_that_trtexec_does_not_know_is_refused() -> None:
    with pytest.raises(ModelLoadFailed, match=r"'hopper' is unknown, allowed are none, ampere\+, same-compute"):
        decide(BuildOptions(hardware_compatibility="hopper"), card(), free_bytes=1)


@pytest.mark.parametrize("generation", FULL)
def test_what_every_build_sets(generation: str) -> None:
    module, config = configured(generation)
    assert config.pools == {module.MemoryPoolType.WORKSPACE: 4096}
    assert (config.builder_optimization_level, config.max_aux_streams) == (2, 0)
    assert config.profiling_verbosity == module.ProfilingVerbosity.DETAILED
    on = {source.name for source in module.TacticSource if config.sources & (1 << int(source))}
    assert on == {"EDGE_MASK_CONVOLUTIONS", "JIT_CONVOLUTIONS"}
    assert {flag.name for flag in config.flags} == {"TF32"}
    if generation != "11":
        assert module.PreviewFeature.PROFILE_SHARING_0806 in config.features


def test_a_level_that_nobody_names_is_left_alone() -> None:
    _, config = configured("10", optimization_level=None)
    assert config.builder_optimization_level == 3


def test_the_flags_of_weak_typing_are_set() -> None:
    _, config = configured("8.6", Precision("fp16", is_strongly_typed=False, flags=("FP16", "INT8")))
    assert {flag.name for flag in config.flags} == {"TF32", "FP16", "INT8"}


@pytest.mark.parametrize("generation", FULL)
def test_plans_for_newer_versions(generation: str) -> None:
    module, config = configured(generation, is_version_compatible=True)
    assert module.BuilderFlag.VERSION_COMPATIBLE in config.flags


@pytest.mark.parametrize(
    ("generation", "word", "level"),
    [
        ("8.6", "ampere+", "AMPERE_PLUS"),
        ("11", "ampere+", "AMPERE_PLUS"),
        ("10", "same-compute-capability", "SAME_COMPUTE_CAPABILITY"),
    ],
)
def test_plans_for_other_gpus(generation: str, word: str, level: str) -> None:
    _, config = configured(generation, hardware_compatibility=word)
    assert config.hardware_compatibility_level.name == level


@pytest.mark.parametrize("generation", ["8.6", "10.0"])
def test_a_compatibility_that_this_version_lacks_is_refused(generation: str) -> None:
    with pytest.raises(ModelLoadFailed, match="cannot build for hardware compatibility 'same-compute-capability'"):
        configured(generation, hardware_compatibility="same-compute-capability")
