"""The inputs in a request's header, held against the model before a byte of data is converted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from service.api.oip_places import REGION, Place, read_place
from service.buckets import DimSizes
from service.client_text import name_text, shape_text, value_text
from service.errors import InvalidInput
from service.models import ModelSpec
from service.tensors import BATCH_DIM, DType, TensorSpec

_DATATYPES = frozenset(dtype.value for dtype in DType)


@dataclass(frozen=True, slots=True)
class InputHeader:
    """One input as the header describes it, checked against the model.

    Attributes:
        index: into `ModelSpec.inputs`.
        tensor: the model's own description.
        shape: the extents that the client declares; fixed ones equal the model's.
        data: the JSON value of `data`, unchecked, or None where the data is binary.
        binary_bytes: length of the binary data, or None where the data is in the JSON.
        place: where in shared memory the binary data lies, or None where it follows the JSON.
    """

    index: int
    tensor: TensorSpec
    shape: tuple[int, ...]
    data: Any
    binary_bytes: int | None
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class InputHeaders:
    """All inputs of a request.

    Attributes:
        headers: in the order of the request, which is the order of the binary parts.
        rows: leading extent of every input; 1 for a model without a batch dimension.
        dims: sizes of the dynamic dimensions, in the order of `BucketTable.dim_names`.
    """

    headers: tuple[InputHeader, ...]
    rows: int
    dims: DimSizes


class InputReader:
    """Reads the `inputs` of requests for one model. Immutable; shared by all threads."""

    __slots__ = ("_by_name", "_spec")

    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec
        self._by_name = {tensor.name: (index, tensor) for index, tensor in enumerate(spec.inputs)}

    def read(self, raw: Any) -> InputHeaders:
        """Checks names, datatypes, shapes and sizes of all inputs.

        Raises:
            InvalidInput: anything contradicts the protocol or the model.
        """
        if type(raw) is not list:
            raise InvalidInput(f"the request must have 'inputs', a JSON array of tensors; got {value_text(raw)}")
        headers: list[InputHeader] = []
        seen: set[int] = set()
        for item in raw:
            header = self._read_one(item)
            if header.index in seen:
                raise InvalidInput(f"input '{header.tensor.name}' already exists in request; send each input once")
            seen.add(header.index)
            headers.append(header)
        if len(seen) != len(self._spec.inputs):
            missing = [tensor.name for index, tensor in enumerate(self._spec.inputs) if index not in seen]
            raise InvalidInput(
                f"expected {len(self._spec.inputs)} inputs but got {len(seen)} inputs for model "
                f"'{self._spec.name}'; missing: {missing}"
            )
        return self.measure(tuple(headers))

    def measure(self, headers: tuple[InputHeader, ...]) -> InputHeaders:
        """Rows and dims of a complete set of inputs whose shapes are checked one by one.

        Raises:
            InvalidInput: a named dimension has two sizes, or a size fits no bucket.
        """
        spec = self._spec
        sizes: dict[str, int] = {}
        for header in headers:
            for dim, extent in zip(header.tensor.dims, header.shape, strict=True):
                if type(dim) is str and sizes.setdefault(dim, extent) != extent:
                    raise InvalidInput(
                        f"{_dim_text(dim)} is {extent} in input '{header.tensor.name}' but {sizes[dim]} in an earlier "
                        f"input of the request; model '{spec.name}' needs it the same in all inputs"
                    )
        dims = tuple([sizes[name] for name in spec.buckets.dim_names])
        if dims and spec.buckets.padded_dims(dims) is None:
            raise self._too_large(headers, sizes)
        return InputHeaders(headers, sizes[BATCH_DIM] if spec.has_batch_dim else 1, dims)

    def check_shape(self, tensor: TensorSpec, shape: list[Any]) -> tuple[int, ...]:
        """`shape` as a tuple, if it agrees with the tensor's rank, fixed extents and the largest batch.

        Raises:
            InvalidInput: it does not.
        """
        for extent in shape:
            if type(extent) is not int or extent < 1:
                raise InvalidInput(
                    f"unexpected shape for input '{tensor.name}' for model '{self._spec.name}'. Expected "
                    f"{shape_text(tensor.wire_shape)}, got {shape_text(shape)}; every dimension must be an integer "
                    "of at least 1"
                )
        if len(shape) != len(tensor.dims):
            raise self._unexpected_shape(tensor, shape)
        for dim, extent in zip(tensor.dims, shape, strict=True):
            if type(dim) is int and dim != extent:
                raise self._unexpected_shape(tensor, shape)
        if self._spec.has_batch_dim and shape[0] > self._spec.buckets.max_size:
            raise InvalidInput(
                f"inference request batch-size must be <= {self._spec.buckets.max_size} for '{self._spec.name}', "
                f"got {shape[0]} in input '{tensor.name}'; split the request"
            )
        return tuple(shape)

    def _read_one(self, item: Any) -> InputHeader:
        name = item.get("name") if type(item) is dict else None
        if type(name) is not str:
            raise InvalidInput("each of 'inputs' must be an object with a string 'name'")
        known = self._by_name.get(name)
        if known is None:
            raise InvalidInput(
                f"unexpected inference input {name_text(name)} for model '{self._spec.name}'; "
                f"it has {list(self._by_name)}"
            )
        index, tensor = known
        self._check_datatype(tensor, item.get("datatype"))
        shape = item.get("shape")
        if type(shape) is not list:
            raise InvalidInput(f"input '{name}' must have 'shape', a JSON array of integers; got {value_text(shape)}")
        checked_shape = self.check_shape(tensor, shape)
        binary_bytes, place = _data_place(name, item)
        return InputHeader(index, tensor, checked_shape, item.get("data"), binary_bytes, place)

    def _check_datatype(self, tensor: TensorSpec, datatype: Any) -> None:
        if datatype == tensor.dtype.value:
            return
        if type(datatype) is not str or datatype not in _DATATYPES:
            got = name_text(datatype) if type(datatype) is str else value_text(datatype)
            raise InvalidInput(
                f"invalid datatype for input {tensor.name}: got {got}, model '{self._spec.name}' expects "
                f"'{tensor.dtype.value}'"
            )
        raise InvalidInput(
            f"inference input '{tensor.name}' data-type is '{datatype}', but model '{self._spec.name}' expects "
            f"'{tensor.dtype.value}'"
        )

    def _unexpected_shape(self, tensor: TensorSpec, shape: list[Any] | tuple[int, ...]) -> InvalidInput:
        return InvalidInput(
            f"unexpected shape for input '{tensor.name}' for model '{self._spec.name}'. Expected "
            f"{shape_text(tensor.wire_shape)}, got {shape_text(shape)}{self._limits_text(tensor)}"
        )

    def _too_large(self, headers: tuple[InputHeader, ...], sizes: dict[str, int]) -> InvalidInput:
        largest = {name: padded[-1] for name, padded in self._padded_sizes() if sizes[name] > padded[-1]}
        header = next(header for header in headers if not largest.keys().isdisjoint(header.tensor.dims))
        return self._unexpected_shape(header.tensor, header.shape)

    def _limits_text(self, tensor: TensorSpec) -> str:
        """What the model's profiles and buckets allow for the dynamic dimensions of `tensor`."""
        text = ""
        ranges = [profile[tensor.name] for profile in self._spec.card.profiles if tensor.name in profile]
        if ranges:
            allowed = [f"min {shape_text(r.min)} opt {shape_text(r.opt)} max {shape_text(r.max)}" for r in ranges]
            text += f"; its profiles allow {' or '.join(allowed)}"
        limits = [f"'{name}' is {padded[-1]}" for name, padded in self._padded_sizes() if name in tensor.dims]
        if limits:
            text += f"; the largest size of dimension {', of '.join(limits)}"
        return text

    def _padded_sizes(self) -> list[tuple[str, tuple[int, ...]]]:
        buckets = self._spec.buckets
        pairs = zip(buckets.dim_names, buckets.dim_sizes, strict=True)
        return [(name, padded) for name, padded in pairs if padded is not None]


def _dim_text(dim: str) -> str:
    return "the batch size" if dim == BATCH_DIM else f"dimension '{dim}'"


def _data_place(name: str, item: dict[str, Any]) -> tuple[int | None, Place | None]:
    """`InputHeader.binary_bytes` and `place` of an input; exactly one place must be named."""
    parameters = item.get("parameters", {})
    if type(parameters) is not dict:
        raise InvalidInput(f"'parameters' of input '{name}' must be an object, got {value_text(parameters)}")
    places = [place for place in ("binary_data_size", REGION) if place in parameters]
    if "data" in item:
        places.append("data")
    if len(places) != 1:
        raise InvalidInput(
            f"input '{name}' must set exactly one of 'data', 'binary_data_size' and '{REGION}', got {places or 'none'}"
        )
    place = read_place(f"input '{name}'", parameters)
    if place is not None:
        return place.nbytes, place
    if places[0] == "data":
        return None, None
    size = parameters["binary_data_size"]
    if type(size) is not int or size < 0:
        raise InvalidInput(
            f"'binary_data_size' of input '{name}' must be a non-negative integer, got {value_text(size)}"
        )
    return size, None
