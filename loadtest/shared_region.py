"""Tensors in system shared memory, for a server on this machine: the region, and requests that name places in it.

The protocol's extension: a client makes a POSIX shared memory object, registers it, and sends only where in it each
tensor lies; the server writes its outputs into it as well. Here every payload has its own place for both, written
before the clock runs. Requests in flight may share a payload and with it the place of its outputs, which hold the same
numbers then; they are not looked at, only that the answer names their places.
"""

from __future__ import annotations

import contextlib
import math
import os
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import orjson

from loadtest.client import Client
from loadtest.errors import LoadTestError
from loadtest.metadata import DYNAMIC, ITEM_BYTES, ModelMetadata
from loadtest.payloads import HEADER_LENGTH, Payload

FOLDER = Path("/dev/shm")
"""Where Linux keeps POSIX shared memory objects, as files."""

_ALIGNMENT_BYTES = 64
_ROUTE = "/v2/systemsharedmemory/region"
_JSON_HEADERS = (("Content-Type", "application/json"),)

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class SharedLayout:
    """A region and what it holds.

    Attributes:
        region: its name, and its key without the leading slash.
        payloads: requests that name places in it.
        parts: offset and bytes of each input.
        nbytes: of the whole region.
    """

    region: str
    payloads: list[Payload]
    parts: list[tuple[int, bytes]]
    nbytes: int


def shared_layout(metadata: ModelMetadata, payloads: Sequence[Payload], region: str) -> SharedLayout:
    """Moves the tensors of binary payloads into a region, and makes room for their outputs.

    Args:
        metadata: of the model.
        payloads: on `Wire.BINARY`.
        region: name of the region to be.

    Raises:
        LoadTestError: the size of an output is not known beforehand.
    """
    shared: list[Payload] = []
    parts: list[tuple[int, bytes]] = []
    end = 0
    for payload in payloads:
        length = int(dict(payload.headers)[HEADER_LENGTH])
        document, at = orjson.loads(payload.body[:length]), length
        for tensor in document["inputs"]:
            nbytes = tensor["parameters"]["binary_data_size"]
            parts.append((end, payload.body[at : at + nbytes]))
            tensor["parameters"] = _place(region, end, nbytes)
            at, end = at + nbytes, _aligned(end + nbytes)
        outputs = []
        for name, nbytes in _output_bytes(metadata, payload.rows):
            outputs.append({"name": name, "parameters": _place(region, end, nbytes)})
            end = _aligned(end + nbytes)
        body = orjson.dumps({"inputs": document["inputs"], "outputs": outputs})
        shared.append(replace(payload, headers=_JSON_HEADERS, body=body))
    return SharedLayout(region, shared, parts, end)


def _place(region: str, offset: int, nbytes: int) -> dict[str, object]:
    return {
        "shared_memory_region": region,
        "shared_memory_offset": offset,
        "shared_memory_byte_size": nbytes,
    }


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES


def _output_bytes(metadata: ModelMetadata, rows: int) -> list[tuple[str, int]]:
    found = []
    for tensor in metadata.outputs:
        shape = (rows, *tensor.shape[1:]) if metadata.takes_rows else tensor.shape
        if DYNAMIC in shape or not ITEM_BYTES[tensor.datatype]:
            raise LoadTestError(
                f"output {tensor.name!r} is {tensor.datatype} {list(tensor.shape)}, known in size only afterwards; "
                "shared memory needs it beforehand: take --wire binary"
            )
        found.append((tensor.name, math.prod(shape) * ITEM_BYTES[tensor.datatype]))
    return found


@contextlib.asynccontextmanager
async def shared_payloads(
    client: Client, headers: Headers, metadata: ModelMetadata, payloads: Sequence[Payload]
) -> AsyncIterator[list[Payload]]:
    """The payloads through a region that is registered with the server for as long as the block.

    Args:
        client: of the server, which runs on this machine and may read what this user's processes share.
        headers: added to the requests that register and unregister.
        metadata: of the model.
        payloads: on `Wire.BINARY`.

    Raises:
        LoadTestError: as `shared_layout`, or the region cannot be made, or the server refuses it.
    """
    layout = shared_layout(metadata, payloads, f"loadtest-{uuid.uuid4().hex}")
    path = FOLDER / layout.region
    try:
        _write(path, layout)
        await _tell(client, headers, layout, "register")
        try:
            yield layout.payloads
        finally:
            with contextlib.suppress(LoadTestError):  # a server that has gone, or forgotten it, needs no telling
                await _tell(client, headers, layout, "unregister")
    finally:
        path.unlink(missing_ok=True)


def _write(path: Path, layout: SharedLayout) -> None:
    try:
        with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as region:
            region.truncate(layout.nbytes)
            for offset, part in layout.parts:
                region.seek(offset)
                region.write(part)
    except OSError as error:
        raise LoadTestError(
            f"no shared memory of {layout.nbytes} bytes: {error}; in a container, /dev/shm may have to be larger"
        ) from error


async def _tell(client: Client, headers: Headers, layout: SharedLayout, verb: str) -> None:
    document = {"key": f"/{layout.region}", "offset": 0, "byte_size": layout.nbytes} if verb == "register" else {}
    request = client.endpoint.frame(
        "POST", f"{_ROUTE}/{layout.region}/{verb}", (*headers, *_JSON_HEADERS), orjson.dumps(document)
    )
    answer = await client.fetch(request)
    if answer.failure is not None or answer.status != 200:
        said = answer.body[:500].decode("utf-8", "replace")
        raise LoadTestError(
            f"the server does not {verb} shared memory: status {answer.status}: {said}; it must run on this machine "
            "with the extension enabled"
        )
