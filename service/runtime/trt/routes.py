"""How a large batch gets to the device: which rows from where they lie, which through pinned memory, what is filled.

Gathering a batch into pinned memory costs the host the time of a copy, and one core copies slower than a GPU computes:
19 MB, 32 images for ResNet-50, take 2 ms to gather and 1.2 ms to compute. So a request whose memory is page-locked is
copied by the device itself, without a copy on the host; only what lies in ordinary memory is gathered. Pure functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import numpy as np

from service.requests import Batch, InferenceRequest
from service.runtime.rows import TensorPlan
from service.runtime.trt.buffers import ALIGNMENT_BYTES
from service.tensors import HostArray

DIRECT_FROM_BYTES = 64 << 10
"""From this size on a request's rows have a copy of their own: to gather as much costs a core more than the call."""

IsPageLocked: TypeAlias = Callable[[int, int], bool]
"""Whether so many bytes at an address can be copied by the device itself."""


class Piece(Protocol):
    """Bytes of a batch that are written into pinned memory before the device copies them."""

    @property
    def offset(self) -> int:
        """Where they begin in the bucket's buffers."""

    @property
    def nbytes(self) -> int:
        """Bytes that are written, padding included."""

    def copy(self) -> None:
        """Writes them; on any thread."""

    def cut(self, limit_bytes: int) -> Iterator[Piece]:
        """Itself, or pieces of at least `limit_bytes` but for the last, in the order of their offsets."""


@dataclass(frozen=True, slots=True)
class InputPlace:
    """Where one input lies in a bucket's buffers.

    Attributes:
        plan: how requests lie in it.
        host: dtype[padded shape] pinned.
        offset: bytes from the start of the buffer, the same in pinned and in device memory.
        row_bytes: of one padded row; of everything where the input has no rows.
        pad_byte: the byte that all of the padding consists of; None where its bytes differ.
    """

    plan: TensorPlan
    host: HostArray
    offset: int
    row_bytes: int
    pad_byte: int | None

    @classmethod
    def of(cls, plan: TensorPlan, host: HostArray, offset: int) -> InputPlace:
        """Finds what is asked for again and again."""
        pad = set(np.asarray(plan.pad, host.dtype).tobytes())
        row_bytes = host.nbytes // len(host) if plan.has_rows else host.nbytes
        return cls(plan, host, offset, row_bytes, pad.pop() if len(pad) == 1 else None)


@dataclass(frozen=True, slots=True)
class Gathered:
    """One request's rows that are copied into pinned memory; `nbytes` says how much that is."""

    place: InputPlace
    values: HostArray
    row: int
    request: InferenceRequest

    @property
    def offset(self) -> int:
        """Where they begin in the bucket's buffers."""
        return self.place.offset + self.row * self.place.row_bytes

    @property
    def nbytes(self) -> int:
        """Bytes that are written, padding included."""
        return self.place.row_bytes * (len(self.values) if self.place.plan.has_rows else 1)

    def copy(self) -> None:
        """Writes them."""
        self.place.plan.copy_in(self.place.host, self.values, self.row, self.request.dims)

    def cut(self, limit_bytes: int) -> Iterator[Gathered]:
        """Cut between rows."""
        if not self.place.plan.has_rows or self.nbytes <= limit_bytes:
            yield self
            return
        rows = -(-limit_bytes // self.place.row_bytes)
        for first in range(0, len(self.values), rows):
            yield Gathered(self.place, self.values[first : first + rows], self.row + first, self.request)


@dataclass(frozen=True, slots=True)
class Padding:
    """Rows after the last request's that are filled in pinned memory."""

    place: InputPlace
    row: int

    @property
    def offset(self) -> int:
        """Where they begin in the bucket's buffers."""
        return self.place.offset + self.row * self.place.row_bytes

    @property
    def nbytes(self) -> int:
        """Bytes that are written."""
        return self.place.row_bytes * (len(self.place.host) - self.row)

    def copy(self) -> None:
        """Fills them."""
        self.place.host[self.row :] = self.place.plan.pad

    def cut(self, limit_bytes: int) -> Iterator[Padding]:
        """Never cut: filling is quicker than copying."""
        yield self


@dataclass(frozen=True, slots=True)
class Block:
    """Bytes that go into pinned memory as they are.

    Attributes:
        pinned: uint8[n], where they go.
        values: uint8[n], what goes there.
        offset: of `pinned` in the bucket's buffers.
    """

    pinned: HostArray
    values: HostArray
    offset: int

    @property
    def nbytes(self) -> int:
        """Bytes that are written."""
        return self.values.nbytes

    def copy(self) -> None:
        """Writes them."""
        np.copyto(self.pinned, self.values)

    def cut(self, limit_bytes: int) -> Iterator[Block]:
        """Cut anywhere."""
        for first in range(0, self.nbytes, limit_bytes):
            part = slice(first, first + limit_bytes)
            yield Block(self.pinned[part], self.values[part], self.offset + first)


@dataclass(slots=True)
class Route:
    """One batch's way to the device. Offsets are those of the bucket's buffers.

    Attributes:
        work: what goes through pinned memory, in the order of its offsets.
        direct: `(offset, host address, nbytes)` of rows that are copied from where they lie.
        fills: `(offset, byte, nbytes)` of padding that the device fills by itself.
    """

    work: list[Piece] = field(default_factory=list)
    direct: list[tuple[int, int, int]] = field(default_factory=list)
    fills: list[tuple[int, int, int]] = field(default_factory=list)


@dataclass(slots=True)
class Round:
    """A part of a route's work: while the device copies one round from pinned memory, the host gathers the next.

    Attributes:
        pieces: what is gathered.
        ranges: `(offset, end)` of what is copied then; pieces next to each other, but for alignment, are one range.
        nbytes: of all pieces.
    """

    pieces: list[Piece] = field(default_factory=list)
    ranges: list[tuple[int, int]] = field(default_factory=list)
    nbytes: int = 0

    def add(self, piece: Piece) -> None:
        """Takes the piece that follows the last one."""
        offset, end = piece.offset, piece.offset + piece.nbytes
        if self.ranges and offset - self.ranges[-1][1] < ALIGNMENT_BYTES:
            offset = self.ranges.pop()[0]
        self.ranges.append((offset, end))
        self.pieces.append(piece)
        self.nbytes += piece.nbytes


def route_batch(batch: Batch, places: Sequence[InputPlace], is_page_locked: IsPageLocked) -> Route:
    """Finds the cheapest way of every row, and of the padding after them.

    Args:
        batch: requests that fit the bucket.
        places: of every input, in the order of `ModelSpec.inputs`.
        is_page_locked: asked for each large request's inputs.
    """
    route = Route()
    for index, place in enumerate(places):
        offset, row_bytes = place.offset, place.row_bytes
        row = 0
        for request in batch.requests:
            values = request.inputs[index]
            padded_bytes = request.rows * row_bytes
            # No extent exceeds the bucket's, so equal sizes mean equal shapes: nothing is padded in any dimension.
            is_whole = values.nbytes == padded_bytes
            address = page_locked_address(values, is_page_locked) if is_whole else None
            if address is None:
                route.work.append(Gathered(place, values, row, request))
            else:
                route.direct.append((offset, address, padded_bytes))
            row += request.rows
            offset += padded_bytes
        if place.plan.has_rows and row < len(place.host):
            _pad(route, Padding(place, row), offset)
    return route


def page_locked_address(values: HostArray, is_page_locked: IsPageLocked) -> int | None:
    """Where the device copies `values` from by itself; None where they lie in ordinary memory or are few bytes."""
    if values.nbytes < DIRECT_FROM_BYTES:
        return None
    address: int = values.__array_interface__["data"][0]
    return address if is_page_locked(address, values.nbytes) else None


def rounds(work: Sequence[Piece], round_bytes: int, piece_bytes: int) -> Iterator[Round]:
    """Divides work into rounds.

    Args:
        work: of a route.
        round_bytes: about the least that makes a round; the last one may be smaller.
        piece_bytes: what is larger is cut where it can be, so that several threads can share it.
    """
    gathered = Round()
    for each in work:
        for piece in each.cut(piece_bytes):
            gathered.add(piece)
            if gathered.nbytes >= round_bytes:
                yield gathered
                gathered = Round()
    if gathered.pieces:
        yield gathered


def _pad(route: Route, padding: Padding, offset: int) -> None:
    byte = padding.place.pad_byte
    if byte is None or padding.nbytes < DIRECT_FROM_BYTES:
        route.work.append(padding)
    else:
        route.fills.append((offset, byte, padding.nbytes))
