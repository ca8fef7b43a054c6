"""Request bodies for a model, made from its metadata: random, deterministic by seed, binary or JSON. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt
import orjson

from loadtest.errors import LoadTestError
from loadtest.metadata import DYNAMIC, ModelMetadata, TensorMetadata, model_path

SAMPLES_PER_SHAPE = 4
"""Different random bodies of each shape, so that no answer can be right by being the last one's."""

MAX_PAYLOAD_BYTES = 512 << 20

HEADER_LENGTH = "Inference-Header-Content-Length"
"""Name of the header that says where in a binary body its JSON ends."""

Shapes = dict[str, tuple[int, ...]]


class Wire(Enum):
    """How tensors travel; `SHARED` through system shared memory, for which the bodies are made as for `BINARY`."""

    BINARY = "binary"
    JSON = "json"
    SHARED = "shared"


@dataclass(frozen=True, slots=True)
class Payload:
    """One inference request without its HTTP framing.

    Attributes:
        path: to POST to.
        headers: names and values, the content length apart.
        body: the whole body.
        rows: rows that it carries; 1 for a model that takes none.
        label: its shape in words, such as `rows=4 width=320`.
    """

    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    rows: int
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadPlan:
    """What bodies to make.

    Attributes:
        wire: how tensors travel.
        rows: sizes of requests to mix.
        dims: sizes to mix by dynamic dimension: the name of the k-th is that of the k-th dynamic dimension of each
            input (rows apart), or `input:axis` for one dimension of one input.
        seed: of all random data.
    """

    wire: Wire = Wire.BINARY
    rows: tuple[int, ...] = (1,)
    dims: Mapping[str, tuple[int, ...]]
    seed: int = 0


def parse_sizes(text: str) -> tuple[int, ...]:
    """`"1,4"` as `(1, 4)`.

    Raises:
        LoadTestError: an item is not a positive integer.
    """
    items = [item.strip() for item in text.split(",")]
    if not all(item.isascii() and item.isdigit() and int(item) > 0 for item in items):
        raise LoadTestError(f"got sizes {text!r}; expected positive integers with commas between, such as 1,4")
    return tuple(int(item) for item in items)


def parse_dims(options: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """`["width=160,320"]` as `{"width": (160, 320)}`.

    Raises:
        LoadTestError: an option is not NAME=SIZES, or a name is given twice.
    """
    dims: dict[str, tuple[int, ...]] = {}
    for option in options:
        name, equals, sizes = option.partition("=")
        if not name or not equals or name in dims:
            raise LoadTestError(f"got --dim {option!r}; expected NAME=SIZES, each name once, such as width=160,320")
        dims[name] = parse_sizes(sizes)
    return dims


def build_payloads(metadata: ModelMetadata, plan: PayloadPlan) -> list[Payload]:
    """`SAMPLES_PER_SHAPE` bodies for every combination of rows and dims of `plan`.

    Raises:
        LoadTestError: the plan does not fit the model, or needs more than `MAX_PAYLOAD_BYTES`.
    """
    generator = np.random.default_rng(plan.seed)
    payloads: list[Payload] = []
    total_bytes = 0
    for rows, label, shapes in _shapes(metadata, plan):
        for _ in range(SAMPLES_PER_SHAPE):
            arrays = [_random_array(generator, tensor, shapes[tensor.name]) for tensor in metadata.inputs]
            encode = _json if plan.wire is Wire.JSON else _binary
            headers, body = encode(metadata.inputs, arrays)
            total_bytes += len(body)
            if total_bytes > MAX_PAYLOAD_BYTES:
                raise LoadTestError(
                    f"the bodies for rows {list(plan.rows)} and dims {dict(plan.dims)} exceed {MAX_PAYLOAD_BYTES} "
                    "bytes together; mix fewer or smaller sizes"
                )
            payloads.append(Payload(f"{model_path(metadata.name)}/infer", headers, body, rows, label))
    return payloads


def _shapes(metadata: ModelMetadata, plan: PayloadPlan) -> Iterator[tuple[int, str, Shapes]]:
    if not metadata.takes_rows and plan.rows != (1,):
        raise LoadTestError(
            f"model {metadata.name!r} has inputs with a fixed leading dimension, so rows = {list(plan.rows)} cannot "
            "apply; leave --rows at 1"
        )
    names = dim_names(metadata, tuple(plan.dims))
    for rows, *sizes in itertools.product(plan.rows, *plan.dims.values()):
        chosen = dict(zip(plan.dims, sizes, strict=True))
        label = " ".join([f"rows={rows}", *(f"{name}={size}" for name, size in chosen.items())])
        shapes = {}
        for tensor in metadata.inputs:
            extents = list(tensor.shape)
            for axis in _dynamic_axes(metadata, tensor):
                extents[axis] = chosen[names[tensor.name, axis]]
            if metadata.takes_rows:
                extents[0] = rows
            shapes[tensor.name] = tuple(extents)
        yield rows, label, shapes


def dim_names(metadata: ModelMetadata, names: Sequence[str]) -> dict[tuple[str, int], str]:
    """Which given name sizes which dynamic dimension, by input and axis; rows apart.

    The protocol's metadata says where a dimension is dynamic and not what it is called, hence the order rule of
    `PayloadPlan.dims`.

    Raises:
        LoadTestError: a dimension is left without a name, or a name without a dimension.
    """
    places = [(tensor.name, axis) for tensor in metadata.inputs for axis in _dynamic_axes(metadata, tensor)]
    explicit = {place: f"{place[0]}:{place[1]}" for place in places if f"{place[0]}:{place[1]}" in names}
    tensors = {tensor.name for tensor in metadata.inputs}
    in_order = [name for name in names if name.rpartition(":")[0] not in tensors]
    found = dict(explicit)
    for tensor in metadata.inputs:
        open_places = [place for place in places if place[0] == tensor.name and place not in explicit]
        if open_places:
            found.update(zip(open_places, in_order, strict=False))
    unnamed = [place for place in places if place not in found]
    unused = [name for name in names if name not in found.values()]
    if unnamed or unused:
        wanted = [f"{name}:{axis}" for name, axis in places]
        raise LoadTestError(
            f"got dims {list(names)}, but the dynamic dimensions of model {metadata.name!r} are {wanted}; give one "
            "--dim NAME=SIZES for each in order (shared by inputs), or --dim INPUT:AXIS=SIZES, such as width=160,320"
        )
    return found


def _dynamic_axes(metadata: ModelMetadata, tensor: TensorMetadata) -> list[int]:
    first = 1 if metadata.takes_rows else 0
    return [axis for axis in range(first, len(tensor.shape)) if tensor.shape[axis] == DYNAMIC]


def _random_array(
    generator: np.random.Generator, tensor: TensorMetadata, shape: tuple[int, ...]
) -> npt.NDArray[np.generic]:
    """Host array that holds `tensor` on the wire: BF16 as uint16 bits, BYTES as an object array."""
    datatype = tensor.datatype
    if datatype == "BYTES":
        words = [b"%08x" % word for word in generator.integers(0, 1 << 32, size=int(np.prod(shape)))]
        return np.array(words, dtype=np.object_).reshape(shape)
    if datatype in {"UINT8", "INT8"}:
        return generator.integers(0, 128 if datatype == "INT8" else 256, size=shape).astype(datatype.lower())
    if datatype.startswith(("INT", "UINT")):
        # Token ids, masks and segment ids all accept 0 and 1; a leading 1 keeps every mask from being empty.
        ids = generator.integers(0, 2, size=shape)
        ids[..., :1] = 1
        return ids.astype(datatype.lower())
    if datatype == "BOOL":
        return generator.integers(0, 2, size=shape).astype(np.bool_)
    values = generator.random(size=shape, dtype=np.float32)
    if datatype == "BF16":
        return (values.view(np.uint32) >> 16).astype(np.uint16)
    return values.astype({"FP16": np.float16, "FP32": np.float32, "FP64": np.float64}[datatype])


def _binary(
    inputs: Sequence[TensorMetadata], arrays: Sequence[npt.NDArray[np.generic]]
) -> tuple[tuple[tuple[str, str], ...], bytes]:
    parts = [_raw(array) for array in arrays]
    header = orjson.dumps(
        {
            "inputs": [
                {
                    "name": tensor.name,
                    "shape": list(array.shape),
                    "datatype": tensor.datatype,
                    "parameters": {"binary_data_size": len(part)},
                }
                for tensor, array, part in zip(inputs, arrays, parts, strict=True)
            ],
            "parameters": {"binary_data_output": True},
        }
    )
    headers = (
        ("Content-Type", "application/octet-stream"),
        (HEADER_LENGTH, str(len(header))),
    )
    return headers, b"".join([header, *parts])


def _raw(array: npt.NDArray[np.generic]) -> bytes:
    if array.dtype != np.object_:
        return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    return b"".join(len(item).to_bytes(4, "little") + item for item in array.ravel().tolist())


def _json(
    inputs: Sequence[TensorMetadata], arrays: Sequence[npt.NDArray[np.generic]]
) -> tuple[tuple[tuple[str, str], ...], bytes]:
    document = {
        "inputs": [
            {
                "name": tensor.name,
                "shape": list(array.shape),
                "datatype": tensor.datatype,
                "data": _numbers(tensor, array),
            }
            for tensor, array in zip(inputs, arrays, strict=True)
        ]
    }
    return (("Content-Type", "application/json"),), orjson.dumps(document)


def _numbers(tensor: TensorMetadata, array: npt.NDArray[np.generic]) -> list[object]:
    flat = array.ravel()
    if tensor.datatype == "BYTES":
        return [item.decode("ascii") for item in flat.tolist()]
    if tensor.datatype == "BF16":
        flat = (flat.astype(np.uint32) << 16).view(np.float32)
    # Through the decimal form of the tensor's own type: 0.1 as FP32 is "0.1", not its 17 digits as a double.
    values: list[object] = orjson.loads(orjson.dumps(flat, option=orjson.OPT_SERIALIZE_NUMPY))
    return values
