import itertools
import re

import pytest

from service.errors import ServiceError
from service.telemetry import gpu_metrics, metrics
from service.telemetry.metric_spec import MetricKind, MetricSpec
from service.telemetry.metrics import OWN, TRITON

UNITS = ("seconds", "bytes", "rows", "ratio", "requests", "watts", "celsius", "hertz", "per_second")
COUNTED = (
    "inferlane_graphs_missing",
    "inferlane_buckets_unserved",
    "inferlane_lanes",
    "inferlane_lanes_busy",
    "inferlane_streams",
    "inferlane_front_ends",
)
FLAGS = ("inferlane_model_loaded", "inferlane_gpu_info", "inferlane_gpu_clock_event")


def errors(cls):
    return {cls, *(error for child in cls.__subclasses__() for error in errors(child))}


def test_every_declaration_is_listed_once():
    declarations = [*vars(metrics).values(), *vars(gpu_metrics).values()]
    declared = {spec.name for spec in declarations if isinstance(spec, MetricSpec)}
    listed = [spec.name for spec in (*OWN, *TRITON)]
    assert sorted(listed) == sorted(declared)


@pytest.mark.parametrize("spec", OWN, ids=lambda spec: spec.name)
def test_names_tell_type_and_unit(spec):
    assert re.fullmatch(r"inferlane(_[a-z]+)+", spec.name)
    assert spec.name.endswith("_total") == (spec.kind is MetricKind.COUNTER)
    assert spec.kind is MetricKind.COUNTER or spec.name.endswith(UNITS) or spec.name in (*COUNTED, *FLAGS)
    assert spec.help.endswith(".")


@pytest.mark.parametrize("spec", [*OWN, *TRITON], ids=lambda spec: spec.name)
def test_histograms_alone_have_bounds_and_they_ascend(spec):
    assert bool(spec.bounds) == (spec.kind is MetricKind.HISTOGRAM)
    assert list(spec.bounds) == sorted(set(spec.bounds))


def test_latency_bounds_reach_from_50_us_to_10_s_in_steps_of_at_most_two_and_a_half():
    bounds = metrics.LATENCY_BOUNDS_NS
    assert (bounds[0], bounds[-1]) == (50_000, 10_000_000_000)
    assert all(2 * low <= high <= 2.5 * low for low, high in itertools.pairwise(bounds))


def test_every_error_of_the_service_has_its_reason():
    assert {error.reason for error in errors(ServiceError) if error.__module__ == "service.errors"} == set(
        metrics.REASONS
    )
