"""The first message of a stream: what its frames are, and what is to be made of them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from service.client_text import name_text, value_text
from service.errors import InvalidInput, PayloadTooLarge
from service.pipeline.frames import PixelFormat, RawImage, frame_bytes
from service.pipeline.steps import Steps
from service.pipeline.task import FrameTask

ENCODED_FORMATS = ("jpeg", "png", "webp")
RAW_FORMATS = tuple(pixel_format.value for pixel_format in PixelFormat)
FORMATS = (*ENCODED_FORMATS, *RAW_FORMATS)
FRESHNESS = ("all", "latest")

DEFAULT_MAX_IN_FLIGHT = 4
MAX_HEADER_CHARACTERS = 16 << 10
MAX_OPTIONS = 32
MAX_SIDE = 1 << 16

_KEYS = ("format", "width", "height", "max_in_flight", "freshness", "options")
_EXAMPLE = '{"format": "rgb", "width": 1920, "height": 1080}'


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """What a stream may ask for.

    Attributes:
        max_in_flight: most frames of one stream that are worked on at once.
        max_frame_bytes: largest frame.
        max_image_pixels: largest raw frame, width times height; that of an encoded one is checked when it comes.
    """

    max_in_flight: int
    max_frame_bytes: int
    max_image_pixels: int


@dataclass(frozen=True, slots=True)
class RawLayout:
    """What the frames of a raw format have in common: height and width are pixels."""

    pixel_format: PixelFormat
    height: int
    width: int


@dataclass(frozen=True, slots=True)
class StreamHeader:
    """A header that was accepted.

    Attributes:
        format: its word, one of `FORMATS`.
        layout: of raw frames; None where each frame is a file.
        max_in_flight: frames that may be worked on at once.
        is_latest: whether a frame that has to wait gives way to a newer one.
        options: of the model's task.
    """

    format: str
    layout: RawLayout | None
    max_in_flight: int
    is_latest: bool
    options: Mapping[str, str]

    def steps(self, task: FrameTask, frame: memoryview) -> Steps:
        """A task's work on one frame; what is wrong with the frame shows when its first step is asked for."""
        if self.layout is None:
            return task.steps(bytes(frame), f"image/{self.format}", self.options)
        return self._raw_steps(task, frame, self.layout)

    def _raw_steps(self, task: FrameTask, frame: memoryview, layout: RawLayout) -> Steps:
        image = RawImage.from_bytes(frame, layout.pixel_format, layout.height, layout.width)
        return (yield from task.frame_steps(image, self.options))


def parse_header(text: str, limits: StreamLimits) -> StreamHeader:
    """The header of a stream, from its JSON.

    Raises:
        InvalidInput: it is malformed, or a value is not allowed; the message names key, value and what is.
        PayloadTooLarge: its frames would be too large.
    """
    said = _parsed(text)
    for key in said:
        if key not in _KEYS:
            raise InvalidInput(f"the header has the unknown key {name_text(key)}; {_nearest(key)}")
    frame_format = _choice(said, "format", FORMATS, None)
    return StreamHeader(
        format=frame_format,
        layout=_layout(said, frame_format, limits),
        max_in_flight=_whole(said, "max_in_flight", DEFAULT_MAX_IN_FLIGHT, limits.max_in_flight),
        is_latest=_choice(said, "freshness", FRESHNESS, FRESHNESS[0]) == "latest",
        options=_options(said.get("options", {})),
    )


def _parsed(text: str) -> dict[str, Any]:
    if len(text) > MAX_HEADER_CHARACTERS:
        raise InvalidInput(f"the header has {len(text)} characters, at most {MAX_HEADER_CHARACTERS} are allowed")
    try:
        said = orjson.loads(text)
    except ValueError as error:
        raise InvalidInput(f"the header is not JSON ({error}); the first message is such as {_EXAMPLE}") from None
    if not isinstance(said, dict):
        raise InvalidInput(f"the header is {value_text(said)}, an object is needed, such as {_EXAMPLE}")
    return said


def _layout(said: Mapping[str, Any], frame_format: str, limits: StreamLimits) -> RawLayout | None:
    if frame_format in ENCODED_FORMATS:
        if "width" in said or "height" in said:
            raise InvalidInput(
                f"the header has a width or height, but {frame_format} frames tell theirs themselves; leave both out"
            )
        return None
    width, height = (_whole(said, key, None, MAX_SIDE) for key in ("width", "height"))
    if width * height > limits.max_image_pixels:
        raise PayloadTooLarge(
            f"frames of {width} x {height} = {width * height} pixels, at most {limits.max_image_pixels} are allowed; "
            "scale them down, or raise INFERLANE_MAX_IMAGE_PIXELS"
        )
    pixel_format = PixelFormat(frame_format)
    nbytes = frame_bytes(pixel_format, height, width)
    if nbytes > limits.max_frame_bytes:
        raise PayloadTooLarge(
            f"{frame_format} frames of {width} x {height} pixels have {nbytes} bytes, at most {limits.max_frame_bytes} "
            "are allowed; scale them down, encode them, or raise INFERLANE_MAX_BODY_BYTES"
        )
    return RawLayout(pixel_format, height, width)


def _options(said: object) -> Mapping[str, str]:
    if not isinstance(said, dict) or not all(isinstance(value, str) for value in said.values()):
        raise InvalidInput('options are an object of strings, as in {"options": {"top_k": "3"}}')
    if len(said) > MAX_OPTIONS:
        raise InvalidInput(f"the header has {len(said)} options, at most {MAX_OPTIONS} are allowed")
    return said


def _choice(said: Mapping[str, Any], key: str, allowed: tuple[str, ...], default: str | None) -> str:
    value = said.get(key, default)
    if value not in allowed:
        got = name_text(value) if isinstance(value, str) else value_text(value) if key in said else "missing"
        raise InvalidInput(f"{key} is {got}, allowed are {', '.join(allowed)}; the first message is such as {_EXAMPLE}")
    return str(value)


def _whole(said: Mapping[str, Any], key: str, default: int | None, most: int) -> int:
    if key not in said and default is not None:
        return min(default, most)
    value: object = said.get(key)
    if type(value) is int and 1 <= value <= most:
        return value
    got = value_text(value) if key in said else "missing"
    raise InvalidInput(f"{key} is {got}, a whole number from 1 to {most} is needed")


def _nearest(key: str) -> str:
    nearest = difflib.get_close_matches(key, _KEYS, n=1)
    return f"did you mean '{nearest[0]}'?" if nearest else f"allowed are {', '.join(_KEYS)}"
