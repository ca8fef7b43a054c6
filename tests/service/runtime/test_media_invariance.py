"""Rows of media in company, held against the same rows alone in the same bucket."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from service.buckets import Bucket, Form
from service.errors import DeviceError, ExecutionFailed, ServiceError
from service.requests import Batch, BatchResult
from service.runtime.media_invariance import check_media_invariance
from service.runtime.protocol import Ticket
from tests.doubles.requests import make_media_spec, make_spec
from tests.doubles.scripted_lane import ScriptedLane

FOUR = Bucket(4, (), Form.MEDIA)


def check(lane: ScriptedLane, **spec: object) -> dict[Bucket, str]:
    return check_media_invariance(lane, make_media_spec(**spec), 0.0)


def in_company(error: float) -> Callable[[Batch], float]:
    return lambda batch: error if batch.bucket == FOUR and batch.size > 1 else 0.0


def test_every_bucket_of_several_rows_is_tried_alone_one_row_short_and_no_tensors_are() -> None:
    lane = ScriptedLane(lambda bucket: 1)
    assert check(lane, max_batch_size=8, media_sizes=(1, 2, 8)) == {}
    assert [bucket.label for _, bucket in lane.events] == ["8:media"] * 4 + ["2:media"] * 4


@pytest.mark.parametrize(("error", "is_found"), [(0.01, False), (5.0, True), (float("nan"), True)])
def test_a_bucket_in_which_floats_mix_is_told_and_no_other(error: float, is_found: bool) -> None:
    found = check(ScriptedLane(lambda bucket: 1, in_company(error)))
    assert list(found) == ([FOUR] if is_found else [])
    if is_found:
        assert "model 'm': in a batch of 3 rows in bucket 4:media, output 'sum' differs by up to" in found[FOUR]


def test_what_differs_between_batch_sizes_is_no_mixing() -> None:
    """Scores that are nearly equal may change places between the kernels of two buckets."""
    assert check(ScriptedLane(lambda bucket: 1, lambda batch: 50.0 * batch.bucket.padded_size)) == {}


class OffByOne(ScriptedLane):
    """Counts one byte too many in company."""

    def sync(self, ticket: Ticket) -> BatchResult:
        assert isinstance(ticket, Batch)
        result = super().sync(ticket)
        return replace(result, outputs=tuple((total, count + (ticket.size > 1)) for total, count in result.outputs))


def test_whole_numbers_must_be_the_same() -> None:
    found = check_media_invariance(OffByOne(lambda bucket: 1), make_media_spec(max_batch_size=4), 0.5)
    assert set(found) == {FOUR, Bucket(2, (), Form.MEDIA)}
    assert all("output 'count' differs by up to 1, allowed is 0" in problem for problem in found.values())


class FailingLane(ScriptedLane):
    def __init__(self, error: ServiceError, *, alone: bool) -> None:
        super().__init__(lambda bucket: 1)
        self._failure, self._alone = error, alone

    def sync(self, ticket: Ticket) -> BatchResult:
        assert isinstance(ticket, Batch)
        if ticket.bucket == FOUR and (ticket.size == 1) is self._alone:
            raise self._failure
        return super().sync(ticket)


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("error", [ExecutionFailed("no kernel"), DeviceError("cudaErrorMemoryAllocation")])
def test_a_bucket_that_cannot_run_is_told(error: ServiceError, alone: bool) -> None:
    assert check(FailingLane(error, alone=alone)) == {FOUR: error.message}


def test_a_lost_device_ends_it() -> None:
    with pytest.raises(DeviceError):
        check(FailingLane(DeviceError("cudaErrorIllegalAddress", is_sticky=True), alone=True))


def test_what_is_not_served_is_not_tried_and_a_model_without_media_has_nothing_to_try() -> None:
    lane = ScriptedLane(lambda bucket: 1)
    spec = make_media_spec(max_batch_size=4).without({FOUR})
    assert check_media_invariance(lane, spec, 0.0) == {}
    assert {bucket.padded_size for _, bucket in lane.events} == {2}
    assert check_media_invariance(ScriptedLane(lambda bucket: 1), make_spec(), 0.0) == {}
