"""The roofline: each class by hand, what is unknown, and the scaling to the span."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.buckets import Bucket
from service.diagnosis.layers import LayerClass, classify
from service.telemetry.snapshot_device import LayerFigures, LayerProfile
from service.telemetry.snapshot_probes import Peaks
from tests.doubles.snapshots import layer, layer_profile

PEAKS = Peaks(flops_per_s={"FP16": 100e12, "INT8": 200e12}, bytes_per_s=1e12, empty_kernel_s=2e-6, cache_bytes=50 << 20)


def figures(**changes) -> LayerFigures:
    fields = {"name": "x", "kind": "gemm", "time_s": 100e-6, "flops": 8e9, "nbytes": 20e6, "dtype": "FP16"}
    return LayerFigures(**(fields | changes))


def only(layer_figures: LayerFigures, peaks: Peaks | None = PEAKS):
    profile = LayerProfile(bucket=Bucket(1), span_s=layer_figures.time_s, layers=(layer_figures,))
    (classified,) = classify(profile, peaks).layers
    return classified


@pytest.mark.parametrize(
    ("changes", "kind", "efficiency"),
    [
        pytest.param({}, LayerClass.COMPUTE, 0.8, id="compute"),
        pytest.param({"nbytes": 70e6, "flops": 1e9}, LayerClass.MEMORY, 0.7, id="memory"),
        pytest.param({"nbytes": 75e6}, LayerClass.BALANCED, 0.8, id="both within ten points"),
        pytest.param({"flops": 3e9, "nbytes": 30e6}, LayerClass.INEFFICIENT, 0.3, id="far from both"),
        pytest.param({"flops": 0.0, "nbytes": 70e6, "dtype": ""}, LayerClass.MEMORY, 0.7, id="moves bytes alone"),
        pytest.param({"dtype": "INT8"}, LayerClass.INEFFICIENT, 0.4, id="the peak of its type"),
        pytest.param(
            {"time_s": 3e-6, "flops": 1e7, "nbytes": 1e5}, LayerClass.LATENCY_FLOOR, 1 / 30, id="as an empty one"
        ),
        pytest.param({"flops": None}, LayerClass.UNKNOWN, None, id="no FLOPs"),
        pytest.param({"nbytes": None}, LayerClass.UNKNOWN, None, id="no bytes"),
        pytest.param({"dtype": "FP8"}, LayerClass.UNKNOWN, None, id="no peak of its type"),
        pytest.param({"flops": 2e10}, LayerClass.UNKNOWN, None, id="more than the device can"),
        pytest.param({"flops": None, "time_s": 3e-6}, LayerClass.LATENCY_FLOOR, None, id="short, whatever it does"),
    ],
)
def test_classes(changes, kind, efficiency):
    classified = only(figures(**changes))
    assert classified.kind is kind
    assert classified.efficiency == (None if efficiency is None else pytest.approx(efficiency))


def test_bytes_that_are_faster_than_memory_stay_in_the_cache():
    classified = only(figures(flops=1e9, nbytes=300e6))
    assert classified.is_cache_resident
    assert classified.kind is LayerClass.MEMORY
    assert classified.efficiency == pytest.approx(3.0)
    assert not only(figures()).is_cache_resident


def test_without_peaks_nothing_is_known():
    classified = only(figures(), None)
    assert classified.kind is LayerClass.UNKNOWN
    assert classified.intensity == pytest.approx(400.0)


def test_times_are_scaled_to_the_span():
    table = classify(layer_profile(layer("a", 1e-6, "compute"), layer("b", 3e-6, "memory"), span_s=200e-6), PEAKS)
    assert table.scale == pytest.approx(1 / 1.1)
    assert sum(one.time_s for one in table.layers) == pytest.approx(200e-6)
    assert [one.share for one in table.layers] == [pytest.approx(0.25), pytest.approx(0.75)]


def test_layers_side_by_side_are_left_as_they_are():
    profile = replace(layer_profile(layer("a", 1e-6, "compute"), span_s=200e-6), are_overlapping=True)
    table = classify(profile, PEAKS)
    assert table.scale == 1.0
    assert table.layers[0].time_s == pytest.approx(220e-6)


def test_shares():
    table = classify(
        layer_profile(
            layer("a", 40e-6, "compute"),
            layer("b", 20e-6, "compute", is_tensor_core=False),
            layer("c", 30e-6, "memory", is_reformat=True),
            layer("d", 10e-6, "memory", nbytes=None),
        ),
        Peaks(flops_per_s={"FP16": 600e12}, bytes_per_s=4e12, empty_kernel_s=2e-6),
    )
    assert table.coverage == pytest.approx(0.9)
    assert table.share_of(LayerClass.COMPUTE) == pytest.approx(0.6)
    assert table.share_of(LayerClass.COMPUTE, LayerClass.MEMORY) == pytest.approx(0.9)
    assert table.reformat_share == pytest.approx(0.3)
    assert [one.figures.name for one in table.without_tensor_cores] == ["b"]
    assert table.excess_share(LayerClass.COMPUTE) == pytest.approx(0.6 * 0.2)


@pytest.mark.parametrize(
    ("count", "time_s", "is_many"), [(25, 4e-6, True), (19, 4e-6, False), (25, 6e-6, False), (25, 0.5e-6, False)]
)
def test_many_tiny_layers(count, time_s, is_many):
    tiny = tuple(figures(name=str(index), time_s=time_s) for index in range(count))
    rest = figures(name="rest", time_s=200e-6 - count * time_s)
    profile = LayerProfile(bucket=Bucket(1), span_s=200e-6, layers=(*tiny, rest))
    assert classify(profile, PEAKS).has_many_tiny_layers is is_many


def test_nothing_profiled_is_a_table_all_the_same():
    table = classify(LayerProfile(bucket=Bucket(1), span_s=0.0, layers=()), PEAKS)
    assert (table.scale, table.coverage, table.reformat_share) == (1.0, 1.0, 0)
    zero = classify(LayerProfile(bucket=Bucket(1), span_s=0.0, layers=(figures(time_s=0.0),)), PEAKS)
    assert zero.layers[0].kind is LayerClass.UNKNOWN


MAYBE = st.one_of(st.none(), st.floats(0.0, 1e12))


@given(
    raw=st.lists(st.tuples(st.floats(1e-7, 1e-2), MAYBE, MAYBE, st.sampled_from(["FP16", "INT8", ""])), max_size=8),
    span_s=st.floats(1e-6, 1e-1),
)
def test_identities(raw, span_s):
    """Shares sum to 1, no efficiency passes 1 but of what the cache holds, and nothing unknown has one."""
    layers = tuple(
        figures(name=str(index), time_s=time_s, flops=flops, nbytes=nbytes, dtype=dtype)
        for index, (time_s, flops, nbytes, dtype) in enumerate(raw)
    )
    table = classify(LayerProfile(bucket=Bucket(1), span_s=span_s, layers=layers), PEAKS)
    if layers:
        assert sum(one.share for one in table.layers) == pytest.approx(1.0)
    assert -1e-9 <= table.coverage <= 1.0 + 1e-9
    for one in table.layers:
        assert (one.efficiency is None) or one.efficiency <= 1.1 + 1e-9 or one.is_cache_resident
        if one.kind is LayerClass.UNKNOWN:
            assert one.efficiency is None
