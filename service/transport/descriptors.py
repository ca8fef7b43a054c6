"""The hot messages: what is said of a request whose tensors lie in shared memory, as fixed little-endian layouts.

A message is a head, then int64 numbers, then what travels inline. Where a tensor lies is its byte offset in the front
end's region, or `INLINE`: then it stands in the message, after the numbers, in the order of the tensors. Sizes and
offsets are checked by whoever makes arrays of them (`placing.py`), where the memory and the model are known.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from service.buckets import DimSizes
from service.errors import DeviceError, ServiceError
from service.transport.wire import Kind, Malformed, pack_frame

INLINE = -1
"""In place of an offset."""

_SUBMIT = Struct("<QIBBHHHIqqqqqqqq")
_DONE = Struct("<QHHqqqqqqqqq")
_CANCEL = Struct("<Q")
_FAILED = Struct("<QB?d")

_NO_DELAY = -1.0


class Placed(NamedTuple):
    """Where a tensor lies, and its shape.

    Attributes:
        offset: in bytes from the beginning of the region, or `INLINE`.
        nbytes: of the tensor there, or of what stands for it inline.
        shape: its extents.
    """

    offset: int
    nbytes: int
    shape: tuple[int, ...]


class Submit(NamedTuple):
    """A request on its way to the engine; see `InferenceRequest`. Moments are of the clock that all processes share.

    Attributes:
        number: of the request, never used twice on one channel.
        model: the number under which the engine published the model.
        form: a `Form`.
        priority: 1 is the most urgent.
        rows: leading extent of every input.
        deadline_ns: after it, it must not be dispatched.
        nbytes: bytes of the inputs.
        received: stamp of its first byte.
        read: stamp of its last one.
        parsed: stamp.
        prepared: stamp.
        result_offset: where in the region its outputs may be written.
        result_bytes: how much room there is; 0 wants all of them inline.
        dims: sizes of the model's dynamic dimensions.
        outputs: which are wanted.
        inputs: where each lies.
    """

    number: int
    model: int
    form: int
    priority: int
    rows: int
    deadline_ns: int
    nbytes: int
    received: int
    read: int
    parsed: int
    prepared: int
    result_offset: int
    result_bytes: int
    dims: DimSizes
    outputs: tuple[int, ...]
    inputs: tuple[Placed, ...]


class Moments(NamedTuple):
    """The stamps that the engine gives a request; see `Stamps`. 0 is "not reached"."""

    formed: int
    dispatched: int
    started: int
    uploaded: int
    copied_in: int
    computed: int
    copied_out: int


class Done(NamedTuple):
    """A request's outputs on their way to its front end.

    Attributes:
        number: of the request.
        moments: its stamps.
        told_ns: when the engine took the result.
        backlog_ns: how long a new request of the model's default priority would have waited then.
        outputs: where each wanted one lies.
    """

    number: int
    moments: Moments
    told_ns: int
    backlog_ns: int
    outputs: tuple[Placed, ...]


class Failed(NamedTuple):
    """Why a request has no outputs."""

    number: int
    error: ServiceError


def pack_submit(submit: Submit, inline: Sequence[bytes]) -> bytes:
    """The frame of a request; `inline` are its inputs that lie nowhere else, in their order."""
    numbers = [*submit.dims, *submit.outputs, *_as_numbers(submit.inputs)]
    head = _SUBMIT.pack(
        submit.number,
        submit.model,
        submit.form,
        len(submit.dims),
        len(submit.outputs),
        len(submit.inputs),
        submit.priority,
        submit.rows,
        *submit[5:13],
    )
    return pack_frame(Kind.SUBMIT, head, struct.pack(f"<{len(numbers)}q", *numbers), *inline)


def unpack_submit(payload: memoryview) -> tuple[Submit, memoryview]:
    """A request, and what travels inline.

    Raises:
        Malformed: the payload is too short for what it announces.
    """
    try:
        head = _SUBMIT.unpack_from(payload)
        dim_count, output_count, input_count = head[3:6]
        at = _SUBMIT.size
        named = struct.unpack_from(f"<{dim_count + output_count}q", payload, at)
        inputs, at = _unpack_placed(payload, at + 8 * len(named), input_count)
    except struct.error as error:
        raise Malformed(f"a request of {len(payload)} bytes: {error}") from None
    dims, outputs = named[:dim_count], named[dim_count:]
    return Submit._make((*head[:3], *head[6:], dims, outputs, inputs)), payload[at:]


def pack_done(done: Done, inline: Sequence[bytes]) -> bytes:
    """The frame of a request's outputs; `inline` are those that lie nowhere else, in their order."""
    numbers = _as_numbers(done.outputs)
    head = _DONE.pack(done.number, len(done.outputs), 0, *done.moments, done.told_ns, done.backlog_ns)
    return pack_frame(Kind.DONE, head, struct.pack(f"<{len(numbers)}q", *numbers), *inline)


def unpack_done(payload: memoryview) -> tuple[Done, memoryview]:
    """A request's outputs, and what travels inline.

    Raises:
        Malformed: as `unpack_submit`.
    """
    try:
        number, count, _, *moments, told_ns, backlog_ns = _DONE.unpack_from(payload)
        outputs, at = _unpack_placed(payload, _DONE.size, count)
    except struct.error as error:
        raise Malformed(f"an answer of {len(payload)} bytes: {error}") from None
    return Done(number, Moments(*moments), told_ns, backlog_ns, outputs), payload[at:]


def pack_cancel(number: int) -> bytes:
    """The frame that gives a request up."""
    return pack_frame(Kind.CANCEL, _CANCEL.pack(number))


def unpack_cancel(payload: memoryview) -> int:
    """The number of the request that is given up.

    Raises:
        Malformed: the payload is none.
    """
    if len(payload) != _CANCEL.size:
        raise Malformed(f"a cancellation has {len(payload)} bytes, not {_CANCEL.size}")
    (number,) = _CANCEL.unpack(payload)
    return int(number)


def pack_failed(number: int, error: ServiceError) -> bytes:
    """The frame of an error: the name of its class, which both sides have, its message and its delay."""
    name = type(error).__name__.encode()
    is_sticky = isinstance(error, DeviceError) and error.is_sticky
    delay_s = _NO_DELAY if error.retry_after_s is None else error.retry_after_s
    head = _FAILED.pack(number, len(name), is_sticky, delay_s)
    return pack_frame(Kind.FAILED, head, name, error.message.encode(errors="surrogatepass"))


def unpack_failed(payload: memoryview) -> Failed:
    """An error, of the class that it was raised as.

    Raises:
        Malformed: the payload is too short, no text, or names no class of `service/errors.py`.
    """
    try:
        number, name_bytes, is_sticky, delay_s = _FAILED.unpack_from(payload)
        text = bytes(payload[_FAILED.size :])
        name, message = text[:name_bytes].decode(), text[name_bytes:].decode(errors="surrogatepass")
    except (struct.error, UnicodeDecodeError) as error:
        raise Malformed(f"an error of {len(payload)} bytes: {error}") from None
    error_class = _ERRORS.get(name)
    if error_class is None:
        raise Malformed(f"an error of class {name!r}; the classes are {sorted(_ERRORS)}")
    if issubclass(error_class, DeviceError):
        return Failed(number, error_class(message, is_sticky=is_sticky))
    return Failed(number, error_class(message, retry_after_s=None if delay_s == _NO_DELAY else delay_s))


def _all_errors(base: type[ServiceError]) -> dict[str, type[ServiceError]]:
    errors = {base.__name__: base}
    for each in base.__subclasses__():
        if each.__module__ == base.__module__:
            errors.update(_all_errors(each))
    return errors


_ERRORS = _all_errors(ServiceError)


def _as_numbers(tensors: Sequence[Placed]) -> list[int]:
    numbers: list[int] = []
    for offset, nbytes, shape in tensors:
        numbers += (offset, nbytes, len(shape), *shape)
    return numbers


def _unpack_placed(payload: memoryview, at: int, count: int) -> tuple[tuple[Placed, ...], int]:
    """So many tensors, and where the payload goes on."""
    tensors = []
    for _ in range(count):
        offset, nbytes, rank = struct.unpack_from("<3q", payload, at)
        at += 24
        if not 0 <= rank <= len(payload):
            raise Malformed(f"a tensor of {rank} dimensions")
        tensors.append(Placed(offset, nbytes, struct.unpack_from(f"<{rank}q", payload, at)))
        at += 8 * rank
    return tuple(tensors), at
