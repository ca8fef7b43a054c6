"""What all tests share: Hypothesis profiles, and skipping what this machine cannot run.

With `CI` set, Hypothesis tries the same examples every time, so that a red run is the change's own fault; without
it, it looks for new ones. Neither sets a deadline: durations are not what tests assert.
"""

from __future__ import annotations

import ctypes
import os

import pytest
from hypothesis import settings

settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("local", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips tests marked `gpu` where no GPU answers; the driver is asked only if there are such tests."""
    gpu_items = [item for item in items if item.get_closest_marker("gpu")]
    if not gpu_items:
        return
    reason = _why_no_gpu()
    if reason is not None:
        for item in gpu_items:
            item.add_marker(pytest.mark.skip(reason=reason))


def _why_no_gpu() -> str | None:
    """Why no test can use a GPU here, or None if one answers."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "needs an NVIDIA GPU: its driver (libcuda.so.1) is not installed"
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0:
        return "needs an NVIDIA GPU: the driver is installed but offers no device"
    return None
