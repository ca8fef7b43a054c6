"""The shared memory is page-locked once, with the first device, and its failure is no model's."""

from contextlib import contextmanager

import numpy as np
import pytest

from service.errors import DeviceError
from service.transport.registration import ArenaRegistration


class Device:
    def __init__(self, *, free_bytes=1, fails=False):
        self.free_bytes = free_bytes
        self.fails = fails
        self.registered = []

    def free_device_bytes(self):
        return self.free_bytes

    @contextmanager
    def register(self, host):
        if self.fails:
            raise DeviceError("cudaHostRegister says no")
        self.registered.append(host)
        yield


@pytest.fixture
def host_arena():
    return np.zeros(4096, np.uint8)


def test_the_first_device_takes_it_once(host_arena):
    registration = ArenaRegistration(host_arena)
    cpu, first, second = Device(free_bytes=None), Device(), Device()
    for backend in (cpu, first, second, first):
        registration.opened(backend)
    assert [len(backend.registered) for backend in (cpu, first, second)] == [0, 1, 0]
    assert first.registered[0] is host_arena


def test_a_failure_is_said_once_and_raised_never(host_arena, caplog):
    registration = ArenaRegistration(host_arena)
    registration.opened(Device(fails=True))
    registration.opened(Device(fails=True))
    assert caplog.text.count("cannot be page-locked") == 1
    assert "INFERLANE_ARENA_BYTES" in caplog.text
