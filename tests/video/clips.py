"""Small videos and folders, made for the tests."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np

WIDTH, HEIGHT, FRAMES_PER_S = 128, 96, 30.0


def picture(number: int, height: int = HEIGHT, width: int = WIDTH) -> np.ndarray:
    """BGR; nearly white, so that the detector of the tests sees its box, with a bar that moves."""
    image = np.full((height, width, 3), 250, np.uint8)
    image[:, number % width : number % width + 4] = (0, 0, 255)
    return image


def make_clip(path: Path, count: int = 30, height: int = HEIGHT, width: int = WIDTH) -> Path:
    codec = cv2.VideoWriter.fourcc(*("MJPG" if path.suffix == ".avi" else "mp4v"))
    writer = cv2.VideoWriter(str(path), codec, FRAMES_PER_S, (width, height))
    assert writer.isOpened()
    for number in range(count):
        writer.write(picture(number, height, width))
    writer.release()
    return path


def make_folder(path: Path, sizes: list[tuple[int, int]]) -> Path:
    path.mkdir()
    for number, (height, width) in enumerate(sizes):
        assert cv2.imwrite(str(path / f"{number:03d}.png"), picture(number, height, width))
    (path / "notes.txt").write_text("no image")
    return path
