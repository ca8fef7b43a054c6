"""The real worker on a fake TensorRT that misbehaves.

`python -m tests.doubles.stubborn_build_worker [GENERATION] [native|hang]`: `native` has a library print on stdout
in the build; `hang` has the build never end, as a builder in native code that nothing can stop.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

from engines import worker
from service.runtime.cuda.device import Cuda
from service.runtime.trt.flavour import describe
from tests.doubles.fake_cuda import FakeCuda
from tests.doubles.fake_tensorrt import fake_tensorrt

NATIVE_WORDS = "printed by a library"


def machinery(generation: str, mode: str) -> worker.Machinery:
    fake = FakeCuda()
    module = fake_tensorrt(fake, generation)
    make = module.Builder

    def builder(logger: Any) -> Any:
        made = make(logger)
        build = made.build_serialized_network

        def build_serialized_network(network: Any, config: Any) -> Any:
            if mode == "native":
                os.write(1, f"{NATIVE_WORDS}\n".encode())
            if mode == "hang":
                threading.Event().wait()
            return build(network, config)

        made.build_serialized_network = build_serialized_network
        return made

    module.Builder = builder
    return describe("tensorrt", module), Cuda(fake).probed()


def arguments() -> tuple[str, str]:
    given = dict(enumerate(sys.argv[1:]))
    return given.get(0, "10"), given.get(1, "")


if __name__ == "__main__":
    worker.CANCEL_GRACE_S = 0.1  # a test need not wait for what never ends
    sys.exit(worker.main(lambda: machinery(*arguments())))
