"""The sampler's thread on the real machine, and what it makes of moments that a test invents."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from service.telemetry.host_sampler import INTERVAL_S, MAX_WAIT_NS, TIMER_SLACK_NS, HostSampler
from service.units import NS_PER_S

DELAY_NS = 300_000


def wait_for_counters(sampler: HostSampler) -> None:
    deadline_s = time.monotonic() + 10
    while sampler.counters() is None:
        assert time.monotonic() < deadline_s
        threading.Event().wait(0.001)


def test_it_keeps_counters_and_ends_when_told() -> None:
    sampler = HostSampler()
    assert sampler.counters() is None
    sampler.start()
    wait_for_counters(sampler)
    sampler.stop()
    sampler.stop()
    assert "host-sampler" not in [thread.name for thread in threading.enumerate()]


def test_where_the_scheduler_tells_nothing_no_wait_is_measured(tmp_path: Path) -> None:
    sampler = HostSampler(root=tmp_path)
    sampler.start()
    wait_for_counters(sampler)
    sampler.stop()
    counters = sampler.counters()
    assert counters is not None
    assert (counters.interpreter_waits, counters.interpreter_wait_ns) == (None, None)


@pytest.mark.parametrize(
    ("late_ns", "told_ns"), [(0, 0), (TIMER_SLACK_NS + DELAY_NS + 777, 777), (NS_PER_S, MAX_WAIT_NS)]
)
def test_lateness_beyond_slack_and_scheduler_is_the_wait_for_the_interpreter(
    monkeypatch: pytest.MonkeyPatch, late_ns: int, told_ns: int
) -> None:
    delays = iter([0, DELAY_NS])
    monkeypatch.setattr("service.telemetry.host_sampler._delay_ns", lambda schedstat: next(delays))
    times = iter([0, int(INTERVAL_S * NS_PER_S) + late_ns])
    sampler = HostSampler(clock=lambda: next(times))
    monkeypatch.setattr(sampler._is_stopping, "wait", lambda timeout: False)
    assert sampler._look(None) is False
    assert (sampler._waits, sampler._wait_ns) == (1, told_ns)
