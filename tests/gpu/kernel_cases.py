"""What the tests of the kernels share: a session on the emulated device or on a real one, and buffers per test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import gettempdir

import pytest

from kernels.compile import nvrtc
from kernels.launch import driver_api
from kernels.session import DeviceSession
from service.runtime.cuda.device import Cuda
from tests.doubles.emulated_device import emulated_session


@cache
def opened(device: str) -> DeviceSession:
    """Compiled and loaded once a process; the process's end frees it."""
    folder = Path(gettempdir()) / f"kernels-{os.getuid()}-{device}"
    if device == "emulated":
        return emulated_session(folder)
    os.environ.setdefault("CUDA_HOME", "/usr/local/cuda")  # where a toolkit lies if nobody says otherwise
    return DeviceSession.open(Cuda.load(), driver_api(), nvrtc(), cache=folder, device=0)


@pytest.fixture(name="session", params=["emulated", pytest.param("gpu", marks=pytest.mark.gpu)])
def device_session(request: pytest.FixtureRequest) -> Iterator[DeviceSession]:
    session = opened(request.param)
    session.cuda.use_device(0)
    before = session.cuda.live
    with session.scope():
        yield session
    assert session.cuda.live == before
    assert int(session.cuda.api.cudaGetLastError()[0]) == 0, "an error was left behind for the next library"
