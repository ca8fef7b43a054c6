"""P6: the layers of one bucket of an opened model, timed and described."""

from __future__ import annotations

from contextlib import closing

from service.buckets import Bucket
from service.layers.figures import layer_profile
from service.runtime.layer_trace import LayerTrace
from service.runtime.protocol import Backend
from service.telemetry.snapshot_device import LayerProfile

RUNS = 20


def trace_bucket(backend: Backend, bucket: Bucket, *, runs: int = RUNS) -> LayerTrace:
    """Times the layers of a bucket beside the lanes that serve it; blocking, on the calling thread.

    On a GPU it takes a context, a graph and buffers of its own, on the CPU two sessions. Whoever measures while the
    model serves measures the traffic too.

    Args:
        backend: the opened model.
        bucket: a known one.
        runs: executions with the profiler.

    Raises:
        ModelLoadFailed, ExecutionFailed, DeviceError: the model does not run, or its runtime tells nothing of layers.
    """
    with closing(backend.create_layer_probe(bucket)) as probe:
        return probe.layers(runs)


def profile_layers(backend: Backend, bucket: Bucket, *, runs: int = RUNS) -> LayerProfile:
    """`trace_bucket` as the diagnosis reads it: each layer with its FLOPs, bytes and origin.

    Raises:
        ModelLoadFailed, ExecutionFailed, DeviceError: as `trace_bucket`.
    """
    return layer_profile(bucket, trace_bucket(backend, bucket, runs=runs))
