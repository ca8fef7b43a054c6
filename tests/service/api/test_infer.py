"""What `infer` makes of a parsed request, and the codecs that it keeps."""

from __future__ import annotations

import gc
import json
import struct
import weakref
from pathlib import Path

import numpy as np
import pytest

from service.api.infer import to_request
from service.api.oip_codec import InferCodec
from service.cards import BatchingCard
from service.requests import Stamps
from tests.doubles.held_repository import until
from tests.doubles.inference_bench import InferenceBench, infer_body

READ_NS = 5_000_000_000
DEFAULT_MS = 2000


@pytest.mark.parametrize(
    ("parameters", "priority", "deadline_ms"),
    [
        ({}, 3, DEFAULT_MS),
        ({"priority": 1}, 1, DEFAULT_MS),
        ({"priority": 4}, 4, DEFAULT_MS),
        ({"priority": 0}, 3, DEFAULT_MS),
        ({"timeout": 1_500_000}, 3, 1500),
        ({"timeout": 9_000_000}, 3, DEFAULT_MS),
        ({"timeout": 0}, 3, DEFAULT_MS),
    ],
)
async def test_priority_and_deadline(
    tmp_path: Path, parameters: dict[str, int], priority: int, deadline_ms: int
) -> None:
    batching = BatchingCard(max_batch_size=8, priority_levels=4, default_timeout_ns=DEFAULT_MS * 1_000_000)
    async with InferenceBench(tmp_path, batching=batching) as bench:
        served = bench.registry.get("m")
        stamps = Stamps(1)
        stamps.read = READ_NS
        parsed = InferCodec(served.spec).parse(infer_body(rows=2, fill=7.0, **parameters), None)
        request = to_request(served, parsed, stamps)
        assert request.priority == priority
        assert request.deadline_ns == READ_NS + deadline_ms * 1_000_000
        assert request.stamps is stamps
        assert request.rows == 2
        assert request.nbytes == 32
        assert request.outputs == (0,)
        np.testing.assert_array_equal(request.inputs[0], np.full((2, 4), 7.0, np.float32))


async def test_a_binary_answer_announces_its_header(tmp_path: Path) -> None:
    async with InferenceBench(tmp_path) as bench:
        call = await bench.post(infer_body(fill=2.0, binary_data_output=True)).done()
        length = int(call.headers["inference-header-content-length"])
        assert call.headers["content-type"] == "application/octet-stream"
        assert json.loads(call.body[:length])["outputs"][0]["parameters"] == {"binary_data_size": 16}
        assert struct.unpack("<4f", call.body[length:]) == (4.0,) * 4
        plain = await bench.post().done()
        assert "inference-header-content-length" not in plain.headers


async def test_a_header_length_beyond_the_body_is_refused(tmp_path: Path) -> None:
    async with InferenceBench(tmp_path) as bench:
        call = await bench.post(headers={"Inference-Header-Content-Length": "99999"}).done()
        assert call.status == 400
        assert "Inference-Header-Content-Length" in call.error


async def test_a_reloaded_model_gets_a_codec_of_its_own(tmp_path: Path) -> None:
    async with InferenceBench(tmp_path) as bench:
        assert json.loads((await bench.post().done()).body)["model_version"] == "1"
        bench.repository.add("m", "2")
        await bench.registry.load("m")
        assert json.loads((await bench.post().done()).body)["model_version"] == "2"


async def test_an_unloaded_model_is_not_kept_alive(tmp_path: Path) -> None:
    async with InferenceBench(tmp_path) as bench:
        await bench.post().done()
        batcher = weakref.ref(bench.repository.batcher("m"))
        await bench.registry.unload("m")

        def is_gone() -> bool:
            gc.collect()
            return batcher() is None

        await until(is_gone)  # the thread that closed it may hold it for a moment longer
