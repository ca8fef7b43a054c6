"""Tensors as raw bytes: the binary tensor data extension, and the raw binary request.

Layout: little-endian, row-major; BOOL is one byte, 0 or 1; BYTES is, per element, its length as uint32
followed by that many bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from service.api.oip_inputs import InputHeader
from service.client_text import shape_text
from service.errors import InvalidInput
from service.tensors import DType, HostArray, TensorSpec, element_count

_LENGTH = struct.Struct("<I")


def locate_parts(headers: Sequence[InputHeader], *, start: int, end: int, model: str) -> list[int]:
    """Where each input's binary part begins: back to back from `start` to `end`, in the order of `headers`.

    An input whose data is in the JSON or in shared memory takes no room. Nothing is converted.

    Returns:
        One offset in bytes per header.

    Raises:
        InvalidInput: a part's size contradicts its shape, or the parts are shorter or longer than the body.
    """
    offsets = []
    offset = start
    for header in headers:
        offsets.append(offset)
        if header.binary_bytes is None:
            continue
        if header.place is not None:
            _check_size(header, header.binary_bytes, model)
            continue
        offset += header.binary_bytes
        if offset > end:
            hint = "; nothing follows the JSON: is Inference-Header-Content-Length set to the JSON's length?"
            raise InvalidInput(
                f"unexpected size for input '{header.tensor.name}', expecting {offset - end} additional bytes for "
                f"model '{model}'{hint if start == end else ''}"
            )
        _check_size(header, header.binary_bytes, model)
    if offset != end:
        raise InvalidInput(
            f"unexpected additional input data for model '{model}': {end - offset} bytes follow the last input; "
            "the 'binary_data_size' of all inputs must sum to the bytes after the JSON"
        )
    return offsets


def array_from_binary(body: memoryview, offset: int, header: InputHeader) -> HostArray:
    """The tensor that begins at `offset` of `body`, whose size `locate_parts` has checked.

    Returns:
        A read-only view on `body`, without a copy: C-contiguous, but aligned only as `offset` happens to be
        (NumPy and copies take that, native code that wants alignment must copy). BYTES become a new object array.

    Raises:
        InvalidInput: BOOL bytes other than 0 and 1, or malformed BYTES.
    """
    tensor = header.tensor
    count = element_count(header.shape)
    if tensor.dtype is DType.BYTES:
        elements = _split_elements(body[offset : offset + (header.binary_bytes or 0)], count, tensor.name)
        return bytes_array(elements, header.shape)
    if tensor.dtype is DType.BOOL and np.frombuffer(body, np.uint8, count, offset).max() > 1:
        raise InvalidInput(f"input '{tensor.name}' is BOOL: each byte must be 0 or 1")
    return np.frombuffer(body, tensor.dtype.numpy, count, offset).reshape(header.shape)


def bytes_array(elements: Sequence[bytes], shape: Sequence[int]) -> HostArray:
    """Elements of a BYTES tensor as an object array of `shape`."""
    array = np.empty(len(elements), dtype=np.object_)
    array[:] = elements
    return array.reshape(shape)


def binary_from_array(array: HostArray, dtype: DType) -> bytes | memoryview:
    """The tensor's bytes on the wire: a view on a C-contiguous array, or newly joined BYTES."""
    if dtype is DType.BYTES:
        pieces: list[bytes] = []
        for element in array.reshape(-1).tolist():
            pieces.append(_LENGTH.pack(len(element)))
            pieces.append(element)
        return b"".join(pieces)
    return array.reshape(-1).view(np.uint8).data


def raw_shape(tensor: TensorSpec, size_bytes: int, *, has_batch_dim: bool) -> list[int]:
    """The shape that a raw binary request's body has: one row, and the one variable dimension from the size.

    A BYTES body is one element, so that every dimension is 1.

    Raises:
        InvalidInput: the shape cannot be deduced from the size.
    """
    dims = (1, *tensor.dims[1:]) if has_batch_dim else tensor.dims
    variable = [axis for axis, dim in enumerate(dims) if type(dim) is str]
    fixed_count = element_count([dim for dim in dims if type(dim) is int])
    if tensor.dtype is DType.BYTES:
        if fixed_count != 1:
            raise InvalidInput(
                f"a raw binary request holds one BYTES element, but input '{tensor.name}' has shape "
                f"{shape_text(tensor.wire_shape)}; send it with a JSON header"
            )
        return [1] * len(dims)
    if len(variable) > 1:
        raise InvalidInput(
            f"the shape of input '{tensor.name}' cannot be deduced from a raw binary request: "
            f"{shape_text(tensor.wire_shape)} has more than one variable dimension besides the batch; "
            "send it with a JSON header"
        )
    extent, rest = divmod(size_bytes, fixed_count * tensor.dtype.itemsize)
    if rest or (not variable and extent != 1):
        multiple = "a multiple of " if variable else ""
        raise InvalidInput(
            f"input byte size mismatch for input '{tensor.name}' in a raw binary request. Expected "
            f"{multiple}{fixed_count * tensor.dtype.itemsize}, got {size_bytes}"
        )
    return [extent if type(dim) is str else int(dim) for dim in dims]


def _check_size(header: InputHeader, size_bytes: int, model: str) -> None:
    count = element_count(header.shape)
    if header.tensor.dtype is DType.BYTES:
        if size_bytes < count * _LENGTH.size:
            raise InvalidInput(
                f"expected {count} string elements for input '{header.tensor.name}' of model '{model}', got "
                f"{size_bytes} bytes, which hold at most {size_bytes // _LENGTH.size}; each element is its uint32 "
                "length and its bytes"
            )
        return
    expected = count * header.tensor.dtype.itemsize
    if size_bytes != expected:
        raise InvalidInput(
            f"input byte size mismatch for input '{header.tensor.name}' for model '{model}'. Expected {expected}, "
            f"got {size_bytes}"
        )


def _split_elements(part: memoryview, count: int, name: str) -> list[bytes]:
    elements: list[bytes] = []
    offset = 0
    while offset < len(part):
        if len(elements) == count:
            raise InvalidInput(
                f"expected {count} string elements for input '{name}', got more: {len(part) - offset} bytes follow"
            )
        begin = offset + _LENGTH.size
        if begin > len(part):
            raise InvalidInput(
                f"incomplete string length indicator for input '{name}': expected {_LENGTH.size} bytes, "
                f"got {len(part) - offset}"
            )
        length = _LENGTH.unpack_from(part, offset)[0]
        offset = begin + length
        if offset > len(part):
            raise InvalidInput(
                f"incomplete string data for input '{name}': expected a string of {length} bytes, "
                f"got {len(part) - begin}"
            )
        elements.append(bytes(part[begin:offset]))
    if len(elements) != count:
        raise InvalidInput(f"expected {count} string elements for input '{name}', got {len(elements)}")
    return elements
