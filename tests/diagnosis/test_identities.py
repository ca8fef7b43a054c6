"""Identities of research 2.5 on a live server: figures that are counted apart must agree with each other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.diagnosis.scenarios.loads import Bench
from tests.diagnosis.scenarios.recipes import MODEL
from tests.doubles.running_server import StartServer, add_model, start_server
from tests.doubles.scenario_models import make_worker

__all__ = ["start_server"]

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

LOADS = {
    "few": Bench(options=("--rate", "60"), seconds=7.0),
    "many": Bench(options=("--concurrency", "8"), seconds=7.0),
    "in JSON": Bench(options=("--concurrency", "4", "--wire", "json", "--rows", "1,3"), seconds=7.0),
}


@pytest.fixture(scope="module")
def documents(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    repository: Path = tmp_path_factory.mktemp("repository")
    add_model(repository, MODEL, make_worker, "[batching]\nmax_batch_size = 8\nmax_queue_delay_ms = 2\n")
    server = start_server(repository, cpu_threads=1)
    found = {}
    for name, load in LOADS.items():
        load.run(server.url, MODEL)
        with server.client() as client:
            found[name] = json.loads(client.get("/diagnose", params={"window": load.seconds}).content)
    server.stop()
    return found


@pytest.fixture(params=LOADS)
def document(request: pytest.FixtureRequest, documents: dict[str, dict]) -> dict:
    return documents[request.param]


def under_way(document: dict) -> float:
    """By how many rows counts may differ that are taken at different ends of a request: what an end of the window finds
    in flight. A crowded machine leaves more there than the mean."""
    return 10 + 4 * document["window"]["in_flight"]


def test_the_checks_that_can_be_made_hold(document: dict) -> None:
    checks = {check["name"]: check["passed"] for check in document["window"]["checks"]}
    assert (checks["stage-sum"], checks["little"], checks["utilisation"], checks["clock-step"]) == (True,) * 4
    assert document["window"]["valid"]


def test_stages_sum_to_the_whole_within_a_hundredth(document: dict) -> None:
    window = document["window"]
    assert sum(window["stages_s"].values()) == pytest.approx(window["latency_mean_s"], rel=0.01)
    assert min(window["stages_s"].values()) >= 0


def test_little_s_law_within_a_tenth(document: dict) -> None:
    window = document["window"]
    throughput = window["requests"] / window["duration_s"]
    assert throughput * window["latency_mean_s"] == pytest.approx(window["in_flight"], rel=0.1)


def test_batches_hold_the_rows_that_were_answered(document: dict) -> None:
    in_batches = sum(bucket["rows"] for bucket in document["buckets"])
    assert in_batches == pytest.approx(document["window"]["rows"], rel=0.02, abs=under_way(document))


def test_utilisation_is_throughput_times_demand(document: dict) -> None:
    rows = sum(bucket["rows"] for bucket in document["buckets"])
    device = document["stations"]["device"]
    by_demand = device["utilisation"] * document["window"]["duration_s"] / device["demand_s"]
    assert by_demand == pytest.approx(rows, rel=0.02, abs=under_way(document))
    assert 0 < device["utilisation"] <= 1.0


def test_the_device_is_busy_for_as_long_as_its_batches_take(document: dict) -> None:
    computing_s = sum(bucket["batches"] * bucket["batch_s"] for bucket in document["buckets"])
    busy_s = document["stations"]["device"]["utilisation"] * document["window"]["duration_s"]
    assert computing_s <= busy_s <= 1.5 * computing_s


def test_what_is_part_of_another_station_takes_no_longer(document: dict) -> None:
    for station in document["stations"].values():
        if station["within"]:
            assert station["utilisation"] <= document["stations"][station["within"]]["utilisation"] + 0.02


def test_percentiles_are_in_their_order(document: dict) -> None:
    window = document["window"]
    assert window["latency_p50_s"] <= window["latency_p99_s"]
