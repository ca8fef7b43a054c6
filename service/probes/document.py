"""A run of experiments as JSON values; what was not measured is absent. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeAlias

from service.buckets import Bucket
from service.probes.run import ProbeRun, ProbeState, Progress
from service.probes.runner import KnownRun
from service.telemetry.snapshot_device import LayerProfile
from service.telemetry.snapshot_probes import Interval, ProbeFigures

Json: TypeAlias = Any


def run_to_json(known: KnownRun) -> dict[str, Json]:
    """How far a run has come, and what it has found so far."""
    run = known.run
    return {
        "id": known.id,
        "model": known.model,
        "mode": known.order.mode.value,
        "state": state_of(run),
        "began_unix_s": known.began_unix_s,
        "probes": [_progress_to_json(each) for each in run.progress],
        "figures": figures_to_json(run.results.figures),
        "layers": [_layers_to_json(profile) for profile in run.results.layers],
    }


def state_of(run: ProbeRun) -> str:
    """`running`; at the end `stopped` where something was left undone, else `done`, whatever single probes met."""
    if not run.is_over:
        return "running"
    return "stopped" if any(each.state is ProbeState.STOPPED for each in run.progress) else "done"


def figures_to_json(figures: ProbeFigures) -> dict[str, Json]:
    """Every figure that was measured, by its name in `ProbeFigures`; seconds, bytes and rows, buckets by label."""
    named = {each.name: getattr(figures, each.name) for each in fields(figures)}
    return {name: _value(value) for name, value in named.items() if value is not None and value != {}}


def _progress_to_json(progress: Progress) -> dict[str, Json]:
    kind = progress.kind
    told: dict[str, Json] = {
        "name": kind.name,
        "numbers": kind.numbers,
        "about": kind.about,
        "state": progress.state.value,
        "rounds": progress.rounds,
        "busy_s": progress.busy_s,
    }
    return told | ({"reason": progress.reason} if progress.reason else {})


def _layers_to_json(profile: LayerProfile) -> dict[str, Json]:
    return {"bucket": profile.bucket.label, "span_s": profile.span_s, "layers": len(profile.layers)}


def _value(value: object) -> Json:
    if isinstance(value, Interval):
        return {"value": value.value, "low": value.low, "high": value.high}
    if isinstance(value, Mapping):
        return {_key(key): _value(each) for key, each in value.items()}
    if is_dataclass(value):
        return {each.name: _value(getattr(value, each.name)) for each in fields(value)}
    return value


def _key(key: object) -> str:
    return key.label if isinstance(key, Bucket) else str(key)
