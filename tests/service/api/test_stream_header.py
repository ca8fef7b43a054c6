from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.api.stream_header import (
    DEFAULT_MAX_IN_FLIGHT,
    ENCODED_FORMATS,
    FORMATS,
    MAX_HEADER_CHARACTERS,
    RawLayout,
    StreamHeader,
    StreamLimits,
    parse_header,
)
from service.errors import InvalidInput, PayloadTooLarge, ServiceError
from service.pipeline.frames import PixelFormat

LIMITS = StreamLimits(max_in_flight=8, max_frame_bytes=3000, max_image_pixels=1500)


def parsed(limits: StreamLimits = LIMITS, **said: object) -> StreamHeader:
    return parse_header(json.dumps(said), limits)


@pytest.mark.parametrize("frame_format", ENCODED_FORMATS)
def test_files_need_no_more_than_their_format(frame_format: str) -> None:
    assert parsed(format=frame_format) == StreamHeader(frame_format, None, DEFAULT_MAX_IN_FLIGHT, False, {})


@pytest.mark.parametrize("pixel_format", PixelFormat)
def test_raw_frames_have_a_size(pixel_format: PixelFormat) -> None:
    header = parsed(format=pixel_format.value, width=40, height=20)
    assert header.layout == RawLayout(pixel_format, 20, 40)


def test_everything_can_be_said() -> None:
    header = parsed(format="png", max_in_flight=8, freshness="latest", options={"top_k": "3"})
    assert header == StreamHeader("png", None, 8, True, {"top_k": "3"})
    assert parsed(format="png", freshness="all").is_latest is False


def test_the_default_is_no_more_than_the_server_allows() -> None:
    few = StreamLimits(2, 3000, 1500)
    assert parsed(few, format="png").max_in_flight == 2
    with pytest.raises(InvalidInput, match="max_in_flight is 4, a whole number from 1 to 2"):
        parsed(few, format="png", max_in_flight=DEFAULT_MAX_IN_FLIGHT)


@pytest.mark.parametrize(
    ("said", "error", "says"),
    [
        ({}, InvalidInput, "format is missing, allowed are jpeg, png, webp, rgb, bgr, nv12"),
        ({"format": "gif"}, InvalidInput, "format is 'gif', allowed are jpeg"),
        ({"format": 3}, InvalidInput, "format is 3, allowed are jpeg"),
        ({"format": ["rgb"]}, InvalidInput, "format is an array, allowed are jpeg"),
        ({"format": "rgb"}, InvalidInput, "width is missing, a whole number from 1 to"),
        ({"format": "rgb", "width": 4}, InvalidInput, "height is missing"),
        ({"format": "rgb", "width": 0, "height": 4}, InvalidInput, "width is 0, a whole number from 1"),
        ({"format": "rgb", "width": 4.0, "height": 4}, InvalidInput, "width is 4.0, a whole"),
        ({"format": "rgb", "width": True, "height": 4}, InvalidInput, "width is true/false, a whole"),
        ({"format": "rgb", "width": "4", "height": 4}, InvalidInput, "width is a string, a whole"),
        ({"format": "rgb", "width": 1 << 17, "height": 4}, InvalidInput, "width is 131072, a whole"),
        ({"format": "nv12", "width": 3, "height": 4}, InvalidInput, "nv12 needs even sides"),
        ({"format": "rgb", "width": 1501, "height": 1}, PayloadTooLarge, "INFERLANE_MAX_IMAGE_PIXELS"),
        ({"format": "rgb", "width": 1001, "height": 1}, PayloadTooLarge, "3003 bytes, at most 3000"),
        ({"format": "jpeg", "width": 4}, InvalidInput, "leave both out"),
        ({"format": "jpeg", "max_in_flight": 9}, InvalidInput, "max_in_flight is 9, a whole number from 1 to 8"),
        ({"format": "jpeg", "max_in_flight": 0}, InvalidInput, "max_in_flight is 0"),
        ({"format": "jpeg", "max_in_flight": None}, InvalidInput, "max_in_flight is null"),
        ({"format": "jpeg", "freshness": "newest"}, InvalidInput, "freshness is 'newest', allowed are all, latest"),
        ({"format": "jpeg", "options": ["top_k"]}, InvalidInput, "an object of strings"),
        ({"format": "jpeg", "options": {"top_k": 3}}, InvalidInput, "an object of strings"),
        ({"format": "jpeg", "options": {str(n): "" for n in range(33)}}, InvalidInput, "33 options, at most 32"),
        ({"format": "jpeg", "in_flight": 3}, InvalidInput, "unknown key 'in_flight'; did you mean 'max_in_flight'"),
        ({"format": "jpeg", "zzz": 3}, InvalidInput, "unknown key 'zzz'; allowed are format"),
    ],
)
def test_what_is_not_allowed_is_named(said: dict[str, object], error: type[ServiceError], says: str) -> None:
    with pytest.raises(error) as raised:
        parsed(**said)
    assert says in raised.value.message


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 2000, "not JSON"),
        ("[]", "the header is an array, an object is needed"),
        ('"rgb"', "the header is a string"),
        (json.dumps({"format": "x" * MAX_HEADER_CHARACTERS}), "at most 16384 are allowed"),
    ],
)
def test_what_is_no_header_is_refused(text: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        parse_header(text, LIMITS)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=5,
)


@given(
    st.fixed_dictionaries(
        {"format": st.sampled_from(FORMATS) | JSON},
        optional={key: JSON for key in ("width", "height", "max_in_flight", "freshness", "options")},
    )
)
def test_any_json_is_a_header_or_a_refusal(said: dict[str, object]) -> None:
    try:
        header = parsed(**said)
    except (InvalidInput, PayloadTooLarge):
        return
    assert header.format in FORMATS
    assert 1 <= header.max_in_flight <= 8
