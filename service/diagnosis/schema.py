"""The JSON Schema of a diagnosis and of a review; `docs/diagnose.schema.json` is generated from here.

`python -m service.diagnosis.schema > docs/diagnose.schema.json`
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from enum import Enum

from service.diagnosis.document import SCHEMA, JsonValue
from service.diagnosis.finding import BottleneckClass, GainLabel, GainMetric, Verdict
from service.diagnosis.layers import LayerClass
from service.diagnosis.review import REVIEW_SCHEMA
from service.telemetry.snapshot_load import Stage, Station

_Schema = dict[str, JsonValue]

TEXT: _Schema = {"type": "string"}
FLAG: _Schema = {"type": "boolean"}
COUNT: _Schema = {"type": "integer", "minimum": 0}
NUMBER: _Schema = {"type": "number"}
KNOWN_OR_NULL: _Schema = {"type": ["number", "null"]}
FLAG_OR_NULL: _Schema = {"type": ["boolean", "null"]}
TEXT_OR_NULL: _Schema = {"type": ["string", "null"]}


def document_schema() -> _Schema:
    """The whole schema: a diagnosis at its root, a review under `$defs/review`."""
    schema: _Schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Inferlane's diagnosis",
        "description": "What GET /diagnose answers. Durations are seconds, rates per second, shares between 0 and 1; "
        "null is 'not known', never zero. Members may be added within a version; none changes or goes away.",
    }
    schema.update(
        _object(
            schema={"const": SCHEMA},
            id=TEXT | {"description": "For ?since= after a change."},
            window=_window(),
            model=_object(name=TEXT, version=TEXT, backend=TEXT, task=TEXT),
            healthy=FLAG | {"description": "No bottleneck, in a window that tells enough to find one."},
            limiter=_of(Station, nullable=True) | {"description": "The station that would limit throughput first."},
            stations=_by_name(Station, _station()),
            findings=_list({"$ref": "#/$defs/finding"})
            | {"description": "One per class, the first to care for first."},
            layers=_list(_layers()) | {"description": "Of the profiled buckets."},
            peaks=_nullable(_peaks()) | {"description": "What the device was seen to do at best."},
            buckets=_list(_bucket()) | {"description": "Those that ran."},
        )
    )
    schema["$defs"] = {"finding": _finding(), "gain": _gain(), "review": _review()}
    return schema


def render() -> str:
    """The schema as text."""
    return json.dumps(document_schema(), indent=2) + "\n"


def _object(**members: _Schema) -> _Schema:
    properties: dict[str, JsonValue] = dict(members)
    required: list[JsonValue] = list(members)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _list(items: _Schema) -> _Schema:
    return {"type": "array", "items": items}


def _of(words: type[Enum], *, nullable: bool = False) -> _Schema:
    values: list[JsonValue] = [word.value for word in words]
    return {"enum": [*values, None] if nullable else values}


def _by_name(words: Iterable[Enum], value: _Schema) -> _Schema:
    properties: dict[str, JsonValue] = {str(word.value): value for word in words}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _nullable(schema: _Schema) -> _Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _window() -> _Schema:
    check = _object(
        name=TEXT, passed=FLAG_OR_NULL, detail=TEXT, mend=TEXT, named_by=_of(BottleneckClass, nullable=True)
    )
    return _object(
        began_unix_s=NUMBER,
        duration_s=NUMBER,
        headline=TEXT | {"description": "The diagnosis in a sentence."},
        valid=FLAG,
        checks=_list(check) | {"description": "Of validity; passed is null where what it needs was not recorded."},
        requests=COUNT,
        rows=COUNT,
        rows_per_s=NUMBER,
        offered_rows_per_s=KNOWN_OR_NULL,
        latency_mean_s=KNOWN_OR_NULL,
        latency_p50_s=KNOWN_OR_NULL,
        latency_p99_s=KNOWN_OR_NULL,
        in_flight=KNOWN_OR_NULL,
        in_flight_knee=KNOWN_OR_NULL | {"description": "N*: beyond it throughput grows no more."},
        stages_s=_by_name(Stage, KNOWN_OR_NULL) | {"description": "Mean time of a request in each stage."},
        stages_p50_s=_by_name(Stage, KNOWN_OR_NULL) | {"description": "Median of each stage."},
        stages_p99_s=_by_name(Stage, KNOWN_OR_NULL) | {"description": "99th percentile of each stage."},
    )


def _station() -> _Schema:
    return _object(
        demand_s=NUMBER | {"description": "Busy seconds per row and server."},
        utilisation=NUMBER | {"description": "Share of the window in which a server was busy: X times the demand."},
        capacity_rows_per_s=NUMBER | {"description": "Rate that it would reach, the device with its best batches."},
        load=NUMBER | {"description": "Rows per second over that."},
        within=_of(Station, nullable=True) | {"description": "The station whose time holds this one's too."},
    )


def _finding() -> _Schema:
    return _object(
        **{
            "class": _of(BottleneckClass),
            "verdict": _of(Verdict),
            "summary": TEXT,
            "evidence": _list(_object(name=TEXT, value=KNOWN_OR_NULL, unit=TEXT, threshold=KNOWN_OR_NULL)),
            "gain": _nullable({"$ref": "#/$defs/gain"}),
            "confidence": KNOWN_OR_NULL
            | {"description": "How far the gain is believed: by its label, and by what reviews of its class found."},
            "fix": _nullable(_object(text=TEXT, card=TEXT, command=TEXT)),
            "verify": TEXT | {"description": "The call to make after the fix, and what must be seen then."},
            "missing": _list(_object(what=TEXT, probe=TEXT)) | {"description": "What would decide, if unverified."},
            "note": TEXT | {"description": "A misconception that the finding contradicts."},
        }
    )


def _gain() -> _Schema:
    return _object(
        metric=_of(GainMetric),
        value=NUMBER | {"description": "Of a latency the share that goes away, of throughput the share added."},
        low=NUMBER,
        high=NUMBER,
        label=_of(GainLabel),
    )


def _layers() -> _Schema:
    layer = _object(
        **{
            "name": TEXT,
            "kind": TEXT,
            "time_s": NUMBER | {"description": "Scaled to the span."},
            "profiled_s": NUMBER,
            "share": NUMBER,
            "flops": KNOWN_OR_NULL,
            "bytes": KNOWN_OR_NULL,
            "intensity": KNOWN_OR_NULL,
            "efficiency": KNOWN_OR_NULL | {"description": "Time at the roof over the time taken."},
            "class": _of(LayerClass),
            "cache_resident": FLAG,
            "dtype": TEXT,
            "tactic": TEXT,
            "tensor_core": FLAG_OR_NULL,
            "reformat": FLAG,
            "origin": _list(TEXT),
        }
    )
    return _object(
        bucket=TEXT,
        span_s=NUMBER,
        scale=NUMBER,
        coverage=NUMBER | {"description": "Share of the time whose bound is known."},
        reformat_share=NUMBER,
        layers=_list(layer),
    )


def _peaks() -> _Schema:
    by_type: _Schema = {"type": "object", "additionalProperties": KNOWN_OR_NULL}
    return _object(
        flops_per_s=by_type | {"description": "By data type; multiplications and additions counted apart."},
        bytes_per_s=KNOWN_OR_NULL | {"description": "Device memory read and written."},
        empty_kernel_s=KNOWN_OR_NULL,
        cache_bytes=COUNT | {"description": "What fits it may run faster than the memory allows."},
    )


def _bucket() -> _Schema:
    return _object(
        bucket=TEXT,
        profile={"type": ["integer", "null"]},
        batches=COUNT,
        rows=COUNT,
        fill=KNOWN_OR_NULL | {"description": "Rows over padded rows."},
        waste=KNOWN_OR_NULL | {"description": "Share of the computed elements that was padding."},
        batch_s=KNOWN_OR_NULL | {"description": "Mean time of a batch in the window."},
        cost_s=KNOWN_OR_NULL | {"description": "As warm-up measured it."},
        replays=COUNT,
        eager_runs=COUNT,
        miss_reason=TEXT_OR_NULL,
    )


def _review() -> _Schema:
    members: dict[str, _Schema] = {
        "class": _of(BottleneckClass),
        "predicted": {"$ref": "#/$defs/gain"},
        "achieved": KNOWN_OR_NULL,
        "held": FLAG_OR_NULL,
        "verdict": _of(Verdict),
        "detail": TEXT,
    }
    return _object(
        schema={"const": REVIEW_SCHEMA},
        since=TEXT,
        id=TEXT,
        load_change=KNOWN_OR_NULL,
        attributable=FLAG | {"description": "Whether one bottleneck alone is gone, so that the change is its fix."},
        outcomes=_list(_object(**members)),
    )


if __name__ == "__main__":
    sys.stdout.write(render())
