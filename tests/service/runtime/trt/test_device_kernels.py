"""Graphs whose fills are kernels, in lanes and probes; and what happens where such kernels cannot be had or fail."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.compile import Toolchain
from kernels.fill import Fill
from service.buckets import Bucket
from service.device_figures import MissReason
from service.errors import DeviceError, ModelLoadFailed
from service.runtime.cuda.device import Cuda
from service.runtime.trt.backend import TensorRTBackend
from service.runtime.trt.device_kernels import load_fills
from service.runtime.trt.flavour import describe
from service.runtime.trt.lane import LANE_DEPTH
from tests.doubles.emulated_device import EmulatedCuda, EmulatedDriver
from tests.doubles.fake_cuda_types import Exec
from tests.doubles.fake_cuda_types import cudaError_t as E
from tests.doubles.fake_driver import FakeDriver
from tests.doubles.fake_tensorrt import fake_tensorrt
from tests.doubles.trt_models import PAIR, assert_right, batch_in
from tests.service.runtime.trt.conftest import FakeBench

TOOLCHAIN = Toolchain("13.0", lambda text, architecture: b"cubin")

CLEARED = replace(PAIR, is_cleared=True)
FILLS_PER_GRAPH = 2 * len(PAIR.outputs)
GRAPHS = LANE_DEPTH * 3


class FillBench(FakeBench):
    """Models that clear their outputs by fills, on the emulated device."""

    driver: EmulatedDriver

    def load(self, backend: TensorRTBackend, **found: Any) -> None:
        machine = {"find_driver": lambda: self.driver, "find_toolchain": lambda: TOOLCHAIN, **found}
        backend.load_fills(partial(load_fills, cache=self.folder / "cache", **machine))

    def fill_launches(self) -> int:
        """How many nodes of graphs are fills that became kernels."""
        return sum(launch[0] == "fill_bytes" for launch in self.driver.launches)

    def answer_batches(self, backend: TensorRTBackend, lane: Any) -> None:
        """Enough that every bucket's graphs run, those of both buffer sets."""
        rng = np.random.default_rng(7)
        for bucket in (*backend.spec.buckets.known(), *backend.spec.buckets.known()):
            each = batch_in(backend.spec, bucket, rng, (1,) * bucket.padded_size)
            assert_right("pair", each, lane.sync(lane.enqueue(each)).outputs)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[FillBench]:
    api = EmulatedCuda()
    flavour = describe("tensorrt", fake_tensorrt(api, "10"))
    bench = FillBench(Cuda(api), flavour, lambda name: bench.write(name, CLEARED))
    bench.api, bench.folder, bench.generation = api, tmp_path, "10"
    bench.driver = EmulatedDriver(api)
    yield bench
    bench.close()
    assert bench.driver.loaded == {}
    assert api.violations == []
    assert api.live_objects() == {}


def test_lanes_replay_graphs_whose_fills_are_kernels(bench: FillBench) -> None:
    backend = bench.open("pair")
    bench.load(backend)
    lane = bench.lane(backend)
    assert len(tuple(backend.spec.buckets.known())) * LANE_DEPTH == GRAPHS
    assert bench.fill_launches() == GRAPHS * FILLS_PER_GRAPH
    filled = bench.api.calls["cudaMemsetAsync"]
    bench.answer_batches(backend, lane)
    figures = lane.figures()
    assert figures.graph_misses == {}
    assert sum(figures.eager_runs.values()) == 0
    assert bench.api.calls["cudaMemsetAsync"] == filled


def test_probes_have_them_too(bench: FillBench) -> None:
    backend = bench.open("pair")
    bench.load(backend)
    with backend.create_probe(Bucket(4)) as probe:
        assert probe.graph_miss is None
        assert bench.fill_launches() == FILLS_PER_GRAPH
        assert probe.replay(2) is not None


def test_kernels_outlive_the_graphs_that_launch_them(bench: FillBench, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = bench.open("pair")
    bench.load(backend)
    bench.lane(backend)
    unload = bench.driver.cuLibraryUnload

    def watched(library: Any) -> tuple[Any, ...]:
        assert not any(isinstance(value, Exec) for value in bench.api._handles.values())
        return unload(library)

    monkeypatch.setattr(bench.driver, "cuLibraryUnload", watched)
    bench.close()
    backend.close()
    assert bench.driver.loaded == {}


def test_the_double_notices_a_kernel_that_is_gone(bench: FillBench) -> None:
    backend = bench.open("pair")
    bench.load(backend)
    lane = bench.lane(backend)
    backend._kernels.close()
    bench.answer_batches(backend, lane)
    assert set(bench.api.violations) == {"a graph launched a kernel that was unloaded"}
    bench.api.violations.clear()


def test_a_card_that_wants_no_kernels_gets_none(bench: FillBench) -> None:
    backend = bench.open("pair", kernels_enabled=False)
    bench.load(backend, find_toolchain=pytest.fail)
    bench.answer_batches(backend, bench.lane(backend))
    assert bench.fill_launches() == 0


def no_toolchain() -> Toolchain:
    raise ModelLoadFailed("NVRTC is missing")


def no_function() -> FakeDriver:
    raise RuntimeError('Function "cuLibraryLoadData" not found')


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        ({"find_toolchain": no_toolchain}, "NVRTC is missing"),
        ({"find_driver": no_function}, "update it to one for CUDA 12 or later"),
    ],
)
def test_a_machine_that_has_none_serves_all_the_same(
    bench: FillBench, caplog: pytest.LogCaptureFixture, found: dict[str, Callable[[], Any]], problem: str
) -> None:
    caplog.set_level(logging.DEBUG, "service.runtime.trt.device_kernels")
    backend = bench.open("pair")
    bench.load(backend, **found)
    assert problem in caplog.text
    lane = bench.lane(backend)
    bench.answer_batches(backend, lane)
    assert lane.figures().graph_misses == {}


def test_a_driver_that_refuses_the_nodes_leaves_the_graphs_as_captured(bench: FillBench) -> None:
    backend = bench.open("pair")
    bench.load(backend)
    bench.driver.refuses = "cuGraphAddKernelNode"
    lane = bench.lane(backend)
    bench.answer_batches(backend, lane)
    assert lane.figures().graph_misses == {}
    assert bench.fill_launches() == 0


@pytest.mark.parametrize("is_deterministic", [True, False])
def test_kernels_that_write_other_bits_are_left_out(
    bench: FillBench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, is_deterministic: bool
) -> None:
    """What should be cleared is set to 3, and the outputs are added to that."""
    three = int.from_bytes(np.float32(3).tobytes(), "little")
    monkeypatch.setattr("kernels.graph_fills.fill_of", lambda memset: Fill(memset.dst, memset.width, three))
    if not is_deterministic:
        bench.plan_path = lambda name: bench.write(name, replace(CLEARED, replay_error=1))
    backend = bench.open("pair")
    bench.load(backend)
    lane = bench.lane(backend)
    assert "captured again without them" in caplog.text
    bench.answer_batches(backend, lane)
    figures = lane.figures()
    reasons = {miss.reason for miss in figures.graph_misses.values()}
    assert reasons == (set() if is_deterministic else {MissReason.REPLAY_DIFFERS})


def test_a_lost_device_is_told(bench: FillBench) -> None:
    backend = bench.open("pair")
    bench.driver.cuLibraryLoadData = lambda *options: (E.cudaErrorIllegalAddress, None)  # type: ignore[method-assign]
    with pytest.raises(DeviceError, match="cudaErrorIllegalAddress"):
        bench.load(backend)
