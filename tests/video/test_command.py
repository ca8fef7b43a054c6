"""The whole client against a real server."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import orjson
import pytest
from rich.console import Console
from typer.testing import CliRunner

from service import cli
from tests.doubles import onnx_models
from tests.doubles.running_server import RunningServer, StartServer, add_model, free_port, start_server, wait_for
from tests.video.clips import FRAMES_PER_S, HEIGHT, WIDTH, make_clip, make_folder
from video.command import STATUS_FAILED, STATUS_INTERRUPTED, STATUS_NOT_BEGUN, VideoOrder, run
from video.stream import stream_url
from video.wire import FrameFormat

__all__ = ["start_server"]

pytestmark = pytest.mark.e2e

DETECT = 'task = "detect"\nlabels = ["cat", "dog"]\n[preprocess]\nresize = "letterbox"\n[buckets]\nbatch = [1, 4]\n'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, start_server: StartServer) -> RunningServer:
    repository = tmp_path_factory.mktemp("video")
    add_model(repository, "boxes", onnx_models.make_detector, DETECT)
    add_model(repository, "raw", onnx_models.make_simple)
    return start_server(repository, max_body_bytes=100_000)


def sent(server: RunningServer, clip: Path, **order: Any) -> tuple[int, str]:
    """The exit status and what was printed."""
    console = Console(file=io.StringIO(), width=200)
    status = run(VideoOrder(**{"source": str(clip), "model": "boxes", "url": server.url, **order}), console)
    assert isinstance(console.file, io.StringIO)
    return status, console.file.getvalue()


def lines(path: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


@pytest.mark.parametrize("frame_format", [None, *FrameFormat])
def test_a_video_is_annotated_and_its_answers_kept(
    server: RunningServer, tmp_path: Path, frame_format: FrameFormat | None
) -> None:
    clip = make_clip(tmp_path / "clip.mp4")
    output, kept = tmp_path / "out.mp4", tmp_path / "out.jsonl"
    status, said = sent(server, clip, output=output, json_lines=kept, frame_format=frame_format)
    assert status == 0, said
    assert said.startswith("30 frames, ")
    assert "p99" in said
    answers = lines(kept)
    assert [answer["frame"] for answer in answers] == list(range(30))
    assert all(answer["latency_ms"] > 0 for answer in answers)
    assert {answer["results"][0]["detections"][0]["label"] for answer in answers} == {"dog"}
    capture = cv2.VideoCapture(str(output))
    assert (capture.get(cv2.CAP_PROP_FRAME_COUNT), capture.get(cv2.CAP_PROP_FPS)) == (30, FRAMES_PER_S)
    is_read, image = capture.read()
    assert is_read
    assert image.shape == (HEIGHT, WIDTH, 3)
    left = round(answers[0]["results"][0]["detections"][0]["box"][0])
    column = image[40:56, left - 1 : left + 2].astype(int).min(axis=(0, 1))
    assert np.any(column < 150)
    capture.release()


def test_a_folder_of_images_of_any_size(server: RunningServer, tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "images", [(60, 80), (31, 47), (96, 96)])
    status, said = sent(server, folder, json_lines=tmp_path / "out.jsonl", output=tmp_path / "out.avi")
    assert status == 0, said
    answers = lines(tmp_path / "out.jsonl")
    assert [answer["file"] for answer in answers] == ["000.png", "001.png", "002.png"]
    assert [answer["results"][0]["width"] for answer in answers] == [80, 47, 96]


def test_images_of_several_sizes_do_not_travel_raw(server: RunningServer, tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "images", [(60, 80), (31, 47)])
    status, said = sent(server, folder, frame_format=FrameFormat.RGB)
    assert status == STATUS_FAILED
    assert "001.png has 47 x 31 pixels, those before it 80 x 60" in said


def test_the_latest_frames_of_a_file_are_sent_as_it_plays(server: RunningServer, tmp_path: Path) -> None:
    status, said = sent(server, make_clip(tmp_path / "clip.mp4", 12), is_latest=True, json_lines=tmp_path / "l")
    assert status == 0, said
    answers = lines(tmp_path / "l")
    assert [answer["frame"] for answer in answers] == list(range(12))
    assert any("results" in answer for answer in answers)
    assert float(said.split(", ")[1].split()[0]) <= 1.15 * FRAMES_PER_S


def test_frames_that_fail_are_told_and_the_others_answered(server: RunningServer, tmp_path: Path) -> None:
    status, said = sent(server, make_clip(tmp_path / "clip.mp4", 5), options={"score_threshold": "2"})
    assert status == STATUS_NOT_BEGUN
    assert "score_threshold is '2'" in said
    folder = make_folder(tmp_path / "images", [(60, 80)])
    (folder / "001.png").write_bytes((folder / "000.png").read_bytes()[:100])
    status, said = sent(server, folder)
    assert status == STATUS_FAILED
    assert "001.png cannot be read" in said


def test_what_is_read_is_not_written_over(server: RunningServer, tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "clip.avi", 3)
    before = clip.read_bytes()
    (tmp_path / "link.avi").symlink_to(clip)
    for order in ({"output": clip}, {"output": tmp_path / "link.avi"}, {"json_lines": clip}):
        assert sent(server, clip, **order) == (
            STATUS_NOT_BEGUN,
            f"error: {next(iter(order.values()))} is what is to be read; write to another file\n",
        )
    out = tmp_path / "out.avi"
    status, said = sent(server, clip, output=out, json_lines=tmp_path / "." / "out.avi")
    assert (status, "cannot be both" in said, out.exists()) == (STATUS_NOT_BEGUN, True, False)
    assert clip.read_bytes() == before


def test_a_video_that_is_cut_off_is_told(server: RunningServer, tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "clip.avi", 30)
    clip.write_bytes(clip.read_bytes()[: clip.stat().st_size // 2])
    status, said = sent(server, clip)
    assert status == 0
    assert "frames, but says that it has 30; it is damaged or cut off" in said


@pytest.mark.parametrize(
    ("order", "says"),
    [
        ({"model": "none"}, "'none'"),
        ({"model": "raw"}, "takes no images"),
        ({"max_in_flight": 10_000}, "max_in_flight is 10000"),
        ({"output": Path("out.txt")}, "ends in none of .mp4"),
        ({"output": Path("/nowhere/out.mp4")}, "cannot be written"),
        ({"json_lines": Path("/nowhere/out.jsonl")}, "cannot be written"),
        ({"url": "ftp://x"}, "no address of a server"),
        ({"source": "gone.mp4"}, "gone.mp4 is not there"),
    ],
)
def test_what_cannot_begin_says_why(server: RunningServer, tmp_path: Path, order: dict[str, Any], says: str) -> None:
    status, said = sent(server, make_clip(tmp_path / "clip.mp4", 3), **order)
    assert status in {STATUS_NOT_BEGUN, STATUS_FAILED}
    assert says in said


def test_a_server_that_is_not_there(server: RunningServer, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    status, said = sent(server, make_clip(tmp_path / "clip.mp4", 3), url=url)
    assert status == STATUS_NOT_BEGUN
    assert f"no stream at {url}" in said


def test_frames_beyond_the_servers_bound_end_before_they_are_sent(server: RunningServer, tmp_path: Path) -> None:
    status, said = sent(server, make_clip(tmp_path / "clip.mp4", 3, 480, 640))
    assert status == STATUS_NOT_BEGUN
    assert "at most 100000 are allowed" in said


def test_the_command_line(server: RunningServer, tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "clip.mp4", 3)
    arguments = ["video", str(clip), "--model", "boxes", "--url", server.url, "--jsonl", str(tmp_path / "l")]
    result = CliRunner().invoke(
        cli.app, [*arguments, "--format", "jpeg", "--option", "max_detections=1", "--freshness", "all"]
    )
    assert result.exit_code == 0, result.output
    assert len(lines(tmp_path / "l")) == 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_finishes_the_files(server: RunningServer, tmp_path: Path, number: signal.Signals) -> None:
    clip = make_clip(tmp_path / "clip.mp4", 3000)
    output, kept = tmp_path / "out.mp4", tmp_path / "out.jsonl"
    command = [sys.executable, "-m", "service.cli", "video", str(clip), "--model", "boxes", "--url", server.url]
    process = subprocess.Popen(
        [*command, "--output", str(output), "--jsonl", str(kept)], stderr=subprocess.PIPE, env=os.environ
    )
    wait_for(lambda: kept.exists() and kept.stat().st_size > 0)
    process.send_signal(number)
    _, said = process.communicate(timeout=30)
    assert process.returncode == STATUS_INTERRUPTED, said.decode()
    answers = lines(kept)
    assert 0 < len(answers) < 3000
    capture = cv2.VideoCapture(str(output))
    assert capture.get(cv2.CAP_PROP_FRAME_COUNT) == len(answers)
    capture.release()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://h:1", "ws://h:1/v2/models/a%2Fb/stream"),
        ("https://h/p/", "wss://h/p/v2/models/a%2Fb/stream"),
        ("ws://h", "ws://h/v2/models/a%2Fb/stream"),
    ],
)
def test_addresses_of_streams(url: str, expected: str) -> None:
    assert stream_url(url, "a/b") == expected
