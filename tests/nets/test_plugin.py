"""Our TensorRT plugin goes through the plugin machinery of the real bindings, 10.16 and 11.4, without a GPU.

That TensorRT's core takes what comes out of it, builds a plan and runs it is not shown here: see `plugin_child.py` and
docs/kernels.md.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kernels.compile import nvrtc
from kernels.layernorm import BLOCK
from service.errors import ModelLoadFailed
from tests.nets.bindings import NEWEST, Wheel, folder_of

ROOT = Path(__file__).parents[2]
FULL = [wheel for wheel in NEWEST if not wheel.is_lean]


@pytest.fixture(scope="module", autouse=True)
def _compiler() -> None:
    try:
        nvrtc()
    except ModelLoadFailed as error:
        pytest.skip(error.message)


def run(wheel: Wheel, precision: str, width: int, epsilon: float = 1e-5) -> dict[str, Any]:
    """What `plugin_child` says."""
    folder = folder_of(wheel)
    libraries = os.pathsep.join(filter(None, (str(folder / "stubs"), os.environ.get("LD_LIBRARY_PATH", ""))))
    paths = os.pathsep.join((str(folder), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH", "")])))
    environment = {**os.environ, "LD_LIBRARY_PATH": libraries, "PYTHONPATH": paths}
    command = [sys.executable, "-W", "ignore", "-m", "tests.nets.plugin_child", wheel.module]
    arguments = [precision, str(width), repr(epsilon)]
    done = subprocess.run(
        [*command, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    # Its logger writes to standard output too.
    outcome: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return outcome


@pytest.mark.parametrize("wheel", FULL, ids=lambda wheel: wheel.label)
@pytest.mark.parametrize(
    ("precision", "width", "type_name"), [("fp16", 768, "HALF"), ("fp32", 8192, "FLOAT"), ("fp16", 8, "HALF")]
)
def test_tensorrt_is_given_the_kernel_and_its_launch(wheel: Wheel, precision: str, width: int, type_name: str) -> None:
    outcome = run(wheel, precision, width, epsilon=1e-5)
    assert outcome["error"] == ""
    assert outcome["creators"] == 1, "registering again adds none"
    assert outcome["output_type"] == type_name
    assert outcome["output_shape"] == [8, 128, width]
    assert outcome["formats"] == [f"{type_name} LINEAR"]
    assert outcome["kernel"] == f"layernorm_{precision}"
    assert f".visible .entry layernorm_{precision}(" in outcome["code"]
    assert ".target sm_75" in outcome["code"]
    sizes = {"grid_x": 8 * 128, "block_x": BLOCK[0], "grid_y": 1, "grid_z": 1, "block_y": 1, "block_z": 1}
    assert outcome["launch"] == {**sizes, "shared_mem": 0}
    assert outcome["arguments"] == [width, struct.unpack("<i", struct.pack("<f", 1e-5))[0]]


@pytest.mark.parametrize("wheel", FULL, ids=lambda wheel: wheel.label)
@pytest.mark.parametrize(
    ("precision", "width", "words"),
    [
        ("fp16", 12, "rows of 12 elements; their number must be fixed, a multiple of 8 and at most 8192"),
        ("fp32", 6, "a multiple of 4"),
        ("fp32", 16384, "rows of 16384"),
        ("fp32", -64, "rows of any number of elements"),
        ("int32", 64, "its four inputs are FP16, or all of them FP32"),
    ],
)
def test_what_the_kernel_cannot_do_fails_the_build(wheel: Wheel, precision: str, width: int, words: str) -> None:
    assert words in run(wheel, precision, width)["error"]
