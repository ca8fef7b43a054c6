"""Where requests are submitted: the seam between what clients send and what runs it, in this process or another one."""

from __future__ import annotations

from typing import Protocol

from service.batching.pending import Submitted
from service.requests import InferenceRequest
from service.telemetry.activity import Activity


class Submitter(Protocol):
    """Takes the requests of one model version. On the event loop."""

    @property
    def activity(self) -> Activity:
        """What a diagnosis wants to know of its requests."""

    def submit(self, request: InferenceRequest) -> Submitted:
        """Takes a validated request; `Submitted.future` resolves to one array per requested output.

        The future ends with Overloaded, NotReady, DeadlineExceeded, ExecutionFailed, DeviceError or ShuttingDown if it
        cannot.

        Raises:
            Overloaded: there is no room, or it is known already that the request could not be dispatched in time.
            NotReady, ShuttingDown: the model takes no requests now, or none of this shape in this form.
        """

    def cancel(self, item: Submitted) -> bool:
        """Drops a request whose client has gone, if it still waits; False if it is known not to."""

    def backlog_ns(self, priority: int) -> float:
        """How long it would take from now until a lane reached a new request of `priority`, in nanoseconds."""

    def lane_time_ns(self, request: InferenceRequest) -> float:
        """What a request takes of all lanes' time, were they one, in nanoseconds; 0 where its shape is not served."""
