from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.video.clips import FRAMES_PER_S, HEIGHT, WIDTH, make_clip, make_folder, picture
from video.errors import VideoError
from video.source import open_source


@pytest.mark.parametrize("name", ["clip.mp4", "clip.avi"])
def test_a_video_gives_its_frames(tmp_path: Path, name: str) -> None:
    source = open_source(str(make_clip(tmp_path / name, 10)))
    assert (source.count, source.frames_per_s, source.is_folder) == (10, FRAMES_PER_S, False)
    frames = list(source.frames)
    assert len(frames) == 10
    assert {frame.image.shape for frame in frames} == {(HEIGHT, WIDTH, 3)}
    assert np.abs(frames[5].image.astype(int) - picture(5)).mean() < 8


def test_a_folder_gives_its_images_in_the_order_of_their_names(tmp_path: Path) -> None:
    source = open_source(str(make_folder(tmp_path / "images", [(8, 10), (12, 6)])))
    assert (source.count, source.is_folder) == (2, True)
    frames = list(source.frames)
    assert [frame.name for frame in frames] == ["000.png", "001.png"]
    np.testing.assert_array_equal(frames[1].image, picture(1, 12, 6))


@pytest.mark.parametrize("name", ["gone.mp4", "empty", "text.mp4"])
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.mp4").write_text("no video")
    with pytest.raises(VideoError, match=name):
        open_source(str(tmp_path / name))


def test_an_image_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_text("no image")
    with pytest.raises(VideoError, match=r"a\.png cannot be read"):
        list(open_source(str(tmp_path)).frames)


def test_a_camera_that_is_not_there() -> None:
    with pytest.raises(VideoError, match="camera 97 cannot be opened"):
        open_source("97")


@pytest.mark.parametrize("place", ["\N{SUPERSCRIPT TWO}", "99999999999999", "-1"])
def test_what_is_no_index_of_a_camera(place: str) -> None:
    with pytest.raises(VideoError, match="is not there"):
        open_source(place)
