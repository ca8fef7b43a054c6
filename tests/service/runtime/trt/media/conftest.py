"""The bench of models whose tasks run on the emulated device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernels.compile import Toolchain
from service.runtime.cuda.device import Cuda
from service.runtime.trt.flavour import describe
from tests.doubles.emulated_device import EmulatedCuda, EmulatedDriver
from tests.doubles.fake_tensorrt import fake_tensorrt
from tests.doubles.media_models import MediaBench

MakeMediaBench = Callable[[str], MediaBench]


@pytest.fixture
def make_media_bench(tmp_path: Path) -> Iterator[MakeMediaBench]:
    benches: list[tuple[MediaBench, EmulatedCuda]] = []

    def make(generation: str) -> MediaBench:
        api = EmulatedCuda(is_deferred=True)
        bench = MediaBench(
            Cuda(api).probed(),
            describe("tensorrt", fake_tensorrt(api, generation)),
            lambda: EmulatedDriver(api),  # type: ignore[arg-type, return-value]
            lambda: Toolchain("13.0", lambda text, architecture: b"none"),
            folder=tmp_path / "models",
            plans=tmp_path / "plans",
        )
        benches.append((bench, api))
        return bench

    yield make
    for bench, api in benches:
        bench.close()
        assert api.violations == []
        assert api.live_objects() == {}
