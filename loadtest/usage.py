"""What processes use of this machine, as Linux tells it: CPU time by process, memory, and how busy all cores are.

Clock ticks make CPU times coarse (10 ms as a rule): take them over a second at least.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_BYTES_PER_KB = 1024


@dataclass(frozen=True, slots=True)
class ProcessTime:
    """CPU time of a process with all its threads, since it started, in seconds; `name` is what it runs, in short."""

    name: str
    cpu_s: float


@dataclass(frozen=True, slots=True)
class ProcessLoad:
    """What a process used between two moments: `cores` is its CPU time divided by the time that passed."""

    pid: int
    name: str
    cores: float


def process_tree(root: int, proc: Path = PROC) -> tuple[int, ...]:
    """`root` and all that descend from it, in ascending order; empty if `root` has ended."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for folder in proc.iterdir():
        fields = _stat(folder) if folder.name.isdigit() else None
        if fields is not None:
            children[int(fields[1])].append(int(folder.name))
    if _stat(proc / str(root)) is None:
        return ()
    found, unvisited = {root}, [root]
    while unvisited:
        unvisited.extend(child for child in children[unvisited.pop()] if child not in found)
        found.update(unvisited)
    return tuple(sorted(found))


def process_times(pids: Iterable[int], proc: Path = PROC) -> dict[int, ProcessTime]:
    """CPU times by process id; processes that have ended are left out."""
    times = {}
    for pid in pids:
        fields = _stat(proc / str(pid))
        if fields is not None:
            name = process_name(_read(proc / str(pid) / "cmdline"))
            times[pid] = ProcessTime(name, (int(fields[11]) + int(fields[12])) / _TICKS_PER_S)
    return times


def process_loads(
    before: Mapping[int, ProcessTime], after: Mapping[int, ProcessTime], seconds: float
) -> tuple[ProcessLoad, ...]:
    """What each process of `after` used in `seconds`; one that started meanwhile counts from its start."""
    return tuple(
        ProcessLoad(pid, time.name, (time.cpu_s - (before[pid].cpu_s if pid in before else 0.0)) / seconds)
        for pid, time in after.items()
    )


def process_name(command: bytes) -> str:
    """What a NUL-separated command line runs: a module, a script, or a program; `?` if it says nothing."""
    words = [os.fsdecode(word) for word in command.split(b"\0") if word]
    if not words:
        return "?"
    program = Path(words[0]).name
    if not program.startswith("python"):
        return program
    if "-m" in words[:-1]:
        return words[words.index("-m") + 1]
    scripts = [word for word in words[1:] if not word.startswith("-")]
    return Path(scripts[0]).name if scripts and "-c" not in words else program


def memory_bytes(pid: int, proc: Path = PROC) -> int | None:
    """Resident memory of a process (RSS), or None if it has ended.

    All of what it shares counts: its part of that would change with what other processes do. The count that is exact
    is preferred to `statm`, which the kernel brings up to date now and then.
    """
    for line in _read(proc / str(pid) / "smaps_rollup").splitlines():
        if line.startswith(b"Rss:"):
            return int(line.split()[1]) * _BYTES_PER_KB
    pages = _read(proc / str(pid) / "statm").split()
    return int(pages[1]) * os.sysconf("SC_PAGE_SIZE") if len(pages) > 1 else None


def machine_busy_s(proc: Path = PROC) -> float | None:
    """CPU time that all processes together have used since the machine started; None where the kernel hides it."""
    fields = _read(proc / "stat").split(b"\n", 1)[0].split()
    if len(fields) < 8 or fields[0] != b"cpu":
        return None
    user, nice, system, _, _, interrupts, soft_interrupts = (int(field) for field in fields[1:8])
    busy = user + nice + system + interrupts + soft_interrupts
    return busy / _TICKS_PER_S if busy else None


def _stat(folder: Path) -> list[bytes] | None:
    """Fields of a process's `stat` behind its name, which may hold anything; None if it has ended or is a zombie."""
    fields = _read(folder / "stat").rpartition(b")")[2].split()
    return fields if len(fields) > 12 and fields[0] != b"Z" else None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
