"""How the endpoint sends what a handler answers: compressed, in parts, off the event loop."""

from __future__ import annotations

import gzip
import threading
import zlib
from pathlib import Path

import numpy as np
import pytest

from service.api import endpoint as endpoint_module
from service.api.endpoint import LARGE_BYTES
from tests.doubles.inference_bench import InferenceBench
from tests.doubles.stub_handler import StubHandler


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_answers_are_compressed_where_the_client_means_it(tmp_path: Path, coding: str) -> None:
    async with InferenceBench(tmp_path) as bench:
        plain = await bench.post().done()
        call = await bench.post(headers={"Accept-Encoding": coding}).done()
        assert call.is_complete
        assert call.headers["content-encoding"] == coding
        assert (gzip.decompress if coding == "gzip" else zlib.decompress)(call.body) == plain.body


FLOATS = np.zeros(LARGE_BYTES // 8, np.float32)
LARGE = {
    "bytes": ((bytes(LARGE_BYTES), b"x"), True),
    "a view of floats, whose length counts floats": ((memoryview(np.zeros(LARGE_BYTES // 2, np.float32)),), True),
    "just not large": ((bytes(LARGE_BYTES),), False),
    "views, just not large": ((memoryview(FLOATS), memoryview(FLOATS)), False),
}


@pytest.mark.parametrize(("chunks", "is_large"), LARGE.values(), ids=LARGE.keys())
async def test_large_answers_are_compressed_off_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunks: tuple[bytes | memoryview, ...], is_large: bool
) -> None:
    threads: list[int] = []
    encode = endpoint_module.encode_body

    def watched_encode(encoding: bytes, parts: tuple[bytes | memoryview, ...]) -> bytes:
        threads.append(threading.get_ident())
        return encode(encoding, parts)

    monkeypatch.setattr(endpoint_module, "encode_body", watched_encode)
    async with InferenceBench(tmp_path, handlers={"infer": StubHandler(chunks)}) as bench:
        call = await bench.post(headers={"Accept-Encoding": "gzip"}).done()
        assert gzip.decompress(call.body) == b"".join(map(bytes, chunks))
        assert [thread != threading.get_ident() for thread in threads] == [is_large]


@pytest.mark.parametrize(("chunks", "is_large"), LARGE.values(), ids=LARGE.keys())
async def test_large_answers_are_sent_in_parts_and_small_ones_at_once(
    tmp_path: Path, chunks: tuple[bytes | memoryview, ...], is_large: bool
) -> None:
    async with InferenceBench(tmp_path, handlers={"infer": StubHandler(chunks)}) as bench:
        call = await bench.post().done()
        assert call.is_complete
        assert call.body == b"".join(map(bytes, chunks))
        assert (len(call.sent) > 2) is is_large
        assert bench.recorder.models["m", "1"].requests[0][1] == 3
