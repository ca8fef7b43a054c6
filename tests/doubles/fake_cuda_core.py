"""What every call of the CUDA double goes through: the calling convention, told and sticky errors, and handles."""

from __future__ import annotations

import functools
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

from tests.doubles.fake_cuda_types import EXPLANATIONS, STICKY, Failed, Handle, cudaError_t

E = cudaError_t
F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def api_call(*, values: int = 0) -> Callable[[F], F]:
    """Makes a method that returns a tuple of values, or raises `Failed`, keep the binding's convention."""

    def decorate(function: Callable[..., Any]) -> Any:
        name = function.__name__

        @functools.wraps(function)
        def call(self: FakeCore, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
            with self._lock:
                self.calls[name] += 1
                try:
                    self._fail_if_told(name)
                    given = function(self, *args, **kwargs)
                except Failed as failure:
                    if failure.code in STICKY:
                        self._sticky = failure.code
                    self._local.last_error = failure.code
                    return (failure.code, *(None,) * values)
            return (E.cudaSuccess, *(given or ()))

        return call

    return decorate


class FakeCore:
    """Counts and fails calls, remembers errors as CUDA does, and keeps what stands behind handles.

    Attributes:
        violations: what a real device would not have reported and no test should do.
        calls: how often each function was called.
    """

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.calls: Counter[str] = Counter()
        self._lock = threading.RLock()
        self._local = threading.local()
        self._next_handle = 0x1000
        self._handles: dict[int, object] = {}
        self._faults: list[tuple[str, int, cudaError_t]] = []
        self._sticky: cudaError_t | None = None

    def inject(self, call: str, error: cudaError_t, *, after: int = 0) -> None:
        """Lets a function fail once, after it has succeeded `after` more times."""
        self._faults.append((call, self.calls[call] + after + 1, error))

    # Errors

    def cudaGetErrorName(self, error: cudaError_t) -> tuple[cudaError_t, bytes]:
        return E.cudaSuccess, error.name.encode()

    def cudaGetErrorString(self, error: cudaError_t) -> tuple[cudaError_t, bytes]:
        return E.cudaSuccess, EXPLANATIONS.get(error, "explained by CUDA").encode()

    def cudaGetLastError(self) -> tuple[cudaError_t]:
        last = getattr(self._local, "last_error", E.cudaSuccess)
        self._local.last_error = E.cudaSuccess
        return (self._sticky or last,)

    def cudaPeekAtLastError(self) -> tuple[cudaError_t]:
        return (self._sticky or getattr(self._local, "last_error", E.cudaSuccess),)

    # Rules

    def _fail_if_told(self, name: str) -> None:
        self._fail_if_sticky()
        for fault in self._faults:
            call, at, error = fault
            if call == name and self.calls[name] >= at:
                self._faults.remove(fault)
                raise Failed(error)

    def _fail_if_sticky(self) -> None:
        if self._sticky is not None:
            raise Failed(self._sticky)

    def _violation(self, what: str, code: cudaError_t = E.cudaErrorInvalidValue) -> None:
        self.violations.append(what)
        raise Failed(code)

    # Handles

    def _new_handle(self, value: object) -> Handle:
        self._next_handle += 0x10
        self._handles[self._next_handle] = value
        return Handle(self._next_handle)

    def _find(self, handle: Any, kind: type[T]) -> T:
        value = self._handles.get(int(handle)) if handle is not None else None
        if not isinstance(value, kind):
            self._violation(f"{kind.__name__.lower()} {handle!r} does not exist", E.cudaErrorInvalidResourceHandle)
        return value

    @property
    def _current_device(self) -> int:
        return getattr(self._local, "device", 0)
