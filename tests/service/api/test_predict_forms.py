"""`/predict` of a task whose media the model takes as they are: both ways, whole, on a backend without a GPU."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from service.buckets import Bucket, Form
from service.errors import ExecutionFailed
from service.requests import InferenceRequest
from tests.doubles.asgi_call import AsgiCall
from tests.doubles.held_backend import HeldBackend
from tests.doubles.held_repository import states
from tests.doubles.inference_bench import InferenceBench, infer_body
from tests.doubles.requests import MAX_TEXT_BYTES, make_media_spec
from tests.doubles.text_task import TextTask

PATH = "/v2/models/m/predict"
LONG = b"z" * (MAX_TEXT_BYTES + 1)


def text_bench(
    root: Path, *, media_sizes: tuple[int, ...] = (1, 2, 4), fails: Callable[[InferenceRequest], bool] = lambda _: False
) -> InferenceBench:
    """Model `m` with a `TextTask`; batches with a request that `fails` never run."""

    def break_(backend: HeldBackend) -> None:
        backend.fails_on = lambda request: ExecutionFailed("no kernel") if fails(request) else None

    bench = InferenceBench(root, max_preparing=100)
    bench.repository.make_spec = partial(make_media_spec, media_sizes=media_sizes)
    bench.repository.make_task = TextTask
    bench.repository.on_open = break_
    return bench


async def predicted(bench: InferenceBench, *lines: bytes) -> dict[str, list[object]]:
    call: AsgiCall = await bench.post(b"\n".join(lines), PATH).done()
    assert call.status == 200, call.body
    answer = json.loads(call.body)
    assert answer["sums"] == [sum(line) for line in lines]
    return answer


def ran_since(bench: InferenceBench, count: int) -> list[Bucket]:
    return [batch.bucket for batch in bench.backend.batches[count:]]


async def test_media_run_together_in_buckets_of_their_own(tmp_path: Path) -> None:
    async with text_bench(tmp_path) as bench:
        before = len(bench.backend.batches)
        answer = await predicted(bench, b"a", b"bc", b"def")
        assert answer["forms"] == ["MEDIA"] * 3
        assert ran_since(bench, before) == [Bucket(4, (), Form.MEDIA)]
        recorder = bench.recorder.models["m", "1"]
        assert [rows for _, rows in recorder.requests] == [3]
        assert recorder.batches == [(Bucket(4, (), Form.MEDIA), 3, 3)]


async def test_what_is_too_large_becomes_a_tensor_beside_the_others(tmp_path: Path) -> None:
    async with text_bench(tmp_path) as bench:
        before = len(bench.backend.batches)
        answer = await predicted(bench, b"a", LONG, b"b")
        assert answer["forms"] == ["MEDIA", "TENSORS", "MEDIA"]
        assert Counter(ran_since(bench, before)) == Counter([Bucket(2, (), Form.MEDIA), Bucket(1)])
        assert [rows for _, rows in bench.recorder.models["m", "1"].requests] == [3]


async def test_clients_of_both_forms_at_once_get_their_own_answers(tmp_path: Path) -> None:
    """HeldLane asserts that no batch mixes forms."""
    async with text_bench(tmp_path) as bench:
        media = [predicted(bench, bytes([97 + client]) * (1 + client), b"x" * (1 + client)) for client in range(16)]
        tensors = [bench.post(infer_body(fill=float(client))).done() for client in range(16)]
        answers = await asyncio.gather(*media, *tensors)
        for client, call in enumerate(answers[16:]):
            assert json.loads(call.body)["outputs"][0]["data"] == [2.0 * client] * 4
        assert len(bench.recorder.models["m", "1"].requests) == 32


@pytest.mark.parametrize("media_sizes", [(1,), (1, 2, 8)])
async def test_without_a_bucket_of_media_the_task_makes_tensors(tmp_path: Path, media_sizes: tuple[int, ...]) -> None:
    async with text_bench(tmp_path, media_sizes=media_sizes, fails=lambda r: r.form is Form.MEDIA) as bench:
        before = len(bench.backend.batches)
        answer = await predicted(bench, b"ab", b"c")
        assert answer["forms"] == ["TENSORS"] * 2
        assert ran_since(bench, before) == [Bucket(2)]
        ((_, _, state, reason),) = states(bench.registry)
        assert state == "READY"
        assert reason.startswith(
            f"{len(media_sizes)} of {4 + len(media_sizes)} buckets are not served: 1:media: no ker"
        )
        unserved = bench.recorder.gauges["m", "1"].unserved
        assert {bucket.label for bucket in unserved} == {f"{size}:media" for size in media_sizes}


async def test_media_that_break_only_in_company_are_still_served_alone(tmp_path: Path) -> None:
    """Start-up tries the first rows of the example; one of them breaks its batch, and the smallest bucket is good."""
    async with text_bench(tmp_path, fails=lambda request: request.nbytes == MAX_TEXT_BYTES - 1 + 4) as bench:
        before = len(bench.backend.batches)
        await predicted(bench, b"ab", b"c")
        assert ran_since(bench, before) == [Bucket(1, (), Form.MEDIA)] * 2
        ((_, _, _, reason),) = states(bench.registry)
        assert reason.startswith("2 of 7 buckets are not served: 2:media: no kernel; 4:media: no kernel")


async def test_a_text_that_breaks_at_run_time_fails_its_request_alone(tmp_path: Path) -> None:
    async with text_bench(tmp_path) as bench:
        bench.backend.fails_on = lambda request: ExecutionFailed("broken") if request.nbytes == 9 else None
        good, bad = predicted(bench, b"ab"), bench.post(b"12345", PATH).done()
        _, call = await asyncio.gather(good, bad)
        assert call.status == 500
        assert call.error == "broken"
