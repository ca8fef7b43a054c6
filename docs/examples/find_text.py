"""Finds the lines of text on a page with `ocr-det` and reads them with `ocr-rec`.

    python docs/examples/find_text.py page.png

The server runs, as `make serve` starts it. Needs `pip install 'tritonclient[http]'`; NumPy and OpenCV came with it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import cv2
import numpy as np
import tritonclient.http as triton
from read_line import decode, infer, prepare, read_labels

MAX_SIDE = 640  # the largest bucket of ocr-det/model.toml
THRESHOLD = 0.3
MIN_SIDE = 4  # smaller specks are no text
GROWTH = 0.5  # the model marks the core of a line; its box is this share of its height larger on every side

Box = tuple[int, int, int, int]
"""Left, top, width and height in pixels of the page."""


def find_lines(client: triton.InferenceServerClient, page: np.ndarray) -> list[Box]:
    """Boxes of the lines on uint8[height, width, 3] BGR, from top to bottom."""
    scale = min(MAX_SIDE / max(page.shape[:2]), 2.0)
    resized = cv2.resize(page, None, fx=scale, fy=scale).astype(np.float32)
    image = np.ascontiguousarray((resized / 255 - 0.5).transpose(2, 0, 1)[np.newaxis] / 0.5)
    is_text = (infer(client, "ocr-det", image)[0] > THRESHOLD).astype(np.uint8)
    contours, _ = cv2.findContours(is_text, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    cores = [cv2.boundingRect(contour) for contour in contours]
    boxes = [grown(core, scale, page.shape) for core in cores if min(core[2:]) >= MIN_SIDE]
    return sorted(boxes, key=lambda box: box[1])


def grown(core: Box, scale: float, page_shape: tuple[int, ...]) -> Box:
    """The box around `core`, which is in pixels of the resized page."""
    left, top, width, height = core
    margin = GROWTH * height
    x0, y0 = max(0, round((left - margin) / scale)), max(0, round((top - margin) / scale))
    x1 = min(page_shape[1], round((left + width + margin) / scale))
    y1 = min(page_shape[0], round((top + height + margin) / scale))
    return x0, y0, x1 - x0, y1 - y0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Finds and reads the lines of text on a page.")
    parser.add_argument("image")
    parser.add_argument("--repository", type=Path, default=Path("demo-repository"), help="for the labels")
    parser.add_argument("--server", default="localhost:8000")
    options = parser.parse_args()
    if (page := cv2.imread(options.image)) is None:
        parser.error(f"'{options.image}' is not an image that OpenCV reads")
    labels = read_labels(options.repository)
    with triton.InferenceServerClient(options.server) as client:
        for x, y, width, height in find_lines(client, page):
            text, confidence = decode(infer(client, "ocr-rec", prepare(page[y : y + height, x : x + width])), labels)
            print(f"{x:4} {y:4}  {confidence:4.0%}  {text}")
