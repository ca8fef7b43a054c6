"""Requests to composed models are refused before any work is done for them, where they would end too late."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from service.errors import DeadlineExceeded, ExecutionFailed, Overloaded
from service.repository.composed import ComposedModel
from service.units import NS_PER_MS, NS_PER_S
from tests.doubles.held_backend import HeldBackend
from tests.doubles.held_repository import begun, until
from tests.doubles.inference_bench import InferenceBench
from tests.service.api.test_predict_steps import PATH, add_pair


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[InferenceBench]:
    async with InferenceBench(tmp_path) as bench:
        await add_pair(bench)
        yield bench


def pair(bench: InferenceBench) -> ComposedModel:
    model = bench.registry.get("pair")
    assert isinstance(model, ComposedModel)
    return model


def backend(bench: InferenceBench, name: str) -> HeldBackend:
    (found,) = [backend for backend in bench.repository.backends if backend.spec.name == name]
    return found


def teach(model: ComposedModel, *, recognizer_s: float) -> None:
    """A request that took the recogniser so long."""
    progress = model.forecast.begin(now_ns=0, deadline_ns=1 << 62, raw_ns=0)
    model.forecast.bring(progress, "detector", NS_PER_MS)
    model.forecast.bring(progress, "recognizer", recognizer_s * NS_PER_S)
    progress.with_members_ns = int(recognizer_s * NS_PER_S)
    model.forecast.end(progress, now_ns=progress.with_members_ns)


async def test_one_that_would_be_late_reaches_no_member(bench: InferenceBench) -> None:
    model, detector = pair(bench), backend(bench, "det")
    allowed_s = model.spec.card.batching.default_timeout_ns / NS_PER_S
    teach(model, recognizer_s=0.6 * allowed_s)
    bench.repository.hold(detector)
    batches = len(detector.batches)
    first = bench.post(b"1234", PATH)
    await begun(detector)
    second = await bench.post(b"1234", PATH).done()
    assert second.status == 503
    assert "model 'pair' has 1 requests in progress and would take 12000 ms for one more" in second.error
    assert 1 <= int(second.headers["retry-after"]) <= 3
    assert len(detector.batches) == batches + 1
    assert bench.repository.batcher("det").queued_requests == 0
    assert bench.recorder.models["pair", "1"].failures == ["overloaded"]
    assert bench.recorder.models["det", "1"].failures == []
    detector.let(10)
    assert (await first.done()).status == 200
    assert (await bench.post(b"1234", PATH).done()).status == 200


async def test_a_model_at_rest_takes_whatever_it_has_learnt(bench: InferenceBench) -> None:
    teach(pair(bench), recognizer_s=1e6)
    assert (await bench.post(b"1234", PATH).done()).status == 200


async def test_what_members_have_to_do_for_others_counts(bench: InferenceBench) -> None:
    model, recognizer = pair(bench), backend(bench, "rec")
    bench.repository.hold(recognizer)
    others = [bench.post(None, "/v2/models/rec/infer")]
    await begun(recognizer)
    others += [bench.post(None, "/v2/models/rec/infer") for _ in range(3)]
    await until(lambda: bench.repository.batcher("rec").queued_requests == 3)
    assert model._backlog_ns("recognizer") > 0
    assert model._backlog_ns("detector") == 0
    recognizer.let(10)
    for other in others:
        await other.done()


@pytest.mark.parametrize(
    ("error", "has_begun", "teaches"),
    [
        (DeadlineExceeded("late"), False, True),
        (Overloaded("a member's queue"), True, True),
        (Overloaded("no thread"), False, False),
        (ExecutionFailed("broken"), True, False),
    ],
)
async def test_only_lateness_makes_it_more_careful(
    bench: InferenceBench, error: Exception, has_begun: bool, teaches: bool
) -> None:
    model = pair(bench)
    teach(model, recognizer_s=0.001)
    before_ns = model.forecast.safe_ns(NS_PER_S)

    def request() -> None:
        with model.admitted(lambda: 0, NS_PER_S) as progress:
            if has_begun:
                model.forecast.bring(progress, "detector", 1)
            raise error

    with pytest.raises(type(error)):
        request()
    assert (model.forecast.safe_ns(NS_PER_S) > before_ns) is teaches
    assert model.in_flight.count == 0
