"""Frames, however a stream is cut, and what is no frame."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.transport.wire import HEAD_BYTES, MAX_PAYLOAD_BYTES, FrameReader, Kind, Malformed, pack_frame

FRAMES = st.lists(st.tuples(st.sampled_from(Kind), st.binary(max_size=40)), max_size=12)


@given(FRAMES, st.lists(st.integers(1, 60), max_size=60))
def test_frames_come_out_as_they_went_in_however_the_stream_is_cut(frames, cuts):
    stream = b"".join(pack_frame(kind, payload) for kind, payload in frames)
    reader, got = FrameReader(), []
    for cut in [*cuts, len(stream)]:
        part, stream = stream[:cut], stream[cut:]
        got += reader.feed(part)
    assert [(frame.kind, bytes(frame.payload)) for frame in got] == frames


@given(st.lists(st.binary(max_size=30), max_size=20))
def test_whatever_comes_is_frames_or_malformed(parts):
    reader = FrameReader()
    try:
        for part in parts:
            for frame in reader.feed(part):
                assert frame.kind in Kind
    except Malformed:
        pass


@pytest.mark.parametrize("head", [b"\x00\x00\x00\x00\x63", b"\xff\xff\xff\xff\x05"])
def test_a_kind_that_is_none_and_a_length_that_cannot_be_are_malformed(head):
    with pytest.raises(Malformed):
        FrameReader().feed(head)


def test_parts_are_joined():
    (frame,) = FrameReader().feed(pack_frame(Kind.DONE, b"ab", memoryview(b"cd"), b""))
    assert (frame.kind, bytes(frame.payload)) == (Kind.DONE, b"abcd")


def test_what_is_too_large_is_not_packed():
    class Large(bytes):
        def __len__(self):
            return MAX_PAYLOAD_BYTES + 1

    with pytest.raises(ValueError, match="at most"):
        pack_frame(Kind.DONE, Large())


def test_a_long_frame_is_complete_with_its_last_byte():
    frame = pack_frame(Kind.FORWARD, bytes(100_000))
    reader = FrameReader()
    for start in range(0, len(frame) - 1, 1000):
        assert reader.feed(frame[start : min(start + 1000, len(frame) - 1)]) == []
    ((kind, payload),) = reader.feed(frame[-1:])
    assert (kind, len(payload)) == (Kind.FORWARD, len(frame) - HEAD_BYTES)
