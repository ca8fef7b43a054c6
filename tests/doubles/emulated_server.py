"""`inferlane build` and `serve` on the emulated GPU, in one process: plans are made of models, and served.

    python -m tests.doubles.emulated_server serve --repository REPOSITORY --port PORT

Everything that a plan goes through is gone through; how long it takes means nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path

from engines.build import build_plan
from engines.request import BuildOptions, BuildRequest
from service import cli
from service.runtime.cuda.device import Cuda
from service.runtime.trt.flavour import describe
from tests.doubles.emulated_gpu import emulated_gpu
from tests.doubles.fake_tensorrt import fake_tensorrt


def main() -> None:
    """Takes the words that `inferlane` takes."""
    repository = Path(sys.argv[sys.argv.index("--repository") + 1])
    with emulated_gpu(repository, {}) as api:
        for folder in sorted(repository.iterdir()):
            request = BuildRequest(
                model_folder=folder, version="1", plan_path=folder / "1" / "model.plan", options=BuildOptions()
            )
            build_plan(
                request,
                flavour=describe("tensorrt", fake_tensorrt(api, "10")),
                cuda=Cuda(api),
                on_event=lambda event: None,
            )
        cli.main()


if __name__ == "__main__":
    main()
