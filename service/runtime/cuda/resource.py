"""What all native objects share: counted while they live, closed once, refused after that."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Generic, TypeVar

from service.errors import DeviceError
from service.runtime.cuda.device import Cuda, LiveCounts

N = TypeVar("N")
R = TypeVar("R", bound="Resource[Any]")


class Resource(ABC, Generic[N]):
    """One native object and its owner's promise to close it.

    Nothing is freed by the garbage collector: it would run at any time, in any thread, even during a capture.
    """

    def __init__(self, cuda: Cuda, native: N, counts: LiveCounts) -> None:
        self._cuda = cuda
        self._native: N | None = native
        self._counts = counts
        cuda.count(counts)

    @property
    def native(self) -> N:
        """What the binding's functions take.

        Raises:
            DeviceError: the object is closed. Its place would be taken by nothing, which CUDA reads as stream 0.
        """
        native = self._native
        if native is None:
            raise DeviceError(
                f"{type(self).__name__} is used after it was closed; close it after everything that uses it"
            )
        return native

    def close(self) -> None:
        """Frees the native object; idempotent. Work that uses it must be done.

        Raises:
            DeviceError: CUDA refused. The object still counts as alive, but is not freed again.
        """
        native, self._native = self._native, None
        if native is not None:
            self._release(native)
            self._cuda.count(-self._counts)

    @abstractmethod
    def _release(self, native: N) -> None:
        """Gives the native object back to CUDA."""

    def __enter__(self: R) -> R:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
