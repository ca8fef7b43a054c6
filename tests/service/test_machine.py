"""What the server and the doctor take for this process's share of the machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from service.machine import default_threads, memory_bytes, usable_cores


def cgroup(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


@pytest.mark.parametrize(
    ("files", "share"),
    [
        ({}, None),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu.max": "50000 100000\n"}, 0.5),
        ({"cpu.max": "9900000 100000\n"}, None),
        ({"cpu.max": "50000 0\n"}, None),
        ({"cpu.max": "garbage"}, None),
        ({"cpu/cpu.cfs_quota_us": "25000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 0.25),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
    ],
)
def test_usable_cores_heed_the_containers_quota(tmp_path: Path, files: dict[str, str], share: float | None) -> None:
    expected = float(len(os.sched_getaffinity(0))) if share is None else share
    assert usable_cores(cgroup(tmp_path, files)) == expected


@pytest.mark.parametrize(
    ("quota", "threads"), [("10000", 1), ("99999", 1), ("100000", 1), ("250000", 2), ("300000", 3), ("9900000", 8)]
)
def test_threads_are_the_whole_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str, threads: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    assert default_threads(cgroup(tmp_path, {"cpu.max": f"{quota} 100000\n"})) == threads


def test_a_system_without_affinity_has_the_cores_that_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert usable_cores(tmp_path) == 6


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({"memory.max": "1048576\n"}, 1 << 20),
        ({"memory/memory.limit_in_bytes": "2097152\n"}, 2 << 20),
        ({"memory.max": "max\n"}, None),
        ({"memory.max": "999999999999999999\n"}, None),
    ],
)
def test_memory_heeds_the_containers_limit(tmp_path: Path, files: dict[str, str], limit: int | None) -> None:
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert memory_bytes(cgroup(tmp_path, files)) == (machine if limit is None else limit)
