"""The demo models behind the real server, on scikit-image's photo of a printed page."""

from __future__ import annotations

import asyncio
import importlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from types import ModuleType

import cv2
import numpy as np
import pytest
import tritonclient.http as httpclient
import tritonclient.http.aio as aioclient
from PIL import Image

from tests.doubles.demo_server import ROOT, page_path
from tests.doubles.running_server import RunningServer

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

EXAMPLES = ROOT / "docs" / "examples"
TURNS = {0: None, 90: cv2.ROTATE_90_CLOCKWISE, 180: cv2.ROTATE_180, 270: cv2.ROTATE_90_COUNTERCLOCKWISE}
EXIF_ORIENTATION = 0x0112
EXIF_THAT_UNDOES = {0: 1, 90: 8, 180: 3, 270: 6}
"""By clockwise turn of the stored picture: the EXIF orientation that shows it upright again."""

LINES = {
    "Region-based segmentation": (5, 11, 286, 20),
    "Let us first determine markers of the coins and the": (3, 46, 375, 18),
    "background. These markers are pixels that we can label": (3, 63, 374, 20),
    "unambiguously as either object or background. Here,": (3, 80, 376, 21),
    "the markers are found at the two extreme parts of the": (3, 96, 376, 22),
    "histogram of grey values:": (2, 113, 171, 25),
}
"""The page's lines, and where each stands: left, top, width, height in pixels."""


@pytest.fixture
def page() -> np.ndarray:
    return cv2.cvtColor(np.asarray(Image.open(page_path()).convert("RGB")), cv2.COLOR_RGB2BGR)


@pytest.fixture
def read_line(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return example("read_line", monkeypatch)


@pytest.fixture
def client(demo_server: RunningServer):
    with httpclient.InferenceServerClient(demo_server.address) as client:
        yield client


def example(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module(name)


def turned(page: np.ndarray, angle: int) -> np.ndarray:
    turn = TURNS[angle]
    return page if turn is None else cv2.rotate(page, turn)


def encoded(image: np.ndarray, extension: str) -> bytes:
    is_written, buffer = cv2.imencode(extension, image)
    assert is_written
    return buffer.tobytes()


def jpeg_with_exif(image: np.ndarray, orientation: int) -> bytes:
    exif = Image.Exif()
    exif[EXIF_ORIENTATION] = orientation
    file = BytesIO()
    Image.fromarray(cv2.cvtColor(image, cv2.COLOR_BGR2RGB)).save(file, "JPEG", exif=exif)
    return file.getvalue()


def best_labels(server: RunningServer, **request: object) -> list[str]:
    with server.client() as client:
        response = client.post("/v2/models/orientation/predict?top_k=1", **request)
    assert response.status_code == 200, response.text
    return [result["predictions"][0]["label"] for result in response.json()["results"]]


@pytest.mark.parametrize("angle", TURNS)
@pytest.mark.parametrize(("extension", "is_grey"), [(".jpg", False), (".png", False), (".png", True)])
def test_orientation_of_a_turned_page(demo_server, page, angle, extension, is_grey):
    image = turned(cv2.cvtColor(page, cv2.COLOR_BGR2GRAY) if is_grey else page, angle)
    content_type = {".jpg": "image/jpeg", ".png": "image/png"}[extension]
    labels = best_labels(demo_server, content=encoded(image, extension), headers={"Content-Type": content_type})
    assert labels == [str(angle)]


@pytest.mark.parametrize("angle", TURNS)
def test_a_page_that_exif_turns_upright_is_upright(demo_server, page, angle):
    body = jpeg_with_exif(turned(page, angle), EXIF_THAT_UNDOES[angle])
    assert best_labels(demo_server, content=body, headers={"Content-Type": "image/jpeg"}) == ["0"]


def test_several_pages_in_one_form_are_answered_in_its_order(demo_server, page):
    angles = [180, 0, 270, 90, 90]
    files = [("image", (f"{angle}.png", encoded(turned(page, angle), ".png"))) for angle in angles]
    assert best_labels(demo_server, files=files) == [str(angle) for angle in angles]


def crop(page: np.ndarray, text: str) -> np.ndarray:
    x, y, width, height = LINES[text]
    return page[y : y + height, x : x + width]


@pytest.mark.parametrize("text", LINES)
def test_a_line_is_read(client, demo_repository, read_line, page, text):
    probabilities = read_line.infer(client, "ocr-rec", read_line.prepare(crop(page, text)))
    got, confidence = read_line.decode(probabilities, read_line.read_labels(demo_repository))
    assert got == text
    assert 0.9 < confidence <= 1.0


@pytest.mark.parametrize(
    ("best", "text"),
    [([], ""), ([0, 0], ""), ([1, 1, 1], "a"), ([1, 0, 1], "aa"), ([0, 1, 2, 2, 0, 3], "ab "), ([2, 1], "ba")],
)
def test_decoding_merges_neighbours_and_drops_blanks(read_line, best, text):
    labels = ["<blank>", "a", "b", " "]
    probabilities = 0.75 * np.eye(len(labels), dtype=np.float32)[best]
    got, confidence = read_line.decode(probabilities, labels)
    assert got == text
    assert confidence == (0.75 if text else 0.0)


@pytest.fixture
def joining_model(demo_server: RunningServer) -> Iterator[str]:
    """`ocr-rec` with batches of four rows alone, so that requests share one even where that does not pay."""
    name = "ocr-rec-by-four"
    original, copy = demo_server.repository / "ocr-rec", demo_server.repository / name
    shutil.copytree(original, copy)
    card = (original / "model.toml").read_text()
    assert "batch = [1, 2, 4, 8]" in card
    (copy / "model.toml").write_text(card.replace("batch = [1, 2, 4, 8]", "batch = [4]"))
    with demo_server.client() as client:
        assert client.post(f"/v2/repository/models/{name}/load").status_code == 200
        yield name
        assert client.post(f"/v2/repository/models/{name}/unload").status_code == 200
    shutil.rmtree(copy)


async def read_each(address: str, model: str, lines: list[np.ndarray], *, at_once: bool) -> list[np.ndarray]:
    """The probabilities for each line, from requests in flight together or one after the other."""
    async with aioclient.InferenceServerClient(address) as client:

        async def read(line: np.ndarray) -> np.ndarray:
            tensor = httpclient.InferInput("x", line.shape, "FP32")
            tensor.set_data_from_numpy(line)
            return (await client.infer(model, [tensor])).as_numpy("fetch_name_0")[0]

        if at_once:
            return list(await asyncio.gather(*map(read, lines)))
        return [await read(line) for line in lines]


def test_requests_of_several_widths_at_once_read_as_one_at_a_time(
    demo_server, demo_repository, joining_model, read_line, page
):
    lines = [read_line.prepare(crop(page, text)[:, : 20 * parts]) for text in LINES for parts in (3, 5)]
    assert len({line.shape[3] for line in lines}) > 4
    labels = read_line.read_labels(demo_repository)
    alone = asyncio.run(read_each(demo_server.address, "ocr-rec", lines, at_once=False))
    together = asyncio.run(read_each(demo_server.address, joining_model, lines, at_once=True))
    assert [read_line.decode(line, labels)[0] for line in together] == [
        read_line.decode(line, labels)[0] for line in alone
    ]
    assert demo_server.metric("nv_inference_exec_count", model=joining_model) < len(lines)


def overlap(box: tuple[int, int, int, int], other: tuple[int, int, int, int]) -> float:
    """Intersection over union."""
    x0, y0 = np.maximum(box[:2], other[:2])
    x1, y1 = np.minimum(np.add(box[:2], box[2:]), np.add(other[:2], other[2:]))
    shared = max(0, x1 - x0) * max(0, y1 - y0)
    return shared / (box[2] * box[3] + other[2] * other[3] - shared)


@pytest.mark.parametrize(("height", "width"), [(191, 384), (300, 640), (640, 640), (640, 400)])
def test_lines_are_found_wherever_the_page_is_padded(client, monkeypatch, page, height, width):
    canvas = np.full((height, width, 3), 255, np.uint8)
    canvas[: page.shape[0], : page.shape[1]] = page
    boxes = example("find_text", monkeypatch).find_lines(client, canvas)
    assert {text: max(overlap(box, found) for found in boxes) > 0.6 for text, box in LINES.items()} == dict.fromkeys(
        LINES, True
    )


def run_example(folder: Path, *arguments: str) -> str:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=60).stdout


def test_the_examples_run_one_after_the_other(demo_server, demo_repository, tmp_path):
    run_example(tmp_path, str(EXAMPLES / "make_pages.py"))
    where = ["--server", demo_server.address, "--repository", str(demo_repository)]
    line = run_example(tmp_path, str(EXAMPLES / "read_line.py"), "line.png", *where)
    assert line.startswith("Inferlane runs the requests of  (")
    text = run_example(tmp_path, str(EXAMPLES / "find_text.py"), "page.png", *where)
    assert [row.split("%  ")[1] for row in text.splitlines()] == [
        "Inferlane runs the requests of",
        "many clients as one batch, padded",
        "to buckets whose cost it measured,",
        "and says of every request where",
        "its time went.",
    ]
