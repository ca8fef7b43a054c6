"""Figures that are asked for hold what every front end has counted until then."""

import pytest
from prometheus_client import CollectorRegistry

from service.telemetry.recorder import Recorder
from service.transport import reception as reception_module
from service.transport.wire import Kind, pack_frame
from tests.doubles.held_repository import until
from tests.doubles.transport_bench import TransportBench


class Counts(Recorder):
    """A recorder that only counts failures of no model."""

    def __init__(self):
        super().__init__(registry=CollectorRegistry(), triton_names_enabled=False)
        self.unattributed = 0

    def record_unattributed(self, reason):
        self.unattributed += 1


@pytest.fixture
async def bench(repository):
    async with TransportBench(repository.registry, recorder=Counts()) as made:
        yield made


async def test_what_front_ends_have_just_counted_is_there(bench, monkeypatch):
    monkeypatch.setattr(reception_module, "MAX_SETTLE_S", 600)
    fronts = [await bench.front_end(index).serves("m") for index in range(2)]
    recorder = bench.reception._tools.recorder
    for asked in range(1, 20):
        for front in fronts:
            front.recorder.record_unattributed("invalid")
        await bench.reception.settle()
        assert recorder.unattributed == 2 * asked


async def test_nobody_is_asked_where_nobody_is(bench):
    await bench.reception.settle()


async def test_a_front_end_that_goes_meanwhile_keeps_nobody_waiting(bench, monkeypatch):
    monkeypatch.setattr(reception_module, "MAX_SETTLE_S", 600)
    front = await bench.front_end(0).serves("m")
    monkeypatch.setattr(front.link, "_count", front.vanish)
    await bench.reception.settle()


async def test_a_front_end_that_does_not_say_is_not_waited_for(bench, monkeypatch):
    monkeypatch.setattr(reception_module, "MAX_SETTLE_S", 0.01)
    front = await bench.front_end(0).serves("m")
    answers = []
    monkeypatch.setattr(front.link, "_count", lambda: answers.append(front.link._channel))
    await bench.reception.settle()
    await until(lambda: answers)
    answers[0].send(pack_frame(Kind.COUNTED))  # late, and no harm
    monkeypatch.undo()
    await bench.reception.settle()
    assert front.link.is_up


async def test_an_answer_that_nobody_asked_for_ends_the_session(bench):
    front = await bench.front_end(0).serves("m")
    front.link._channel.send(pack_frame(Kind.COUNTED))
    await until(lambda: not front.link.is_up)
