"""Where annotated frames and answers go: a video file, and one JSON object a line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import cv2
import numpy as np
import orjson

from video.draw import annotated
from video.errors import VideoError
from video.stream import Answered

_CODECS = {".mp4": "mp4v", ".avi": "MJPG", ".mkv": "mp4v"}


class VideoSink:
    """An annotated video, of the size of its first frame. A context manager; whole once that has ended.

    Args:
        path: of the file, which is overwritten.
        frames_per_s: of the video.

    Raises:
        VideoError: the file's name is not one of a video.
    """

    def __init__(self, path: Path, frames_per_s: float) -> None:
        if path.suffix.lower() not in _CODECS:
            raise VideoError(f"{path} is to be a video, but ends in none of {', '.join(_CODECS)}; choose one of these")
        self._path = path
        self._frames_per_s = frames_per_s
        self._writer: cv2.VideoWriter | None = None
        self._size = (0, 0)

    def __enter__(self) -> VideoSink:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._writer is not None:
            self._writer.release()

    def write(self, answered: Answered) -> None:
        """Draws the answer on its frame; one of another size than the first is scaled to it.

        Raises:
            VideoError: the file cannot be written.
        """
        image = annotated(answered.frame.image, answered.answer)
        height, width, _ = image.shape
        if self._writer is None:
            self._size = (width, height)
            codec = cv2.VideoWriter.fourcc(*_CODECS[self._path.suffix.lower()])
            self._writer = cv2.VideoWriter(str(self._path), codec, self._frames_per_s, self._size)
            if not self._writer.isOpened():
                raise VideoError(f"the video {self._path} cannot be written; is its folder there, and writable?")
        if (width, height) != self._size:
            image = np.asarray(cv2.resize(image, self._size, interpolation=cv2.INTER_AREA), np.uint8)
        self._writer.write(image)


class JsonLinesSink:
    """Answers, one a line, each with `frame`, `latency_ms` and, of a folder, `file`. A context manager.

    All that it does raises VideoError where the file cannot be written.

    Args:
        path: of the file, which is overwritten.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    def __enter__(self) -> JsonLinesSink:
        with self._writing():
            self._file = self._path.open("wb")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._file is not None:
            with self._writing():
                self._file.close()

    def write(self, answered: Answered) -> None:
        """Writes one line."""
        assert self._file is not None, "lines are written within the context"
        line: dict[str, Any] = {"frame": answered.number, "latency_ms": round(answered.latency_s * 1e3, 3)}
        if answered.frame.name:
            line["file"] = answered.frame.name
        with self._writing():
            self._file.write(orjson.dumps({**line, **answered.answer}, option=orjson.OPT_APPEND_NEWLINE))

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise VideoError(
                f"{self._path} cannot be written: {error.strerror}; choose a folder that is there, with room"
            ) from None
