from __future__ import annotations

import os
from pathlib import Path

import pytest

from loadtest import usage
from loadtest.usage import (
    ProcessLoad,
    ProcessTime,
    machine_busy_s,
    memory_bytes,
    process_loads,
    process_name,
    process_times,
    process_tree,
)

TICKS = os.sysconf("SC_CLK_TCK")


def add_process(proc: Path, pid: int, parent: int, ticks: tuple[int, int] = (0, 0), state: str = "S") -> Path:
    folder = proc / str(pid)
    folder.mkdir()
    fields = [state, str(parent), *["0"] * 9, str(ticks[0]), str(ticks[1]), *["0"] * 30]
    (folder / "stat").write_text(f"{pid} (a name) with ) 9 9) {' '.join(fields)}\n")
    (folder / "cmdline").write_bytes(b"/usr/bin/python3\0-m\0service.cli\0serve\0")
    return folder


def test_a_tree_holds_all_that_descends_from_its_root(tmp_path: Path) -> None:
    for pid, parent in ((10, 1), (11, 10), (13, 11), (12, 10), (20, 1), (21, 20)):
        add_process(tmp_path, pid, parent)
    (tmp_path / "meminfo").write_text("not a process")
    assert process_tree(10, tmp_path) == (10, 11, 12, 13)
    assert process_tree(13, tmp_path) == (13,)


def test_what_has_ended_is_no_tree(tmp_path: Path) -> None:
    add_process(tmp_path, 10, 1, state="Z")
    add_process(tmp_path, 11, 10)
    assert process_tree(10, tmp_path) == process_tree(99, tmp_path) == ()


def test_times_of_a_process_are_those_of_user_and_system(tmp_path: Path) -> None:
    add_process(tmp_path, 10, 1, ticks=(3 * TICKS, TICKS))
    assert process_times([10, 99], tmp_path) == {10: ProcessTime("service.cli", 4.0)}


def test_loads_count_new_processes_from_their_start_and_forget_ended_ones() -> None:
    before = {1: ProcessTime("a", 10.0), 2: ProcessTime("b", 1.0)}
    after = {1: ProcessTime("a", 11.0), 3: ProcessTime("c", 0.5)}
    assert process_loads(before, after, 2.0) == (ProcessLoad(1, "a", 0.5), ProcessLoad(3, "c", 0.25))


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (b"", "?"),
        (b"/opt/bin/tritonserver\0--x\0", "tritonserver"),
        (b"/venv/bin/python3.11\0-m\0loadtest.worker\0007\0", "loadtest.worker"),
        (b"python\0/venv/bin/inferlane\0serve\0", "inferlane"),
        (b"python\0-c\0import x\0", "python"),
        (b"python\0-m\0", "python"),
        (b"python\0", "python"),
    ],
)
def test_names(command: bytes, name: str) -> None:
    assert process_name(command) == name


def test_memory_is_all_that_is_resident(tmp_path: Path) -> None:
    folder = add_process(tmp_path, 10, 1)
    assert memory_bytes(10, tmp_path) is None
    (folder / "statm").write_text("100 7 3 1 0 1 0\n")
    assert memory_bytes(10, tmp_path) == 7 * os.sysconf("SC_PAGE_SIZE")
    (folder / "smaps_rollup").write_text("00400000-7fff ---p [rollup]\nRss:    9 kB\nPss: 5 kB\n")
    assert memory_bytes(10, tmp_path) == 9 * 1024


@pytest.mark.parametrize(
    ("text", "busy_ticks"),
    [
        ("cpu  10 20 30 400 50 6 7 8 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n", 10 + 20 + 30 + 6 + 7),
        ("cpu  0 0 0 0 0 0 0 0 0 0\n", None),
        ("intr 1 2 3 4 5 6 7 8\n", None),
        ("", None),
    ],
)
def test_the_machine_is_busy_with_all_but_idling_and_waiting(tmp_path: Path, text: str, busy_ticks: int | None) -> None:
    (tmp_path / "stat").write_text(text)
    assert machine_busy_s(tmp_path) == (None if busy_ticks is None else busy_ticks / TICKS)


def test_this_process_is_there() -> None:
    own = os.getpid()
    assert own in process_tree(own)
    assert process_times([own])[own].cpu_s >= 0
    assert (memory_bytes(own) or 0) > 1 << 20
    assert memory_bytes(own, usage.PROC / "nowhere") is None
