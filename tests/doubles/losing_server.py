"""`inferlane serve` whose models compute `2 * x` on a device that a value of 666 kills; 13 makes the lane hang in it.

With `LOSES_AT_WARM_UP` in the environment the device is lost before the first model is warm.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import service.app
from service import cli
from service.cards import ModelCard
from service.errors import DeviceError
from service.repository.layout import VersionFolder
from service.requests import InferenceRequest
from tests.doubles.held_backend import HeldBackend
from tests.doubles.requests import make_spec

POISON = 666
HANG = 13


def _fail(request: InferenceRequest) -> Exception | None:
    value = request.inputs[0].flat[0]
    if value == HANG:
        threading.Event().wait()
    if value == POISON or "LOSES_AT_WARM_UP" in os.environ:
        return DeviceError("cudaErrorIllegalAddress: an illegal memory access, in cudaEventSynchronize", is_sticky=True)
    return None


def _open(card: ModelCard, version: VersionFolder, **_: object) -> HeldBackend:
    spec = replace(make_spec(name=card.name, max_batch_size=1), version=version.version)
    backend = HeldBackend(spec, clock=time.monotonic_ns, lane_count=2, held=False)
    backend.fails_on = _fail
    return backend


def lay_out(repository: Path) -> None:
    folder = repository / "m" / "1"
    folder.mkdir(parents=True)
    (folder / "model.onnx").touch()


if __name__ == "__main__":
    service.app.open_backend = _open  # type: ignore[assignment]
    cli.main()
