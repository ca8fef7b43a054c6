"""GET /diagnose on a history made by hand: forms of the answer, reviews, errors, and what runs where."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import Callable
from dataclasses import replace

import httpx
import jsonschema
import pytest
from fastapi import FastAPI

from service.api import diagnose as diagnose_module
from service.api.diagnose import Diagnoser, diagnose_router
from service.api.errors import install_error_handlers
from service.api.kept_reports import MAX_KEPT, MAX_REVIEWS, KeptReports
from service.diagnosis.finding import BottleneckClass, Gain, GainLabel, GainMetric, Verdict
from service.diagnosis.report import diagnose
from service.diagnosis.review import Outcome, Review, baseline_of
from service.diagnosis.schema import document_schema
from service.diagnosis.track_record import TrackRecord
from service.errors import InvalidInput
from service.telemetry.assemble import Surroundings
from tests.doubles.snapshots import healthy
from tests.doubles.watched_model import WatchedServer

Ask = Callable[..., "asyncio.Future[httpx.Response]"]


def make_ask(server: WatchedServer) -> Ask:
    ids = itertools.count(1)
    diagnoser = Diagnoser(
        server.history, lambda model: Surroundings(pool_threads=2, cpu_count=2.0), report_id=lambda: f"r{next(ids)}"
    )
    app = FastAPI()
    app.include_router(diagnose_router(diagnoser))
    install_error_handlers(app, overload_status=503)

    async def ask(accept: str = "*/*", **query: object) -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://server") as client:
            return await client.get("/diagnose", params=query, headers={"Accept": accept})

    return ask


@pytest.fixture
def server() -> WatchedServer:
    made = WatchedServer()
    model = made.add()
    made.pass_seconds(1)
    for tenth in range(60):
        model.answer(11 + tenth / 10)
        model.run_batch(11 + tenth / 10)
    made.pass_seconds(8)
    return made


@pytest.mark.parametrize("accept", ["*/*", "application/json", "text/html,*/*;q=0.8", "application/json, text/plain"])
async def test_json_by_default_and_by_its_schema(server: WatchedServer, accept: str) -> None:
    answer = await make_ask(server)(accept)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert (answer.headers["vary"], answer.headers["cache-control"]) == ("Accept", "no-store")
    document = json.loads(answer.content)
    jsonschema.validate(document, document_schema())
    assert (document["id"], document["model"]["name"]) == ("r1", "m")
    assert document["window"]["requests"] == 60


async def test_a_report_for_a_terminal(server: WatchedServer) -> None:
    answer = await make_ask(server)("text/plain")
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.text.startswith("m 1 on onnxruntime")


async def test_a_window_as_long_as_asked_for(server: WatchedServer) -> None:
    document = (await make_ask(server)(window=3)).json()
    assert document["window"]["duration_s"] == 3.0


async def test_a_later_report_is_held_against_an_earlier_one(server: WatchedServer) -> None:
    ask = make_ask(server)
    first = (await ask()).json()
    review = (await ask(since=first["id"])).json()
    definitions = document_schema()["$defs"]
    jsonschema.validate(review, {"$ref": "#/$defs/review", "$defs": definitions})
    assert (review["since"], review["id"]) == ("r1", "r2")
    assert "since report r2" in (await ask("text/plain", since="r2")).text


@pytest.mark.parametrize(
    ("query", "status", "told"),
    [
        ({"model": "other"}, 404, "no model 'other' is watched, there are: m;"),
        ({"since": "r9"}, 400, "no report 'r9' is kept"),
        ({"window": 0}, 400, "query.window: got '0'"),
        ({"window": 4000}, 400, "query.window: got '4000'"),
        ({"window": "nan"}, 400, "query.window"),
        ({"window": "long"}, 400, "query.window: got 'long'"),
    ],
)
async def test_bad_questions_are_told_what_is_wrong(
    server: WatchedServer, query: dict[str, object], status: int, told: str
) -> None:
    answer = await make_ask(server)(**query)
    assert answer.status_code == status
    assert told in answer.json()["error"]


async def test_a_model_that_has_just_become_ready_asks_for_patience(server: WatchedServer) -> None:
    server.models[0].reload()
    answer = await make_ask(server)()
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"


async def test_the_work_is_done_on_a_thread_and_one_report_at_a_time(
    server: WatchedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not timed: the event loop goes on while a diagnosis is held, and no second one is begun meanwhile."""
    may_go_on, has_begun = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    begun: list[int] = []

    def held(snapshot, **options):
        begun.append(threading.get_ident())
        loop.call_soon_threadsafe(has_begun.set)
        assert may_go_on.wait(10)
        return diagnose(snapshot, **options)

    monkeypatch.setattr(diagnose_module, "diagnose_snapshot", held)
    ask = make_ask(server)
    asked = [asyncio.ensure_future(ask()) for _ in range(3)]
    await asyncio.wait_for(has_begun.wait(), 10)
    await asyncio.sleep(0.02)
    assert len(begun) == 1
    may_go_on.set()
    assert [answer.status_code for answer in await asyncio.gather(*asked)] == [200] * 3
    assert len(begun) == 3
    assert threading.get_ident() not in begun


async def test_one_report_takes_one_moment_and_reads_each_kept_one_once(server: WatchedServer) -> None:
    counted = 0
    figures = server.models[0].source.figures

    def counting():
        nonlocal counted
        counted += 1
        return figures()

    object.__setattr__(server.models[0].source, "figures", counting)
    await make_ask(server)()
    assert counted == 1


def test_only_the_latest_reports_are_kept() -> None:
    kept = KeptReports()
    baseline = baseline_of(diagnose(healthy(), report_id="r"))
    for number in range(MAX_KEPT + 2):
        kept.keep(replace(baseline, id=f"r{number}"))
    assert kept.get("r2").id == "r2"
    with pytest.raises(InvalidInput, match="no report 'r1' is kept"):
        kept.get("r1")


def reviewed(since: str, *, has_held: bool) -> Review:
    gain = Gain(GainMetric.LATENCY_MEAN, 0.3, 0.2, 0.4, GainLabel.MODELLED)
    outcome = Outcome(
        kind=BottleneckClass.CLOCKS, predicted=gain, achieved=0.3, has_held=has_held, verdict=Verdict.REFUTED, detail=""
    )
    return Review(since=since, id="later", load_change=0.0, is_attributable=True, outcomes=(outcome,))


def test_a_later_look_at_a_report_takes_the_place_of_an_earlier_one():
    kept = KeptReports()
    assert kept.records() == {}
    for has_held in (False, True):
        kept.keep_review(reviewed("r1", has_held=has_held))
    kept.keep_review(reviewed("r2", has_held=False))
    assert kept.records() == {BottleneckClass.CLOCKS: TrackRecord(judged=2, held=1)}


def test_the_oldest_reviews_give_way():
    kept = KeptReports()
    for number in range(MAX_REVIEWS + 1):
        kept.keep_review(reviewed(f"r{number}", has_held=number > 0))
    assert kept.records() == {BottleneckClass.CLOCKS: TrackRecord(judged=MAX_REVIEWS, held=MAX_REVIEWS)}
