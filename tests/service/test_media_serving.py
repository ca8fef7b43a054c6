"""A whole server whose tasks run on the emulated GPU, held against one where the same cards say `kernels = "off"`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.doubles.emulated_gpu import emulated_gpu
from tests.doubles.media_cases import VECTOR_TOLERANCE, assert_same_boxes, assert_same_classes
from tests.doubles.running_app import App, running
from tests.service.pipeline.forms import FORM, form, part
from tests.service.pipeline.image_files import encode, noise, smooth

MODELS = ("seer", "finder8", "speaker")
SIDES = ((24, 32), (1, 1), (100, 99), (150, 80), (7, 60), (64, 64), (33, 35), (90, 12))
"""One of them has more pixels than the cards allow on the GPU."""

CLIENTS = 16

WAIT_S = 120.0
"""For the server: a compiler for the host makes the kernels of each, which takes as long as the machine is busy."""


def picture(index: int) -> bytes:
    height, width = SIDES[index % len(SIDES)]
    image = smooth(height, width) if min(height, width) > 8 else noise(height, width, seed=index)
    return encode(".png", image)


async def ask(server: App, index: int) -> list[Any]:
    """One client: an image to both, a form of three, and texts."""
    forms = {"content": form(*(part(picture(index + n)) for n in range(3))), "headers": {"content-type": FORM}}
    image = {"content": picture(index), "headers": {"content-type": "image/png"}}
    texts = {"json": {"text": ["red green", "light", "blue blue blue red"][: 1 + index % 3]}}
    asked = [("seer", image), ("finder8", image), ("seer", forms), ("finder8", forms), ("speaker", texts)]
    answers = [await server.request("POST", f"/v2/models/{name}/predict", **body) for name, body in asked]
    assert [answer.status_code for answer in answers] == [200] * len(asked), [answer.text for answer in answers]
    return [answer.json() for answer in answers]


async def answers_of(repository: Path, top: str) -> tuple[list[list[Any]], str]:
    with emulated_gpu(repository, dict.fromkeys(MODELS, top + 'backend = "tensorrt"\n')):
        async with running(repository, wait_s=WAIT_S, kernel_cache=repository / "cache") as server:
            assert server.failures == {}
            answers = await asyncio.gather(*(ask(server, index) for index in range(CLIENTS)))
            metrics = (await server.request("GET", "/metrics")).text
    return list(answers), metrics


@pytest.mark.timeout(300)
async def test_both_ways_answer_sixteen_clients_the_same(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "on").mkdir()
    (tmp_path / "off").mkdir()
    got, metrics = await answers_of(tmp_path / "on", "")
    wanted, other_metrics = await answers_of(tmp_path / "off", 'kernels = "off"\n')
    for one, other in zip(got, wanted, strict=True):
        for index in (0, 2):
            assert_same_classes(one[index], other[index])
        for index in (1, 3):
            assert_same_boxes(one[index], other[index])
        for vector, same in zip(one[4]["results"], other[4]["results"], strict=True):
            np.testing.assert_allclose(vector["embedding"], same["embedding"], atol=VECTOR_TOLERANCE)
    assert ":media" in metrics
    assert ":media" not in other_metrics
    assert not [record for record in caplog.records if "runs on the host" in record.getMessage()]
