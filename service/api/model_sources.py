"""The models that serve, as the history of the telemetry watches them."""

from __future__ import annotations

import math
from functools import partial
from types import MappingProxyType

from service.buckets import Bucket
from service.models import TENSORRT_PLATFORM, ModelSpec
from service.repository.registry import Registry
from service.repository.served import ServedModel
from service.telemetry.activity import Activity
from service.telemetry.history import ModelSource
from service.telemetry.recorder import Recorder
from service.telemetry.snapshot import ModelFacts
from service.tensors import BATCH_DIM
from service.units import NS_PER_S

AS_IS = "as-is"
"""A precision that the card leaves to the model: what its plan computes in is not known."""


class ModelSources:
    """Gives a source per model with batches of its own; each is made once per load. On the event loop.

    Args:
        registry: the models.
        recorder: records them.
    """

    def __init__(self, registry: Registry, recorder: Recorder) -> None:
        self._registry = registry
        self._recorder = recorder
        self._sources: dict[str, tuple[Activity, ModelSource]] = {}

    def __call__(self) -> tuple[ModelSource, ...]:
        """The sources of the models that serve now."""
        serving = [served for served in self._registry.served() if isinstance(served, ServedModel)]
        self._sources = {served.spec.name: self._source(served) for served in serving}
        return tuple(source for _, source in self._sources.values())

    def _source(self, served: ServedModel) -> tuple[Activity, ModelSource]:
        known = self._sources.get(served.spec.name)
        if known is not None and known[0] is served.activity:
            return known
        costs_s = {bucket: cost_ns / NS_PER_S for bucket, cost_ns in served.costs.measured_ns.items()}
        batcher = served.batcher
        source = ModelSource(
            facts=model_facts(served.spec),
            activity=served.activity,
            figures=partial(self._recorder.model_figures, served.spec.name, served.spec.version),
            costs_s=MappingProxyType(costs_s),
            ready_ns=served.activity.ready_ns,
            lanes=batcher.lane_count,
            lane_depth=batcher.lane_depth,
            profiles=MappingProxyType(_profiles(served)),
        )
        return served.activity, source


def _profiles(served: ServedModel) -> dict[Bucket, int]:
    """The profile of each known bucket; a bucket of media runs on that of its tensors."""
    backend, found = served.batcher.pool.backend, {}
    for bucket in served.spec.buckets.known():
        profiles = backend.profiles(Bucket(bucket.padded_size, bucket.dims))
        if profiles:
            found[bucket] = profiles[0]
    return found


def profile_opts(spec: ModelSpec) -> tuple[int, ...]:
    """Optimum volume of each optimization profile, as `Bucket.volume` counts it: rows times dynamic dims.

    Nothing where a profile leaves one of these open, as a card may that only a builder has read.
    """
    wanted = {BATCH_DIM, *spec.buckets.dim_names}
    volumes = []
    for profile in spec.card.profiles:
        sizes = {
            dim: extent
            for tensor in spec.inputs
            if tensor.name in profile
            for dim, extent in zip(tensor.dims, profile[tensor.name].opt, strict=True)
            if dim in wanted
        }
        if not sizes.keys() >= set(spec.buckets.dim_names):
            return ()
        volumes.append(math.prod(sizes.values()))
    return tuple(volumes)


def model_facts(spec: ModelSpec) -> ModelFacts:
    """What the model's card and plan say that a diagnosis speaks of."""
    is_tensorrt = spec.platform == TENSORRT_PLATFORM
    buckets, card = spec.buckets, spec.card
    return ModelFacts(
        name=spec.name,
        version=spec.version,
        backend="tensorrt" if is_tensorrt else "onnxruntime",
        task=card.task,
        batch_sizes=buckets.batch_sizes,
        dim_names=buckets.dim_names,
        dim_sizes=buckets.dim_sizes,
        max_queue_delay_s=card.batching.max_queue_delay_ns / NS_PER_S,
        precision=card.precision.mode.upper() if is_tensorrt and card.precision.mode != AS_IS else "",
        profile_opts=profile_opts(spec) if is_tensorrt else (),
        has_media_form=spec.media is not None,
    )
