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
from service.transport.objects import PublishedModel, Records, pack_object, unpack_object
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
        self.recorder = RemoteRecorder(self._count_full)
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
