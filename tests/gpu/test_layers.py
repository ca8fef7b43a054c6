"""Layers and peaks on a real GPU: the cases of the fake, and figures that only real kernels have."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernels.compile import nvrtc
from kernels.launch import driver_api, load_kernels
from service.buckets import Bucket
from service.diagnosis.layers import LayerClass, classify
from service.errors import ModelLoadFailed
from service.layers.figures import known_share, layer_profile
from service.layers.gpu_peaks import SOURCES, measure_peaks
from service.layers.profile import trace_bucket
from service.runtime.cuda.device import Cuda, LiveCounts
from service.runtime.layer_trace import OperationKind
from service.telemetry.snapshot_probes import Peaks
from tests.doubles.layer_cases import LayerCases
from tests.doubles.trt_models import TrtBench
from tests.gpu.test_trt import CHANNELS, SIDE, bench, flavour, plan_path, process_cuda  # noqa: F401 - fixtures

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(180)]

RUNS = 20
EXECUTIONS = 200


@pytest.fixture(scope="module")
def peaks(process_cuda: Cuda, tmp_path_factory: pytest.TempPathFactory) -> Peaks:  # noqa: F811
    cache: Path = tmp_path_factory.mktemp("kernels")
    before = process_cuda.live
    os.environ.setdefault("CUDA_HOME", "/usr/local/cuda")  # where a toolkit lies if nobody says otherwise
    try:
        toolchain = nvrtc()
    except ModelLoadFailed as error:
        pytest.skip(error.message)
    kernels = load_kernels(process_cuda, driver_api(), toolchain, device=0, cache=cache, sources=SOURCES)
    found = measure_peaks(process_cuda, kernels)
    assert process_cuda.live == before == LiveCounts()
    return found


class TestLayers(LayerCases):
    """The cases of the fake."""


def test_convolutions_cost_what_they_cost_by_hand(bench: TrtBench) -> None:  # noqa: F811
    """Two of them, 3 x 3 over 8 channels; what the optimizer puts around them costs no FLOPs worth the name."""
    backend = bench.open("tower")
    for bucket in backend.spec.buckets.known():
        profile = layer_profile(bucket, trace_bucket(backend, bucket, runs=RUNS))
        products = [layer for layer in profile.layers if layer.is_matrix_product]
        by_hand = 2 * bucket.padded_size * CHANNELS * SIDE * SIDE * CHANNELS * 9
        assert [layer.flops for layer in products] == [by_hand] * 2
        assert known_share(profile) == 1.0, [layer for layer in profile.layers if layer.flops is None]


def test_the_span_is_that_of_the_bucket_s_replay(bench: TrtBench) -> None:  # noqa: F811
    """Layers take longer under the profiler than all of them together without it."""
    backend = bench.open("tower")
    bucket = Bucket(16)
    trace = trace_bucket(backend, bucket, runs=RUNS)
    with backend.create_probe(bucket) as probe:
        replay = probe.replay(EXECUTIONS)
    assert replay is not None
    assert trace.span_s == pytest.approx(replay.device_ns / 1e9, rel=0.5)
    assert sum(layer.time_s for layer in trace.layers) > 0.8 * trace.span_s
    assert not any(layer.operation.kind is OperationKind.UNKNOWN for layer in trace.layers)


def test_peaks_of_the_device(peaks: Peaks) -> None:
    assert peaks.flops_per_s["FP16"] > 2 * peaks.flops_per_s["FP32"] > 2e12
    assert peaks.bytes_per_s > 1e11
    assert 1e-7 < peaks.empty_kernel_s < 1e-4
    assert peaks.cache_bytes > 1 << 20


def test_tiny_layers_are_at_the_floor_or_inefficient(bench: TrtBench, peaks: Peaks) -> None:  # noqa: F811
    """A tower of 16 x 16 images fills no GPU: nothing of it may be said to be at a roof of compute."""
    backend = bench.open("tower")
    table = classify(layer_profile(Bucket(1), trace_bucket(backend, Bucket(1), runs=RUNS)), peaks)
    assert table.share_of(LayerClass.COMPUTE) == 0.0
    assert table.share_of(LayerClass.LATENCY_FLOOR, LayerClass.INEFFICIENT) > 0.5
