"""Copies between host and device, ordered by a stream; all of them return before the copy is done.

Host memory must be pinned or registered: from pageable memory a copy is slow and holds up the calling thread.
It must stay valid, and sources unchanged, until the stream has passed the copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from service.runtime.cuda.calls import PreparedCall
from service.runtime.cuda.check import check, device_error
from service.runtime.cuda.device import Cuda
from service.runtime.cuda.stream import Stream


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of equal length in host and device memory, with room between them: how a batch is padded while copied.

    A pitch is the distance from the start of one row to that of the next; at least `row_bytes`.
    """

    device_address: int
    device_pitch_bytes: int
    host_address: int
    host_pitch_bytes: int
    row_bytes: int
    row_count: int


def copy_h2d(cuda: Cuda, device_address: int, host_address: int, nbytes: int, *, stream: Stream) -> None:
    """Copies `nbytes` from the host to the device.

    Raises:
        DeviceError: CUDA refused the addresses, or some earlier work failed.
    """
    api = cuda.api
    kind = api.cudaMemcpyKind.cudaMemcpyHostToDevice
    check(api, "cudaMemcpyAsync h2d", api.cudaMemcpyAsync(device_address, host_address, nbytes, kind, stream.native))


def copy_d2h(cuda: Cuda, host_address: int, device_address: int, nbytes: int, *, stream: Stream) -> None:
    """Copies `nbytes` from the device to the host; as ever, the destination comes first.

    Raises:
        DeviceError: CUDA refused the addresses, or some earlier work failed.
    """
    api = cuda.api
    kind = api.cudaMemcpyKind.cudaMemcpyDeviceToHost
    check(api, "cudaMemcpyAsync d2h", api.cudaMemcpyAsync(host_address, device_address, nbytes, kind, stream.native))


def prepare_h2d(cuda: Cuda, device_address: int, host_address: int, nbytes: int, *, stream: Stream) -> PreparedCall:
    """`copy_h2d` for later."""
    kind = cuda.api.cudaMemcpyKind.cudaMemcpyHostToDevice
    call = partial(cuda.api.cudaMemcpyAsync, device_address, host_address, nbytes, kind, stream.native)
    return PreparedCall("cudaMemcpyAsync h2d", call)


def prepare_d2h(cuda: Cuda, host_address: int, device_address: int, nbytes: int, *, stream: Stream) -> PreparedCall:
    """`copy_d2h` for later."""
    kind = cuda.api.cudaMemcpyKind.cudaMemcpyDeviceToHost
    call = partial(cuda.api.cudaMemcpyAsync, host_address, device_address, nbytes, kind, stream.native)
    return PreparedCall("cudaMemcpyAsync d2h", call)


def copy_rows_h2d(cuda: Cuda, rows: Rows, *, stream: Stream) -> None:
    """Copies rows from the host to the device; what lies between the device's rows stays as it is.

    Raises:
        DeviceError: CUDA refused the addresses or pitches, or some earlier work failed.
    """
    api = cuda.api
    copied = api.cudaMemcpy2DAsync(
        rows.device_address,
        rows.device_pitch_bytes,
        rows.host_address,
        rows.host_pitch_bytes,
        rows.row_bytes,
        rows.row_count,
        api.cudaMemcpyKind.cudaMemcpyHostToDevice,
        stream.native,
    )
    check(api, "cudaMemcpy2DAsync h2d", copied)


def copy_rows_d2h(cuda: Cuda, rows: Rows, *, stream: Stream) -> None:
    """Copies rows from the device to the host; what lies between the host's rows stays as it is.

    Raises:
        DeviceError: CUDA refused the addresses or pitches, or some earlier work failed.
    """
    api = cuda.api
    copied = api.cudaMemcpy2DAsync(
        rows.host_address,
        rows.host_pitch_bytes,
        rows.device_address,
        rows.device_pitch_bytes,
        rows.row_bytes,
        rows.row_count,
        api.cudaMemcpyKind.cudaMemcpyDeviceToHost,
        stream.native,
    )
    check(api, "cudaMemcpy2DAsync d2h", copied)


def copy_batch_h2d(cuda: Cuda, copies: Sequence[tuple[int, int, int]], *, stream: Stream) -> None:
    """Copies several pieces from the host to the device, by one call where binding and driver can.

    The pieces must not overlap: their order among each other is open. Not for captures.

    Args:
        cuda: the process's CUDA.
        copies: `(device_address, host_address, nbytes)` of each piece.
        stream: what orders the batch as a whole.

    Raises:
        DeviceError: CUDA refused an address, or some earlier work failed.
    """
    attributes = cuda.batch_copy_attributes() if len(copies) > 1 else None
    if attributes is None:
        for device_address, host_address, nbytes in copies:
            copy_h2d(cuda, device_address, host_address, nbytes, stream=stream)
        return
    api = cuda.api
    destinations, sources, sizes = (list(column) for column in zip(*copies, strict=True))
    code = api.cudaMemcpyBatchAsync(destinations, sources, sizes, len(sizes), [attributes], [0], 1, stream.native)[0]
    if code in {api.cudaError_t.cudaErrorNotSupported, api.cudaError_t.cudaErrorCallRequiresNewerDriver}:
        api.cudaGetLastError()
        cuda.give_up_batch_copy()
        copy_batch_h2d(cuda, copies, stream=stream)
    elif code:
        raise device_error(api, "cudaMemcpyBatchAsync", code)


def fill(cuda: Cuda, device_address: int, value: int, nbytes: int, *, stream: Stream) -> None:
    """Sets `nbytes` bytes of device memory to `value`, 0 to 255.

    Raises:
        DeviceError: CUDA refused the address, or some earlier work failed.
    """
    check(cuda.api, "cudaMemsetAsync", cuda.api.cudaMemsetAsync(device_address, value, nbytes, stream.native))
