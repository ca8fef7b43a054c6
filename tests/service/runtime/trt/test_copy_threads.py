"""Helpers that copy: everything is done once, whoever does it, and what fails fails for the caller."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.runtime.trt.copy_threads import MAX_HELPERS, PARALLEL_FROM_BYTES, CopyThreads, default_helpers


@pytest.fixture(params=[0, 1, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[CopyThreads]:
    threads = CopyThreads(request.param)
    yield threads
    threads.close()
    threads.close()


@dataclass
class Noted:
    """A piece that notes who copied it."""

    nbytes: int
    copied_by: list[int] = field(default_factory=list)

    def copy(self) -> None:
        self.copied_by.append(threading.get_ident())


def test_every_job_runs_once(threads: CopyThreads) -> None:
    done: list[int] = []
    threads.run([lambda number=number: done.append(number) for number in range(50)])
    assert sorted(done) == list(range(50))


def test_nothing_to_do(threads: CopyThreads) -> None:
    threads.run([])
    threads.copy([], 0)


def test_a_helper_works_while_the_caller_does() -> None:
    threads = CopyThreads(1)
    meeting = threading.Barrier(2, timeout=30)
    threads.run([meeting.wait, meeting.wait])
    threads.close()


def test_a_failure_reaches_the_caller_after_all_is_over(threads: CopyThreads) -> None:
    running: list[str] = []

    def fail() -> None:
        raise IndexError("in a copy")

    def slow() -> None:
        running.append("begun")
        running.append("ended")

    with pytest.raises(IndexError, match="in a copy"):
        threads.run([slow, fail, slow, slow])
    assert running.count("begun") == running.count("ended")
    threads.run([slow])


def test_a_helpers_failure_reaches_the_caller() -> None:
    threads = CopyThreads(1)
    is_taken = threading.Event()

    def fail_elsewhere() -> None:
        is_taken.set()
        if threading.current_thread() is not threading.main_thread():
            raise ValueError("in a helper")

    def wait() -> None:
        if threading.current_thread() is threading.main_thread():
            assert is_taken.wait(30)
        else:
            fail_elsewhere()

    with pytest.raises(ValueError, match="in a helper"):
        threads.run([wait, wait])
    threads.close()


@given(st.lists(st.integers(1, PARALLEL_FROM_BYTES), max_size=30), st.integers(0, 3))
def test_every_piece_is_copied_once_in_fair_shares(sizes: list[int], helpers: int) -> None:
    threads = CopyThreads(helpers)
    pieces = [Noted(size) for size in sizes]
    threads.copy(pieces, sum(sizes))
    threads.close()
    assert [len(piece.copied_by) for piece in pieces] == [1] * len(sizes)


def test_little_is_the_callers_alone() -> None:
    threads = CopyThreads(3)
    pieces = [Noted(1000) for _ in range(20)]
    threads.copy(pieces, 20_000)
    assert {who for piece in pieces for who in piece.copied_by} == {threading.get_ident()}
    assert threads.share_bytes(PARALLEL_FROM_BYTES) == PARALLEL_FROM_BYTES // 4
    threads.close()


@pytest.mark.parametrize(("cores", "helpers"), [(1, 0), (2, 1), (4, 3), (64, MAX_HELPERS)])
def test_helpers_leave_a_core_to_the_lane(monkeypatch: pytest.MonkeyPatch, cores: int, helpers: int) -> None:
    monkeypatch.setattr("service.runtime.trt.copy_threads.default_threads", lambda: cores)
    assert default_helpers() == helpers
