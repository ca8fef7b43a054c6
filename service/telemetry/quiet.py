"""Which part of the kept moments makes a window: not the time in which exclusive experiments held requests back. Pure.

During such a run requests wait for pauses and the server asks itself, so that nothing counted then tells of its
traffic. Promises: a window without experiments is as if this were not here; one that they took part of keeps the latest
stretch beside them that is long enough to judge; where there is none, it is left as it was, and its share of
experiments says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from service.telemetry.activity import OccupancyMarks
from service.units import NS_PER_S

SETTLE_S = 5.0
"""After a run, until the requests that its last pause held back are answered: as long as a pause of 2 s takes to be
worked off at a load of 0.7."""

LEAST_QUIET_S = 10.0
"""A stretch after a run is preferred from this length on: twice what a window needs at least."""


class Point(Protocol):
    """A moment: when it was, and the exclusive runs until then."""

    @property
    def at_ns(self) -> int:
        """On the monotonic clock."""

    @property
    def experiments(self) -> OccupancyMarks:
        """Runs as they are inside, integrated until then."""


def quiet_range(points: Sequence[Point], duration_s: float) -> range:
    """The indices of a window.

    Args:
        points: all that are kept, in their order; not empty.
        duration_s: how long the window is at most.

    Returns:
        At least the last point's index. It ends before the last point where the time since a run is too short.
    """
    longest = range(0)
    for stretch in _stretches(points, duration_s):
        if _length_s(points, stretch) >= min(LEAST_QUIET_S, duration_s):
            return _limited(points, stretch, duration_s)
        longest = max(longest, stretch, key=lambda one: _length_s(points, one))
    if _length_s(points, longest) > 0:
        return longest
    return _limited(points, range(len(points)), duration_s)


def experiment_share(first: Point, last: Point) -> float:
    """Share of the time between two moments in which exclusive experiments ran."""
    elapsed_ns = last.at_ns - first.at_ns
    return (last.experiments.area_ns - first.experiments.area_ns) / elapsed_ns if elapsed_ns > 0 else 0.0


def _stretches(points: Sequence[Point], duration_s: float) -> Iterator[range]:
    """Neighbouring moments between which nothing was experimented, the latest first; none much longer than needed."""
    stop = len(points)
    while stop > 0:
        start = stop - 1
        is_quiet = True
        while start > 0 and _length_s(points, range(start, stop)) < duration_s:
            is_quiet = _is_quiet(points[start - 1], points[start])
            if not is_quiet:
                break
            start -= 1
        settled = start
        if not is_quiet:
            until_ns = points[start].at_ns + int(SETTLE_S * NS_PER_S)
            settled = next((index for index in range(start, stop) if points[index].at_ns >= until_ns), stop - 1)
        yield range(settled, stop)
        stop = start


def _is_quiet(early: Point, late: Point) -> bool:
    return not late.experiments.inside and early.experiments.area_ns == late.experiments.area_ns


def _limited(points: Sequence[Point], stretch: range, duration_s: float) -> range:
    since_ns = points[stretch[-1]].at_ns - int(duration_s * NS_PER_S)
    return range(next(index for index in stretch if points[index].at_ns >= since_ns), stretch.stop)


def _length_s(points: Sequence[Point], window: range) -> float:
    return (points[window[-1]].at_ns - points[window[0]].at_ns) / NS_PER_S if window else 0.0
