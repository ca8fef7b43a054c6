"""An inference request off the wire: validated completely, then turned into arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from service.api.json_limits import JsonLimits
from service.api.oip_binary import array_from_binary, bytes_array, locate_parts, raw_shape
from service.api.oip_header import load_header, parse_request_id, split_header
from service.api.oip_inputs import InputHeader, InputHeaders, InputReader
from service.api.oip_json import array_from_json
from service.api.oip_outputs import OutputReader, RequestedOutput
from service.api.oip_parameters import NO_OPTIONS, RequestOptions, parse_parameters
from service.api.oip_places import Place, not_shared
from service.buckets import DimSizes
from service.errors import InvalidInput
from service.models import ModelSpec
from service.requests import ParameterValue
from service.tensors import DType, HostArray

REMEMBERED_HEADERS = 256
MAX_REMEMBERED_BYTES = 2048

_BYTES_LENGTH_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ParsedInfer:
    """An inference request that agrees with the protocol and the model. Compared by identity.

    Attributes:
        inputs: host_ arrays in the order of `ModelSpec.inputs`, each of `rows` rows, C-contiguous. Binary ones are
            read-only views on the body, aligned only by chance.
        rows: leading extent of every input; 1 for a model without a batch dimension.
        dims: sizes of the dynamic dimensions, in the order of `BucketTable.dim_names`.
        outputs: what the client wants, in the model's order.
        request_id: the client's own id, empty if none.
        priority: 1 is the most urgent; 0 asks for the model's default.
        timeout_ns: time that the request may spend in the queue, or None for the model's default.
        parameters: the client's own parameters.
        nbytes: bytes of the inputs in the protocol's binary layout, however they came.
    """

    inputs: tuple[HostArray, ...]
    rows: int
    dims: DimSizes
    outputs: tuple[RequestedOutput, ...]
    request_id: str = ""
    priority: int = 0
    timeout_ns: int | None = None
    parameters: Mapping[str, ParameterValue] = field(default_factory=lambda: MappingProxyType({}))
    nbytes: int


@dataclass(frozen=True, slots=True)
class _Header:
    """A header that agrees with the protocol and the model; what its bytes say, and nothing of the body."""

    inputs: InputHeaders
    options: RequestOptions
    outputs: tuple[RequestedOutput, ...]
    request_id: str
    is_shared: bool


class BegunInfer(NamedTuple):
    """A request whose header is valid, and of whose data nothing has been looked at.

    Attributes:
        header: as it was read.
        body: the whole body.
        offsets: where in it the data of each input begins, in the order of the request.
        is_raw: whether the body is the only input's data, without a header.
    """

    header: _Header
    body: memoryview
    offsets: Sequence[int]
    is_raw: bool

    @property
    def is_shared(self) -> bool:
        """Whether anything of it lies in shared memory, or is to go there."""
        return self.header.is_shared

    @property
    def inputs(self) -> tuple[InputHeader, ...]:
        """The inputs, in the order of the request."""
        return self.header.inputs.headers

    @property
    def outputs(self) -> tuple[RequestedOutput, ...]:
        """What the client wants, in the model's order."""
        return self.header.outputs


class InferParser:
    """Parses inference requests for one model. Shared by all threads.

    A client that sends binary tensors repeats the same JSON header, byte for byte: the last few headers that were
    found valid are remembered, and not read again.
    """

    __slots__ = ("_inputs", "_json_limits", "_outputs", "_remembered", "_spec")

    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec
        self._inputs = InputReader(spec)
        self._outputs = OutputReader(spec)
        self._json_limits = JsonLimits.of(spec)
        self._remembered = lru_cache(maxsize=REMEMBERED_HEADERS)(self._read_header)

    def begin(self, body: bytes | bytearray | memoryview, header_length: int | None) -> BegunInfer:
        """Reads a request's header, and finds where its data is; nothing of that is looked at.

        Args:
            body: the whole body, decompressed, as bytes; must not change as long as the result lives.
            header_length: bytes of the JSON header; None if the whole body is JSON, 0 for a raw binary request.

        Raises:
            InvalidInput: the request contradicts the protocol or the model.
            PayloadTooLarge: its JSON is larger than any request of the model.
            Unsupported: it asks for sequences.
        """
        view = memoryview(body).toreadonly()
        if header_length == 0:
            return self._begin_raw(view)
        json_part = split_header(view, header_length)
        if len(json_part) <= MAX_REMEMBERED_BYTES:
            header = self._remembered(bytes(json_part))
        else:
            self._json_limits.check(json_part)
            header = self._read_header(json_part)
        offsets = locate_parts(header.inputs.headers, start=len(json_part), end=len(view), model=self._spec.name)
        return BegunInfer(header, view, offsets, is_raw=False)

    def finish(self, begun: BegunInfer, host_shared: Sequence[memoryview] = ()) -> ParsedInfer:
        """Converts a request's data, which is checked as it is here and must not change any more.

        Args:
            begun: the request.
            host_shared: a copy of the data of each input that lies in shared memory, in the order of the request.

        Raises:
            InvalidInput: the data contradicts the model.
        """
        header = begun.header
        options = header.options
        arrays, nbytes = self._convert(begun, host_shared)
        return ParsedInfer(
            inputs=arrays,
            rows=header.inputs.rows,
            dims=header.inputs.dims,
            outputs=header.outputs,
            request_id=header.request_id,
            priority=options.priority,
            timeout_ns=options.timeout_ns,
            parameters=options.own,
            nbytes=nbytes,
        )

    def parse(self, body: bytes | bytearray | memoryview, header_length: int | None) -> ParsedInfer:
        """Parses a request that has nothing in shared memory; see `begin` and `finish`.

        Raises:
            InvalidInput, PayloadTooLarge, Unsupported: as those, and where it has.
        """
        begun = self.begin(body, header_length)
        if begun.is_shared:
            raise not_shared()
        return self.finish(begun)

    def _read_header(self, json_part: bytes | memoryview) -> _Header:
        header = load_header(json_part)
        inputs = self._inputs.read(header.get("inputs"))
        options = NO_OPTIONS
        if "parameters" in header:
            options = parse_parameters(header["parameters"], self._spec.card.batching.priority_levels)
        outputs = self._outputs.read(header.get("outputs", []), default_binary=options.binary_data_output)
        self._outputs.check_room(outputs, inputs.rows, inputs.dims)
        places: list[Place | None] = [tensor.place for tensor in inputs.headers]
        places += [output.place for output in outputs]
        is_shared = any(place is not None for place in places)
        return _Header(inputs, options, outputs, parse_request_id(header), is_shared)

    def _begin_raw(self, body: memoryview) -> BegunInfer:
        """A body that is the bytes of the model's only input, one row; all outputs come back binary."""
        spec = self._spec
        if not body:
            raise InvalidInput(
                f"the raw binary request for model '{spec.name}' is empty; send the input's bytes, or a JSON header "
                "with its length in Inference-Header-Content-Length"
            )
        if len(spec.inputs) != 1:
            raise InvalidInput(
                f"a raw binary request needs a model with exactly one input, but '{spec.name}' has "
                f"{[tensor.name for tensor in spec.inputs]}; send them with a JSON header"
            )
        tensor = spec.inputs[0]
        shape = raw_shape(tensor, len(body), has_batch_dim=spec.has_batch_dim)
        header = InputHeader(0, tensor, self._inputs.check_shape(tensor, shape), None, len(body))
        inputs = self._inputs.measure((header,))
        outputs = self._outputs.all(binary=True)
        return BegunInfer(_Header(inputs, NO_OPTIONS, outputs, "", is_shared=False), body, (0,), is_raw=True)

    def _convert(self, begun: BegunInfer, host_shared: Sequence[memoryview]) -> tuple[tuple[HostArray, ...], int]:
        """The arrays in the model's order, and their bytes in the binary layout."""
        by_index: dict[int, HostArray] = {}
        shared = iter(host_shared)
        nbytes = 0
        for header, offset in zip(begun.inputs, begun.offsets, strict=True):
            if header.binary_bytes is None:
                array = array_from_json(header.data, header.tensor, header.shape)
                nbytes += _binary_nbytes(array, header.tensor.dtype)
            else:
                nbytes += header.binary_bytes
                if header.place is not None:
                    array = array_from_binary(next(shared), 0, header)
                elif begun.is_raw and header.tensor.dtype is DType.BYTES:
                    array = bytes_array([bytes(begun.body)], header.shape)
                else:
                    array = array_from_binary(begun.body, offset, header)
            by_index[header.index] = array
        return tuple([by_index[index] for index in range(len(by_index))]), nbytes


def _binary_nbytes(array: HostArray, dtype: DType) -> int:
    if dtype is not DType.BYTES:
        return array.nbytes
    return sum(_BYTES_LENGTH_BYTES + len(element) for element in array.reshape(-1).tolist())
