"""Calls whose arguments never change, prepared once.

A batch costs the host about ten calls. With everything looked up and checked beforehand, each costs little more than
the driver's own time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from service.runtime.cuda.api import Code
from service.runtime.cuda.check import device_error
from service.runtime.cuda.device import Cuda


class PreparedCall(NamedTuple):
    """One call with its arguments. What they belong to must stay open as long as it may be made.

    Attributes:
        name: the function's name, for messages.
        function: makes the call.
    """

    name: str
    function: Callable[[], tuple[Code]]


def run_calls(cuda: Cuda, calls: Iterable[PreparedCall]) -> None:
    """Makes prepared calls one after another, up to the first that fails.

    Raises:
        DeviceError: a call failed; those before it stay made.
    """
    for name, function in calls:
        code = function()[0]
        if code:
            raise device_error(cuda.api, name, code)
