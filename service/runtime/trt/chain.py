"""What of a batch the device computes: one CUDA Graph, or the same work given piece by piece.

That is the engine; where the bucket is one of media, kernels before it and after it too.

The marks around it and the copies are no nodes of the graph. They would cost the host less that way, but then each of a
lane's two batches needs a stream of its own, and the GPU takes longer from one stream's graph to the other's than
within one stream: ResNet-50 with 8 images on an H200 fell from 99.6 to 98.0 % of back-to-back replays.
"""

from __future__ import annotations

import logging
from typing import Protocol

from service.device_figures import GraphMiss, MissReason
from service.runtime.cuda.calls import PreparedCall
from service.runtime.cuda.device import Cuda
from service.runtime.cuda.graph import CaptureFailed, Graph, Rework, capture
from service.runtime.cuda.stream import Stream
from service.runtime.trt.buffers import BufferSet
from service.runtime.trt.data_dependent import DataDependentOutputs
from service.runtime.trt.feeds import Feed
from service.tensors import HostArray

_log = logging.getLogger(__name__)


class Run(Protocol):
    """What a chain runs: an engine in one bucket's shapes, on one buffer set, with what surrounds it on the device.

    Every method only gives work to a stream, but for `fill_inputs`.
    """

    buffers: BufferSet
    feed: Feed
    context_bytes: int
    sized_by_data: set[str]
    data_dependent: DataDependentOutputs | None

    @property
    def host_outputs(self) -> tuple[HostArray, ...]:
        """dtype[padded shape] pinned, per output; valid once the download is done."""

    @property
    def upload_address(self) -> int:
        """Device address that the pinned inputs are copied to."""

    @property
    def h2d_bytes(self) -> int:
        """What the upload of a small batch copies."""

    @property
    def d2h_bytes(self) -> int:
        """What the latest download has copied, or the next one will."""

    @property
    def data_dependent_bytes(self) -> int:
        """Device memory of the outputs whose sizes depend on the data."""

    def fill_inputs(self) -> None:
        """Puts synthetic values into the pinned inputs, the same every time."""

    def upload(self, *, stream: Stream) -> None:
        """Copies what `fill_inputs` has written to the device."""

    def poison_outputs(self, *, stream: Stream) -> None:
        """Overwrites what an earlier run left on the device."""

    def enqueue(self, *, stream: Stream) -> bool:
        """Gives the work to the stream; False if TensorRT refuses, which `take_errors` explains."""

    def execute(self, *, stream: Stream) -> None:
        """`enqueue`, whose refusal is an error.

        Raises:
            ExecutionFailed: TensorRT refuses the batch; the run can be used again.
            DeviceError: CUDA refuses, or there is no memory for an output whose size depends on the data.
        """

    def take_errors(self) -> str:
        """What TensorRT said of the latest failure."""

    def download(self, *, stream: Stream) -> None:
        """Copies the outputs to the host."""

    def prepare_download(self, *, stream: Stream) -> tuple[PreparedCall, ...]:
        """`download` for later; without the outputs whose sizes depend on the data."""

    def download_sized_by_data(self, *, stream: Stream) -> None:
        """Copies the outputs to the host whose sizes the latest run has told, if there are any."""


class Chain:
    """One bucket's chain on one buffer set; used by the thread that owns the stream.

    Args:
        cuda: the process's CUDA.
        run: bound.
        stream: orders it, after the upload and before the download.
        rework: what is done to the captured graph, if anything.

    Attributes:
        stream: likewise.
        graph: what is replayed; None where it is executed eagerly.
    """

    def __init__(self, cuda: Cuda, run: Run, *, stream: Stream, rework: Rework | None = None) -> None:
        self._cuda = cuda
        self._run = run
        self._rework = rework
        self.stream = stream
        self.graph: Graph | None = None

    @property
    def graph_bytes(self) -> int:
        """Device memory that its graph took, as measured around the capture; 0 where there is none."""
        return self.graph.device_bytes if self.graph is not None else 0

    def replay(self) -> None:
        """Launches the graph, which must be there.

        Raises:
            DeviceError: CUDA refuses the launch, or earlier work failed.
        """
        assert self.graph is not None, "a chain without a graph is executed eagerly"
        self.graph.launch(stream=self.stream)

    def execute_eagerly(self) -> None:
        """Gives the work to the stream piece by piece, whether there is a graph or not.

        Raises:
            ExecutionFailed: TensorRT refuses the batch; the chain can be used again.
            DeviceError: CUDA refuses, or there is no memory for an output whose size depends on the data.
        """
        self._run.execute(stream=self.stream)

    def warm_up(self) -> GraphMiss | None:
        """Runs once eagerly, captures, and keeps the graph if its replay gives the same bits.

        One that was reworked and gives others is captured once more and left as it is.

        Returns:
            None, or why the chain stays eager.

        Raises:
            ExecutionFailed: the model does not run in this shape at all.
            DeviceError: CUDA failed for good.
        """
        run = self._run
        run.fill_inputs()
        eager = self._run_once()
        if run.sized_by_data:
            names = ", ".join(f"'{name}'" for name in sorted(run.sized_by_data))
            return GraphMiss(MissReason.DATA_DEPENDENT, f"the size of {names} depends on the data")
        miss = self._capture(eager, self._rework)
        if self._rework is None or miss is None or miss.reason is not MissReason.REPLAY_DIFFERS:
            return miss
        _log.warning("a bucket's graph gives other bits once its fills are kernels; it is captured again without them")
        return self._capture(eager, None)

    def close_graph(self) -> None:
        """Goes back to eager execution; idempotent. No replay may be running."""
        graph, self.graph = self.graph, None
        if graph is not None:
            graph.close()

    def _capture(self, eager: tuple[bytes, ...], rework: Rework | None) -> GraphMiss | None:
        """Keeps the graph if its replay gives the eager run's bits; else says why not."""
        run, stream = self._run, self.stream
        try:
            self.graph = capture(self._cuda, lambda: run.enqueue(stream=stream), stream=stream, rework=rework)
        except CaptureFailed as failure:
            words = f"cannot be captured: {failure.reason}; TensorRT: {run.take_errors()}"
            return GraphMiss(MissReason.NOT_CAPTURABLE, words)
        if self._run_once() == eager:
            return None
        self.close_graph()
        return GraphMiss(MissReason.REPLAY_DIFFERS, "the replay of its graph differs from the eager run")

    def _run_once(self) -> tuple[bytes, ...]:
        """The outputs' bits. What an earlier run left on the device is overwritten first: it could pass for them."""
        run, stream = self._run, self.stream
        run.poison_outputs(stream=stream)
        run.upload(stream=stream)
        if self.graph is not None:
            self.replay()
        else:
            self.execute_eagerly()
        run.download(stream=stream)
        stream.sync()
        return tuple(host.tobytes() for host in run.host_outputs)
