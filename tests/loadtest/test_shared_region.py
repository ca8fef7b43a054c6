from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from loadtest import shared_region
from loadtest.clock import SystemClock
from loadtest.errors import LoadTestError
from loadtest.metadata import ModelMetadata, TensorMetadata, answer_fault
from loadtest.payloads import HEADER_LENGTH, SAMPLES_PER_SHAPE, Payload, PayloadPlan, Wire, build_payloads
from loadtest.scenario import Step
from loadtest.session import Session, StepJob
from loadtest.shared_region import SharedLayout, shared_layout
from tests.loadtest.tiny_server import Handler, Reply, Request, TinyServer, inference_server, reply

TWO = ModelMetadata(
    "m",
    (TensorMetadata("x", "FP32", (-1, 3)), TensorMetadata("z", "UINT8", (-1, 5))),
    (TensorMetadata("y", "FP32", (-1, 2)), TensorMetadata("k", "INT64", (-1,))),
)
PLAN = PayloadPlan(wire=Wire.SHARED, rows=(1, 7), dims={})


def laid_out() -> tuple[list[Payload], SharedLayout]:
    binary = build_payloads(TWO, PLAN)
    return binary, shared_layout(TWO, binary, "r")


def places_of(payload: Payload) -> list[tuple[str, int, int]]:
    document = json.loads(payload.body)
    found = []
    for tensor in (*document["inputs"], *document["outputs"]):
        parameters = tensor["parameters"]
        assert parameters["shared_memory_region"] == "r"
        found.append((tensor["name"], parameters["shared_memory_offset"], parameters["shared_memory_byte_size"]))
    return found


def test_each_payload_has_places_of_its_own_for_what_it_takes_and_gives() -> None:
    _, layout = laid_out()
    places = [place for payload in layout.payloads for place in places_of(payload)]
    assert [(name, nbytes) for name, _, nbytes in places[:4]] == [("x", 12), ("z", 5), ("y", 8), ("k", 8)]
    assert [(name, nbytes) for name, _, nbytes in places[-4:]] == [("x", 84), ("z", 35), ("y", 56), ("k", 56)]
    assert all(offset % 64 == 0 for _, offset, _ in places)
    spans = sorted((offset, offset + nbytes) for _, offset, nbytes in places)
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))
    assert spans[-1][1] <= layout.nbytes


def test_the_tensors_lie_where_the_requests_say() -> None:
    binary, layout = laid_out()
    parts = dict(layout.parts)
    for before, after in zip(binary, layout.payloads, strict=True):
        length = int(dict(before.headers)[HEADER_LENGTH])
        inputs = places_of(after)[:2]
        assert b"".join(parts[offset] for _, offset, _ in inputs) == before.body[length:]
        assert (after.path, after.rows, after.label) == (before.path, before.rows, before.label)
        assert dict(after.headers) == {"Content-Type": "application/json"}


@pytest.mark.parametrize(("datatype", "shape"), [("FP32", (-1, -1)), ("BYTES", (-1, 2))])
def test_an_output_of_unknown_size_is_refused(datatype: str, shape: tuple[int, ...]) -> None:
    model = ModelMetadata("m", TWO.inputs, (TensorMetadata("y", datatype, shape),))
    with pytest.raises(LoadTestError, match=r"'y' is .* take --wire binary"):
        shared_layout(model, build_payloads(model, PLAN), "r")


@pytest.mark.parametrize(
    ("size", "said"),
    [(8, None), (4, "has 4 bytes"), ("8", "neither data nor")],
)
def test_an_answer_names_the_place_of_its_outputs(size: object, said: str | None) -> None:
    model = ModelMetadata("m", (), (TensorMetadata("y", "FP32", (-1, 2)),))
    parameters = {"shared_memory_region": "r", "shared_memory_byte_size": size}
    output = {"name": "y", "datatype": "FP32", "shape": [1, 2], "parameters": parameters}
    fault = answer_fault(model, None, json.dumps({"outputs": [output]}).encode())
    assert fault is None if said is None else said in (fault or "")


class SharingServer:
    """`y` is the sum of each row of `x`, twice; both lie in a registered region."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.regions: dict[str, Path] = {}
        self.rows_seen: set[tuple[float, ...]] = set()

    async def __call__(self, request: Request) -> Reply:
        parts = request.path.split("/")
        if request.method == "GET":
            return await inference_server(request)
        document = json.loads(request.body)
        if parts[2] == "systemsharedmemory":
            return self._administer(parts[4], parts[5], document)
        (source,), (target,) = document["inputs"], document["outputs"]
        x = np.frombuffer(self._memory(source["parameters"]), np.float32).reshape(source["shape"])
        self.rows_seen.update(map(tuple, x.tolist()))
        y = np.repeat(x.sum(axis=1, keepdims=True), 2, axis=1)
        with self.regions[target["parameters"]["shared_memory_region"]].open("r+b") as region:
            region.seek(target["parameters"]["shared_memory_offset"])
            region.write(y.tobytes())
        output = {"name": "y", "datatype": "FP32", "shape": list(y.shape), "parameters": target["parameters"]}
        return reply(200, json.dumps({"outputs": [output]}).encode())

    def _administer(self, name: str, verb: str, document: dict[str, object]) -> Reply:
        if verb == "unregister":
            del self.regions[name]
            return reply(200)
        path = self._folder / str(document["key"]).lstrip("/")
        assert path.stat().st_size == document["byte_size"]
        self.regions[name] = path
        return reply(200)

    def _memory(self, place: dict[str, object]) -> bytes:
        offset, nbytes = place["shared_memory_offset"], place["shared_memory_byte_size"]
        assert isinstance(offset, int)
        assert isinstance(nbytes, int)
        return self.regions[str(place["shared_memory_region"])].read_bytes()[offset : offset + nbytes]


def files_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def run(handler: Handler, step: Step) -> None:
    async with TinyServer(handler) as server, SystemClock() as clock:
        session = Session(endpoint=server.endpoint, model="m")
        done = await session.run_step(clock, StepJob(await session.metadata(clock), step))
    assert done.records
    assert all(record.failure is None for record in done.records)


async def test_a_step_goes_through_a_region_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_region, "FOLDER", tmp_path)
    server = SharingServer(tmp_path)
    await run(server, Step(concurrency=2, duration_s=0.1, warm_up_s=0.0, rows=(1, 3), wire=Wire.SHARED))
    # Every sample of one and of three rows was tried, and each holds other numbers.
    assert len(server.rows_seen) == SAMPLES_PER_SHAPE * (1 + 3)
    assert server.regions == {}
    assert files_in(tmp_path) == []


async def refusing(request: Request) -> Reply:
    return await inference_server(request) if request.method == "GET" else reply(400, b'{"error": "disabled"}')


async def test_a_server_that_refuses_the_region_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_region, "FOLDER", tmp_path)
    with pytest.raises(LoadTestError, match=r"does not register shared memory: status 400: .*disabled"):
        await run(refusing, Step(concurrency=1, wire=Wire.SHARED))
    assert files_in(tmp_path) == []


async def test_a_machine_without_shared_memory_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_region, "FOLDER", tmp_path / "missing")
    with pytest.raises(LoadTestError, match="/dev/shm may have to be larger"):
        await run(inference_server, Step(concurrency=1, wire=Wire.SHARED))
