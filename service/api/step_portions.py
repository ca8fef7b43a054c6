"""A step's calls in portions that fit into the queues of their models.

A queue that a request fills by itself would refuse it however often it is sent again. So no step hands over more at
once than an empty queue takes; what other clients have in it is another matter, and a refusal for that is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from service.cards import BatchingCard
from service.pipeline.steps import Call


@dataclass(slots=True)
class _Share:
    """What a portion puts into one queue."""

    calls: int = 0
    nbytes: int = 0


def portions(calls: Sequence[Call], limits: Callable[[str], BatchingCard]) -> Iterator[Sequence[Call]]:
    """The calls in their order, in as few portions as their order allows; no call is left out, be it too large.

    Args:
        calls: of one step.
        limits: by `Call.member`, what the queue of its model takes.
    """
    start = 0
    shares: dict[str, _Share] = {}
    for index, call in enumerate(calls):
        share, limit = shares.setdefault(call.member, _Share()), limits(call.member)
        is_full = share.calls + 1 > limit.max_queued_requests or share.nbytes + call.nbytes > limit.max_queued_bytes
        if is_full and index > start:
            yield calls[start:index]
            start, share = index, _Share()
            shares = {call.member: share}
        share.calls += 1
        share.nbytes += call.nbytes
    if start < len(calls):
        yield calls[start:]
