"""The real `engines.worker` on the fake TensorRT; the environment says of which generation."""

from __future__ import annotations

import os
import sys

from engines import worker
from service.runtime.cuda.device import Cuda
from service.runtime.trt.flavour import describe
from tests.doubles.fake_cuda import FakeCuda
from tests.doubles.fake_tensorrt import fake_tensorrt

MODULE = "tests.doubles.fake_build_worker"
GENERATION = "FAKE_TENSORRT_GENERATION"


def open_machinery() -> worker.Machinery:
    api = FakeCuda()
    return describe("tensorrt", fake_tensorrt(api, os.environ.get(GENERATION, "10"))), Cuda(api)


if __name__ == "__main__":
    sys.exit(worker.main(open_machinery))
