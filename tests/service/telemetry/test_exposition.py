import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.utils import floatToGoString

from service.buckets import Bucket
from service.requests import BatchTimings, StageTimings
from service.telemetry.exposition import go_float, render
from service.telemetry.recorder import ModelGauges, Recorder

FORMATS = pytest.mark.parametrize(
    ("library", "is_openmetrics"), [(generate_latest, False), (generate_openmetrics, True)]
)


class Frozen:
    """What a registry collected once: the process's own figures change from one scrape to the next."""

    def __init__(self, metrics):
        self.metrics = list(metrics)

    def collect(self):
        return self.metrics


@FORMATS
def test_the_same_bytes_as_the_library(library, is_openmetrics):
    registry = CollectorRegistry()
    recorder = Recorder(registry=registry, triton_names_enabled=True)
    for name in ("resnet50", 'a "name" with \\ and \n'):
        model = recorder.for_model(name, "1", ModelGauges(*[lambda: 3] * 5))
        model.record_request(StageTimings(*(7**power for power in range(11))), 3)
        model.record_batch(Bucket(8, (3,)), 5, 2, BatchTimings(1, 20, 300, 4_000_000_000_000_000), 0)
        model.record_failure("timeout")
    collected = Frozen(registry.collect())
    assert render(collected.collect(), is_openmetrics=is_openmetrics) == library(collected)


@FORMATS
@given(help_text=st.text(), label=st.text(), value=st.floats())
def test_any_text_and_number(library, is_openmetrics, help_text, label, value):
    family = GaugeMetricFamily("name", help_text, labels=("b", "a"))
    family.add_metric((label, "x"), value)
    assert render([family], is_openmetrics=is_openmetrics) == library(Frozen([family]))


@given(st.floats() | st.integers(-(10**20), 10**20))
@example(999_999.5)
@example(1_000_000)
@example(-1_000_000)
@example(-0.0)
@example(math.inf)
@example(-math.inf)
@example(math.nan)
@example(5e-05)
def test_numbers(value):
    assert go_float(value) == floatToGoString(value)
