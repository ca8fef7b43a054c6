"""The real worker on the fake TensorRT: `python -m tests.doubles.fake_build_worker [GENERATION] [native|hang]`.

`native` has a library print on stdout during the build; `hang` has the build say so and then never end, as a builder in
native code that nothing can stop.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from engines.worker import Machinery, main
from service.runtime.cuda.device import Cuda
from service.runtime.trt.flavour import describe
from tests.doubles.fake_cuda import FakeCuda
from tests.doubles.fake_tensorrt import fake_tensorrt

NATIVE_WORDS = "printed by a library"
NEVER_S = 3600


def machinery(generation: str, mode: str) -> Machinery:
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
                time.sleep(NEVER_S)
            return build(network, config)

        made.build_serialized_network = build_serialized_network
        return made

    module.Builder = builder
    return describe("tensorrt", module), Cuda(fake).probed()


if __name__ == "__main__":
    generation, mode = [*sys.argv[1:], "10", ""][:2] if len(sys.argv) < 3 else sys.argv[1:3]
    sys.exit(main(lambda: machinery(generation, mode)))
