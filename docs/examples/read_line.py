"""Reads one line of text in an image with the demo's `ocr-rec` model.

    python docs/examples/read_line.py line.png

The server runs, as `make serve` starts it. Needs `pip install 'tritonclient[http]'`; NumPy and OpenCV came with it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import cv2
import numpy as np
import tritonclient.http as triton

HEIGHT = 48
MAX_WIDTH = 640  # the widest bucket of ocr-rec/model.toml; a longer line is squeezed into it


def prepare(line: np.ndarray) -> np.ndarray:
    """uint8[any height, any width, 3] BGR as the model takes it: float32[1, 3, 48, width], from -1 to 1."""
    height, width = line.shape[:2]
    width = min(MAX_WIDTH, max(HEIGHT, round(width * HEIGHT / height)))
    resized = cv2.resize(line, (width, HEIGHT)).astype(np.float32)
    return np.ascontiguousarray((resized / 255 - 0.5).transpose(2, 0, 1)[np.newaxis] / 0.5)


def infer(client: triton.InferenceServerClient, model: str, image: np.ndarray) -> np.ndarray:
    """The model's output for one prepared image, without the batch dimension."""
    tensor = triton.InferInput("x", image.shape, "FP32")
    tensor.set_data_from_numpy(image)
    return client.infer(model, [tensor]).as_numpy("fetch_name_0")[0]


def decode(probabilities: np.ndarray, labels: list[str]) -> tuple[str, float]:
    """Text and mean probability from float32[steps, classes]: CTC merges equal neighbours, then drops blanks (0)."""
    best = probabilities.argmax(axis=1)
    is_character = (best != 0) & (np.diff(best, prepend=0) != 0)
    scores = probabilities.max(axis=1)[is_character]
    return "".join(labels[index] for index in best[is_character]), float(scores.mean()) if len(scores) else 0.0


def read_labels(repository: Path) -> list[str]:
    """The character of each class, one a line: first the blank, last the space."""
    return (repository / "ocr-rec" / "labels.txt").read_text(encoding="utf-8").split("\n")[:-1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Reads one line of text in an image.")
    parser.add_argument("image")
    parser.add_argument("--repository", type=Path, default=Path("demo-repository"), help="for the labels")
    parser.add_argument("--server", default="localhost:8000", help="host and port (default: %(default)s)")
    options = parser.parse_args()
    if (image := cv2.imread(options.image)) is None:
        parser.error(f"'{options.image}' is not an image that OpenCV reads")
    with triton.InferenceServerClient(options.server) as client:
        try:
            client.is_server_ready()
        except OSError as error:
            parser.error(f"no server answers at {options.server} ({error}); name its host and port with --server")
        text, confidence = decode(infer(client, "ocr-rec", prepare(image)), read_labels(options.repository))
    print(f"{text}  ({confidence:.0%})")
