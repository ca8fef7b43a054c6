"""One bucket on one buffer set, on its way through a lane's three streams: every call of it prepared beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from service.requests import Batch
from service.runtime.cuda.calls import PreparedCall, run_calls
from service.runtime.cuda.copies import copy_batch_h2d, fill, prepare_h2d
from service.runtime.cuda.device import Cuda
from service.runtime.cuda.stream import Stream
from service.runtime.rows import TensorPlan, gather
from service.runtime.trt.copy_threads import PARALLEL_FROM_BYTES, CopyThreads
from service.runtime.trt.routes import DIRECT_FROM_BYTES, InputPlace, Route, cut, route_batch
from service.runtime.trt.runs import BucketRun


@dataclass(frozen=True, slots=True)
class LaneStreams:
    """A lane's streams: on one alone, the upload of the next batch would wait for this one's kernels."""

    upload: Stream
    compute: Stream
    download: Stream

    @property
    def all(self) -> tuple[Stream, ...]:
        """Every stream, in the order of a batch's way."""
        return (self.upload, self.compute, self.download)


class Launch:
    """Starts batches of one bucket on one buffer set; used by the lane's thread.

    Attributes:
        run: context, graph and buffers.
        h2d_bytes: copied to the device for the latest batch.
    """

    def __init__(
        self, cuda: Cuda, run: BucketRun, plans: Sequence[TensorPlan], threads: CopyThreads, streams: LaneStreams
    ) -> None:
        self._cuda = cuda
        self._plans = tuple(plans)
        self._threads = threads
        self._streams = streams
        self._places = tuple(
            InputPlace.of(plan, host, offset)
            for plan, host, offset in zip(plans, run.host_inputs, run.input_offsets, strict=True)
        )
        self._route: Route | None = None
        self.run = run
        self.h2d_bytes = 0
        self.prepare()

    def prepare(self) -> None:
        """Prepares all calls; again where the run has lost its graph."""
        run, buffers = self.run, self.run.buffers
        upload, compute, download = self._streams.upload, self._streams.compute, self._streams.download
        copy_in = (buffers.device_inputs.address, buffers.pinned_inputs.address, run.h2d_bytes)
        self._begin = (buffers.begun.prepare_record(stream=upload),)
        self._copy_in = (prepare_h2d(self._cuda, *copy_in, stream=upload),)
        self._hand_over = (
            buffers.uploaded.prepare_record(stream=upload),
            compute.prepare_wait(buffers.uploaded),
            buffers.launched.prepare_record(stream=compute),
        )
        self._finish = (
            buffers.computed.prepare_record(stream=compute),
            download.prepare_wait(buffers.computed),
        )
        self._copy_out = run.prepare_download(stream=download)
        self._end = (buffers.done.prepare_record(stream=download),)
        self._replay: tuple[PreparedCall, ...] = ()
        if run.graph is not None:
            self._replay = (run.graph.prepare_launch(stream=compute),)
        before = (*self._begin, *self._copy_in, *self._hand_over)
        self._everything = (*before, *self._replay, *self._finish, *self._copy_out, *self._end)

    def stage(self, batch: Batch) -> None:
        """Copies into pinned memory what does not go to the device from where it lies."""
        self._route = None
        self.h2d_bytes = self.run.h2d_bytes
        if self._is_small(batch):
            gather(batch, self._plans, self.run.host_inputs)
            return
        route = route_batch(batch, self._places, self._cuda.page_locked.covers)
        total_bytes = sum(each.nbytes for each in route.work)
        self._threads.copy(cut(route.work, self._threads.share_bytes(total_bytes)), total_bytes)
        self._route = route
        self.h2d_bytes = route.h2d_bytes

    def start(self) -> None:
        """Gives upload, execution and download of what was staged to the streams, without waiting for any.

        Raises:
            ExecutionFailed: TensorRT refuses the batch.
            DeviceError: CUDA failed.
        """
        route, self._route = self._route, None
        if route is None and self._replay:
            run_calls(self._cuda, self._everything)
            return
        run_calls(self._cuda, self._begin)
        if route is None:
            run_calls(self._cuda, self._copy_in)
        else:
            self._follow(route)
        run_calls(self._cuda, self._hand_over)
        if self._replay:
            run_calls(self._cuda, self._replay)
        else:
            self.run.execute_eagerly(stream=self._streams.compute)
        run_calls(self._cuda, self._finish)
        if self.run.data_dependent is None:
            run_calls(self._cuda, self._copy_out)
        else:
            self.run.download(stream=self._streams.download)
        run_calls(self._cuda, self._end)

    def _is_small(self, batch: Batch) -> bool:
        """Whether looking for a better way would cost more than it gives."""
        if self.run.h2d_bytes >= PARALLEL_FROM_BYTES:
            return False
        return all(request.nbytes < DIRECT_FROM_BYTES for request in batch.requests)

    def _follow(self, route: Route) -> None:
        device, pinned = self.run.buffers.device_inputs.address, self.run.buffers.pinned_inputs.address
        copies = [(device + offset, address, nbytes) for offset, address, nbytes in route.direct]
        copies += [(device + offset, pinned + offset, end - offset) for offset, end in route.staged]
        copy_batch_h2d(self._cuda, copies, stream=self._streams.upload)
        for offset, byte, nbytes in route.fills:
            fill(self._cuda, device + offset, byte, nbytes, stream=self._streams.upload)
