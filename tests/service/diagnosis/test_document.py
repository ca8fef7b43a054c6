"""The document against its schema, whatever was recorded."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from service.diagnosis.document import SCHEMA, number, to_json
from service.diagnosis.finding import BottleneckClass
from service.diagnosis.report import diagnose
from service.diagnosis.review import baseline_of, review, review_to_json
from service.diagnosis.schema import document_schema, render
from service.telemetry.snapshot_load import Stage
from tests.doubles.faults import FAULTS
from tests.doubles.snapshots import bare, healthy

ROOT = Path(__file__).parents[3]
SCHEMA_FILE = ROOT / "docs" / "diagnose.schema.json"
VALIDATOR = jsonschema.Draft202012Validator(document_schema())

TOP_LEVEL = [
    "schema",
    "id",
    "window",
    "model",
    "healthy",
    "limiter",
    "stations",
    "findings",
    "layers",
    "peaks",
    "buckets",
]


def test_the_schema_is_one_and_the_file_is_up_to_date():
    jsonschema.Draft202012Validator.check_schema(document_schema())
    assert SCHEMA_FILE.read_text(encoding="utf-8") == render(), (
        "run: python -m service.diagnosis.schema > docs/diagnose.schema.json"
    )


@pytest.mark.parametrize("snapshot", [healthy(), bare(), *(fault() for fault in FAULTS.values())])
def test_documents_are_what_the_schema_says(snapshot):
    document = to_json(diagnose(snapshot, report_id="a1"))
    VALIDATOR.validate(json.loads(json.dumps(document, allow_nan=False)))
    assert list(document) == TOP_LEVEL
    assert document["schema"] == SCHEMA


def test_the_schema_refuses_what_it_does_not_name():
    document = to_json(diagnose(healthy(), report_id="a1"))
    for spoilt in (document | {"extra": 1}, {k: v for k, v in document.items() if k != "limiter"}):
        assert not VALIDATOR.is_valid(json.loads(json.dumps(spoilt)))


def test_numbers_that_json_lacks_are_null():
    assert [number(value) for value in (None, math.inf, -math.inf, math.nan, 0.0)] == [None, None, None, None, 0.0]


def test_no_data_is_null_and_not_zero():
    document = to_json(diagnose(bare(), report_id="a1"))
    window = document["window"]
    assert isinstance(window, dict)
    assert window["in_flight"] is None
    assert window["offered_rows_per_s"] is None
    assert document["limiter"] is None
    assert document["stations"] == {}


def test_stages_tell_their_percentiles_where_they_were_recorded():
    snapshot = healthy()
    stages = dict(snapshot.requests.stages)
    stages[Stage.COMPUTE] = replace(stages[Stage.COMPUTE], p50_s=1e-3, p99_s=3e-3)
    spread = replace(snapshot, requests=replace(snapshot.requests, stages=stages))
    window = to_json(diagnose(spread, report_id="a1"))["window"]
    assert (window["stages_p50_s"]["compute"], window["stages_p99_s"]["compute"]) == (1e-3, 3e-3)
    assert window["stages_p99_s"]["read"] is None


def test_peaks_are_those_of_the_probe_or_null():
    peaks = to_json(diagnose(healthy(), report_id="a1"))["peaks"]
    assert peaks == {
        "flops_per_s": {"FP16": 600e12},
        "bytes_per_s": 4e12,
        "empty_kernel_s": 2e-6,
        "cache_bytes": 50 << 20,
    }
    assert to_json(diagnose(bare(), report_id="a1"))["peaks"] is None


def test_what_to_verify_names_the_call():
    document = to_json(diagnose(FAULTS[BottleneckClass.LAUNCH_BOUND](), report_id="a1"))
    first = document["findings"][0]
    assert first["class"] == "launch-bound"
    assert (
        "GET /diagnose?model=resnet50&since=a1: latency_mean must fall by 17.4 % (7.0 % to 20.5 %)" in first["verify"]
    )
    assert all(finding["verify"] == "" for finding in document["findings"][1:])


def test_throughput_must_grow_and_an_unknown_gain_has_no_number():
    too_small = to_json(diagnose(FAULTS[BottleneckClass.BATCH_TOO_SMALL](), report_id="a1"))["findings"][0]
    assert "throughput must grow by 90.9 %" in too_small["verify"]
    invalid = to_json(diagnose(FAULTS[BottleneckClass.INVALID_MEASUREMENT](), report_id="a1"))["findings"][0]
    assert invalid["verify"].endswith("since=a1: every check must hold")


def test_a_stations_numbers_obey_the_utilisation_law():
    document = to_json(diagnose(healthy(), report_id="a1"))
    for station in document["stations"].values():
        assert station["utilisation"] == pytest.approx(document["window"]["rows_per_s"] * station["demand_s"])


def test_buckets_tell_their_fill_and_their_waste():
    snapshot = healthy()
    half = replace(snapshot.buckets[0], rows=300_000, useful_volume=300_000)
    bucket = to_json(diagnose(replace(snapshot, buckets=(half,)), report_id="a1"))["buckets"][0]
    assert (bucket["bucket"], bucket["fill"], bucket["waste"]) == ("8", 0.5, 0.5)


def test_a_review_is_what_the_schema_says():
    before = diagnose(FAULTS[BottleneckClass.LAUNCH_BOUND](), report_id="a1")
    one = review(baseline_of(before), diagnose(healthy(), report_id="a2"))
    definition = {"$ref": "#/$defs/review", "$defs": document_schema()["$defs"]}
    jsonschema.Draft202012Validator(definition).validate(json.loads(json.dumps(review_to_json(one), allow_nan=False)))
