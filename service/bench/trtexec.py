"""The two JSON files that trtexec writes of an engine's times: `--exportTimes` and `--exportProfile`.

Read from, and written like, trtexec of TensorRT 8.6 to 11 (`samples/common/sampleReporting.cpp`):

    times     [{"startEnqMs": .., "endEnqMs": .., "startH2dMs": .., .., "h2dMs": .., "computeMs": .., "d2hMs": ..,
                "latencyMs": ..}, ..]                   one object per batch, later versions more keys
    profile   [{"count": 120}, {"name": "conv1", "timeMs": .., "averageMs": .., "medianMs": .., "percentage": ..}, ..]

Neither tells a bucket, a machine or a version, and a profile has one value per layer, which says nothing of noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from service.bench.layer_rounds import numbered
from service.bench.recording import BATCH, Place, PlaceKind, Recording, Rounds
from service.requests import BatchTimings
from service.runtime.layer_trace import LayerTrace

BLOCKS = 20
"""Rounds that a sequence of batches is cut into. Neighbours resemble each other, so a round is a stretch of them."""

_STAGES = {"h2d": "h2dMs", "compute": "computeMs", "d2h": "d2hMs", BATCH: "latencyMs"}
_NS_PER_MS = 1e6
_MS_PER_S = 1e3


def is_times(content: object) -> bool:
    """Whether this is what `--exportTimes` writes."""
    return _is_list_of_objects(content) and "computeMs" in content[0]  # type: ignore[index]


def is_profile(content: object) -> bool:
    """Whether this is what `--exportProfile` writes."""
    return _is_list_of_objects(content) and "count" in content[0]  # type: ignore[index]


def read_times(content: Sequence[Mapping[str, float]], bucket: str) -> Recording:
    """The stages of the batches, cut into rounds; copies that trtexec left out (0 ms) are left out here.

    Raises:
        KeyError, TypeError, ValueError: it is no such file.
    """
    samples_ns = {name: [float(each[key]) * _NS_PER_MS for each in content] for name, key in _STAGES.items()}
    samples_ns["enqueue"] = [(float(each["endEnqMs"]) - float(each["startEnqMs"])) * _NS_PER_MS for each in content]
    return Recording(
        {
            Place(bucket, PlaceKind.STAGE, name): in_blocks(durations_ns)
            for name, durations_ns in samples_ns.items()
            if min(durations_ns) > 0.0
        }
    )


def in_blocks(samples_ns: Sequence[float]) -> Rounds:
    """At most `BLOCKS` stretches of nearly equal length, in order."""
    blocks = np.array_split(np.asarray(samples_ns, dtype=np.float64), min(BLOCKS, len(samples_ns)))
    return tuple(tuple(map(float, block)) for block in blocks)


def read_profile(content: Sequence[Mapping[str, object]], bucket: str) -> Recording:
    """The layers, one value each: the median, or the mean where an old file has no median.

    Raises:
        KeyError, TypeError, ValueError: it is no such file.
    """
    series: dict[Place, Rounds] = {}
    for name, layer in zip(numbered(str(layer["name"]) for layer in content[1:]), content[1:], strict=True):
        time_ns = float(str(layer.get("medianMs", layer["averageMs"]))) * _NS_PER_MS
        if time_ns > 0.0:
            series[Place(bucket, PlaceKind.LAYER, name)] = ((time_ns,),)
    return Recording(series)


def times_document(batches: Sequence[tuple[BatchTimings, int]]) -> list[dict[str, float]]:
    """What `--exportTimes` would write of these batches.

    Args:
        batches: moments of each, and how many nanoseconds its enqueue took; in order.
    """
    origin_ns = batches[0][0].started if batches else 0

    def since_ms(moment_ns: float) -> float:
        return (moment_ns - origin_ns) / _NS_PER_MS

    return [
        {
            "startEnqMs": since_ms(timings.started),
            "endEnqMs": since_ms(timings.started + enqueue_ns),
            "startH2dMs": since_ms(timings.started),
            "endH2dMs": since_ms(timings.copied_in),
            "startComputeMs": since_ms(timings.copied_in),
            "endComputeMs": since_ms(timings.computed),
            "startD2hMs": since_ms(timings.computed),
            "endD2hMs": since_ms(timings.copied_out),
            "h2dMs": (timings.copied_in - timings.started) / _NS_PER_MS,
            "computeMs": (timings.computed - timings.copied_in) / _NS_PER_MS,
            "d2hMs": (timings.copied_out - timings.computed) / _NS_PER_MS,
            "latencyMs": (timings.copied_out - timings.started) / _NS_PER_MS,
        }
        for timings, enqueue_ns in batches
    ]


def profile_document(trace: LayerTrace) -> list[dict[str, object]]:
    """What `--exportProfile` would write of these layers: as profiled, not scaled to an execution without."""
    totals_ms = [sum(layer.times_s) * _MS_PER_S for layer in trace.layers]
    whole_ms = sum(totals_ms) or 1.0
    layers: list[dict[str, object]] = [
        {
            "name": layer.operation.name,
            "timeMs": total_ms,
            "averageMs": total_ms / len(layer.times_s),
            "medianMs": layer.time_s * _MS_PER_S,
            "percentage": 100.0 * total_ms / whole_ms,
        }
        for layer, total_ms in zip(trace.layers, totals_ms, strict=True)
    ]
    return [{"count": trace.runs}, *layers]


def _is_list_of_objects(content: object) -> bool:
    return isinstance(content, list) and bool(content) and all(isinstance(each, dict) for each in content)
