"""How much others took of a machine while a scenario ran: the difference between two looks at its counters.

On a machine that others use, everything is late, and a diagnosis that says so is right. Such an attempt tells nothing
of the rules, so it has to be told from one that does. Linux alone; elsewhere nothing is known and nothing disturbed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
MUCH = 0.1
"""Share of the machine's cores that others may take: of two cores, a fifth of one."""

_IDLE, _IOWAIT, _STEAL, _GUEST = 3, 4, 7, 8


@dataclass(frozen=True, slots=True)
class Looks:
    """Counters at a moment: seconds of processor time, summed over all processors, and of a clock on the wall.

    Attributes:
        at_s: the moment.
        busy_s: in which some process ran; None where the system does not tell.
        stolen_s: that the hypervisor gave to others.
        own_s: of this process, of those that it started and waited for, and of the ones that it names.
    """

    at_s: float
    busy_s: float | None
    stolen_s: float
    own_s: float


@dataclass(frozen=True, slots=True)
class Disturbance:
    """Shares of all processors, between 0 and 1, over the time between two looks.

    Attributes:
        others: taken by other processes.
        stolen: given away by the hypervisor.
    """

    others: float
    stolen: float

    @property
    def is_much(self) -> bool:
        """Whether the machine was not the scenario's own."""
        return self.others + self.stolen > MUCH

    def __str__(self) -> str:
        return f"others took {self.others:.0%} of the cores, {self.stolen:.0%} were stolen"


def look(pids: Iterable[int], proc: Path = PROC) -> Looks:
    """The counters now; `pids` are processes that still run and are the scenario's own."""
    busy_s, stolen_s = _machine(proc)
    own = os.times()
    mine_s = own.user + own.system + own.children_user + own.children_system
    return Looks(time.monotonic(), busy_s, stolen_s, mine_s + sum(_process_s(proc, pid) for pid in pids))


def between(before: Looks, after: Looks, cores: int) -> Disturbance:
    """What others took of `cores` processors between two looks at the same processes."""
    whole_s = (after.at_s - before.at_s) * cores
    if before.busy_s is None or after.busy_s is None or whole_s <= 0:
        return Disturbance(0.0, 0.0)
    others_s = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    return Disturbance(max(0.0, others_s / whole_s), max(0.0, (after.stolen_s - before.stolen_s) / whole_s))


def core_count(proc: Path = PROC) -> int:
    """The processors that the machine's counters are summed over; at least 1."""
    lines = _read(proc / "stat").splitlines()
    return max(1, sum(line.startswith("cpu") and line[3:4].isdigit() for line in lines))


def _machine(proc: Path) -> tuple[float | None, float]:
    fields = _read(proc / "stat").partition("\n")[0].split()[1:]
    if len(fields) <= _GUEST:
        return None, 0.0
    ticks = [int(field) for field in fields[:_GUEST]]
    tick_s = 1.0 / os.sysconf("SC_CLK_TCK")
    return (sum(ticks) - ticks[_IDLE] - ticks[_IOWAIT] - ticks[_STEAL]) * tick_s, ticks[_STEAL] * tick_s


def _process_s(proc: Path, pid: int) -> float:
    # The name, in brackets, may hold blanks; user and system time, own and of children, are the 12th to 15th after it.
    fields = _read(proc / str(pid) / "stat").rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
