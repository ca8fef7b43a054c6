import pytest
from prometheus_client import CollectorRegistry

from service.buckets import Bucket, Unserved, UnservedReason
from service.telemetry.metrics import MAX_BUCKET_LABELS, OTHER_BUCKETS
from service.telemetry.recorder import ModelGauges, Recorder

LABELS = {"model": "m", "version": "1"}
NOTHING = (int,) * 5


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def recorder(registry):
    return Recorder(registry=registry, triton_names_enabled=False)


def unserved(registry, bucket, reason):
    labels = {**LABELS, "bucket": bucket, "reason": reason.value}
    return registry.get_sample_value("inferlane_buckets_unserved", labels)


def test_buckets_that_are_not_served_have_a_reason(registry, recorder):
    runs, differs = UnservedReason.CANNOT_RUN, UnservedReason.DIFFERS_FROM_REFERENCE
    found = {Bucket(8, (32,)): Unserved(runs, "CUDA's words"), Bucket(4): Unserved(differs, "0.5")}
    recorder.for_model("m", "1", ModelGauges(*NOTHING, unserved=found))
    assert unserved(registry, "8x32", runs) == 1
    assert unserved(registry, "4", differs) == 1
    assert unserved(registry, "8x32", differs) is None


def test_buckets_beyond_the_bound_share_a_label(registry, recorder):
    why = Unserved(UnservedReason.CANNOT_RUN, "words")
    buckets = {Bucket(1, (dim,)): why for dim in range(MAX_BUCKET_LABELS + 3)}
    recorder.for_model("m", "1", ModelGauges(*NOTHING, unserved=buckets))
    assert unserved(registry, OTHER_BUCKETS, why.reason) == 3


def test_the_phases_of_the_latest_start_up(registry, recorder):
    recorder.for_model("m", "1", ModelGauges(*NOTHING, startup_ns={"open": 1_500_000_000, "lanes": 1}))
    recorder.for_model("m", "1", ModelGauges(*NOTHING, startup_ns={"open": 2_500_000_000}))
    assert registry.get_sample_value("inferlane_startup_seconds", {**LABELS, "phase": "open"}) == 2.5
    assert registry.get_sample_value("inferlane_startup_seconds", {**LABELS, "phase": "lanes"}) is None


def test_an_unloaded_model_says_nothing_of_its_start(registry, recorder):
    why = Unserved(UnservedReason.CANNOT_RUN, "words")
    recorder.for_model("m", "1", ModelGauges(*NOTHING, unserved={Bucket(1): why}, startup_ns={"open": 1}))
    recorder.forget("m", "1")
    assert unserved(registry, "1", why.reason) is None
    assert registry.get_sample_value("inferlane_startup_seconds", {**LABELS, "phase": "open"}) is None
