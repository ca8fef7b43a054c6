"""The command line on a machine with a fake GPU: `python -m tests.doubles.fake_gpu_cli serve ...`.

Plans are built in child processes by the module that the environment names: a worker of `tests.doubles`.
"""

from __future__ import annotations

import os
from functools import partial

from engines import command, plan_builder
from engines.job import run_build
from service import cli
from service.runtime.cuda import device
from service.runtime.trt import flavour
from tests.doubles.fake_build_worker import open_machinery

MODULE = "tests.doubles.fake_gpu_cli"
WORKER = "FAKE_GPU_WORKER"


def main() -> None:
    found, cuda = open_machinery()
    flavour.find_flavour = lambda *_: found
    device.runtime_api = lambda: cuda.api
    build = partial(run_build, worker=os.environ[WORKER])
    command.open_machinery = lambda: (found, cuda)
    command.build_models = partial(command.build_models, build=build)  # type: ignore[assignment]
    plan_builder.PlanBuilder = partial(plan_builder.PlanBuilder, build)  # type: ignore[assignment, misc]
    cli.main()


if __name__ == "__main__":
    main()
