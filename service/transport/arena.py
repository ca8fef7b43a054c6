"""Who holds which part of one region of the shared memory: slots of sizes that are powers of two.

The parts come from buddies, as Knowlton's allocator has it ("A fast storage allocator", CACM 1965): a block is split in
halves until it fits, and joined with its other half when both are free again, so that many small requests leave room
for a large one. In front of that stands, for every size, a short list of slots that were given back last: a server
asks for the same few sizes over and over, and takes and returns them without splitting anything.
"""

from __future__ import annotations

from typing import NamedTuple

LEAST_SLOT_BYTES = 4096
"""A page: what is registered with a device is counted in pages, and less is not worth a slot of its own."""

MAX_KEPT_SLOTS = 64
"""Slots of one size that wait to be taken again, unjoined."""

_LEAST_ORDER = LEAST_SLOT_BYTES.bit_length() - 1


class Slot(NamedTuple):
    """A part of the region, its holder's alone.

    Attributes:
        offset: of its first byte from the beginning of the region, a multiple of `nbytes`.
        nbytes: its size, a power of two.
    """

    offset: int
    nbytes: int


class ArenaFull(Exception):
    """There is no slot of that size now.

    Attributes:
        nbytes: that were asked for.
        held_bytes: that are taken.
        arena_bytes: that there are in all.
    """

    def __init__(self, nbytes: int, *, held_bytes: int, arena_bytes: int) -> None:
        super().__init__(
            f"{nbytes} bytes are wanted in one piece; of the region's {arena_bytes} bytes {held_bytes} are in use"
        )
        self.nbytes = nbytes
        self.held_bytes = held_bytes
        self.arena_bytes = arena_bytes


def slot_bytes(nbytes: int) -> int:
    """The size of the slot that `nbytes` take."""
    return 1 << _order(nbytes)


class Arena:
    """The slots of one region. Belongs to the one event loop of the process that owns the region.

    Args:
        nbytes: size of the region; what is beyond a multiple of `LEAST_SLOT_BYTES` is not used.
    """

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes - nbytes % LEAST_SLOT_BYTES
        self.held_bytes = 0
        self._held: dict[int, int] = {}  # order by offset
        self._kept: list[list[Slot]] = [[] for _ in range(64)]  # by order
        self._free: list[set[int]] = [set() for _ in range(64)]  # offsets by order
        self._add_whole(self.nbytes)

    @property
    def largest_free_bytes(self) -> int:
        """The largest slot that can be taken now, the slots that wait to be taken again not joined; 0 if none."""
        orders = [order for order in range(64) if self._free[order] or self._kept[order]]
        return 1 << orders[-1] if orders else 0

    def take(self, nbytes: int) -> Slot:
        """A slot of at least `nbytes`.

        Raises:
            ArenaFull: there is none now.
        """
        order = _order(nbytes)
        kept = self._kept[order]
        slot = kept.pop() if kept else self._split(order, nbytes)
        self._held[slot.offset] = order
        self.held_bytes += slot.nbytes
        return slot

    def give_back(self, slot: Slot) -> None:
        """Returns a slot.

        Raises:
            ValueError: it is not taken, or was returned before.
        """
        order = slot.nbytes.bit_length() - 1
        if self._held.get(slot.offset) != order:
            raise ValueError(f"the slot of {slot.nbytes} bytes at {slot.offset} is given back and was not taken")
        del self._held[slot.offset]
        self.held_bytes -= slot.nbytes
        kept = self._kept[order]
        if len(kept) < MAX_KEPT_SLOTS:
            kept.append(slot)
        else:
            self._join(slot.offset, order)

    def _split(self, order: int, nbytes: int) -> Slot:
        """A slot out of the smallest free block that is large enough."""
        found = self._smallest_free(order)
        if found is None:
            self._join_kept()
            found = self._smallest_free(order)
        if found is None:
            raise ArenaFull(nbytes, held_bytes=self.held_bytes, arena_bytes=self.nbytes)
        offset = self._free[found].pop()
        for half in range(found - 1, order - 1, -1):
            self._free[half].add(offset + (1 << half))
        return Slot(offset, 1 << order)

    def _smallest_free(self, order: int) -> int | None:
        return next((each for each in range(order, 64) if self._free[each]), None)

    def _join_kept(self) -> None:
        for order, kept in enumerate(self._kept):
            for slot in kept:
                self._join(slot.offset, order)
            kept.clear()

    def _join(self, offset: int, order: int) -> None:
        """Frees a block, together with its other half as long as that is free too."""
        while (offset ^ (1 << order)) in self._free[order]:
            self._free[order].remove(offset ^ (1 << order))
            offset &= ~(1 << order)
            order += 1
        self._free[order].add(offset)

    def _add_whole(self, nbytes: int) -> None:
        """Frees the region as the fewest blocks whose offsets are multiples of their sizes."""
        offset = 0
        while nbytes:
            order = nbytes.bit_length() - 1
            self._free[order].add(offset)
            offset += 1 << order
            nbytes -= 1 << order


class LeasedSlot:
    """A slot that more than one party needs: it goes back when the last of them has released it.

    Args:
        arena: where it comes from.
        nbytes: that it must hold.

    Raises:
        ArenaFull: there is none now.
    """

    __slots__ = ("_arena", "_holders", "slot")

    def __init__(self, arena: Arena, nbytes: int) -> None:
        self._arena = arena
        self._holders = 1
        self.slot = arena.take(nbytes)

    @property
    def offset(self) -> int:
        """Where it begins, in bytes from the beginning of the region."""
        return self.slot.offset

    @property
    def is_held(self) -> bool:
        """Whether anybody still needs it."""
        return self._holders > 0

    def retain(self) -> None:
        """One party more needs it; whoever asks holds it already, or is told of it by one that does."""
        if not self._holders:
            raise ValueError(f"{self.slot} was given back already")
        self._holders += 1

    def release(self) -> None:
        """One party less needs it."""
        if not self._holders:
            raise ValueError(f"{self.slot} was given back already")
        self._holders -= 1
        if not self._holders:
            self._arena.give_back(self.slot)


def _order(nbytes: int) -> int:
    return max(_LEAST_ORDER, (nbytes - 1).bit_length())
