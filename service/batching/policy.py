"""Which waiting requests run next, in which bucket, on which lane: one pure function.

The batch always contains the most urgent request (by priority, then deadline, then age; with a queue delay,
the most urgent of those whose wait is over), so within a priority nothing starves. Among the buckets that can
hold it, the one that does the most useful work per second is taken:

    useful work  = sum over the batch of what each request would cost, per row, in its own best bucket
    rate         = useful work / cost of the candidate bucket

For requests of one shape that is items per second. Across shapes it keeps cheap requests from being lifted
into an expensive bucket merely to fill its rows: lifting happens exactly where the cost table says it pays.
No batch mixes forms; they take turns as shapes do that cannot be joined, by their most urgent requests.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from service.batching.pending import Pending
from service.buckets import Bucket, BucketTable, CostTable, Home

COST_NOISE = 0.03
"""Rates closer than this are equal, and the larger batch wins: warm-up medians vary by about as much."""

PUNCTUAL_RATE_SHARE = 0.8
"""A smaller batch that ends before its requests' deadlines is preferred if it keeps this share of the best rate.

Deadlines bound the dispatch. Under overload every request is dispatched close to its deadline, and batches small
enough to end before it would serve a fraction of what the lanes can: throughput must not be given up for that.
"""


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Run `items`, in this order, in `bucket` on lane `lane_id`, now."""

    items: tuple[Pending, ...]
    bucket: Bucket
    lane_id: int


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Nothing to do before `at_ns` unless something changes."""

    at_ns: int


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing to do until a request or a lane appears."""


Action: TypeAlias = Dispatch | WaitUntil | Idle
IDLE = Idle()


@dataclass(frozen=True, slots=True)
class Rules:
    """What the policy knows of a model.

    Attributes:
        buckets: the padded sizes that are served.
        costs: duration of a batch per bucket.
        max_queue_delay_ns: how long an unfilled batch may wait for company while a lane is idle.
        lane_depth: batches that a lane may hold at once.
    """

    buckets: BucketTable
    costs: CostTable
    max_queue_delay_ns: int
    lane_depth: int


class _Candidate(NamedTuple):
    items: Sequence[Pending]
    rows: int
    bucket: Bucket
    rate: float
    cost_ns: int
    earliest_deadline_ns: int
    takes_all: bool


def next_action(
    groups: Mapping[Home, Sequence[Pending]], lanes_in_flight: Sequence[int], now_ns: int, rules: Rules
) -> Action:
    """Decides the next step.

    Args:
        groups: waiting requests by `Pending.home`, each sequence ascending by `Pending.order`, none expired.
        lanes_in_flight: per lane the batches it holds; a lane that must not be used is reported as full.
        now_ns: the moment of the decision.
        rules: the model's buckets and costs.
    """
    lane_id = min(range(len(lanes_in_flight)), key=lanes_in_flight.__getitem__)
    if not groups or lanes_in_flight[lane_id] >= rules.lane_depth:
        return IDLE
    heads = [group[0] for group in groups.values()]
    if not rules.max_queue_delay_ns:
        if len(heads) == 1 and len(groups[heads[0].home]) == 1:
            return Dispatch((heads[0],), own_bucket(heads[0], rules.buckets), lane_id)
        best = _best_candidate(groups, min(heads, key=_order), now_ns, rules)
        return Dispatch(tuple(best.items), best.bucket, lane_id)
    wake_at_ns: list[int] = []
    for head in sorted(heads, key=_order):
        best = _best_candidate(groups, head, now_ns, rules)
        due_at_ns = _due_at_ns(best, rules)
        if due_at_ns <= now_ns:
            return Dispatch(tuple(best.items), best.bucket, lane_id)
        wake_at_ns.append(due_at_ns)
    return WaitUntil(min(wake_at_ns))


def own_bucket(item: Pending, buckets: BucketTable) -> Bucket:
    """The smallest bucket that holds one request: where nothing else waits there is nothing to weigh."""
    padded_size = buckets.served_size(item.rows, item.home)
    assert padded_size is not None, "a request's home serves its rows, or it would not have been queued"
    return Bucket(padded_size, *item.home)


def _order(item: Pending) -> tuple[int, int, int]:
    return item.order


def _due_at_ns(best: _Candidate, rules: Rules) -> int:
    """Until when a batch may wait for company: not at all if it is full or leaves requests behind."""
    if not best.takes_all or best.rows == rules.buckets.sizes_at(best.bucket.home)[-1]:
        return 0
    oldest_ns = min(item.queued_ns for item in best.items)
    return min(oldest_ns + rules.max_queue_delay_ns, best.earliest_deadline_ns - best.cost_ns)


def _best_candidate(groups: Mapping[Home, Sequence[Pending]], head: Pending, now_ns: int, rules: Rules) -> _Candidate:
    """The batch with `head` in it that does the most useful work per second, or nearly as much and is punctual."""
    candidates: list[_Candidate] = []
    for home in groups:
        if rules.buckets.covers(home, head.home) and head.rows <= rules.buckets.sizes_at(home)[-1]:
            candidates.extend(_candidates(groups, home, rules))
    best_rate = max(c.rate for c in candidates)
    punctual = [
        c
        for c in candidates
        if now_ns + c.cost_ns <= c.earliest_deadline_ns and c.rate >= best_rate * PUNCTUAL_RATE_SHARE
    ]
    choice = punctual or candidates
    good_rate = max(c.rate for c in choice) * (1.0 - COST_NOISE)
    return max((c for c in choice if c.rate >= good_rate), key=lambda c: (c.rows, c.rate))


def _candidates(groups: Mapping[Home, Sequence[Pending]], home: Home, rules: Rules) -> list[_Candidate]:
    """One candidate per padded batch size: the longest prefix of the eligible requests that fits it."""
    eligible, is_whole = _eligible(groups, home, rules.buckets)
    candidates: list[_Candidate] = []
    count = rows = 0
    work_ns = 0.0
    earliest_deadline_ns = eligible[0].deadline_ns
    for padded_size in rules.buckets.sizes_at(home):
        previous = count
        while count < len(eligible) and rows + eligible[count].rows <= padded_size:
            item = eligible[count]
            rows += item.rows
            work_ns += item.work_ns
            earliest_deadline_ns = min(earliest_deadline_ns, item.deadline_ns)
            count += 1
        if count == previous:
            continue
        bucket = Bucket(padded_size, *home)
        cost_ns = rules.costs.cost_ns(bucket)
        takes_all = is_whole and count == len(eligible)
        candidates.append(
            _Candidate(eligible[:count], rows, bucket, work_ns / cost_ns, cost_ns, earliest_deadline_ns, takes_all)
        )
        if takes_all:
            break
    return candidates


def _eligible(
    groups: Mapping[Home, Sequence[Pending]], home: Home, buckets: BucketTable
) -> tuple[Sequence[Pending], bool]:
    """The requests that may run in `home`, in order, as far as one batch can reach; and whether that is all."""
    limit = buckets.sizes_at(home)[-1]
    fitting = [group for own, group in groups.items() if buckets.covers(home, own)]
    is_whole = sum(len(group) for group in fitting) <= limit
    if buckets.limited:
        starts = [_fitting_start(group[:limit], limit) for group in fitting]
        is_whole = is_whole and sum(map(len, starts)) == sum(map(len, fitting))
        fitting = starts
    if len(fitting) == 1:
        return fitting[0][:limit], is_whole
    merged = heapq.merge(*(group[:limit] for group in fitting), key=_order)
    return [item for item, _ in zip(merged, range(limit), strict=False)], is_whole


def _fitting_start(group: Sequence[Pending], limit: int) -> Sequence[Pending]:
    """Its most urgent requests, up to the first that has more rows than this home serves: none may be overtaken."""
    return list(itertools.takewhile(lambda item: item.rows <= limit, group))
