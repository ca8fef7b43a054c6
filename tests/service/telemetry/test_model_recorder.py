import sys
import threading

import pytest

from service.buckets import Bucket, Form
from service.errors import InvalidInput, Overloaded
from service.requests import NO_FACTS, BatchFacts, BatchTimings, DeviceTimings, RequestFacts, StageTimings
from service.telemetry.metrics import MAX_BUCKET_LABELS, OTHER_BUCKETS, REASONS, STAGES
from service.telemetry.model_recorder import FOLD_ROWS, BufferedModelRecorder
from service.telemetry.totals import REQUEST_ROW

TIMINGS = StageTimings(*range(1, len(STAGES) + 1))
BATCH_TIMINGS = BatchTimings(100, 110, 150, 155)


@pytest.fixture
def recorder():
    return BufferedModelRecorder("m", "1", lambda: 1234)


def test_requests_are_seen_at_once(recorder):
    recorder.record_request(TIMINGS, 4)
    requests = recorder.figures(None).requests
    assert (requests.count, requests.rows, requests.duration_ns) == (1, 4, sum(TIMINGS))
    assert requests.stage_ns("queue") == TIMINGS.queue


@pytest.mark.parametrize("count", [FOLD_ROWS - 1, FOLD_ROWS, FOLD_ROWS + 1, 3 * FOLD_ROWS + 5])
def test_nothing_is_lost_or_counted_twice_around_a_fold(recorder, count):
    for _ in range(count):
        recorder.record_request(TIMINGS, 2)
        recorder.record_batch(Bucket(4), 2, 1, BATCH_TIMINGS, 0)
    for _ in range(2):
        figures = recorder.figures(None)
        assert (figures.requests.count, figures.requests.rows) == (count, 2 * count)
        assert figures.batches.count == count


def test_the_buffers_are_bounded(recorder):
    for _ in range(10 * FOLD_ROWS):
        recorder.record_request(TIMINGS, 1)
        recorder.record_batch(Bucket(4), 2, 1, BATCH_TIMINGS, 0)
    assert len(recorder._request_buffer) < FOLD_ROWS * 8 * (len(STAGES) + 1)
    assert len(recorder._batch_buffer) < FOLD_ROWS * 8 * 9


def test_a_full_buffer_does_not_wait_for_a_scrape_that_folds(recorder):
    with recorder._fold_lock:
        for _ in range(FOLD_ROWS + 1):
            recorder.record_request(TIMINGS, 1)
    assert recorder.figures(None).requests.count == FOLD_ROWS + 1


@pytest.fixture
def eager_thread_switches():
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval_s)


@pytest.mark.usefixtures("eager_thread_switches")
def test_scrapes_on_another_thread_lose_nothing(recorder):
    is_done = threading.Event()
    counts = []

    def scrape():
        while not is_done.is_set():
            counts.append(recorder.figures(None).requests.count)

    scraper = threading.Thread(target=scrape)
    scraper.start()
    total = 60 * FOLD_ROWS
    for _ in range(total):
        recorder.record_request(TIMINGS, 3)
    is_done.set()
    scraper.join()
    requests = recorder.figures(None).requests
    assert counts == sorted(counts)
    assert (requests.count, requests.rows, requests.duration_ns) == (total, 3 * total, total * sum(TIMINGS))


class AppendedToWhileTaken(bytearray):
    """A buffer to which the event loop appends a row in the midst of every fold."""

    def __getitem__(self, key):
        taken = super().__getitem__(key)
        self.extend(REQUEST_ROW.pack(*TIMINGS, *NO_FACTS, 1))
        return taken


def test_a_row_appended_in_the_midst_of_a_fold_stays_for_the_next(recorder):
    recorder._request_buffer = AppendedToWhileTaken()
    assert [recorder.figures(None).requests.count for _ in range(4)] == [0, 1, 2, 3]


def test_failures_by_reason(recorder):
    for reason in (Overloaded.reason, Overloaded.reason, InvalidInput.reason, "made up"):
        recorder.record_failure(reason)
    failures = recorder.figures(None).failures
    assert set(failures) == set(REASONS)
    assert {reason: count for reason, count in failures.items() if count} == {
        "overloaded": 2,
        "invalid": 1,
        "internal": 1,
    }


def test_batches_by_bucket(recorder):
    recorder.record_batch(Bucket(4, (32,)), 3, 2, BATCH_TIMINGS, 1)
    recorder.record_batch(Bucket(8, (32,)), 8, 8, BATCH_TIMINGS, 0)
    recorder.record_batch(Bucket(4, (32,)), 4, 1, BATCH_TIMINGS, 1)
    figures = recorder.figures(None)
    assert figures.bucket_labels == ("4x32", "8x32")
    assert figures.batches.bucket_dispatches.tolist() == [2, 1]
    assert figures.batches.bucket_rows.tolist() == [7, 8]
    assert figures.batches.request_counts.sums == (11,)
    assert set(figures.batches.lanes) == {0, 1}


def test_forms_have_buckets_of_their_own_and_add_up_in_the_model_s(recorder):
    recorder.record_batch(Bucket(4), 3, 3, BATCH_TIMINGS, 0)
    recorder.record_batch(Bucket(4, (), Form.MEDIA), 2, 2, BATCH_TIMINGS, 0)
    figures = recorder.figures(None)
    assert figures.bucket_labels == ("4", "4:media")
    assert figures.batches.bucket_rows.tolist() == [3, 2]
    assert figures.batches.request_counts.sums == (5,)


@pytest.mark.parametrize("buckets", [MAX_BUCKET_LABELS, MAX_BUCKET_LABELS + 1, MAX_BUCKET_LABELS + 30])
def test_labels_of_buckets_are_bounded(recorder, buckets):
    for _ in range(2):
        for dim in range(buckets):
            recorder.record_batch(Bucket(2, (dim,)), 1, 1, BATCH_TIMINGS, 0)
    figures = recorder.figures(None)
    beyond = max(0, buckets - MAX_BUCKET_LABELS)
    assert len(figures.bucket_labels) == min(buckets, MAX_BUCKET_LABELS + 1)
    assert (figures.bucket_labels[-1] == OTHER_BUCKETS) == (beyond > 0)
    assert figures.batches.bucket_dispatches.tolist() == [2] * MAX_BUCKET_LABELS + [2 * beyond] * (beyond > 0)
    assert figures.batches.bucket_padded_rows.sum() == 4 * buckets
    assert len(recorder._bucket_indices) <= MAX_BUCKET_LABELS


def test_a_bucket_met_during_a_fold_waits_for_its_first_batch(recorder):
    recorder.record_batch(Bucket(1), 1, 1, BATCH_TIMINGS, 0)
    recorder._add_bucket(Bucket(2))
    figures = recorder.figures(None)
    assert figures.bucket_labels == ("1",)
    assert len(figures.batches.bucket_dispatches) == 1


def test_the_latest_batch_sets_the_time_of_the_last_inference(recorder):
    assert recorder.figures(None).last_inference_unix_ms == 0
    recorder.record_batch(Bucket(1), 1, 1, BATCH_TIMINGS, 0)
    assert recorder.figures(None).last_inference_unix_ms == 1234


def test_facts_for_the_diagnosis_are_summed(recorder):
    recorder.record_request(TIMINGS, 2, RequestFacts(formation=3, is_json=1, body_bytes=100))
    device = DeviceTimings(h2d=5, wait=6, d2h=7, enqueue=8)
    recorder.record_batch(Bucket(4), 3, 2, BatchTimings(100, 110, 150, 155, device), 0, BatchFacts(3, 1, 20, 10, 2))
    recorder.record_batch(Bucket(4), 4, 1, BATCH_TIMINGS, 0, BatchFacts(4, 0))
    figures = recorder.figures(None)
    assert figures.requests.facts.tolist() == [3, 0, 1, 100, 0, 0]
    assert figures.batches.bucket_facts.tolist() == [[7, 1, 20, 10, 2, 1, 5, 6, 7, 8]]
    assert figures.batches.bucket_cold_ns.tolist() == [40]
    assert figures.buckets == (Bucket(4),)
