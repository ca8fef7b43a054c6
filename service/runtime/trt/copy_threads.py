"""Threads that help a lane to copy large batches between requests and pinned memory.

One core copies about 10 GB/s; a GPU takes 55 GB/s from pinned memory. NumPy copies release the interpreter's lock, so a
few threads close most of that gap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol, TypeAlias

from service.machine import default_threads

Job: TypeAlias = Callable[[], None]

MAX_HELPERS = 3
"""Beside the lane's own thread: four cores copy nearly as fast as memory gives, and the rest has other work."""


PARALLEL_FROM_BYTES = 4 << 20
"""From this size on a lane's copies are shared with helpers. To wake them and to wait takes about 100 µs, as long as
one core needs for 1 MiB, so with less there is nothing to win (seen with one helper and with three)."""


class Piece(Protocol):
    """One copy that a thread makes."""

    @property
    def nbytes(self) -> int:
        """Bytes that are written."""

    def copy(self) -> None:
        """Writes them."""


def default_helpers() -> int:
    """As many as the process has whole cores to spare beside the lane's thread, at most `MAX_HELPERS`."""
    return min(MAX_HELPERS, default_threads() - 1)


class CopyThreads:
    """Helpers that all lanes of a model share. Their threads start at the first large batch.

    Args:
        helpers: how many; with 0 everything runs on the calling thread.
    """

    def __init__(self, helpers: int) -> None:
        self._helpers = helpers
        self._pool = ThreadPoolExecutor(helpers, thread_name_prefix="copy") if helpers else None

    def share_bytes(self, total_bytes: int) -> int:
        """The part of each thread, the caller's among them; everything where that is too little to share."""
        if total_bytes < PARALLEL_FROM_BYTES:
            return max(1, total_bytes)
        return -(-total_bytes // (self._helpers + 1))

    def run(self, jobs: Sequence[Job]) -> None:
        """Runs all jobs and returns when the last is done. The caller works too, and waits for no helper that is late.

        Raises:
            Exception: what a job raised; the others are over by then.
        """
        left = deque(jobs)
        if self._pool is None or len(left) == 1:
            _work_off(left)
            return
        helping = [self._pool.submit(_work_off, left) for _ in range(min(self._helpers, len(left) - 1))]
        try:
            _work_off(left)
        finally:
            begun = [future for future in helping if not future.cancel()]
            failures = [future.exception() for future in begun]
        for failure in failures:
            if failure is not None:
                raise failure

    def copy(self, pieces: Iterable[Piece], total_bytes: int) -> None:
        """Makes all copies, shared out in about equal parts; fewer than `PARALLEL_FROM_BYTES` are the caller's alone.

        Args:
            pieces: none larger than a share, as `share_bytes` says, where it can be cut.
            total_bytes: of all pieces.
        """
        share_bytes = self.share_bytes(total_bytes)
        jobs: list[Job] = []
        group: list[Piece] = []
        group_bytes = 0
        for piece in pieces:
            group.append(piece)
            group_bytes += piece.nbytes
            if group_bytes >= share_bytes:
                jobs.append(partial(_copy_all, group))
                group, group_bytes = [], 0
        if group:
            jobs.append(partial(_copy_all, group))
        self.run(jobs)

    def close(self) -> None:
        """Ends the threads; idempotent."""
        if self._pool is not None:
            self._pool.shutdown()


def _copy_all(pieces: Sequence[Piece]) -> None:
    for piece in pieces:
        piece.copy()


def _work_off(left: deque[Job]) -> None:
    """Takes jobs until there are none. One that fails takes the rest with it, for the batch is lost."""
    while True:
        try:
            job = left.popleft()
        except IndexError:
            return
        try:
            job()
        except BaseException:
            left.clear()
            raise
