from __future__ import annotations

import os

import pytest

from loadtest.clock import SystemClock
from loadtest.connection import Endpoint
from loadtest.processes import free_port
from loadtest.records import Window
from loadtest.watch import Watch, lane_shares, lane_times
from tests.loadtest.tiny_server import Reply, Request, TinyServer, reply

SAMPLE = 'inferlane_lane_busy_seconds_total{{model="{}",version="1",lane="{}"}} {}\n'
METRICS = (
    "# HELP inferlane_lane_busy_seconds_total Time during which a lane held at least one batch.\n"
    "# TYPE inferlane_lane_busy_seconds_total counter\n"
    + SAMPLE.format("a", 0, 1.5)
    + SAMPLE.format("a", 1, "2e-3")
    + SAMPLE.format('q\\"\\\\', 0, 7)
    + 'inferlane_lanes{model="a",version="1"} 2\n'
)


def test_lane_times_are_found_among_all_metrics() -> None:
    assert lane_times(METRICS.encode()) == {("a/1", "0"): 1.5, ("a/1", "1"): 0.002, ('q"\\/1', "0"): 7.0}


@pytest.mark.parametrize("body", [b"", b"<html>not found</html>", b"\xff\xfe", b"inferlane_lanes 1\n"])
def test_servers_that_tell_no_lanes(body: bytes) -> None:
    assert lane_times(body) == {}


def test_shares_are_of_lanes_that_were_there_all_the_time() -> None:
    before = {("a/1", "0"): 1.0, ("gone/1", "0"): 1.0}
    after = {("a/1", "0"): 2.5, ("new/1", "0"): 1.0}
    assert lane_shares(before, after, 2.0) == {"a/1": {"0": 0.75}}


async def test_both_ends_of_the_measured_time_are_read() -> None:
    scrapes = 0

    async def metrics(request: Request) -> Reply:
        nonlocal scrapes
        scrapes += request.path == "/metrics" and request.headers["x-key"] == "k"
        return reply(200, SAMPLE.format("m", 0, scrapes).encode())

    async with TinyServer(metrics) as server, SystemClock() as clock:
        own = os.getpid()
        watch = Watch(endpoint=server.endpoint, headers=(("X-Key", "k"),), server=own).of_clients([own])
        now_ns = clock.now_ns()
        seen = await watch(clock, Window(now_ns, 1_000_000, 20_000_000, 0))
        assert clock.now_ns() >= now_ns + 21_000_000
    assert scrapes == 2
    assert seen.seconds > 0
    assert seen.lanes == {"m/1": {"0": 1.0 / seen.seconds}}
    assert [load.pid for load in seen.clients] == [own]
    assert own in [load.pid for load in seen.servers]
    assert seen.cores >= 1
    assert seen.client_cores >= 0.0
    assert (seen.server_cores or 0.0) >= 0.0


async def test_a_server_that_tells_nothing_is_watched_all_the_same() -> None:
    async with SystemClock() as clock:
        seen = await Watch(endpoint=Endpoint("127.0.0.1", free_port()))(clock, Window(clock.now_ns(), 0, 1, 0))
    assert (seen.lanes, seen.servers, seen.server_cores, seen.busiest_lanes) == ({}, (), None, None)
