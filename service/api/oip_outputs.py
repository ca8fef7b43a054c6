"""Which outputs a request asks for, and in what form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from service.api.oip_parameters import boolean_parameter
from service.api.oip_places import Place, read_place
from service.buckets import DimSizes
from service.client_text import name_text, value_text
from service.errors import InvalidInput
from service.models import ModelSpec
from service.tensors import DType, element_count

_NOT_RANKED = (DType.BYTES, DType.BOOL)


@dataclass(frozen=True, slots=True)
class RequestedOutput:
    """One output that the client wants.

    Attributes:
        index: into `ModelSpec.outputs`.
        binary: whether it travels behind the JSON instead of in it.
        classification: how many of the largest values to name instead of the tensor; 0 for the tensor itself.
        place: where in shared memory it is to be written instead, or None where it travels.
    """

    index: int
    binary: bool
    classification: int
    place: Place | None = None


class OutputReader:
    """Reads the `outputs` of requests for one model. Immutable; shared by all threads."""

    __slots__ = ("_all", "_index_by_name", "_spec")

    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec
        self._index_by_name = {tensor.name: index for index, tensor in enumerate(spec.outputs)}
        self._all = {
            binary: tuple(RequestedOutput(index, binary, 0) for index in range(len(spec.outputs)))
            for binary in (False, True)
        }

    def all(self, *, binary: bool) -> tuple[RequestedOutput, ...]:
        """Every output of the model, in one form."""
        return self._all[binary]

    def read(self, raw: Any, *, default_binary: bool) -> tuple[RequestedOutput, ...]:
        """The requested outputs in the model's order; an empty list asks for all.

        `default_binary` (the request's `binary_data_output`) holds for every output that does not set
        `binary_data` itself, as the protocol's text says. Triton applies it to outputs that are not listed
        only; its Python client always sets `binary_data`, so that it sees no difference.

        Raises:
            InvalidInput: malformed, unknown or duplicate outputs, or a classification that cannot be made.
        """
        if type(raw) is not list:
            raise InvalidInput(
                f"'outputs' must be a JSON array, got {value_text(raw)}; leave it out to get all outputs"
            )
        if not raw:
            return self._all[default_binary]
        by_index: dict[int, RequestedOutput] = {}
        for item in raw:
            output = self._read_one(item, default_binary=default_binary)
            if output.index in by_index:
                raise InvalidInput(f"output {name_text(item['name'])} already exists in request; name each output once")
            by_index[output.index] = output
        return tuple(by_index[index] for index in sorted(by_index))

    def check_room(self, outputs: tuple[RequestedOutput, ...], rows: int, dims: DimSizes) -> None:
        """Refuses outputs whose place in shared memory is too small, as far as their size is known beforehand.

        Raises:
            InvalidInput: names the region, the bytes that were named and those that are needed.
        """
        sizes: dict[str, int] | None = None
        for output in outputs:
            tensor = self._spec.outputs[output.index]
            if output.place is None or tensor.dtype is DType.BYTES:
                continue
            sizes = self._spec.dim_sizes(dims, rows) if sizes is None else sizes
            if all(type(dim) is int or dim in sizes for dim in tensor.dims):
                check_fits(tensor.name, output.place, element_count(tensor.resolve(sizes)) * tensor.dtype.itemsize)

    def _read_one(self, item: Any, *, default_binary: bool) -> RequestedOutput:
        name = item.get("name") if type(item) is dict else None
        if type(name) is not str:
            raise InvalidInput("each of 'outputs' must be an object with a string 'name'")
        index = self._index_by_name.get(name)
        if index is None:
            raise InvalidInput(
                f"unexpected inference output {name_text(name)} for model '{self._spec.name}'; "
                f"it has {list(self._index_by_name)}"
            )
        parameters = item.get("parameters")
        if parameters is None and "parameters" not in item:
            return self._all[default_binary][index]
        if type(parameters) is not dict:
            raise InvalidInput(f"'parameters' of output '{name}' must be an object, got {value_text(parameters)}")
        place = read_place(f"output '{name}'", parameters)
        if place is not None:
            if "classification" in parameters:
                raise InvalidInput(
                    f"output '{name}' asks for a classification in shared memory, where only the tensor itself can go; "
                    "leave out one of the two"
                )
            return RequestedOutput(index, binary=True, classification=0, place=place)
        binary = boolean_parameter(parameters, "binary_data", default=default_binary)
        if "classification" not in parameters:
            return self._all[binary][index]
        return RequestedOutput(index, binary, self._classes(parameters, index))

    def _classes(self, parameters: Mapping[str, Any], index: int) -> int:
        tensor = self._spec.outputs[index]
        count = parameters["classification"]
        if type(count) is not int or count < 1:
            raise InvalidInput(
                f"'classification' of output '{tensor.name}' must be an integer of at least 1, got {value_text(count)}"
            )
        if tensor.dtype in _NOT_RANKED:
            raise InvalidInput(
                f"'classification' needs numbers, but output '{tensor.name}' is {tensor.dtype.value}; "
                "request the tensor itself"
            )
        return count


def check_fits(name: str, place: Place, nbytes: int) -> None:
    """Refuses an output that is larger than its place in shared memory.

    Raises:
        InvalidInput: names the region, the bytes that were named and those that are needed.
    """
    if nbytes > place.nbytes:
        raise InvalidInput(
            f"output '{name}' has {nbytes} bytes, but {place.nbytes} bytes at offset {place.offset} of shared memory "
            f"region {name_text(place.region)} are named for it; name at least as many, or receive it in the response"
        )
