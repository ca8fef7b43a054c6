"""The commands, word by word."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from service.cli import app
from service.timeline.commands import ncu_command, nsys_command

MODELS = Path("my models")
TACTIC = "sm80_xmma_gemm_f16f16_f16f16_f16_nn_n_tilesize64x128x32_stage5_warpsize2x2x1_tensor16x8x16"


def test_a_timeline() -> None:
    assert nsys_command("resnet50", "8:media", MODELS) == (
        *("nsys", "profile", "--trace=cuda,nvtx,osrt", "--cuda-graph-trace=node"),
        "--env-var=INFERLANE_NVTX_ENABLED=true",
        *("--output=resnet50-8-media", "--force-overwrite=true"),
        *("inferlane", "bench", "resnet50", "--bucket", "8:media", "--repository", "my models", "--duration", "3"),
    )


def test_one_kernel() -> None:
    command = ncu_command("bert", "8x128", MODELS, TACTIC)
    assert command[:3] == ("ncu", "--set=full", "--graph-profiling=node")
    assert command[3:7] == ("--kernel-name", f"regex:{TACTIC}", "--launch-count", "1")
    assert re.search(command[4].removeprefix("regex:"), f"{TACTIC}_kernel_trt")


@pytest.mark.parametrize("tactic", ["", "0x00000000000203e8", "a b", "conv", "fma(x)"])
def test_what_is_no_kernel_s_name_names_none(tactic: str) -> None:
    command = ncu_command("bert", "8x128", MODELS, tactic)
    assert "--kernel-name" not in command
    assert command[command.index("--launch-count") + 1] == "20"


@pytest.mark.parametrize("command", [nsys_command("m", "8", MODELS), ncu_command("m", "8", MODELS, TACTIC)])
def test_the_options_are_those_of_bench(command: tuple[str, ...]) -> None:
    """Only the model is missing here."""
    arguments = command[command.index("inferlane") + 1 :]
    result = CliRunner().invoke(app, [*arguments])
    assert "my models" in str(result.exception)
    assert result.exit_code == 1
