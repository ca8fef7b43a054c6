"""What a server says of a model (`GET /v2/models/{m}`), and whether an answer carries what it promised. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

import orjson

from loadtest.errors import LoadTestError

DYNAMIC = -1
"""Extent of a dynamic dimension in metadata."""

ITEM_BYTES = {
    "BOOL": 1,
    "UINT8": 1,
    "INT8": 1,
    "UINT16": 2,
    "INT16": 2,
    "FP16": 2,
    "BF16": 2,
    "UINT32": 4,
    "INT32": 4,
    "FP32": 4,
    "UINT64": 8,
    "INT64": 8,
    "FP64": 8,
    "BYTES": 0,
}
"""Bytes of one element by datatype; 0 where elements differ in size."""


@dataclass(frozen=True, slots=True)
class TensorMetadata:
    """An input or output as the server names it; `shape` has `DYNAMIC` for every dynamic dimension."""

    name: str
    datatype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """A model as the server describes it."""

    name: str
    inputs: tuple[TensorMetadata, ...]
    outputs: tuple[TensorMetadata, ...]

    @property
    def takes_rows(self) -> bool:
        """Whether the leading dimension of every input is dynamic, so that a request chooses its rows."""
        return all(tensor.shape and tensor.shape[0] == DYNAMIC for tensor in self.inputs)


def model_path(model: str) -> str:
    """Path of a model's routes, percent-encoded."""
    return f"/v2/models/{quote(model, safe='')}"


def parse_metadata(document: bytes) -> ModelMetadata:
    """Metadata from the body of `GET /v2/models/{m}`.

    Raises:
        LoadTestError: the document is not the Open Inference Protocol's model metadata.
    """
    try:
        parsed = orjson.loads(document)
        return ModelMetadata(
            name=str(parsed["name"]),
            inputs=tuple(_tensor(entry) for entry in parsed["inputs"]),
            outputs=tuple(_tensor(entry) for entry in parsed["outputs"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise LoadTestError(
            f"the server's model metadata begins {document[:80]!r} ({error!r}); "
            "expected Open Inference Protocol JSON with name, inputs and outputs: check --url"
        ) from error


def _tensor(entry: dict[str, object]) -> TensorMetadata:
    datatype = str(entry["datatype"])
    if datatype not in ITEM_BYTES:
        raise ValueError(f"datatype {datatype!r} is none of {', '.join(ITEM_BYTES)}")
    shape = entry["shape"]
    if not isinstance(shape, list) or not all(isinstance(extent, int) for extent in shape):
        raise ValueError(f"shape {shape!r} is no list of integers")
    return TensorMetadata(str(entry["name"]), datatype, tuple(shape))


def answer_fault(metadata: ModelMetadata, header_length: int | None, body: bytes) -> str | None:
    """What is wrong with the body of a 200 answer, or None.

    Looks at structure alone: every output of the model is there, and holds as many elements as its shape says.

    Args:
        metadata: of the model that was asked.
        header_length: the answer's `Inference-Header-Content-Length`, or None if all of it is JSON.
        body: the whole body.
    """
    try:
        parsed = orjson.loads(body if header_length is None else memoryview(body)[:header_length])
        outputs = {entry["name"]: entry for entry in parsed["outputs"]}
        missing = [tensor.name for tensor in metadata.outputs if tensor.name not in outputs]
        if missing:
            return f"outputs {missing} are missing, got {list(outputs)}"
        raw_bytes = sum(_raw_bytes(entry) for entry in outputs.values())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return f"not an inference answer: {error!r}"
    if header_length is not None and header_length + raw_bytes != len(body):
        return f"the body has {len(body)} bytes, its header announces {header_length} + {raw_bytes}"
    return None


def _raw_bytes(entry: dict[str, object]) -> int:
    """Bytes that this output adds behind the JSON header."""
    shape, datatype, data = entry["shape"], str(entry["datatype"]), entry.get("data")
    if not isinstance(shape, list):
        raise ValueError(f"output {entry['name']!r} has no shape")
    count = 1
    for extent in shape:
        count *= extent
    if isinstance(data, list):
        if len(data) != count:
            raise ValueError(f"output {entry['name']!r} has {len(data)} elements, its shape {shape} says {count}")
        return 0
    parameters = entry["parameters"]
    if not isinstance(parameters, dict):
        raise ValueError(f"output {entry['name']!r} has parameters {parameters!r}")
    is_shared = "shared_memory_region" in parameters
    size = parameters.get("shared_memory_byte_size" if is_shared else "binary_data_size")
    if not isinstance(size, int):
        raise ValueError(f"output {entry['name']!r} has neither data nor binary_data_size nor a place in shared memory")
    if ITEM_BYTES[datatype] and size != count * ITEM_BYTES[datatype]:
        raise ValueError(f"output {entry['name']!r} has {size} bytes, {shape} {datatype} needs another size")
    return 0 if is_shared else size
