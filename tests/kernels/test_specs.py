"""What is stated on both sides, host and device, is the same."""

from __future__ import annotations

import re

import pytest

from kernels import detect, embed, fill, layernorm, preprocess
from kernels.specs import SOURCE_FOLDER, target_of


@pytest.mark.parametrize(
    ("file", "pattern", "value"),
    [
        ("preprocess_rows.cuh", r"int ROWS = (\d+)", preprocess.ROWS_PER_THREAD),
        ("preprocess.cu", r"int TILE_COLUMNS = (\d+) \* BLOCK_X", preprocess.COLUMNS_PER_THREAD),
        ("preprocess.cu", r"int BLOCK_X = (\d+)", preprocess.BLOCK[0]),
        ("preprocess.cu", r"BLOCK_Y = (\d+)", preprocess.BLOCK[1]),
        ("embed.cu", r"int LANES = (\d+)", embed.BLOCK[0]),
        ("embed.cu", r"int TOKENS = (\d+)", embed.BLOCK[1]),
        ("fill.cu", r"int STORE_BYTES = (\d+)", fill.STORE_BYTES),
        ("fill.cu", r"__launch_bounds__\((\d+)\)", fill.BLOCK[0]),
        ("layernorm.cu", r"int MAX_WIDTH = (\d+)", layernorm.MAX_WIDTH),
        ("detect.cu", r"int CANDIDATES = (\d+)", detect.CANDIDATES),
        ("detect.cuh", r"int MAX_CLASSES = (\d+)", detect.MAX_CLASSES),
    ],
)
def test_numbers(file: str, pattern: str, value: int) -> None:
    (found,) = re.findall(pattern, (SOURCE_FOLDER / file).read_text())
    assert int(found) == value


@pytest.mark.parametrize(
    ("source", "architecture", "target"),
    [
        ("peaks", "sm_90", "sm_90"),
        ("peaks", "sm_75", "sm_75"),
        ("gemm_wgmma", "sm_90", "sm_90a"),
        ("gemm_wgmma", "sm_100", None),
        ("gemm_wgmma", "sm_9", None),
    ],
)
def test_targets(source: str, architecture: str, target: str | None) -> None:
    assert target_of(source, architecture) == target
