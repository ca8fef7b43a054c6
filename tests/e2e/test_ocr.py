"""A photo in, text out: the composed model of the demo on scikit-image's photos of text."""

from __future__ import annotations

import asyncio
import itertools
import shutil
from collections.abc import Iterator

import cv2
import httpx
import numpy as np
import pytest

from tests.doubles.demo_server import page_path
from tests.doubles.running_server import RunningServer
from tests.doubles.text_errors import character_error_rate

pytestmark = pytest.mark.e2e

PAGE = """\
Region-based segmentation
Let us first determine markers of the coins and the
background. These markers are pixels that we can label
unambiguously as either object or background. Here,
the markers are found at the two extreme parts of the
histogram of grey values:
>>> markers = np.zeros_like(coins)"""
"""What stands on page.png, written down by hand; the line that its lower edge cuts through is left out."""

FORMULA = "(s)=1∫t-(t-x)0≈s(s)=[-1tns"
"""What can be made out on text.png by someone who straightens it: three lines, the last one in two parts."""

PATH = "/v2/models/ocr/predict"


@pytest.mark.parametrize(
    ("got", "reference", "rate"),
    [("abc", "abc", 0), ("abd", "abc", 1 / 3), ("", "ab", 1), ("xab", "ab", 0.5), ("ac", "abc", 1 / 3)],
)
def test_the_character_error_rate(got, reference, rate):
    assert character_error_rate(got, reference) == pytest.approx(rate)


def read(server: RunningServer, **request: object) -> list[dict]:
    with server.client() as client:
        response = client.post(PATH, **request)
    assert response.status_code == 200, response.text
    return response.json()["results"]


def png(image: np.ndarray) -> bytes:
    is_written, buffer = cv2.imencode(".png", image)
    assert is_written
    return buffer.tobytes()


def test_a_photo_of_a_page_is_read(demo_server):
    (result,) = read(demo_server, content=page_path().read_bytes(), headers={"Content-Type": "image/png"})
    rate = character_error_rate(result["text"], PAGE)
    assert rate <= 1 / len(PAGE), f"one character was wrong when docs/measurements.md was written, now {rate:.2%}"
    assert result["text"] == "\n".join(line["text"] for line in result["lines"])
    assert (result["height"], result["width"]) == (191, 384)
    for line in result["lines"]:
        corners = np.array(line["box"])
        assert ((corners >= 0) & (corners <= [384, 191])).all()
        assert 0.5 <= line["score"] <= 1


def test_a_handwritten_formula_is_beyond_it_and_no_error(demo_server):
    (result,) = read(demo_server, content=(page_path().parent / "text.png").read_bytes())
    assert all(line["score"] >= 0.5 for line in result["lines"])
    rate = character_error_rate("".join(result["text"].split()), FORMULA)
    assert rate == pytest.approx(22 / len(FORMULA), abs=0.15), f"docs/measurements.md says 85 %, now it is {rate:.0%}"


def test_pages_of_a_form_are_answered_in_its_order(demo_server):
    page = cv2.imread(str(page_path()))
    blank = np.full((50, 80, 3), 255, np.uint8)
    files = [("image", (f"{index}.png", png(image))) for index, image in enumerate((blank, page[:30], page))]
    nothing, heading, whole = (result["text"] for result in read(demo_server, files=files))
    assert (nothing, heading) == ("", "Region-based segmentation")
    assert character_error_rate(whole, PAGE) < 0.02


@pytest.fixture
def joining(demo_server: RunningServer) -> Iterator[str]:
    """The task on a recogniser with batches of four rows alone, so that lines share one even where it costs."""
    repository = demo_server.repository
    shutil.copytree(repository / "ocr-rec", repository / "rec-by-four")
    card = (repository / "ocr-rec" / "model.toml").read_text()
    (repository / "rec-by-four" / "model.toml").write_text(card.replace("batch = [1, 2, 4, 8]", "batch = [4]"))
    (repository / "ocr-by-four").mkdir()
    card = (repository / "ocr" / "model.toml").read_text()
    card = card.replace('"ocr-rec"', '"rec-by-four"').replace(
        "[batching]\n", "[batching]\ndefault_timeout_ms = 60000\n"
    )
    (repository / "ocr-by-four" / "model.toml").write_text(card)
    with demo_server.client() as client:
        assert client.post("/v2/repository/models/ocr-by-four/load").status_code == 200
        yield "ocr-by-four"
        for name in ("ocr-by-four", "rec-by-four"):
            assert client.post(f"/v2/repository/models/{name}/unload").status_code == 200
            shutil.rmtree(repository / name)


async def read_at_once(server: RunningServer, model: str, bodies: list[bytes]) -> list[httpx.Response]:
    async with server.async_client() as client:
        return await asyncio.gather(*(client.post(f"/v2/models/{model}/predict", content=body) for body in bodies))


def test_lines_of_several_clients_share_batches_and_go_back_to_their_own(demo_server, joining):
    page = cv2.imread(str(page_path()))
    bodies = [png(page[top : top + 40]) for top in (0, 40, 80, 100)] * 2
    alone = [read(demo_server, content=body)[0]["text"] for body in bodies[:4]]
    responses = asyncio.run(read_at_once(demo_server, joining, bodies))
    rows = demo_server.metric("nv_inference_count", model="rec-by-four")
    assert 0 < demo_server.metric("nv_inference_exec_count", model="rec-by-four") < rows
    expected = itertools.chain.from_iterable([alone] * 2)
    assert [response.json()["results"][0]["text"] for response in responses] == list(expected)


def test_it_is_told_apart_in_metadata_metrics_and_stages(demo_server):
    before = demo_server.metric("nv_inference_request_success", model="ocr")
    with demo_server.client() as client:
        metadata = client.get("/v2/models/ocr").json()
        response = client.post(PATH, content=page_path().read_bytes())
        config = client.get("/v2/models/ocr/config").json()
    assert (metadata["platform"], metadata["inputs"], metadata["outputs"]) == ("ensemble", [], [])
    assert (config["backend"], config["instance_group"]) == ("", [])
    assert demo_server.metric("nv_inference_request_success", model="ocr") == before + 1
    stages = dict(part.split(";dur=") for part in response.headers["server-timing"].split(", "))
    total = float(stages.pop("total"))
    assert sum(map(float, stages.values())) == pytest.approx(total, rel=0.01)


def test_its_members_come_and_go(demo_server):
    with demo_server.client() as client:
        assert client.post("/v2/repository/models/ocr-rec/load").status_code == 200
        assert client.post(PATH, content=page_path().read_bytes()).status_code == 200
        assert client.post("/v2/repository/models/ocr-det/unload").status_code == 200
        assert client.get("/v2/models/ocr/ready").status_code == 503
        refused = client.post(PATH, content=page_path().read_bytes())
        assert refused.status_code == 503
        assert "its detector 'ocr-det' is not ready" in refused.json()["error"]
        assert client.post("/v2/repository/models/ocr-det/load").status_code == 200
        assert client.post(PATH, content=page_path().read_bytes()).status_code == 200
