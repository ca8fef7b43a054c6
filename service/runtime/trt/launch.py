"""One bucket on one buffer set, on its way through a lane's three streams: every call of it prepared beforehand."""

from __future__ import annotations

from dataclasses import dataclass

from service.requests import Batch, Clock
from service.runtime.cuda.calls import PreparedCall, run_calls
from service.runtime.cuda.copies import copy_batch_h2d, fill, prepare_h2d
from service.runtime.cuda.device import Cuda
from service.runtime.cuda.stream import Stream
from service.runtime.trt.chain import Chain, Run
from service.runtime.trt.copy_threads import CopyThreads
from service.runtime.trt.routes import rounds

ROUNDS = 4
"""Into so many parts a large batch is divided at most: little remains to be copied once the last is gathered."""

ROUND_BYTES = 4 << 20
"""The least that makes a part: below it, to call the helpers once more costs as much as is won."""


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


@dataclass(frozen=True, slots=True)
class LaneParts:
    """What all launches of one lane have in common.

    Attributes:
        cuda: the process's CUDA.
        streams: the lane's.
        threads: they help to gather.
        clock: the lane's.
    """

    cuda: Cuda
    streams: LaneStreams
    threads: CopyThreads
    clock: Clock


class Launch:
    """Starts batches of one bucket on one buffer set; used by the lane's thread.

    Attributes:
        run: the engine's part, and its surroundings where the bucket is one of media.
        chain: what the device computes.
        h2d_bytes: copied to the device for the latest batch.
        begun_ns: when the host gave its upload to the device, on the lane's clock.
        enqueue_ns: what the host took to give the latest batch to the device; of a large one its execution alone.
    """

    def __init__(self, run: Run, chain: Chain, parts: LaneParts) -> None:
        self._cuda = parts.cuda
        self._clock = parts.clock
        self._threads = parts.threads
        self._streams = parts.streams
        self.run = run
        self.chain = chain
        self.h2d_bytes = 0
        self.begun_ns = 0
        self.enqueue_ns = 0
        self.prepare()

    def prepare(self) -> None:
        """Prepares all calls; again where the chain has lost its graph."""
        run, buffers = self.run, self.run.buffers
        upload, compute, download = self._streams.upload, self._streams.compute, self._streams.download
        copy_in = (run.upload_address, buffers.pinned_inputs.address, run.h2d_bytes)
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
            *run.prepare_download(stream=download),
        )
        self._end = (buffers.done.prepare_record(stream=download),)
        self._replay: tuple[PreparedCall, ...] = ()
        if self.chain.graph is not None:
            replay = self.chain.graph.prepare_launch(stream=compute)
            self._replay = (*self._hand_over, replay, *self._finish, *self._end)
        self._everything = (*self._begin, *self._copy_in, *self._replay)

    def start(self, batch: Batch) -> None:
        """Gives upload, execution and download to the streams, without waiting for any.

        What does not go to the device from where it lies is copied into pinned memory first. Where that is much, the
        device already copies one part of it while the host gathers the next.

        Raises:
            ExecutionFailed: TensorRT refuses the batch.
            DeviceError: CUDA failed.
        """
        if not self.run.feed.is_small(batch):
            self._start_large(batch)
            return
        self.run.feed.gather(batch)
        self.h2d_bytes = self.run.h2d_bytes
        self.begun_ns = self._clock()
        if self._replay:
            run_calls(self._cuda, self._everything)
        else:
            run_calls(self._cuda, self._begin)
            run_calls(self._cuda, self._copy_in)
            self._execute()
        self.enqueue_ns = self._clock() - self.begun_ns

    def _start_large(self, batch: Batch) -> None:
        stream = self._streams.upload
        device, pinned = self.run.upload_address, self.run.buffers.pinned_inputs.address
        route = self.run.feed.route(batch, self._cuda.page_locked.covers)
        self.begun_ns = self._clock()
        run_calls(self._cuda, self._begin)
        copies = [(device + offset, address, nbytes) for offset, address, nbytes in route.direct]
        copy_batch_h2d(self._cuda, copies, stream=stream)
        for offset, byte, nbytes in route.fills:
            fill(self._cuda, device + offset, byte, nbytes, stream=stream)
        self.h2d_bytes = sum(nbytes for _, _, nbytes in route.direct)
        total_bytes = sum(each.nbytes for each in route.work)
        round_bytes = max(ROUND_BYTES, -(-total_bytes // ROUNDS))
        for part in rounds(route.work, round_bytes, self._threads.share_bytes(min(total_bytes, round_bytes))):
            self._threads.copy(part.pieces, part.nbytes)
            staged = [(device + offset, pinned + offset, end - offset) for offset, end in part.ranges]
            copy_batch_h2d(self._cuda, staged, stream=stream)
            self.h2d_bytes += sum(end - offset for offset, end in part.ranges)
        copied_ns = self._clock()
        self._execute()
        self.enqueue_ns = self._clock() - copied_ns

    def _execute(self) -> None:
        if self._replay:
            run_calls(self._cuda, self._replay)
            return
        run_calls(self._cuda, self._hand_over)
        self.chain.execute_eagerly()
        run_calls(self._cuda, self._finish)
        self.run.download_sized_by_data(stream=self._streams.download)
        run_calls(self._cuda, self._end)
