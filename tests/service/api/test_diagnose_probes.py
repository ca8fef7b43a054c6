"""`/diagnose/probes` on a real model in this process: beside its traffic, in turns with it, and its ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry
from pydantic import SecretStr

from service.api import diagnose_probes
from service.api.diagnose_probes import parse_order
from service.api.probe_schemas import ProbesRequest
from service.api.probe_subjects import busiest
from service.buckets import Bucket
from service.errors import InvalidInput
from service.probes import pacing
from service.probes import runner as runner_module
from service.probes.catalogue import CATALOGUE
from service.probes.pacing import Mode, Shadow
from service.requests import BatchTimings
from service.telemetry.recorder import ModelGauges, Recorder
from tests.doubles import onnx_models
from tests.doubles.running_app import App, running
from tests.doubles.running_server import add_model

WAIT_S = 60
PROBES = "/diagnose/probes"
INFER = "/v2/models/simple/infer"
TENSORS = [{"name": name, "shape": [1, 16], "datatype": "INT32", "data": [1] * 16} for name in ("INPUT0", "INPUT1")]
SHARE = 0.4


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    add_model(tmp_path, "simple", onnx_models.make_simple, "[batching]\nmax_batch_size = 8\n")
    return tmp_path


@pytest.fixture(autouse=True)
def _impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A larger share of the time, and a shorter look at the traffic, so that tests end soon."""
    monkeypatch.setattr(pacing, "BASELINE_S", 0.05)
    monkeypatch.setattr(runner_module, "Shadow", partial(Shadow, share=SHARE))


async def finished(server: App, run: httpx.Response) -> dict[str, Any]:
    """The run's document once it is over."""
    assert run.status_code == 202, run.text
    deadline_s = time.monotonic() + WAIT_S
    while time.monotonic() < deadline_s:
        document = (await server.request("GET", run.headers["location"])).json()
        if document["state"] != "running":
            return document
        await asyncio.sleep(0.02)
    raise AssertionError("it does not end")


@asynccontextmanager
async def traffic(server: App, statuses: list[int], count: int = 2) -> AsyncIterator[None]:
    """So many clients, each with one request in flight, as long as the context is open; every status that they get."""
    is_over = asyncio.Event()

    async def client() -> None:
        while not is_over.is_set():
            statuses.append((await server.request("POST", INFER, json={"inputs": TENSORS})).status_code)

    clients = [asyncio.ensure_future(client()) for _ in range(count)]
    yield
    is_over.set()
    await asyncio.wait_for(asyncio.gather(*clients), WAIT_S)


async def test_beside_traffic_nothing_is_lost_and_the_share_is_kept(repository: Path) -> None:
    statuses: list[int] = []
    async with running(repository) as server, traffic(server, statuses):
        began_s = time.monotonic()
        order = {"model": "simple", "probes": ["codecs", "lanes"], "mode": "shadow"}
        document = await finished(server, await server.request("POST", PROBES, json=order))
        elapsed_s = time.monotonic() - began_s
    assert set(statuses) == {200}
    assert len(statuses) > 20
    assert {probe["state"] for probe in document["probes"]} <= {"done", "stopped"}
    assert sum(probe["busy_s"] for probe in document["probes"]) <= 1.2 * SHARE * elapsed_s + 0.5


async def test_in_turns_with_traffic_every_request_is_answered(repository: Path) -> None:
    statuses: list[int] = []
    async with running(repository) as server, traffic(server, statuses):
        order = {"probes": ["lanes", "layers", "codecs"], "mode": "exclusive", "max_pause_s": 0.2}
        document = await finished(server, await server.request("POST", PROBES, json=order))
    assert set(statuses) == {200}
    assert [probe["state"] for probe in document["probes"]] == ["done", "done", "done"]
    assert {"lane_rates", "json_codec", "binary_codec"} <= set(document["figures"])
    assert document["layers"]


async def test_what_was_found_becomes_part_of_the_next_diagnosis(repository: Path) -> None:
    async with running(repository) as server:
        run = await server.request("POST", PROBES, json={"probes": ["layers", "launches"], "mode": "exclusive"})
        document = await finished(server, run)
        assert [probe["state"] for probe in document["probes"]] == ["skipped", "done"]
        assert "no device" in document["probes"][0]["reason"]

        async def diagnosis() -> httpx.Response:
            await server.request("POST", INFER, json={"inputs": TENSORS})
            return await server.request("GET", "/diagnose?model=simple")

        answer = await until_ok(diagnosis)
        assert answer.json()["layers"], "which nobody else profiles"


async def until_ok(ask: Callable[[], Awaitable[httpx.Response]]) -> httpx.Response:
    deadline_s = time.monotonic() + WAIT_S
    while (answer := await ask()).status_code != 200:
        assert time.monotonic() < deadline_s, answer.text
        await asyncio.sleep(0.05)
    return answer


async def test_a_run_excludes_others_until_it_is_cancelled(repository: Path) -> None:
    async with running(repository) as server:
        first = await server.request("POST", PROBES, json={"probes": "all"})
        second = await server.request("POST", PROBES, json={"probes": "all"})
        assert second.status_code == 409
        assert f"DELETE {first.headers['location']}" in second.json()["error"]
        assert (await server.request("DELETE", first.headers["location"])).status_code == 200
        document = await finished(server, first)
        assert document["state"] == "stopped"
        assert {probe.get("reason") for probe in document["probes"] if probe["state"] == "stopped"} == {
            "it was cancelled"
        }
        third = await server.request("POST", PROBES, json={"probes": "all"})
        assert third.status_code == 409
        assert int(third.headers["retry-after"]) in range(1, 11)


async def test_unloading_and_the_servers_end_do_not_wait_for_it(repository: Path) -> None:
    add_model(repository, "other", onnx_models.make_simple)
    async with running(repository) as server:
        run = await server.request("POST", PROBES, json={"model": "simple", "mode": "exclusive"})
        unloaded = await server.request("POST", "/v2/repository/models/simple/unload")
        assert unloaded.status_code == 200
        document = await finished(server, run)
        assert document["state"] == "stopped"
        assert (await server.request("POST", PROBES, json={"model": "simple"})).status_code == 503
        assert (await server.request("POST", PROBES, json={"model": "other", "mode": "exclusive"})).status_code == 202


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"probes": ["lunches"]}, 400, "there are launches, copies"),
        ({"probes": []}, 400, "'probes' names none"),
        ({"probes": 3}, 400, "a list of names"),
        ({"probes": [3]}, 400, "a list of names"),
        ({"mode": "loud"}, 400, "one of shadow, exclusive, got 'loud'"),
        ({"mode": None}, 400, "got null"),
        ({"model": 7}, 400, "must be a model's name, got 7"),
        ({"model": "nobody"}, 404, "nobody"),
        ({"max_pause_s": 60}, 400, "from 0.05 to 10"),
        ({"max_pause_s": True}, 400, "got true/false"),
        ({"max_pause_s": float("nan")}, 400, "JSON"),
        ({"modes": "shadow"}, 400, "allowed are max_pause_s, mode, model, probes"),
    ],
)
async def test_what_is_refused(repository: Path, body: dict[str, Any], status: int, words: str) -> None:
    async with running(repository) as server:
        content = str(body).replace("'", '"').replace("True", "true").replace("None", "null")
        answer = await server.request("POST", PROBES, content=content)
        assert answer.status_code == status
        assert words in answer.json()["error"]


async def test_of_several_models_one_must_be_named(repository: Path) -> None:
    add_model(repository, "other", onnx_models.make_simple)
    async with running(repository) as server:
        answer = await server.request("POST", PROBES, json={})
        assert answer.status_code == 400
        assert "name one of other, simple" in answer.json()["error"]
        for method in ("GET", "DELETE"):
            answer = await server.request(method, f"{PROBES}/nothing")
            assert answer.status_code == 404
            assert "no run of probes 'nothing' is known" in answer.json()["error"]


async def test_they_can_be_switched_off_and_need_the_admin_key(repository: Path) -> None:
    async with running(repository, probes_enabled=False) as server:
        answer = await server.request("POST", PROBES, json={})
        assert answer.status_code == 403
        assert "INFERLANE_PROBES_ENABLED" in answer.json()["error"]
    keys = {"api_key": SecretStr("theirs"), "admin_api_key": SecretStr("ours")}
    async with running(repository, **keys) as server:
        for key, status in (("theirs", 403), ("ours", 202)):
            headers = {"Authorization": f"Bearer {key}"}
            answer = await server.request("POST", PROBES, json={"probes": ["codecs"]}, headers=headers)
            assert answer.status_code == status


def test_an_order_by_default_is_everything_beside_the_traffic() -> None:
    name, order = parse_order({})
    assert name is None
    assert order.kinds == tuple(CATALOGUE.values())
    assert (order.mode, order.max_pause_s) == (Mode.SHADOW, pacing.MAX_PAUSE_S)
    assert parse_order({"max_pause_s": 1})[1].max_pause_s == 1.0
    with pytest.raises(InvalidInput):
        parse_order({"max_pause_s": float("inf")})


def test_the_busiest_buckets_are_those_that_took_most_time() -> None:
    recorder = Recorder(registry=CollectorRegistry(), triton_names_enabled=False)
    known = tuple(Bucket(size) for size in (8, 4, 2, 1))
    assert busiest(None, ()) == ()
    assert busiest(None, known) == (Bucket(1), Bucket(4), Bucket(8)), "nothing ran: small and large ones"
    model = recorder.for_model("m", "1", ModelGauges(int, int, int, int, int))
    for size, ns in ((1, 5), (2, 900), (4, 70), (8, 300), (16, 10_000)):
        timings = BatchTimings(started=0, copied_in=0, computed=ns, copied_out=ns)
        model.record_batch(Bucket(size), size, 1, timings, 0)
    assert busiest(recorder.model_figures("m", "1"), known) == (Bucket(2), Bucket(8), Bucket(4))


def test_the_documented_fields_are_those_that_are_read() -> None:
    assert set(ProbesRequest.model_fields) == diagnose_probes.FIELDS
