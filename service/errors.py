"""Every error that the service raises, and the one table of their HTTP statuses.

Which step raises what, in the order of a request's way:

    connection      BodyTimeout, PayloadTooLarge, Overloaded, InvalidInput
    api gate        Unauthorized, Forbidden, PayloadTooLarge, BodyTimeout
    api parse       InvalidInput, UnsupportedMediaType, Unsupported, ModelNotFound
    pipeline        InvalidInput, UnsupportedMediaType, PayloadTooLarge; of a model's outputs: ExecutionFailed
    queue           Overloaded, NotReady, ShuttingDown; later DeadlineExceeded, ClientGone
    lane            ExecutionFailed, DeviceError; InvalidInput where an operator refuses a value
    repository      CardError, ModelLoadFailed, BuilderMissing (at start-up or through the repository API)
    diagnosis       ProbeRunNotFound, Conflict
    command line    SettingsInvalid, DiagnosisUnavailable

An error is raised by the step that knows, and becomes a status once, in `service/api/errors.py`.
The message says what was got, what is allowed and how to mend it. Bad input is never a 5xx, and what is not the
client's fault is never a 4xx; `docs/protocol.md` compares the statuses with Triton's.
"""

from __future__ import annotations

from typing import ClassVar


class ServiceError(Exception):
    """Base of all expected errors.

    Attributes:
        status: the HTTP status that the error is answered with.
        reason: bounded label for metrics.
        retry_after_s: seconds to announce in `Retry-After`, or None.
    """

    status: ClassVar[int] = 500
    reason: ClassVar[str] = "internal"

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_s = retry_after_s


class InvalidInput(ServiceError):
    """The request contradicts the protocol, the model's tensors or its shapes."""

    status = 400
    reason = "invalid"


class Unauthorized(ServiceError):
    """The API key is missing or wrong."""

    status = 401
    reason = "unauthorized"


class Forbidden(ServiceError):
    """The operation is switched off on this server."""

    status = 403
    reason = "forbidden"


class ModelNotFound(ServiceError):
    """No model, or no version of it, by that name."""

    status = 404
    reason = "not_found"


class ProbeRunNotFound(ServiceError):
    """No run of probes by that name."""

    status = 404
    reason = "not_found"


class Conflict(ServiceError):
    """Something that excludes the operation is under way, or has only just ended."""

    status = 409
    reason = "overloaded"


class BodyTimeout(ServiceError):
    """The request's body did not arrive in time."""

    status = 408
    reason = "slow_body"


class PayloadTooLarge(ServiceError):
    """The body, its decompressed form, or the image in it exceeds a configured bound."""

    status = 413
    reason = "too_large"


class UnsupportedMediaType(ServiceError):
    """The content type, or the image format, is not one that the route understands."""

    status = 415
    reason = "unsupported_media"


class ClientGone(ServiceError):
    """The client closed its connection before the answer was ready; nobody reads the status."""

    status = 499
    reason = "cancelled"


class ExecutionFailed(ServiceError):
    """The backend failed while it ran a batch of valid input."""

    status = 500
    reason = "execution"


class DeviceError(ServiceError):
    """A call of the device's driver or runtime library failed; the message names the error and the call.

    Attributes:
        is_sticky: every later call of this process will fail too, so the process must end.
    """

    status = 500
    reason = "device"

    def __init__(self, message: str, *, is_sticky: bool = False) -> None:
        super().__init__(message)
        self.is_sticky = is_sticky


class Unsupported(ServiceError):
    """A part of the protocol that this server does not offer."""

    status = 501
    reason = "unsupported"


class Overloaded(ServiceError):
    """The bounded queue is full, or the deadline cannot be met; refused at once."""

    status = 503
    reason = "overloaded"


class NotReady(ServiceError):
    """The model exists but is not serving yet, or no longer."""

    status = 503
    reason = "not_ready"


class ShuttingDown(ServiceError):
    """The server drains and takes no new work."""

    status = 503
    reason = "shutting_down"


class DeadlineExceeded(ServiceError):
    """The request's time ran out in the queue; it was never dispatched."""

    status = 504
    reason = "timeout"


class SettingsInvalid(ServiceError):
    """A setting has a value that is not allowed; the server does not start."""

    status = 500
    reason = "settings"


class DiagnosisUnavailable(ServiceError):
    """The command line was refused a diagnosis, or could not reach the server; never answered to a client."""


class CardError(ServiceError):
    """A model card is malformed; the message names file, key and the nearest valid key."""

    status = 500
    reason = "card"


class ModelLoadFailed(ServiceError):
    """A model could not be made ready; the message says at which step and why."""

    status = 500
    reason = "load_failed"


class BuilderMissing(ModelLoadFailed):
    """A plan is missing, and nothing here can build one; another backend may serve the model instead."""
