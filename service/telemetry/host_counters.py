"""Counters of the process's machine and container that tell whether it gets the CPU it wants. Linux; None elsewhere.

Network interfaces count where a device is behind them: the speed that a virtual one tells is made up.
Sources: `cpu.stat` of the control group (documented in the kernel's cgroup-v2 and sched-bwc pages), `/proc/stat`,
`/proc/pressure/cpu` (PSI), `schedstat` of a thread (sched-stats), and `/sys/class/net` (sysfs-class-net).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from service.machine import ROOT, read_or_empty
from service.units import NS_PER_US

_STEAL_COLUMN = 8
_GUEST_COLUMN = 9
_BYTES_PER_MEGABIT = 125_000


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCounters:
    """What has been counted up to a moment; a counter that the system does not offer is None.

    Attributes:
        at_ns: the moment, on the monotonic clock.
        periods: of the container's CPU quota.
        throttled_periods: those in which it ran out.
        throttled_ns: time that threads were held back for it, added over processors.
        stolen_ticks: processor time that the hypervisor gave to others.
        all_ticks: all processor time, in the same unit.
        pressure_ns: time during which some thread waited for a processor.
        interpreter_waits: how often the wait for the interpreter's lock was measured.
        interpreter_wait_ns: sum of what was found.
        nic_bytes: received or sent, whichever is more, by the machine's network interfaces.
        nic_bytes_per_s: what they carry at most either way, together; not a count.
    """

    at_ns: int
    periods: int | None = None
    throttled_periods: int | None = None
    throttled_ns: int | None = None
    stolen_ticks: int | None = None
    all_ticks: int | None = None
    pressure_ns: int | None = None
    interpreter_waits: int | None = None
    interpreter_wait_ns: int | None = None
    nic_bytes: int | None = None
    nic_bytes_per_s: int | None = None


def read_host_counters(at_ns: int, root: Path = ROOT) -> HostCounters:
    """The system's counters now; reads a few small files, so not on the event loop.

    Args:
        at_ns: the present moment.
        root: the folder that `proc` and `sys` lie in.
    """
    group = _cpu_stat(root)
    throttled_us = group.get("throttled_usec")
    throttled_ns = group.get("throttled_time") if throttled_us is None else throttled_us * NS_PER_US
    nic_bytes, nic_bytes_per_s = _network(root)
    stolen, everything = _ticks(read_or_empty(root / "proc/stat"))
    return HostCounters(
        at_ns=at_ns,
        periods=group.get("nr_periods"),
        throttled_periods=group.get("nr_throttled"),
        throttled_ns=throttled_ns,
        stolen_ticks=stolen,
        all_ticks=everything,
        pressure_ns=_pressure_ns(root),
        nic_bytes=nic_bytes,
        nic_bytes_per_s=nic_bytes_per_s,
    )


def own_run_delay_ns(root: Path = ROOT) -> int | None:
    """How long the calling thread, when it could run, has waited for a processor; None where the system does not tell.

    Args:
        root: the folder that `proc` lies in.
    """
    return run_delay_ns(read_or_empty(root / "proc/thread-self/schedstat"))


def run_delay_ns(schedstat: str) -> int | None:
    """How long a thread that could run has waited for a processor, by its `schedstat`; None if that is not readable."""
    fields = schedstat.split()
    return int(fields[1]) if len(fields) == 3 and fields[1].isdigit() else None


def _cpu_stat(root: Path) -> Mapping[str, int]:
    """Version 2 of control groups, else version 1; empty where neither counts periods."""
    for path in ("sys/fs/cgroup/cpu.stat", "sys/fs/cgroup/cpu/cpu.stat"):
        pairs = [line.split() for line in read_or_empty(root / path).splitlines()]
        counters = {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}
        if "nr_periods" in counters:
            return counters
    return {}


def _ticks(stat: str) -> tuple[int | None, int | None]:
    fields = stat.partition("\n")[0].split()
    if not fields or fields[0] != "cpu" or len(fields) <= _STEAL_COLUMN:
        return None, None
    # Guests' time is part of the user's, which comes before it.
    return int(fields[_STEAL_COLUMN]), sum(map(int, fields[1:_GUEST_COLUMN]))


def _network(root: Path) -> tuple[int | None, int | None]:
    """Bytes and bytes per second of the interfaces that are up, have a device and tell its speed; None without any."""
    received = sent = megabits_per_s = 0
    for interface in sorted((root / "sys/class/net").glob("*")):
        speed = read_or_empty(interface / "speed").strip()
        if not (interface / "device").exists() or not speed.isdigit():
            continue
        megabits_per_s += int(speed)
        received += _number(interface / "statistics/rx_bytes")
        sent += _number(interface / "statistics/tx_bytes")
    if not megabits_per_s:
        return None, None
    return max(received, sent), megabits_per_s * _BYTES_PER_MEGABIT


def _number(path: Path) -> int:
    text = read_or_empty(path).strip()
    return int(text) if text.isdigit() else 0


def _pressure_ns(root: Path) -> int | None:
    """The container's own where it has it, else the machine's."""
    for path in ("sys/fs/cgroup/cpu.pressure", "proc/pressure/cpu"):
        for line in read_or_empty(root / path).splitlines():
            _, _, total = line.partition("total=")
            if line.startswith("some ") and total.isdigit():
                return int(total) * NS_PER_US
    return None
