"""Who is inside, what came and went, and what the worker threads did, as the diagnosis is told by the routes."""

from __future__ import annotations

from pathlib import Path

from tests.doubles.inference_bench import InferenceBench, infer_body

PREDICT = "/v2/models/m/predict"


async def test_an_answered_request_was_inside_from_its_first_byte_to_its_answer(tmp_path: Path) -> None:
    async with InferenceBench(tmp_path) as bench:
        assert (await bench.post().done()).status == 200
        served = bench.registry.get("m")
        marks = served.activity.in_flight.marks(bench.clock())
        ((timings, _),) = served.recorder.requests
        assert (marks.inside, marks.area_ns) == (0, sum(timings))


async def test_a_failed_request_leaves_no_trace_of_its_stay(tmp_path: Path) -> None:
    async with InferenceBench(tmp_path) as bench:
        assert (await bench.post(b"{}").done()).status == 400
        assert (await bench.post(path="/v2/models/unknown/infer").done()).status == 404
        assert bench.registry.get("m").activity.in_flight.marks(bench.clock())[:2] == (0, 0)


async def test_payloads_and_their_form_are_recorded(tmp_path: Path) -> None:
    async with InferenceBench(tmp_path) as bench:
        answer = await bench.post().done()
        (facts,) = bench.registry.get("m").recorder.request_facts
        assert (facts.is_json, facts.body_bytes, facts.answer_bytes) == (1, len(infer_body()), len(answer.body))
        assert facts.encode > 0
        assert facts.lane_wait == 0


async def test_arrivals_at_the_queue_are_noted(tmp_path: Path) -> None:
    async with InferenceBench(tmp_path) as bench:
        for rows in (1, 3):
            await bench.post(infer_body(rows)).done()
        activity = bench.registry.get("m").activity
        assert activity.arrivals.marks()[:2] == (2, 4)
        assert activity.waiting.marks(bench.clock()).inside == 0
        assert activity.batcher_ns > 0


async def test_work_of_threads_is_charged_to_the_model_in_cpu_time(tmp_path: Path) -> None:
    async with InferenceBench(tmp_path) as bench:
        assert (await bench.post(b"12345678", path=PREDICT).done()).status == 200
        activity = bench.registry.get("m").activity
        assert activity.pool_rows == 2
        assert activity.pool_ns > 0
        (facts,) = bench.registry.get("m").recorder.request_facts
        assert facts.is_json == 0
