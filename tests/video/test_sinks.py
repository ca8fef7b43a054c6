"""What is kept of a video, where it can be and where it cannot."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import orjson
import pytest

from video.errors import VideoError
from video.sinks import JsonLinesSink, VideoSink
from video.source import SourceFrame
from video.stream import Answered

FULL = Path("/dev/full")


def answered(name: str = "", answer: dict[str, object] | None = None) -> Answered:
    return Answered(7, SourceFrame(np.zeros((32, 48, 3), np.uint8), name), answer or {"results": []}, 0.0125)


@pytest.mark.parametrize(("name", "told"), [("", {}), ("a.png", {"file": "a.png"})])
def test_an_answer_is_a_line(tmp_path: Path, name: str, told: dict[str, str]) -> None:
    path = tmp_path / "lines"
    with JsonLinesSink(path) as sink:
        sink.write(answered(name, {"error": "no"}))
        sink.write(answered(name, {"error": "no"}))
    lines = path.read_bytes().splitlines()
    assert [orjson.loads(line) for line in lines] == [{"frame": 7, "latency_ms": 12.5, **told, "error": "no"}] * 2


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(VideoError, match=r"nowhere/lines cannot be written: No such file"),
        JsonLinesSink(tmp_path / "nowhere" / "lines"),
    ):
        pass


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("size", [10, 100_000])
def test_a_disk_that_is_full_is_told_whenever_it_shows(size: int) -> None:
    """At the write, or only when what is buffered is written at the end."""
    with pytest.raises(VideoError, match="/dev/full cannot be written: No space"), JsonLinesSink(FULL) as sink:
        sink.write(answered(answer={"text": "x" * size}))


def test_a_name_that_is_not_a_video_s_is_refused() -> None:
    with pytest.raises(VideoError, match=r"out\.gif is to be a video"):
        VideoSink(Path("out.gif"), 25.0)


def test_a_video_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with (
        VideoSink(tmp_path / "nowhere" / "out.avi", 25.0) as sink,
        pytest.raises(VideoError, match=r"nowhere/out\.avi"),
    ):
        sink.write(answered())
