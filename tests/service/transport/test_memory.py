from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from service.errors import SettingsInvalid
from service.transport import memory
from service.transport.arena import LEAST_SLOT_BYTES
from service.transport.memory import SharedMemory, region_bytes

WRITE = """
import sys
from service.transport.memory import SharedMemory
SharedMemory.attach(int(sys.argv[1]), int(sys.argv[2])).region(1, 2)[:3] = [7, 8, 9]
"""


def test_another_process_sees_the_same_memory() -> None:
    shared = SharedMemory.create(4 * LEAST_SLOT_BYTES)
    command = [sys.executable, "-c", WRITE, str(shared.fd), str(shared.nbytes)]
    subprocess.run(command, pass_fds=[shared.fd], check=True, timeout=60)
    assert shared.region(1, 2)[:4].tolist() == [7, 8, 9, 0]
    assert not shared.region(0, 2).any()
    shared.close()


def test_regions_do_not_overlap_and_are_whole_pages() -> None:
    shared = SharedMemory.create(10 * LEAST_SLOT_BYTES)
    regions = [shared.region(index, 3) for index in range(3)]
    for index, host_region in enumerate(regions):
        host_region[:] = index + 1
    assert [np.unique(host_region).tolist() for host_region in regions] == [[1], [2], [3]]
    assert {len(host_region) for host_region in regions} == {region_bytes(shared.nbytes, 3)} == {3 * LEAST_SLOT_BYTES}
    shared.close()


def test_views_outlive_the_descriptor() -> None:
    shared = SharedMemory.create(LEAST_SLOT_BYTES)
    host_region = shared.region(0, 1)
    shared.close()
    shared.close()
    host_region[0] = 5
    assert host_region[0] == 5
    with pytest.raises(ValueError, match="closed"):
        shared.region(0, 1)


def test_a_system_without_anonymous_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    shared = memory.SharedMemory.create(LEAST_SLOT_BYTES)
    assert os.fstat(shared.fd).st_nlink == 0
    shared.region(0, 1)[:] = 1
    shared.close()


def test_more_than_the_system_gives_is_refused() -> None:
    with pytest.raises(SettingsInvalid, match=r"INFERLANE_ARENA_BYTES is \d+, and the system does not give"):
        SharedMemory.create(1 << 62)
