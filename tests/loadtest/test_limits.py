from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.figures import Percentiles, Summary
from loadtest.limits import Limiter, Observation, verdict
from loadtest.usage import ProcessLoad

SUMMARY = Summary(
    requests=1000,
    succeeded=1000,
    offered_per_s=100.0,
    throughput_per_s=100.0,
    throughput_rows_per_s=100.0,
    goodput_per_s=None,
    latency=Percentiles(10.0, 11.0, 12.0, 13.0, 14.0, 15.0),
    service=None,
    send_lag_p99_ms=0.1,
    errors={},
    stages_ms={},
)
IDLE = Observation(
    seconds=10.0,
    clients=(ProcessLoad(1, "loadtest.bench", 0.2),),
    servers=(ProcessLoad(2, "inferlane", 0.3),),
    cores=4,
    busy_cores=0.5,
    lanes={"m/1": {"0": 0.2}},
)
BEHIND = replace(SUMMARY, throughput_per_s=80.0)
BUSY_CLIENT = replace(IDLE, clients=(ProcessLoad(1, "a", 0.2), ProcessLoad(3, "b", 0.95)))
BUSY_LANES = replace(IDLE, lanes={"m/1": {"0": 0.97, "1": 0.93}, "idle/1": {"0": 0.0}})
BUSY_SERVER = replace(IDLE, servers=(ProcessLoad(2, "engine", 0.4), ProcessLoad(4, "frontend", 0.99)), busy_cores=1.6)
BUSY_MACHINE = replace(IDLE, busy_cores=3.9)
UNWATCHED = replace(IDLE, servers=(), lanes={})
LATE = replace(SUMMARY, send_lag_p99_ms=2.5)


@pytest.mark.parametrize(
    ("seen", "summary", "is_open", "limiter", "said"),
    [
        pytest.param(IDLE, SUMMARY, False, Limiter.LOAD, "more requests in flight", id="closed, all idle"),
        pytest.param(BUSY_CLIENT, SUMMARY, False, Limiter.CLIENT, "client process 3 used 0.95", id="closed, client"),
        pytest.param(BUSY_LANES, SUMMARY, False, Limiter.LANES, "lanes of 'm/1' held a batch 95%", id="closed, lanes"),
        pytest.param(BUSY_SERVER, SUMMARY, False, Limiter.PROCESS, "4 (frontend) used 0.99", id="closed, process"),
        pytest.param(BUSY_MACHINE, SUMMARY, False, Limiter.MACHINE, "3.90 of the machine's 4", id="closed, machine"),
        pytest.param(UNWATCHED, SUMMARY, False, Limiter.UNKNOWN, "neither processes nor lanes", id="closed, unwatched"),
        pytest.param(IDLE, SUMMARY, True, Limiter.LOAD, "100.0 of 100.0 due", id="open, served"),
        pytest.param(BUSY_LANES, SUMMARY, True, Limiter.LOAD, "100.0 of 100.0 due", id="open, served by busy lanes"),
        pytest.param(IDLE, LATE, True, Limiter.CLIENT, "left 2.50 ms late at p99, bound 2.00", id="open, late"),
        pytest.param(BUSY_CLIENT, SUMMARY, True, Limiter.CLIENT, "take more --processes", id="open, busy client"),
        pytest.param(BUSY_LANES, BEHIND, True, Limiter.LANES, "95%", id="open, lanes fall behind"),
        pytest.param(
            BUSY_LANES,
            replace(BEHIND, send_lag_p99_ms=900.0),
            True,
            Limiter.LANES,
            "95%",
            id="open, requests wait for connections since lanes fall behind",
        ),
        pytest.param(IDLE, BEHIND, True, Limiter.UNKNOWN, "80% of what was due", id="open, behind for no reason seen"),
        pytest.param(
            IDLE, replace(BEHIND, offered_per_s=0.0), True, Limiter.UNKNOWN, "0% of what was due", id="open, none due"
        ),
    ],
)
def test_verdicts(seen: Observation, summary: Summary, is_open: bool, limiter: Limiter, said: str) -> None:
    found = verdict(seen, summary, is_open=is_open)
    assert found.limiter is limiter
    assert said in found.evidence[0]


@pytest.mark.parametrize(
    ("p50_ms", "lag_ms", "limiter"),
    [
        (1.0, 0.99, Limiter.LOAD),
        (1.0, 1.01, Limiter.CLIENT),
        (100.0, 19.0, Limiter.LOAD),
        (100.0, 21.0, Limiter.CLIENT),
    ],
)
def test_lateness_counts_against_the_latency_that_it_distorts(p50_ms: float, lag_ms: float, limiter: Limiter) -> None:
    latency = replace(SUMMARY.latency or Percentiles(*[0.0] * 6), p50_ms=p50_ms)
    summary = replace(SUMMARY, latency=latency, send_lag_p99_ms=lag_ms)
    assert verdict(IDLE, summary, is_open=True).limiter is limiter


def test_all_that_was_busy_is_named_after_the_first() -> None:
    seen = replace(BUSY_LANES, clients=BUSY_CLIENT.clients, servers=BUSY_SERVER.servers, busy_cores=4.0)
    found = verdict(seen, SUMMARY, is_open=False)
    assert found.limiter is Limiter.CLIENT
    for part, text in zip(("client process 3", "4 cores", "'m/1'", "(frontend)"), found.evidence, strict=False):
        assert part in text


@pytest.mark.parametrize(("busy_cores", "is_noted"), [(0.5, False), (0.8, False), (0.85, True), (None, False)], ids=str)
def test_a_machine_that_is_not_quiet_is_noted(busy_cores: float | None, is_noted: bool) -> None:
    found = verdict(replace(IDLE, busy_cores=busy_cores), SUMMARY, is_open=False)
    assert any("not quiet" in text for text in found.evidence) is is_noted
    assert found.limiter is Limiter.LOAD


LOADS = st.lists(st.floats(0, 4).map(lambda cores: ProcessLoad(5, "p", cores)), max_size=3).map(tuple)


@given(
    clients=LOADS,
    servers=LOADS,
    busy_cores=st.none() | st.floats(0, 4),
    lanes=st.dictionaries(st.just("m"), st.dictionaries(st.sampled_from("01"), st.floats(0, 1))),
    throughput=st.floats(0, 200),
    is_open=st.booleans(),
)
def test_a_verdict_always_has_evidence_and_idle_sides_are_never_blamed(
    clients: tuple[ProcessLoad, ...],
    servers: tuple[ProcessLoad, ...],
    busy_cores: float | None,
    lanes: dict[str, dict[str, float]],
    throughput: float,
    is_open: bool,
) -> None:
    seen = Observation(seconds=1.0, clients=clients, servers=servers, cores=4, busy_cores=busy_cores, lanes=lanes)
    found = verdict(seen, replace(SUMMARY, throughput_per_s=throughput), is_open=is_open)
    assert found.evidence
    if found.limiter is Limiter.CLIENT:
        assert max(load.cores for load in clients) >= 0.9
    if found.limiter is Limiter.PROCESS:
        assert max(load.cores for load in servers) >= 0.9
    if found.limiter is Limiter.LANES:
        assert max(share for lane in lanes.values() for share in lane.values()) >= 0.9
