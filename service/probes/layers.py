"""P6: the layers of the busiest buckets."""

from __future__ import annotations

from service.layers.profile import profile_layers
from service.probes.bench import Bench, Results, Rounds
from service.telemetry.snapshot_device import LayerProfile

MOST_BUCKETS = 2
"""That are profiled; on the CPU each opens two sessions more."""


def layers(bench: Bench) -> Rounds:
    """A round per bucket: the runtime's profiler cannot be interrupted.

    Raises:
        ServiceError: the model does not run, or its runtime tells nothing of layers.
    """
    profiles: list[LayerProfile] = []
    for bucket in bench.buckets[:MOST_BUCKETS]:
        if not (yield):
            break
        profiles.append(profile_layers(bench.backend, bucket))
    return Results(layers=tuple(profiles))
