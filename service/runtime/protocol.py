"""The seam between scheduling and devices: what a backend and its lanes promise."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias

from service.buckets import Bucket
from service.device_figures import LaneFigures
from service.models import ModelSpec
from service.requests import Batch, BatchResult
from service.runtime.probe import LayerProbe, Probe
from service.tensors import HostArray

Ticket: TypeAlias = object
"""A batch in flight on a lane; opaque to everyone but the lane that gave it."""


class Lane(Protocol):
    """A resource that runs batches one after another, used by the one thread that owns it.

    Buffers for every known bucket exist after `warm_up`; `enqueue` and `sync` allocate nothing but the
    results. An error in either fails the batch, not the lane, unless the lane says otherwise by raising again.
    """

    def warm_up(self, bucket: Bucket) -> None:
        """Allocates the bucket's buffers and runs the model once in its shape.

        Raises:
            ExecutionFailed: the model cannot run in this shape.
        """

    def enqueue(self, batch: Batch) -> Ticket:
        """Copies the rows in and starts the work, without waiting for it where the device allows.

        At most `Backend.lane_depth` tickets may be open at once.
        """

    def sync(self, ticket: Ticket) -> BatchResult:
        """Blocks the lane's thread until the batch is done. Tickets are synced in the order of their enqueues.

        Raises:
            ExecutionFailed: the device or the model failed.
        """

    def figures(self) -> LaneFigures:
        """The lane's totals so far; the one method that any thread may call, also after `close`."""

    def close(self) -> None:
        """Frees the lane's resources; idempotent.

        Raises:
            DeviceError: the device turns out to be lost.
        """


class Backend(Protocol):
    """One model version, opened on one kind of device."""

    @property
    def spec(self) -> ModelSpec:
        """The model's tensors, buckets and limits."""

    @property
    def lane_count(self) -> int:
        """How many lanes the model gets; where its card leaves it open, the least."""

    @property
    def lane_depth(self) -> int:
        """Batches that a lane may hold at once: 1 where copies cannot overlap compute, else 2."""

    @property
    def weights_bytes(self) -> int:
        """Device memory of what all lanes share; 0 on the CPU."""

    def free_device_bytes(self) -> int | None:
        """Memory of the device that nobody has taken, asked now, on any thread; None where there is no device.

        On a device each bucket has kernels of its own, and more lanes than one may pay.
        """

    def create_lane(self, lane_id: int) -> Lane:
        """Makes a lane; called on the thread that will own it."""

    def profiles(self, bucket: Bucket) -> tuple[int, ...]:
        """Optimization profiles that allow a bucket, known or not; the one that runs it first. Empty on the CPU."""

    def create_probe(self, bucket: Bucket, *, profile: int | None = None) -> Probe | None:
        """Makes a probe of one bucket on the calling thread, which will own it; None where there is no device.

        Args:
            bucket: a known one, or another one of tensors that some profile allows.
            profile: one of `profiles`; None takes the first.

        Raises:
            ModelLoadFailed, ExecutionFailed, DeviceError: as a lane's warm-up.
        """

    def create_layer_probe(self, bucket: Bucket) -> LayerProbe:
        """Makes what times one bucket's layers, on the calling thread, which will own it.

        Raises:
            ModelLoadFailed, ExecutionFailed, DeviceError: the model does not open, or does not run in this bucket.
        """

    def register(self, host: HostArray) -> AbstractContextManager[object]:
        """Lets the device read requests' rows in `host` by itself, until the context manager is left.

        Args:
            host: contiguous; it must be as long-lived as what is returned. On the CPU nothing is done with it.

        Raises:
            DeviceError: the memory cannot be page-locked.
        """

    def close(self) -> None:
        """Frees what the lanes shared, after all of them are closed; idempotent."""
