"""Descriptors survive their way; what was made up is malformed, and nothing else."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service import errors
from service.errors import DeviceError, Overloaded, ServiceError
from service.transport.descriptors import (
    Done,
    Moments,
    Placed,
    Submit,
    pack_cancel,
    pack_done,
    pack_failed,
    pack_submit,
    unpack_cancel,
    unpack_done,
    unpack_failed,
    unpack_submit,
)
from service.transport.wire import HEAD_BYTES, Malformed

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
COUNT = st.integers(0, (1 << 63) - 1)
SIZES = st.lists(COUNT, max_size=4).map(tuple)
PLACED = st.builds(Placed, INT64, COUNT, SIZES)
INLINE = st.lists(st.binary(max_size=20), max_size=3)

SUBMITS = st.builds(
    Submit,
    number=COUNT,
    model=st.integers(0, (1 << 32) - 1),
    form=st.integers(0, 255),
    priority=st.integers(0, (1 << 16) - 1),
    rows=st.integers(0, (1 << 32) - 1),
    deadline_ns=INT64,
    nbytes=INT64,
    received=INT64,
    read=INT64,
    parsed=INT64,
    prepared=INT64,
    result_offset=INT64,
    result_bytes=INT64,
    dims=SIZES,
    outputs=SIZES,
    inputs=st.lists(PLACED, max_size=4).map(tuple),
)
MOMENTS = st.lists(INT64, min_size=7, max_size=7).map(Moments._make)
DONES = st.builds(
    Done,
    number=COUNT,
    moments=MOMENTS,
    told_ns=INT64,
    backlog_ns=INT64,
    outputs=st.lists(PLACED, max_size=4).map(tuple),
)

ERROR_CLASSES = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, ServiceError)]


def payload(frame):
    return memoryview(frame)[HEAD_BYTES:]


@given(SUBMITS, INLINE)
def test_a_request_survives(submit, inline):
    got, rest = unpack_submit(payload(pack_submit(submit, inline)))
    assert got == submit
    assert bytes(rest) == b"".join(inline)


@given(DONES, INLINE)
def test_an_answer_survives(done, inline):
    got, rest = unpack_done(payload(pack_done(done, inline)))
    assert got == done
    assert bytes(rest) == b"".join(inline)


@given(COUNT)
def test_a_cancellation_survives(number):
    assert unpack_cancel(payload(pack_cancel(number))) == number


@given(st.sampled_from(ERROR_CLASSES), st.text(max_size=40), COUNT)
def test_an_error_arrives_as_what_it_was(error_class, message, number):
    got = unpack_failed(payload(pack_failed(number, error_class(message))))
    assert (got.number, type(got.error), got.error.message) == (number, error_class, message)
    assert got.error.retry_after_s is None


def test_delays_and_stickiness_arrive():
    assert unpack_failed(payload(pack_failed(1, Overloaded("full", retry_after_s=0.0)))).error.retry_after_s == 0.0
    assert unpack_failed(payload(pack_failed(1, DeviceError("gone", is_sticky=True)))).error.is_sticky


@pytest.mark.parametrize("unpack", [unpack_submit, unpack_done, unpack_cancel, unpack_failed])
@given(junk=st.binary(max_size=400))
def test_junk_is_malformed_or_a_value(unpack, junk):
    with suppress(Malformed):
        unpack(memoryview(junk))


@given(SUBMITS, st.data())
def test_a_request_cut_short_is_malformed(submit, data):
    whole = payload(pack_submit(submit, ()))
    end = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(Malformed):
        unpack_submit(whole[:end])


def test_an_error_of_no_class_of_ours_is_malformed():
    class Strange(ServiceError):
        pass

    with pytest.raises(Malformed, match="Strange"):
        unpack_failed(payload(pack_failed(1, Strange("?"))))
