"""TensorRT on one GPU: one engine, shared by lanes that each have a thread, contexts and graphs of their own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeAlias

from kernels.launch import Kernels
from service.buckets import Bucket, Form
from service.cards import ModelCard
from service.errors import ModelLoadFailed
from service.models import TENSORRT_PLATFORM, ModelSpec, build_spec
from service.runtime.cuda.device import Cuda
from service.runtime.cuda.memory import HostRegistration
from service.runtime.cuda.stream import Stream
from service.runtime.rows import input_plans, misfit, refuse_second_batch_axis
from service.runtime.trt.context import shapes_on, survey
from service.runtime.trt.copy_threads import CopyThreads, default_helpers
from service.runtime.trt.device_kernels import DeviceKernels
from service.runtime.trt.engine import Engine
from service.runtime.trt.flavour import Flavour
from service.runtime.trt.lane import LANE_DEPTH, TensorRTLane
from service.runtime.trt.manifest import Machine, Manifest, read_manifest
from service.runtime.trt.media.form import LoadedTask
from service.runtime.trt.plan import check_plan, read_plan
from service.runtime.trt.probe import TensorRTProbe
from service.runtime.trt.profiles import (
    BucketShapes,
    card_for_engine,
    fitting_profiles,
    input_shapes,
    is_data_dependent,
    ranges_text,
    unpinned,
)
from service.tensors import Dim, HostArray


class LoadTask(Protocol):
    """Gives a model's task its kernels."""

    def __call__(self, cuda: Cuda, spec: ModelSpec, shapes: Sequence[BucketShapes]) -> LoadedTask | None:
        """The task with its kernels, on the device that the calling thread uses; None where the host does its work.

        Raises:
            ModelLoadFailed: the model does not fit its task.
            DeviceError: the device is lost.
        """


LoadFills: TypeAlias = Callable[[Cuda, ModelSpec], Kernels | None]
"""Gives the kernel `fill` on the device that the calling thread uses; None where graphs keep their fills."""

_log = logging.getLogger(__name__)


class TensorRTBackend:
    """One plan on one GPU. Implements `runtime.protocol.Backend`."""

    def __init__(
        self,
        cuda: Cuda,
        engine: Engine,
        spec: ModelSpec,
        shapes: Sequence[BucketShapes],
        *,
        weights_bytes: int,
        onnx_path: Path | None,
    ) -> None:
        self._cuda = cuda
        self._engine = engine
        self._spec = spec
        self._shapes = tuple(shapes)
        self._weights_bytes = weights_bytes
        self._onnx_path = onnx_path
        self._kernels = DeviceKernels()
        self._threads = CopyThreads(default_helpers())

    @classmethod
    def open(
        cls,
        card: ModelCard,
        *,
        version: str,
        plan_path: Path,
        flavour: Flavour,
        cuda: Cuda,
        onnx_path: Path | None = None,
    ) -> TensorRTBackend:
        """Checks the plan, deserialises it, and finds profile and shapes of every bucket. Makes no lane yet.

        Args:
            card: the model's card.
            version: the version's number.
            plan_path: the plan; its manifest may lie beside it.
            flavour: the TensorRT to use.
            cuda: the process's CUDA.
            onnx_path: the ONNX model beside the plan. That the plan was built from another is logged: it is served all
                the same, for its owner may want just that.

        Raises:
            ModelLoadFailed: the plan does not fit this server, or cannot be served.
            CardError: the card contradicts the engine.
            DeviceError: the GPU cannot be used.
        """
        plan = read_plan(plan_path)
        manifest = read_manifest(plan_path)
        check_plan(plan, plan_path.name, flavour, manifest)
        source = _source(card, plan_path, manifest, onnx_path)
        cuda.use_device(card.lanes.device)
        if manifest is not None:
            manifest.check_machine(Machine.here(cuda, card.lanes.device), plan_path.name)
        dims = {} if manifest is None else dict(manifest.dims)
        free_before = cuda.memory_info().free_bytes
        engine = Engine.deserialise(
            flavour,
            plan,
            plan_path.name,
            dims=dims,
            host_code_allowed=manifest is not None and manifest.is_version_compatible,
        )
        try:
            weights_bytes = max(0, free_before - cuda.memory_info().free_bytes)
            spec = _spec(card, version, engine, dims)
            with Stream(cuda) as stream:
                shapes = survey(engine, spec, stream=stream)
            _refuse_misfits(spec, shapes)
        except BaseException:
            engine.close()
            raise
        return cls(cuda, engine, spec, shapes, weights_bytes=weights_bytes, onnx_path=source)

    def load_task(self, load: LoadTask) -> None:
        """Adds the form of media, where the model's task has kernels; once, before the first lane is made.

        Raises:
            ModelLoadFailed: the model does not fit its task.
            DeviceError: the GPU cannot be used.
        """
        self._cuda.use_device(self._spec.card.lanes.device)
        media = load(self._cuda, self._spec, self._shapes)
        if media is not None:
            self._kernels = replace(self._kernels, media=media)
            self._spec = self._spec.with_media(media.task.form)
            self._shapes = (*self._shapes, *_media_shapes(self._spec, self._shapes))

    def load_fills(self, load: LoadFills) -> None:
        """Lets graphs have kernels in the place of fills, where there are such; once, before the first lane is made.

        Raises:
            DeviceError: the GPU cannot be used.
        """
        self._cuda.use_device(self._spec.card.lanes.device)
        self._kernels = replace(self._kernels, fills=load(self._cuda, self._spec))

    @property
    def spec(self) -> ModelSpec:
        """The model's tensors, buckets and limits."""
        return self._spec

    @property
    def bucket_shapes(self) -> tuple[BucketShapes, ...]:
        """Profile and shapes of every bucket, in the order of `BucketTable.known`."""
        return self._shapes

    @property
    def onnx_path(self) -> Path | None:
        """The ONNX model that the plan was built from, for all that is known; None where it is not at hand."""
        return self._onnx_path

    @property
    def fixed_inputs(self) -> Mapping[str, HostArray]:
        """Inputs of the ONNX model that clients neither see nor send, with the values that the profiles fix."""
        return self._engine.shape_inputs

    @property
    def lane_count(self) -> int:
        """As the card says, else one."""
        return self._spec.card.lanes.count or 1

    @property
    def lane_depth(self) -> int:
        """Two: while one batch is computed, the rows of the next are gathered and uploaded."""
        return LANE_DEPTH

    @property
    def weights_bytes(self) -> int:
        """What the device's free memory shrank by while the engine was deserialised.

        Approximate: whoever else allocates at that time counts too, and code that is loaded at its first use does not.
        """
        return self._weights_bytes

    def free_device_bytes(self) -> int | None:
        """What the GPU has left.

        Raises:
            DeviceError: the GPU cannot be asked.
        """
        self._cuda.use_device(self._spec.card.lanes.device)
        return self._cuda.memory_info().free_bytes

    def create_lane(self, lane_id: int) -> TensorRTLane:
        """Makes a lane on the thread that will own it.

        Raises:
            DeviceError: the GPU has no room for it.
        """
        lane = TensorRTLane(self._cuda, self._engine, self._spec, self._threads, kernels=self._kernels)
        lane.open(self._shapes, device=self._spec.card.lanes.device)
        return lane

    def profiles(self, bucket: Bucket) -> tuple[int, ...]:
        """Profiles that allow a bucket, known or not; the one that runs it first."""
        names = [tensor.name for tensor in self._spec.inputs]
        shapes = dict(zip(names, input_shapes(self._spec, bucket), strict=True))
        return fitting_profiles(self._engine.profiles, shapes)

    def create_probe(self, bucket: Bucket, *, profile: int | None = None) -> TensorRTProbe:
        """Makes a probe of one bucket, with a context, buffers and a graph of its own, on the calling thread.

        Of a bucket of media it times the whole chain: kernels, engine and kernels. One of tensors need not be known.

        Raises:
            ModelLoadFailed, ExecutionFailed, DeviceError: as a lane's warm-up; no profile allows the bucket.
        """
        self._cuda.use_device(self._spec.card.lanes.device)
        shapes = self._probed_shapes(bucket, profile)
        probe = TensorRTProbe.open(self._cuda, self._engine, self._spec, shapes, kernels=self._kernels)
        probe.onnx_path = self._onnx_path
        return probe

    def _probed_shapes(self, bucket: Bucket, profile: int | None) -> BucketShapes:
        known = next((each for each in self._shapes if each.bucket == bucket), None)
        if known is not None and profile in (None, known.profile):
            return known
        allowed = self.profiles(bucket)
        if not allowed:
            raise ModelLoadFailed(
                f"no profile of model '{self._spec.name}' allows bucket {bucket.label}; the engine has "
                f"{ranges_text(self._engine.profiles)}"
            )
        with Stream(self._cuda) as stream:
            chosen = allowed[0] if profile is None else profile
            return shapes_on(self._engine, self._spec, bucket, chosen, stream=stream)

    def create_layer_probe(self, bucket: Bucket) -> TensorRTProbe:
        """As `create_probe`."""
        return self.create_probe(bucket)

    def register(self, host: HostArray) -> HostRegistration:
        """Page-locks `host` for this process's GPUs, on any thread.

        Raises:
            DeviceError: it has gaps, is locked already, or there is not enough lockable memory.
        """
        self._cuda.use_device(self._spec.card.lanes.device)
        return HostRegistration(self._cuda, host)

    def close(self) -> None:
        """Drops the kernels, the engine, its runtime, then the logger; idempotent. The lanes are closed before."""
        self._threads.close()
        try:
            self._kernels.close()
        finally:
            self._engine.close()


def _source(card: ModelCard, plan_path: Path, manifest: Manifest | None, onnx_path: Path | None) -> Path | None:
    """The ONNX model, unless the manifest says that the plan was built from another, or it cannot be read."""
    if onnx_path is None or manifest is None:
        return onnx_path
    try:
        is_source = manifest.is_built_from(onnx_path)
    except OSError:  # what cannot be read is not what is served
        return None
    if is_source is not False:
        return onnx_path
    _log.warning(
        "model '%s': %s is older than the %s beside it, or of another model; `inferlane build %s` builds it again",
        card.name,
        plan_path.name,
        onnx_path.name,
        plan_path.parent,
    )
    return None


def _spec(card: ModelCard, version: str, engine: Engine, onnx_dims: Mapping[str, tuple[Dim, ...]]) -> ModelSpec:
    inputs = unpinned(card, engine.inputs, onnx_dims)
    outputs = unpinned(card, engine.outputs, onnx_dims)
    spec = build_spec(
        card_for_engine(card, (*inputs, *outputs), inputs, engine.profiles),
        version=version,
        platform=TENSORRT_PLATFORM,
        inputs=inputs,
        outputs=outputs,
    )
    refuse_second_batch_axis(spec)
    input_plans(spec)
    return spec


def _media_shapes(spec: ModelSpec, shapes: Sequence[BucketShapes]) -> tuple[BucketShapes, ...]:
    """Of every bucket of media: as the bucket of tensors of its shape."""
    by_bucket = {each.bucket: each for each in shapes}
    return tuple(
        replace(by_bucket[Bucket(bucket.padded_size, bucket.dims)], bucket=bucket)
        for bucket in spec.buckets.known()
        if bucket.form is Form.MEDIA
    )


def _refuse_misfits(spec: ModelSpec, shapes: Sequence[BucketShapes]) -> None:
    for each in shapes:
        sized_by_data = [t.name for t, s in zip(spec.outputs, each.outputs, strict=True) if is_data_dependent(s)]
        if sized_by_data and spec.buckets.max_size > 1:
            raise ModelLoadFailed(
                f"outputs {sized_by_data} of model '{spec.name}' have sizes that depend on the data, so what they hold "
                "cannot be told apart by request; set max_batch_size = 0 in [batching], or 1 where every output keeps "
                "a leading dimension for the rows"
            )
        problem = misfit(spec, each.bucket, each.outputs)
        if problem is not None:
            raise ModelLoadFailed(problem)
