"""The stages of a request that ran in steps: each stage is the sum over its steps, and all still add up to its time.

The stamps of a request are moments, yet a request of several steps queues, computes and prepares more than once. Its
stamps are kept as if all preparing had been done first, then all queueing, and so on: the differences between them are
the sums, the first and the last moment are the real ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from service.requests import StageTimings, Stamps

_MOMENTS = (
    "prepared",
    "formed",
    "dispatched",
    "started",
    "uploaded",
    "copied_in",
    "computed",
    "copied_out",
    "completed",
)
_NOT_OF_A_CALL = {"read": 0, "parse": 0, "prepare": 0, "render": 0, "send": 0}


def begin_steps(stamps: Stamps, prepared_ns: int) -> None:
    """Notes that the first step is ready to be run; nothing has been queued or computed yet."""
    for moment in _MOMENTS:
        setattr(stamps, moment, prepared_ns)


def add_step(stamps: Stamps, calls: Sequence[Stamps]) -> None:
    """Adds a step that ran: the time since the step before it as preparing, then the stages of its slowest call.

    Args:
        stamps: of the request; changed.
        calls: of the step's calls, which were handed to their queues at the same moment and are complete.
    """
    slowest = max(calls, key=_completed)
    between_ns = slowest.prepared - stamps.completed
    for moment in _MOMENTS:
        setattr(stamps, moment, getattr(stamps, moment) + between_ns + getattr(slowest, moment) - slowest.prepared)


def call_timings(stamps: Stamps) -> StageTimings:
    """The stages of one complete call, as a request to its model: it came prepared, and nothing was rendered."""
    return StageTimings.from_stamps(stamps)._replace(**_NOT_OF_A_CALL)


def _completed(stamps: Stamps) -> int:
    return stamps.completed
