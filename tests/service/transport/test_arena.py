from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from service.transport.arena import LEAST_SLOT_BYTES, MAX_KEPT_SLOTS, Arena, ArenaFull, LeasedSlot, Slot, slot_bytes

PAGES = 37  # no power of two


@pytest.mark.parametrize(
    ("nbytes", "expected"), [(0, 4096), (1, 4096), (4096, 4096), (4097, 8192), (602112, 1 << 20), (1 << 20, 1 << 20)]
)
def test_a_slot_is_the_next_power_of_two(nbytes: int, expected: int) -> None:
    assert slot_bytes(nbytes) == expected
    assert Arena(1 << 21).take(nbytes).nbytes == expected


def test_the_whole_region_can_be_taken_in_small_slots_and_then_in_one() -> None:
    arena = Arena(1 << 20)
    slots = [arena.take(1) for _ in range((1 << 20) // LEAST_SLOT_BYTES)]
    assert len({slot.offset for slot in slots}) == len(slots) > MAX_KEPT_SLOTS
    assert arena.held_bytes == 1 << 20
    with pytest.raises(ArenaFull, match=r"1 bytes are wanted in one piece; of the region's 1048576 bytes 1048576"):
        arena.take(1)
    for slot in slots:
        arena.give_back(slot)
    assert arena.take(1 << 20) == Slot(0, 1 << 20)


def test_what_is_beyond_a_page_is_not_used() -> None:
    arena = Arena(LEAST_SLOT_BYTES + 100)
    assert arena.take(10) == Slot(0, LEAST_SLOT_BYTES)
    assert arena.largest_free_bytes == 0


def test_a_slot_given_back_twice_is_refused() -> None:
    arena = Arena(1 << 16)
    slot = arena.take(1)
    arena.give_back(slot)
    with pytest.raises(ValueError, match="was not taken"):
        arena.give_back(slot)
    taken = arena.take(8192)
    with pytest.raises(ValueError, match="was not taken"):
        arena.give_back(Slot(taken.offset, 4096))


def test_the_last_holder_gives_a_slot_back() -> None:
    arena = Arena(1 << 16)
    leased = LeasedSlot(arena, 5000)
    leased.retain()
    leased.release()
    assert arena.held_bytes == 8192
    leased.release()
    assert arena.held_bytes == 0
    for call in (leased.retain, leased.release):
        with pytest.raises(ValueError, match="given back already"):
            call()


@given(st.integers(0, 1 << 24))
def test_regions_of_any_size_are_used_whole(nbytes: int) -> None:
    arena = Arena(nbytes)
    while arena.largest_free_bytes:
        arena.take(arena.largest_free_bytes)
    assert arena.held_bytes == arena.nbytes == nbytes - nbytes % LEAST_SLOT_BYTES


class Use(RuleBasedStateMachine):
    """Whatever is taken and given back, slots never overlap, and all of it comes back whole."""

    def __init__(self) -> None:
        super().__init__()
        self.arena = Arena(PAGES * LEAST_SLOT_BYTES)
        self.slots: list[Slot] = []

    @rule(nbytes=st.integers(1, PAGES * LEAST_SLOT_BYTES))
    def take(self, nbytes: int) -> None:
        try:
            slot = self.arena.take(nbytes)
        except ArenaFull as full:
            assert full.held_bytes == self.arena.held_bytes  # noqa: PT017 - a full arena says how full
            return
        assert slot.nbytes >= nbytes
        assert slot.offset % slot.nbytes == 0
        assert slot.offset + slot.nbytes <= self.arena.nbytes
        for other in self.slots:
            assert slot.offset + slot.nbytes <= other.offset or other.offset + other.nbytes <= slot.offset
        self.slots.append(slot)

    @precondition(lambda self: self.slots)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        self.arena.give_back(self.slots.pop(data.draw(st.integers(0, len(self.slots) - 1))))

    @invariant()
    def held_bytes_are_those_of_the_slots(self) -> None:
        assert self.arena.held_bytes == sum(slot.nbytes for slot in self.slots)

    def teardown(self) -> None:
        for slot in self.slots:
            self.arena.give_back(slot)
        assert self.arena.take(32 * LEAST_SLOT_BYTES) == Slot(0, 32 * LEAST_SLOT_BYTES)


TestUse = Use.TestCase
