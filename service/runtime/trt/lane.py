"""A lane on the GPU: one thread, one stream that computes, one per direction of copies, two batches in flight."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import cast

from service.buckets import Bucket, Form
from service.device_figures import GraphMiss, LaneFigures, MemoryOwner
from service.errors import DeviceError, ExecutionFailed, ModelLoadFailed
from service.models import ModelSpec
from service.requests import Batch, BatchResult, BatchTimings, Clock, DeviceTimings
from service.runtime.cuda.device import Cuda
from service.runtime.cuda.memory import DeviceBuffer
from service.runtime.cuda.stream import Stream
from service.runtime.protocol import Ticket
from service.runtime.rows import output_plans, tensor_plan
from service.runtime.trt.buffers import BufferSet, Layout, MediaBytes
from service.runtime.trt.chain import Chain, Run
from service.runtime.trt.context import scratch_bytes
from service.runtime.trt.copy_threads import CopyThreads
from service.runtime.trt.device_kernels import DeviceKernels
from service.runtime.trt.engine import Engine
from service.runtime.trt.graph_budget import DEFAULT_SHARE
from service.runtime.trt.launch import LaneParts, LaneStreams, Launch
from service.runtime.trt.media.run import MediaRun, media_bytes
from service.runtime.trt.profiles import BucketShapes
from service.runtime.trt.results import take_results
from service.runtime.trt.runs import BucketRun
from service.runtime.trt.tally import Tally
from service.runtime.trt.warm_buckets import WarmBuckets

LANE_DEPTH = 2

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _InFlight:
    batch: Batch
    launch: Launch
    started_ns: int
    begun_ns: int


class TensorRTLane:
    """Runs batches in contexts of its own. Implements `runtime.protocol.Lane`; depth 2.

    Every bucket has, for each of the two buffer sets, a context that nobody changes after its graph was captured. All
    of them share one scratch, which is safe because all of them execute on one stream. Copies have streams of their
    own: on the same one the next batch's upload would wait for this batch's kernels. A bucket of media has graphs of
    its own, with kernels before and after the engine, and the context of the bucket of tensors of its shape.

    Attributes:
        is_dead: the device is lost to this process; every later call fails.
    """

    def __init__(
        self,
        cuda: Cuda,
        engine: Engine,
        spec: ModelSpec,
        threads: CopyThreads,
        *,
        kernels: DeviceKernels | None = None,
        clock: Clock = time.monotonic_ns,
    ) -> None:
        self._cuda = cuda
        self._engine = engine
        self._spec = spec
        self._threads = threads
        self._kernels = kernels or DeviceKernels()
        self._clock = clock
        self._output_plans = {Form.TENSORS: output_plans(spec)}
        if self._kernels.media is not None:
            form = self._kernels.media.task.form
            self._output_plans[Form.MEDIA] = tuple(tensor_plan(spec, tensor, "") for tensor in form.outputs)
        self._shapes: dict[Bucket, BucketShapes] = {}
        self._stack = ExitStack()
        self._streams: LaneStreams | None = None
        self._scratch: DeviceBuffer | None = None
        self._sets: tuple[BufferSet, ...] = ()
        self._graph_budget_bytes = 0
        self._turn = 0
        self._death: DeviceError | None = None
        self._tally = Tally()
        self._warm = WarmBuckets(spec.name, self._tally)

    def open(self, shapes: Sequence[BucketShapes], *, device: int) -> None:
        """Allocates streams, scratch and both buffer sets, large enough for every bucket, on the lane's thread.

        Args:
            shapes: every bucket that the lane will run.
            device: ordinal of the GPU.

        Raises:
            DeviceError: the device has no room for them.
        """
        spec, cuda = self._spec, self._cuda
        card = spec.card.lanes
        cuda.use_device(device)
        budget_bytes = card.graph_memory_bytes
        free_share_bytes = cuda.memory_info().free_bytes // DEFAULT_SHARE
        self._graph_budget_bytes = free_share_bytes if budget_bytes is None else budget_bytes
        self._shapes = {each.bucket: each for each in shapes}
        input_bytes = max(Layout.of(spec.inputs, each.inputs).nbytes for each in shapes)
        output_bytes = max(1, *(Layout.of(spec.outputs, each.buffered_outputs).nbytes for each in shapes))
        media_shapes = [each for each in shapes if each.bucket.form is Form.MEDIA]
        media = MediaBytes()
        if self._kernels.media is not None and media_shapes:
            media = media_bytes(self._kernels.media.task, spec, media_shapes)
        needed_bytes = max(scratch_bytes(self._engine, profile) for profile in {each.profile for each in shapes})
        with ExitStack() as stack:
            self._streams = LaneStreams(*(stack.enter_context(Stream(cuda)) for _ in range(3)))
            if needed_bytes:
                self._scratch = stack.enter_context(DeviceBuffer(cuda, needed_bytes))
                self._tally.set_memory(MemoryOwner.SCRATCH, needed_bytes)
            sets = []
            for _ in range(LANE_DEPTH):
                buffers = BufferSet(
                    cuda, input_bytes=input_bytes, output_bytes=output_bytes, media=media, completion=card.completion
                )
                stack.callback(buffers.close)
                sets.append(buffers)
            self._sets = tuple(sets)
            self._stack = stack.pop_all()
        self._warm.count_memory(self._sets)

    @property
    def is_dead(self) -> bool:
        """Whether the device is lost to this process."""
        return self._death is not None

    def warm_up(self, bucket: Bucket) -> None:
        """Makes the bucket's contexts, runs each and captures its graph; a bucket that cannot be captured runs eagerly.

        Raises:
            ExecutionFailed: TensorRT cannot make or bind a context, or the model cannot run in this shape.
            DeviceError: CUDA failed.
        """
        if bucket in self._warm:
            return
        made = ExitStack()
        try:
            warmed = [self._warm_launch(bucket, turn, made) for turn in range(LANE_DEPTH)]
        except Exception as error:
            lost = self._settle(error)
            if lost is not None:
                raise lost from error
            if self._death is None:
                made.close()
            raise
        self._stack.callback(made.close)
        miss = next((miss for _, miss in warmed if miss is not None), None)
        launches = [launch for launch, _ in warmed]
        self._warm.add(bucket, launches, miss, budget_bytes=self._graph_budget_bytes)
        self._warm.count_memory(self._sets)

    def enqueue(self, batch: Batch) -> Ticket:
        """Starts upload, execution and download, without waiting for any.

        What the device cannot take from where it lies is copied into pinned memory first. The requests' memory must
        stay as it is until the batch is synced: the device reads page-locked rows itself.

        Raises:
            ExecutionFailed: TensorRT refuses the batch, or the bucket is not warm, or two batches are in flight.
            DeviceError: CUDA failed. Where the error is not sticky the lane goes on working, as after the others.
        """
        started_ns = self._clock()
        launch = self._next_launch(batch.bucket)
        try:
            launch.start(batch)
        except Exception as error:
            lost = self._settle(error)
            if lost is not None:
                raise lost from error
            raise
        run = launch.run
        self._tally.add_batch(
            batch.bucket, is_replay=launch.chain.graph is not None, h2d_bytes=launch.h2d_bytes, d2h_bytes=run.d2h_bytes
        )
        if run.data_dependent is not None:
            self._warm.count_memory(self._sets)
        run.buffers.is_free = False
        self._turn = (self._turn + 1) % LANE_DEPTH
        return _InFlight(batch, launch, started_ns, launch.begun_ns)

    def sync(self, ticket: Ticket) -> BatchResult:
        """Sleeps until the outputs are on the host and copies every request's rows out.

        The times between the stages are the device's own. The upload ends where the engine begins, so `compute` is what
        the engine itself took, and waiting for the batch before counts as upload.

        Raises:
            DeviceError: the batch failed on the device; where the error is sticky, so will all others.
        """
        flight = cast(_InFlight, ticket)
        run = flight.launch.run
        buffers = run.buffers
        self._refuse_if_lost()
        try:
            buffers.done.sync()
            copied_in, computed = self._device_times(flight)
            device = _device_timings(flight, copied_in)
            results = take_results(
                flight.batch, self._output_plans[flight.batch.bucket.form], run.host_outputs, self._threads
            )
        except Exception as error:
            lost = self._settle(error)
            if lost is not None:
                raise lost from error
            raise
        finally:
            buffers.is_free = True
        return BatchResult(results, BatchTimings(flight.started_ns, copied_in, computed, self._clock(), device))

    def figures(self) -> LaneFigures:
        """The totals so far; on any thread, also after the close.

        Of the device's memory, buffers and scratch are what was asked for; contexts and graphs, which TensorRT and CUDA
        allocate, are what the device's free memory shrank by while they were made.
        """
        return self._tally.figures()

    def close(self) -> None:
        """Frees graphs, contexts, buffers and streams, in this order; idempotent.

        Where the device is known to be lost nothing is freed: no call that it had to answer is made, for it may never
        answer.

        Raises:
            DeviceError: the device turns out to be lost.
        """
        streams, self._streams = self._streams, None
        self._tally.forget_memory()
        if self._death is not None:
            return
        for stream in streams.all if streams is not None else ():
            try:
                stream.sync()
            except DeviceError as error:
                self._note(error)
                if error.is_sticky:
                    raise
        self._warm.clear()
        try:
            self._stack.close()
        except DeviceError as error:
            self._note(error)
            if error.is_sticky:
                raise
            _log.warning("model '%s': a lane was not freed completely: %s", self._spec.name, error.message)

    def _warm_launch(self, bucket: Bucket, turn: int, made: ExitStack) -> tuple[Launch, GraphMiss | None]:
        """A launch on one buffer set, and why it has no graph; what is made for it is closed by `made`."""
        cuda, streams = self._cuda, self._open_streams
        free_before = cuda.memory_info().free_bytes
        has_media = bucket.form is Form.MEDIA
        run: Run = self._surrounded(bucket, turn, made) if has_media else self._bound(bucket, turn, made)
        chain = Chain(cuda, run, stream=streams.compute, rework=self._kernels.rework)
        made.callback(chain.close_graph)
        miss = chain.warm_up()
        taken_bytes = free_before - cuda.memory_info().free_bytes - chain.graph_bytes - run.data_dependent_bytes
        run.context_bytes = max(0, taken_bytes)
        return Launch(run, chain, LaneParts(cuda, streams, self._threads, self._clock)), miss

    def _surrounded(self, bucket: Bucket, turn: int, made: ExitStack) -> MediaRun:
        """Kernels around the run of the bucket of tensors: that which is warm, or else one of its own."""
        media = self._kernels.media
        assert media is not None, "a bucket of media is known where the task is loaded"
        tensors = Bucket(bucket.padded_size, bucket.dims)
        if tensors in self._warm:
            engine = cast(BucketRun, self._warm.launch(tensors, turn).run)
        else:
            engine = self._bound(bucket, turn, made)
        run = MediaRun(self._cuda, self._spec, media, self._shapes[bucket], engine)
        run.bind(stream=self._open_streams.compute)
        return run

    def _bound(self, bucket: Bucket, turn: int, made: ExitStack) -> BucketRun:
        """A run of the engine in a bucket's shapes, with a context of its own."""
        buffers = self._sets[turn]
        run = BucketRun(self._cuda, self._engine, self._spec, self._shapes[bucket], buffers)
        made.callback(run.close)
        try:
            run.bind(self._scratch, stream=self._open_streams.compute)
        except ModelLoadFailed as error:  # of this bucket alone: the engine is loaded, and others may have room
            raise ExecutionFailed(error.message) from error
        return run

    @property
    def _open_streams(self) -> LaneStreams:
        assert self._streams is not None, "a lane is warmed between open and close"
        return self._streams

    def _next_launch(self, bucket: Bucket) -> Launch:
        self._refuse_if_lost()
        if not self._sets[self._turn].is_free:
            raise ExecutionFailed(f"the lane holds {LANE_DEPTH} batches already; sync the older one first")
        if bucket not in self._warm:
            raise ExecutionFailed(f"model '{self._spec.name}' was not made ready for bucket {bucket.label}")
        return self._warm.launch(bucket, self._turn)

    def _device_times(self, flight: _InFlight) -> tuple[int, int]:
        """When the engine began and ended, on the host's clock.

        The upload's stream has nothing else to do when it gets a batch, so its first event happens when it is
        recorded; what that misses shows as an end in the future, and all is moved back by as much.
        """
        buffers = flight.launch.run.buffers
        copied_in = flight.begun_ns + buffers.launched.elapsed_ns_since(buffers.begun)
        computed = copied_in + buffers.computed.elapsed_ns_since(buffers.launched)
        ahead = max(0, computed - self._clock())
        return max(flight.started_ns, copied_in - ahead), max(flight.started_ns, computed - ahead)

    def _refuse_if_lost(self) -> None:
        if self._death is not None:
            raise DeviceError(f"the GPU is lost to this process: {self._death.message}", is_sticky=True)

    def _settle(self, error: Exception) -> DeviceError | None:
        """Waits after a failure until nothing of it runs, for its buffers will be used again.

        Returns:
            What must be raised instead, where it turns out that the device is lost; None where `error` says it all.
        """
        if isinstance(error, DeviceError) and error.is_sticky:
            self._note(error)
            return None
        for stream in self._streams.all if self._streams is not None else ():
            try:
                stream.sync()
            except DeviceError as later:
                if later.is_sticky:
                    lost = DeviceError(f"{later.message}, which was found after: {error}", is_sticky=True)
                    self._note(lost)
                    return lost
        return None

    def _note(self, error: DeviceError) -> None:
        """Remembers the first error that lost the device."""
        if error.is_sticky and self._death is None:
            self._death = error
            _log.error("model '%s': the GPU is lost to this process: %s", self._spec.name, error.message)


def _device_timings(flight: _InFlight, copied_in: int) -> DeviceTimings:
    """What the device's marks tell of the copies, and of the time between upload and engine: the batch before."""
    launch = flight.launch
    buffers = launch.run.buffers
    wait = max(0, buffers.launched.elapsed_ns_since(buffers.uploaded))
    return DeviceTimings(
        h2d=max(0, buffers.uploaded.elapsed_ns_since(buffers.begun)),
        wait=min(wait, copied_in - flight.started_ns),
        d2h=max(0, buffers.done.elapsed_ns_since(buffers.computed)),
        enqueue=launch.enqueue_ns,
    )
