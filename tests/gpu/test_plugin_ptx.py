"""The PTX that TensorRT is given for our plugin, compiled and run by the driver: what it does with it in the end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kernels import reference
from kernels.compile import Toolchain, compile_ptx
from kernels.launch import driver_api, load_kernels
from kernels.layernorm import LayerNormWeights, prepare_layernorm
from kernels.session import DeviceSession
from service.runtime.cuda.check import runtime_api
from service.runtime.cuda.device import Cuda


@pytest.mark.gpu
def test_the_plugin_s_ptx(tmp_path: Path) -> None:
    cuda = Cuda(runtime_api()).probed()
    cuda.use_device(0)
    # The driver takes PTX where it takes cubins, as a C string.
    toolchain = Toolchain("ptx", lambda text, architecture: compile_ptx("layernorm") + b"\0")
    kernels = load_kernels(cuda, driver_api(), toolchain, device=0, cache=tmp_path, sources=("layernorm",))
    random = np.random.default_rng(1)
    x, residual = (random.standard_normal((5, 768), np.float32) for _ in range(2))
    gamma, beta = (random.standard_normal(768, np.float32) for _ in range(2))
    with DeviceSession(cuda, kernels) as session:
        rows = session.upload(x)
        weights = LayerNormWeights(session.upload(gamma), session.upload(beta), 1e-5)
        inputs = rows, session.upload(residual)
        session.run(prepare_layernorm(kernels, *inputs, weights, rows, stream=session.stream))
        expected = reference.layernorm(x, residual, gamma, beta, 1e-5)
        np.testing.assert_allclose(session.download(rows), expected, rtol=1e-4, atol=1e-4)
