"""What the machine, or the container around this process, leaves to it: one answer for the server and the doctor."""

from __future__ import annotations

import math
import os
from pathlib import Path

ROOT = Path("/")


def usable_cores(root: Path = ROOT) -> float:
    """Processors that the affinity mask and the control group's quota leave to this process; may be a fraction.

    Args:
        root: the folder that `sys` lies in.
    """
    cores = float(len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else float(os.cpu_count() or 1)
    group = root / "sys/fs/cgroup"
    quota = read_or_empty(group / "cpu.max") or " ".join(
        read_or_empty(group / "cpu" / name) for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    )
    match quota.split():
        case [allowed, period] if allowed.isdigit() and period.isdigit() and int(period):
            return min(cores, int(allowed) / int(period))
        case _:
            return cores


def default_threads(root: Path = ROOT) -> int:
    """Threads that compute at once without waiting for each other: the whole cores of this process, at least one."""
    return max(1, math.floor(usable_cores(root)))


def memory_bytes(root: Path = ROOT) -> int:
    """Memory of the machine, or the control group's limit if that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    group = root / "sys/fs/cgroup"
    limit = (read_or_empty(group / "memory.max") or read_or_empty(group / "memory" / "memory.limit_in_bytes")).strip()
    return min(total, int(limit)) if limit.isdigit() else total


def read_or_empty(path: Path) -> str:
    """The text of a file of the system, empty if there is none to read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
