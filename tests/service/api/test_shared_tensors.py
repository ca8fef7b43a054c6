"""Inference through clients' shared memory: every seam real but the device and the socket."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.api import shared_tensors
from service.api.body import ByteBudget
from service.api.oip_codec import InferCodec
from service.api.shared_tensors import SharedTensors
from service.errors import InvalidInput, Overloaded, PayloadTooLarge
from service.shared_regions.region import RegionSpec
from service.shared_regions.registered import RegionLimits, RegisteredRegions
from service.tensors import HOST_ALIGNMENT_BYTES, IN_PLACE_FROM_BYTES
from service.transport.region import Region
from tests.doubles.held_repository import begun as lane_begun
from tests.doubles.held_repository import until
from tests.doubles.inference_bench import InferenceBench
from tests.doubles.open_files import open_files
from tests.service.api.oip_models import make_spec

LARGE_ROWS = IN_PLACE_FROM_BYTES // 8
OBJECT_BYTES = 4 * IN_PLACE_FROM_BYTES
ROOM_BYTES = 1 << 20


class Client:
    """A client's own view of its shared memory object."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(bytes(OBJECT_BYTES))

    @property
    def nbytes(self) -> int:
        return self.path.stat().st_size

    def write(self, offset: int, content: bytes) -> None:
        with self.path.open("r+b") as file:
            file.seek(offset)
            file.write(content)

    def write_floats(self, offset: int, values: Sequence[float]) -> None:
        self.write(offset, np.asarray(values, np.float32).tobytes())

    def floats(self, offset: int, count: int) -> list[float]:
        return np.frombuffer(self.path.read_bytes(), np.float32, count, offset).tolist()


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return Client(tmp_path / "frames")


@pytest.fixture
async def regions(client: Client) -> AsyncIterator[RegisteredRegions]:
    regions = RegisteredRegions(RegionLimits(max_regions=4, max_bytes=1 << 30), client.path.parent)
    await regions.register(RegionSpec("r", "/frames", 0, OBJECT_BYTES))
    yield regions
    regions.close()
    assert open_files(client.path.parent) == [], "a request has kept an object open"


def place(offset: int, nbytes: int, region: str = "r") -> dict[str, Any]:
    return {
        "shared_memory_region": region,
        "shared_memory_offset": offset,
        "shared_memory_byte_size": nbytes,
    }


def body(source: dict[str, Any], target: dict[str, Any] | None = None, rows: int = 1) -> bytes:
    tensor = {"name": "x", "shape": [rows, 4], "datatype": "FP32", "parameters": source}
    outputs = [{"name": "y", "parameters": target or {"binary_data": True}}]
    return json.dumps({"inputs": [tensor], "outputs": outputs}).encode()


async def test_inputs_come_from_a_region_and_outputs_go_there(
    tmp_path: Path, regions: RegisteredRegions, client: Client
) -> None:
    client.write_floats(16, range(8))
    async with InferenceBench(tmp_path / "m", regions=regions) as bench:
        call = await bench.post(body(place(16, 32), place(64, 1000), rows=2)).done()
        assert call.status == 200, call.body
        assert "inference-header-content-length" not in call.headers
        (output,) = json.loads(call.body)["outputs"]
        assert output["parameters"] == {"binary_data_size": 0, **place(64, 32)}
        assert output["shape"] == [2, 4]
        assert client.floats(64, 9) == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 0.0]
        assert bench.records() == (1, [])


async def test_only_the_outputs_go_through_a_region(tmp_path: Path, regions: RegisteredRegions, client: Client) -> None:
    tensor = {"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1.5] * 4}
    asked = {"inputs": [tensor], "outputs": [{"name": "y", "parameters": place(0, 16)}]}
    async with InferenceBench(tmp_path / "m", regions=regions) as bench:
        assert (await bench.post(json.dumps(asked).encode()).done()).status == 200
    assert client.floats(0, 5) == [3.0] * 4 + [0.0]


async def test_only_the_inputs_come_through_a_region(
    tmp_path: Path, regions: RegisteredRegions, client: Client
) -> None:
    client.write_floats(0, [1.5] * 4)
    async with InferenceBench(tmp_path / "m", regions=regions) as bench:
        call = await bench.post(body(place(0, 16))).done()
        length = int(call.headers["inference-header-content-length"])
        assert call.body[length:] == np.full(4, 3.0, np.float32).tobytes()


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (place(0, 16, "other"), None, "region 'other' is not registered"),
        (place(0, 16), place(0, 16, "other"), "region 'other' is not registered"),
        (place(0, 12), None, "input byte size mismatch for input 'x' .* Expected 16, got 12"),
        (
            place(OBJECT_BYTES - 15, 16),
            None,
            f"takes 16 bytes at offset {OBJECT_BYTES - 15} of shared memory region 'r', which has {OBJECT_BYTES} bytes",
        ),
        (place(1 << 62, 16), None, "input 'x' takes 16 bytes at offset"),
        (place(0, 16), place(OBJECT_BYTES, 16), "an output takes 16 bytes at offset"),
        (place(0, 16), place(0, 15), "output 'y' has 16 bytes, but 15 bytes at offset 0 of shared memory region 'r'"),
    ],
)
async def test_a_place_that_cannot_be_is_refused_before_anything_runs(
    tmp_path: Path, regions: RegisteredRegions, source: dict[str, Any], target: dict[str, Any], message: str
) -> None:
    async with InferenceBench(tmp_path / "m", regions=regions) as bench:
        call = await bench.post(body(source, target)).done()
        assert call.status == 400
        with pytest.raises(InvalidInput, match=message):
            raise InvalidInput(json.loads(call.body)["error"])
        assert bench.records() == (0, ["invalid"])


async def test_where_it_is_off_requests_are_told(tmp_path: Path) -> None:
    async with InferenceBench(tmp_path) as bench:
        call = await bench.post(body(place(0, 16))).done()
        assert (call.status, b"INFERLANE_SYSTEM_SHARED_MEMORY_ENABLED" in call.body) == (501, True)


async def test_an_object_that_shrinks_under_a_request_is_the_clients_fault(
    tmp_path: Path, regions: RegisteredRegions, client: Client
) -> None:
    async with InferenceBench(tmp_path / "m", regions=regions) as bench:
        bench.repository.hold(bench.backend)
        running = bench.post(body(place(0, 16), place(64, 16)))
        await lane_begun(bench.backend)
        os.truncate(client.path, 8)
        bench.backend.let()
        assert (await running.done()).status == 400
        assert (await bench.post(body(place(0, 16))).done()).status == 400
        assert client.nbytes == 8
        assert bench.records() == (0, ["invalid", "invalid"])


async def test_a_request_that_runs_keeps_its_region(tmp_path: Path, regions: RegisteredRegions, client: Client) -> None:
    client.write_floats(0, [3.0] * 4)
    async with InferenceBench(tmp_path / "m", regions=regions) as bench:
        bench.repository.hold(bench.backend)
        running = bench.post(body(place(0, 16), place(64, 16)))
        await lane_begun(bench.backend)
        client.write_floats(0, [5.0] * 4)  # what was checked is what runs
        await regions.unregister("r")
        refused = await bench.post(body(place(0, 16))).done()
        bench.backend.let()
        assert ((await running.done()).status, refused.status) == (200, 400)
        assert client.floats(64, 4) == [6.0] * 4


async def test_a_client_that_leaves_lets_go_of_its_region(tmp_path: Path, regions: RegisteredRegions) -> None:
    async with InferenceBench(tmp_path / "m", regions=regions) as bench:
        running = await bench.occupy()
        waiting = bench.post(body(place(0, 16)))
        batcher = bench.repository.batcher("m")
        await until(lambda: batcher.queued_requests == 1)
        bench.sweep_late()
        waiting.leaves()
        await waiting.done()
        bench.backend.let()
        await running.done()
        assert bench.records() == (1, ["cancelled"])


# The pieces by themselves: what they hold, and what they give back.

SPEC = make_spec({"x": ("UINT8", ("batch", 8)), "t": ("BYTES", ("batch", 1))}, max_batch_size=1 << 20)


def request(codec: InferCodec, rows: int, nbytes: int, text_bytes: int) -> Any:
    tensors = [
        {"name": "x", "shape": [rows, 8], "datatype": "UINT8", "parameters": place(3, nbytes)},
        {"name": "t", "shape": [rows, 1], "datatype": "BYTES", "parameters": place(3 + nbytes, text_bytes)},
    ]
    return codec.begin(json.dumps({"inputs": tensors}).encode(), None)


@pytest.mark.parametrize("step_bytes", [1000, 1 << 20])
@pytest.mark.parametrize("rows", [1, LARGE_ROWS])
async def test_copies_are_aligned_whole_and_given_back(
    regions: RegisteredRegions, client: Client, monkeypatch: pytest.MonkeyPatch, rows: int, step_bytes: int
) -> None:
    monkeypatch.setattr(shared_tensors, "STEP_BYTES", step_bytes)
    content = np.random.default_rng(rows).integers(0, 256, rows * 8, dtype=np.uint8)
    text = b"\x01\0\0\0a" * rows
    client.write(3, content.tobytes() + text)
    codec, budget, room = InferCodec(SPEC), ByteBudget(1 << 30), Region(np.zeros(ROOM_BYTES, np.uint8))
    shared = SharedTensors(regions, budget=budget, memory=room, limit_bytes=1 << 20)
    begun = request(codec, rows, len(content), len(text))
    visit = shared.visit(begun)
    assert budget.held_bytes == len(content) + len(text)
    parts = await visit.read()
    parsed = codec.finish(begun, parts)
    assert parsed.inputs[0].tobytes() == content.tobytes()
    assert parsed.inputs[1].tolist() == [[b"a"]] * rows
    assert parsed.nbytes == len(content) + len(text)
    assert all(part.readonly for part in parts)
    if rows == LARGE_ROWS:
        assert parsed.inputs[0].ctypes.data % HOST_ALIGNMENT_BYTES == 0
        assert room.find(parsed.inputs[0]) is not None
    del parts, parsed
    visit.close()
    visit.close()
    assert (budget.held_bytes, room.held_bytes) == (0, 0)


@pytest.mark.parametrize(
    ("limit_bytes", "budget_bytes", "room_bytes", "error", "message"),
    [
        (IN_PLACE_FROM_BYTES, 1 << 30, ROOM_BYTES, PayloadTooLarge, r"names \d+ more in shared memory, max_body_bytes"),
        (1 << 30, 1024, ROOM_BYTES, Overloaded, "max_in_flight_bytes is 1024"),
        (1 << 30, 1 << 30, IN_PLACE_FROM_BYTES, Overloaded, "raise INFERLANE_ARENA_BYTES"),
    ],
)
async def test_inputs_for_which_there_is_no_room_are_refused(
    regions: RegisteredRegions, limit_bytes: int, budget_bytes: int, room_bytes: int, error: type, message: str
) -> None:
    budget, room = ByteBudget(budget_bytes), Region(np.zeros(room_bytes, np.uint8))
    shared = SharedTensors(regions, budget=budget, memory=room, limit_bytes=limit_bytes)
    begun = request(InferCodec(SPEC), LARGE_ROWS, LARGE_ROWS * 8, LARGE_ROWS * 5)
    with pytest.raises(error, match=message):
        shared.visit(begun)
    assert (budget.held_bytes, room.held_bytes) == (0, 0)


async def test_text_is_checked_as_it_was_copied(regions: RegisteredRegions, client: Client) -> None:
    codec = InferCodec(SPEC)
    shared = SharedTensors(
        regions, budget=ByteBudget(1 << 20), memory=Region(np.zeros(ROOM_BYTES, np.uint8)), limit_bytes=1 << 20
    )
    begun = request(codec, 1, 8, 5)
    visit = shared.visit(begun)
    client.write(11, b"\xff\xff\xff\xffa")
    with pytest.raises(InvalidInput, match="incomplete string data for input 't'"):
        codec.finish(begun, await visit.read())
    visit.close()
