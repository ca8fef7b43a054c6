"""What front ends count, in the figures of the engine: as if one process had counted it all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from service.requests import RequestFacts, StageTimings
from service.telemetry.activity import Occupancy
from service.telemetry.metrics import STAGES
from service.telemetry.recorder import ModelGauges, NullRecorder, Recorder
from service.transport.counting import Counting, replay
from service.transport.objects import Hello, PublishedModel, Records, pack_object, unpack_object
from service.transport.remote_recorder import SEND_FROM_BYTES, NotedOccupancy, RemoteRecorder
from service.transport.wire import HEAD_BYTES, Kind
from tests.doubles.requests import linear_costs, make_spec

TIMINGS = StageTimings(*range(1, len(STAGES) + 1))
FACTS = RequestFacts(1, 2, 1, 100, 200, 3)
SPEC = make_spec()
PUBLISHED = PublishedModel(number=1, spec=SPEC, costs=linear_costs(SPEC, fixed_us=1, row_us=1), lanes=1)


class Loads:
    def __init__(self, activity):
        self.activity = activity

    def find(self, number):
        return self if number == 1 else None


class Front:
    """A front end's recorder, and the engine's counting of it."""

    def __init__(self, recorder, activity):
        self.full = 0
        self.cpu_ns = 100
        self.held_bytes = 0
        self.recorder = RemoteRecorder(self._count_full, lambda: self.held_bytes, lambda: self.cpu_ns)
        self.model = self.recorder.for_model(PUBLISHED)
        self.recorder.keep(frozenset({1}))
        self.counting = Counting(Loads(activity), recorder)

    def _count_full(self):
        self.full += 1

    def send(self):
        records = self.recorder.take()
        if records is not None:
            frame = pack_object(Kind.RECORDS, records)
            self.counting.count(unpack_object(memoryview(frame)[HEAD_BYTES:], Records))


class Activity:
    def __init__(self):
        self.in_flight = Occupancy(0)
        self.pool_ns = 0
        self.pool_rows = 0


@pytest.fixture
def activity():
    return Activity()


@pytest.fixture
def recorder():
    recorder = Recorder(registry=CollectorRegistry(), triton_names_enabled=False)
    recorder.for_model("m", "1", ModelGauges(int, int, int, int, int))
    return recorder


@pytest.fixture
def fronts(recorder, activity):
    return [Front(recorder, activity) for _ in range(2)]


def test_answers_are_counted_as_they_were_noted(fronts, recorder):
    alone = Recorder(registry=CollectorRegistry(), triton_names_enabled=False)
    here = alone.for_model("m", "1", ModelGauges(int, int, int, int, int))
    for front in fronts:
        front.model.record_request(TIMINGS, 3, FACTS)
        here.record_request(TIMINGS, 3, FACTS)
        front.send()
    got, expected = (each.model_figures("m", "1").requests for each in (recorder, alone))
    assert got.rows == expected.rows == 6
    assert got.facts.tolist() == expected.facts.tolist()
    assert got.durations.sums == expected.durations.sums


def test_failures_and_what_belongs_to_no_model_are_counted(fronts, recorder):
    for front in fronts:
        front.model.record_failure("timeout")
        front.recorder.record_unattributed("invalid")
        front.recorder.record_unattributed("invalid")
        front.recorder.record_dropped_frame()
        front.recorder.record_loop_lag(1_000_000)
        front.send()
    figures = recorder.figures()
    assert figures.models[0].failures["timeout"] == 2
    assert figures.unattributed_failures["invalid"] == 4
    assert figures.dropped_frames == 2
    assert int(figures.loop_lag.counts.sum()) == 2


def test_the_work_of_each_event_loop_is_told_apart(fronts, recorder):
    for index, front in enumerate(fronts):
        front.counting.begin(Hello(index, restarts=index))
        front.cpu_ns += 10 + index
        front.held_bytes = 4096
        front.recorder.record_loop_lag(1_000_000)
        front.send()
    fronts[1].cpu_ns += 20
    fronts[1].held_bytes = 0
    fronts[1].recorder.record_loop_lag(2_000_000)
    fronts[1].send()
    told = [(each.index, each.loop_cpu_ns, each.held_bytes) for each in recorder.front_ends.moments()]
    assert told == [(0, 10, 4096), (1, 31, 0)]
    assert [each.loop_lag.sums[0] for each in recorder.front_ends.moments()] == [1_000_000, 3_000_000]
    assert recorder.front_ends.restarts == {"front_end_0": 0, "front_end_1": 1}
    fronts[0].counting.end(0)
    assert [each.index for each in recorder.front_ends.moments()] == [1]


def test_nothing_is_sent_where_nothing_happened(fronts):
    assert fronts[0].recorder.take() is None
    fronts[0].recorder.record_dropped_frame()
    assert fronts[0].recorder.take() is not None
    assert fronts[0].recorder.take() is None


def test_streams_of_a_front_end_that_is_gone_are_gone(fronts, recorder):
    for front in fronts:
        front.recorder.record_streams(1)
        front.recorder.record_streams(1)
        front.send()
    fronts[0].recorder.record_streams(-1)
    fronts[0].send()
    assert recorder.figures().open_streams == 3
    fronts[0].counting.end(0)
    assert recorder.figures().open_streams == 2


def test_stays_of_all_front_ends_add_up(fronts, activity):
    fronts[0].model.activity.in_flight.enter(100)
    fronts[1].model.activity.in_flight.enter(200)
    fronts[0].model.activity.in_flight.leave(400)
    fronts[1].model.activity.in_flight.take_back(200, 500)
    fronts[1].model.activity.in_flight.add_stay(500, 700)
    for front in fronts:
        front.send()
    marks = activity.in_flight.marks(1000)
    assert (marks.inside, marks.area_ns) == (0, 300 + 200)


def test_those_inside_a_front_end_that_is_gone_have_left(fronts, activity):
    for front in fronts:
        front.model.activity.in_flight.enter(100)
        front.send()
    fronts[0].counting.end(300)
    marks = activity.in_flight.marks(500)
    assert (marks.inside, marks.area_ns) == (1, 200 + 400)


def test_work_of_media_threads_is_added(fronts, activity):
    for front in fronts:
        front.model.activity.pool_ns += 5
        front.model.activity.pool_rows += 2
        front.send()
    assert (activity.pool_ns, activity.pool_rows) == (10, 4)


def test_a_load_that_is_gone_still_counts_for_its_model(fronts, recorder, activity):
    replaced = fronts[0].recorder.for_model(PublishedModel(number=9, spec=SPEC, costs=PUBLISHED.costs, lanes=1))
    replaced.activity.in_flight.enter(100)
    replaced.record_request(TIMINGS, 1)
    fronts[0].send()
    assert recorder.model_figures("m", "1").requests.rows == 1
    assert activity.in_flight.count == 0


def test_a_load_is_kept_until_its_last_request_has_ended(fronts):
    front = fronts[0]
    front.model.activity.in_flight.enter(100)
    front.recorder.keep(frozenset())
    front.send()
    front.model.activity.in_flight.leave(200)
    front.model.record_request(TIMINGS, 1)
    (last,) = front.recorder.take().models
    assert last.rows
    front.model.record_request(TIMINGS, 1)
    assert front.recorder.take() is None


def test_a_load_that_was_just_made_outlives_what_is_sent_before_it_serves(fronts, recorder):
    front = fronts[0]
    front.recorder.lose()
    front.model = front.recorder.for_model(PUBLISHED)
    front.send()
    front.recorder.keep(frozenset({1}))
    front.send()
    front.model.record_request(TIMINGS, 1)
    front.send()
    assert recorder.model_figures("m", "1").requests.rows == 1


def test_an_engine_hears_nothing_of_requests_that_another_one_had(fronts, recorder, activity):
    """Its own load may have the same number, whatever it is."""
    front, before = fronts[0], fronts[0].model
    before.activity.in_flight.enter(100)
    before.activity.in_flight.enter(200)
    front.recorder.take()  # goes to the engine that is lost
    front.recorder.lose()
    before.activity.in_flight.leave(300)
    before.record_failure("not_ready")
    front.send()
    after = front.recorder.for_model(PUBLISHED)
    after.activity.in_flight.enter(400)
    before.activity.in_flight.leave(500)
    before.record_failure("not_ready")
    front.send()
    marks = activity.in_flight.marks(600)
    assert (marks.inside, marks.area_ns) == (1, 200)
    assert recorder.figures().models[0].failures["not_ready"] == 2
    assert front.recorder.take() is None
    assert not front.recorder._disowned


def test_streams_that_outlive_an_engine_are_told_to_the_next(fronts, recorder):
    front = fronts[0]
    front.recorder.record_streams(1)
    front.recorder.record_streams(1)
    front.recorder.take()  # goes to the engine that is lost
    front.recorder.lose()
    front.recorder.record_streams(-1)
    front.send()
    assert recorder.figures().open_streams == 1


def test_many_rows_are_sent_at_once(fronts):
    front = fronts[0]
    while not front.full:
        front.model.record_request(TIMINGS, 1)
    assert len(front.recorder.take().models[0].rows) >= SEND_FROM_BYTES


def test_metrics_that_are_off_cost_nothing_and_fail_nothing(activity):
    front = Front(NullRecorder(), activity)
    front.model.record_request(TIMINGS, 1)
    front.model.record_failure("timeout")
    front.send()


@given(st.lists(st.tuples(st.integers(1, 1000), st.integers(0, 1000), st.booleans()), max_size=20))
def test_replayed_stays_have_the_area_of_those_noted_at_once(stays):
    noted, at_once = NotedOccupancy(), Occupancy(0)
    for since, duration, counts in stays:
        for occupancy in (noted, at_once):
            occupancy.enter(since)
            if counts:
                occupancy.leave(since + duration)
            else:
                occupancy.take_back(since, since + duration)
    replayed = Occupancy(0)
    assert replay(noted.moments.tobytes(), replayed) == 0
    replayed.forget(noted.lost_ns)
    assert replayed.marks(3000).area_ns == at_once.marks(3000).area_ns
