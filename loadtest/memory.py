"""Whether the memory of processes grows: samples over time, and how much the last ones are above the first. Pure.

Medians of the first and the last fifth of the samples are compared: memory of a process under load goes up and down
with what it holds just then, and single samples would tell that.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_PART = 5


@dataclass(frozen=True, slots=True)
class MemorySample:
    """Memory in bytes by process id, at a moment in seconds since the start."""

    at_s: float
    by_process: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class MemoryGrowth:
    """How the memory of a process went.

    Attributes:
        pid: of the process.
        first_bytes: median of its first samples.
        last_bytes: median of its last ones.
        most_bytes: of any sample.
        growth: last over first, minus 1.
        is_whole: whether it was there in every sample; otherwise it started or ended meanwhile.
    """

    pid: int
    first_bytes: float
    last_bytes: float
    most_bytes: int
    growth: float
    is_whole: bool


def memory_growth(samples: Sequence[MemorySample]) -> tuple[MemoryGrowth, ...]:
    """Growth of every process that is in a sample, in ascending order of their ids."""
    pids = sorted({pid for sample in samples for pid in sample.by_process})
    return tuple(_growth(pid, samples) for pid in pids)


def _growth(pid: int, samples: Sequence[MemorySample]) -> MemoryGrowth:
    seen = [sample.by_process[pid] for sample in samples if pid in sample.by_process]
    part = math.ceil(len(seen) / _PART)
    first, last = statistics.median(seen[:part]), statistics.median(seen[-part:])
    return MemoryGrowth(pid, first, last, max(seen), last / max(first, 1) - 1, len(seen) == len(samples))
