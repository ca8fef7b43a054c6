"""Where frames come from: a video file, a folder of images, a camera."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

from video.errors import VideoError

Image = npt.NDArray[np.uint8]
"""image: uint8[height, width, 3] in host memory, BGR, as OpenCV has it."""

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")

_CAMERA = re.compile(r"[0-9]{1,4}")

DEFAULT_FRAMES_PER_S = 25.0
"""Of folders and of files that do not say."""


@dataclass(frozen=True, slots=True)
class SourceFrame:
    """One frame of a source; `name` is its file's in a folder, else empty."""

    image: Image
    name: str = ""


@dataclass(frozen=True, slots=True)
class Source:
    """An opened source.

    Attributes:
        frames: one after the other; may be read on any one thread.
        frames_per_s: how fast they should be shown.
        count: of the frames, as far as it is known beforehand.
        is_folder: whether its frames are files of their own, of any sizes.
    """

    frames: Iterator[SourceFrame]
    frames_per_s: float
    count: int | None
    is_folder: bool = False


def open_source(place: str) -> Source:
    """Opens a file, a folder, or a camera by its index.

    Raises:
        VideoError: there is nothing to be read.
    """
    path = Path(place)
    if path.is_dir():
        return _folder(path)
    if not path.exists() and not _CAMERA.fullmatch(place):
        raise VideoError(f"{place} is not there; give a video file, a folder of images, or a camera's index such as 0")
    return _capture(place, is_camera=not path.exists())


def _folder(path: Path) -> Source:
    files = sorted(file for file in path.iterdir() if file.suffix.lower() in IMAGE_SUFFIXES)
    if not files:
        raise VideoError(f"the folder {path} holds no image; those that end in {', '.join(IMAGE_SUFFIXES)} are read")
    return Source(map(_image, files), DEFAULT_FRAMES_PER_S, len(files), is_folder=True)


def _image(file: Path) -> SourceFrame:
    image = cv2.imread(str(file), cv2.IMREAD_COLOR)
    if image is None:
        raise VideoError(f"the image {file} cannot be read; take it out of the folder, or save it anew")
    return SourceFrame(np.asarray(image, np.uint8), file.name)


def _capture(place: str, *, is_camera: bool) -> Source:
    capture = cv2.VideoCapture(int(place)) if is_camera else cv2.VideoCapture(place)
    if not capture.isOpened():
        what = "camera" if is_camera else "video"
        raise VideoError(f"the {what} {place} cannot be opened; OpenCV reads neither its container nor its codec")
    count = int(capture.get(cv2.CAP_PROP_FRAME_COUNT))
    frames_per_s = capture.get(cv2.CAP_PROP_FPS)
    return Source(
        _captured(capture),
        frames_per_s if 0 < frames_per_s < 1000 else DEFAULT_FRAMES_PER_S,
        count if count > 0 and not is_camera else None,
    )


def _captured(capture: cv2.VideoCapture) -> Iterator[SourceFrame]:
    try:
        while True:
            is_read, image = capture.read()
            if not is_read:
                return
            yield SourceFrame(np.asarray(image, np.uint8))
    finally:
        capture.release()
