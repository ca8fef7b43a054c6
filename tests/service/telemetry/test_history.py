"""Moments, and the windows between them."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from service.errors import ModelNotFound, NotReady
from service.telemetry import history as history_module
from service.telemetry.history import Senses
from service.telemetry.recorder import NullRecorder
from tests.doubles.watched_model import WatchedServer


def test_a_window_is_as_long_as_asked_for_and_ends_now():
    server = WatchedServer()
    server.add()
    server.pass_seconds(20)
    span = server.history.span("m", 5.0)
    assert (span.first.at_ns, span.last.at_ns) == (25 * 10**9, 30 * 10**9)
    assert len(span.moments) == 6
    assert span.duration_s == 5.0


def test_a_window_is_no_longer_than_what_is_kept():
    server = WatchedServer(length_s=8)
    server.add()
    server.pass_seconds(20)
    assert server.history.span("m", 60.0).duration_s == 9.0


def test_a_window_that_would_end_within_exclusive_probes_ends_before_them():
    server = WatchedServer()
    server.add()
    server.pass_seconds(20)
    server.experiments.enter(int(29.5e9))
    server.pass_seconds(8)
    span = server.history.span("m", 15.0)
    assert (span.first.at_ns, span.last.at_ns) == (14 * 10**9, 29 * 10**9)
    server.experiments.leave(38 * 10**9)
    server.pass_seconds(30)
    span = server.history.span("m", 60.0)
    assert (span.first.at_ns, span.last.at_ns) == (43 * 10**9, 68 * 10**9), "a while after them until now"


def test_moments_count_on():
    server = WatchedServer()
    model = server.add()
    server.pass_seconds(1)
    model.answer(10.5, rows=3)
    server.pass_seconds(1)
    span = server.history.span("m", 60.0)
    assert [moment.rows for moment in span.moments] == [0, 3, 3]


def test_a_window_does_not_reach_across_a_reload():
    server = WatchedServer()
    model = server.add()
    server.pass_seconds(5)
    model.reload()
    with pytest.raises(NotReady, match="less than 1 s"):
        server.history.span("m", 60.0)
    server.pass_seconds(3)
    assert server.history.span("m", 60.0).duration_s == 3.0


def test_the_busiest_model_of_the_window_is_meant_where_none_is_named():
    server = WatchedServer()
    early, late = server.add(name="early"), server.add(name="late")
    early.run_batch(9.0)
    early.run_batch(9.5)
    server.pass_seconds(2)
    late.run_batch(11.5)
    server.pass_seconds(1)
    assert server.history.span(None, 60.0).model == "late"


def test_unknown_models_and_none_at_all_are_told_apart_from_known_ones():
    server = WatchedServer()
    for name in (None, "m"):
        with pytest.raises(ModelNotFound, match="there are: none"):
            server.history.span(name, 60.0)
    server.add()
    with pytest.raises(ModelNotFound, match="no model 'other' is watched, there are: m;"):
        server.history.span("other", 60.0)


def test_a_server_that_records_nothing_has_no_models():
    server = WatchedServer()
    server.recorder = NullRecorder()
    server.add()
    assert not server.history.now().models


def test_the_history_keeps_no_unloaded_model_alive():
    server = WatchedServer()
    model = server.add()
    server.pass_seconds(3)
    alive = weakref.ref(model)
    server.models.clear()
    server.recorder.forget("m", "1")
    figures = server.history._moments[-1].models["m"].figures
    assert figures.gauges is None
    del model
    gc.collect()
    # The source that a moment keeps may ask the recorder, and nothing of the model's own.
    assert alive() is None


async def test_moments_are_taken_by_a_timer_until_it_is_stopped(monkeypatch):
    monkeypatch.setattr(history_module, "INTERVAL_S", 0.001)
    server = WatchedServer()
    server.add()
    server.history.start()
    await asyncio.sleep(0.05)
    assert len(server.history._moments) > 1
    server.history.stop()
    server.history.stop()
    count = len(server.history._moments)
    await asyncio.sleep(0.01)
    assert len(server.history._moments) == count


def test_by_default_the_real_clocks_are_asked():
    senses = Senses(loop_lag=NullRecorder().loop_lag)
    assert senses.clock() <= senses.clock()
    assert senses.clock_unix_ns() > 10**18
    assert senses.loop_cpu_ns() > 0
    assert (senses.host(), senses.gpus()) == (None, ())
