"""The fake builder refuses what TensorRT refuses, so that a build that forgets it does not pass here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.fake_cuda import FakeCuda
from tests.doubles.fake_tensorrt import fake_tensorrt
from tests.doubles.fake_tensorrt_builder import ILogger, Severity
from tests.doubles.onnx_models import make_fp16, make_identity

RANGE = ((1, 16), (2, 16), (4, 16))


class Heard(ILogger):
    def __init__(self) -> None:
        super().__init__()
        self.errors: list[str] = []

    def log(self, severity: Severity, message: str) -> None:
        if severity <= Severity.ERROR:
            self.errors.append(message)


class Attempt:
    """A build step by step, right as it stands."""

    def __init__(self, generation: str, path: Path, make: Callable[[Path], Path] = make_identity) -> None:
        self.module = fake_tensorrt(FakeCuda(), generation)
        self.logger = Heard()
        self.builder = self.module.Builder(self.logger)
        flags = self.module.NetworkDefinitionCreationFlag
        self.flags = 1 << int(flags.EXPLICIT_BATCH) if hasattr(flags, "EXPLICIT_BATCH") else 0
        self.config = self.builder.create_builder_config()
        self.profile = self.builder.create_optimization_profile()
        self.path = make(path / "model.onnx")

    def build(self) -> Any:
        network = self.builder.create_network(self.flags)
        assert self.module.OnnxParser(network, self.logger).parse_from_file(str(self.path))
        if self.profile is not None:
            self.profile.set_shape("x", *RANGE)
            assert self.config.add_optimization_profile(self.profile) == 0
        return self.builder.build_serialized_network(network, self.config)


@pytest.mark.parametrize("generation", ["8.6", "10.0", "10", "11"])
def test_what_is_right_is_built(tmp_path: Path, generation: str) -> None:
    attempt = Attempt(generation, tmp_path)
    assert attempt.build() is not None
    assert attempt.logger.errors == []


def without_explicit_batch(path: Path) -> Attempt:
    attempt = Attempt("8.6", path)
    attempt.flags = 0
    return attempt


def without_profile(path: Path) -> Attempt:
    attempt = Attempt("10", path)
    attempt.profile = None
    return attempt


def with_a_profile_for_another_input(path: Path) -> Attempt:
    attempt = Attempt("10", path)
    attempt.profile.set_shape = lambda name, *ends: attempt.profile.shapes.update(other=ends)
    return attempt


def with_another_rank(path: Path) -> Attempt:
    attempt = Attempt("10", path)
    attempt.profile.set_shape = lambda name, *ends: attempt.profile.shapes.update({name: tuple(e[1:] for e in ends)})
    return attempt


def without_the_flag_of_its_type(path: Path) -> Attempt:
    return Attempt("8.6", path, make_fp16)


def with_a_flag_that_strong_typing_forbids(path: Path) -> Attempt:
    attempt = Attempt("10", path)
    attempt.flags |= 1 << int(attempt.module.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    attempt.config.set_flag(attempt.module.BuilderFlag.FP16)
    return attempt


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (without_explicit_batch, "must have explicit batch"),
        (without_profile, "no optimization profile has been defined"),
        (with_a_profile_for_another_input, "the optimization profile lacks x"),
        (with_another_rank, "contradicts the dimensions of x"),
        (without_the_flag_of_its_type, "tensors of HALF, but FP16 is not set"),
        (with_a_flag_that_strong_typing_forbids, "cannot be set for a strongly typed network"),
    ],
)
def test_what_is_wrong_gives_none_and_an_error(tmp_path: Path, make: Callable[[Path], Attempt], words: str) -> None:
    attempt = make(tmp_path)
    assert attempt.build() is None
    assert words in attempt.logger.errors[0]


def test_profiles_must_ascend_and_have_one_rank() -> None:
    builder = fake_tensorrt(FakeCuda(), "10").Builder(ILogger())
    profile = builder.create_optimization_profile()
    with pytest.raises(ValueError, match="inconsistent"):
        profile.set_shape("x", (1,), (1, 2), (1, 2))
    profile.set_shape("x", (4, 16), (2, 16), (8, 16))
    assert builder.create_builder_config().add_optimization_profile(profile) == -1


@pytest.mark.parametrize(
    ("generation", "absent"),
    [
        (
            "8.6",
            ["IProgressMonitor", "DataType.INT64", "BuilderFlag.BF16", "NetworkDefinitionCreationFlag.STRONGLY_TYPED"],
        ),
        ("10.0", ["HardwareCompatibilityLevel.SAME_COMPUTE_CAPABILITY"]),
        ("11", ["BuilderFlag.FP16", "TacticSource.CUDNN", "NetworkDefinitionCreationFlag.EXPLICIT_BATCH"]),
        ("11-lean", ["Builder", "OnnxParser", "ILogger"]),
    ],
)
def test_what_a_generation_lacks_is_missing(generation: str, absent: list[str]) -> None:
    module = fake_tensorrt(FakeCuda(), generation)
    for path in absent:
        owner, _, member = path.partition(".")
        assert not hasattr(getattr(module, owner) if member else module, member or owner)


def test_a_configuration_takes_no_attribute_that_its_generation_lacks() -> None:
    config = fake_tensorrt(FakeCuda(), "8.6").Builder(ILogger()).create_builder_config()
    with pytest.raises(AttributeError, match="progress_monitor"):
        config.progress_monitor = None
    with pytest.raises(AttributeError, match="max_workspace"):
        config.max_workspace = 1
