"""Page-locks the shared memory in the engine process, so that a device reads requests where front ends wrote them."""

from __future__ import annotations

import logging
import threading
from contextlib import ExitStack

from service.errors import DeviceError
from service.runtime.protocol import Backend
from service.tensors import HostArray

_log = logging.getLogger(__name__)


class ArenaRegistration:
    """Registers the memory with the first device that a model is opened on: it then counts for all of the process.

    Where that fails requests are copied once more on their way, and served all the same.

    Args:
        host_arena: the memory of all regions, contiguous; kept until the process ends, as the registration is.
    """

    def __init__(self, host_arena: HostArray) -> None:
        self._host_arena = host_arena
        self._lock = threading.Lock()
        self._is_tried = False
        self._registered = ExitStack()

    def opened(self, backend: Backend) -> None:
        """A model was opened; on any thread. Takes as long as page-locking does, once."""
        with self._lock:
            if self._is_tried or backend.free_device_bytes() is None:
                return
            self._is_tried = True
            try:
                self._registered.enter_context(backend.register(self._host_arena))
            except DeviceError as error:
                _log.warning(
                    "the shared memory of the front ends (%d bytes) cannot be page-locked, so that requests are copied "
                    "once more: %s; lower INFERLANE_ARENA_BYTES, or raise the limit of locked memory (ulimit -l)",
                    self._host_arena.nbytes,
                    error.message,
                )
