"""What is stated on both sides, host and device, is the same."""

from __future__ import annotations

import re

import pytest

from kernels import detect, embed, layernorm, preprocess
from kernels.specs import SOURCE_FOLDER


@pytest.mark.parametrize(
    ("file", "pattern", "value"),
    [
        ("preprocess.cu", r"int ROWS = (\d+)", preprocess.ROWS_PER_THREAD),
        ("preprocess.cu", r"int BLOCK_ROWS = (\d+)", preprocess.ROWS_PER_THREAD * preprocess.BLOCK[1]),
        ("embed.cu", r"int LANES = (\d+)", embed.BLOCK[0]),
        ("embed.cu", r"int TOKENS = (\d+)", embed.BLOCK[1]),
        ("layernorm.cu", r"int MAX_WIDTH = (\d+)", layernorm.MAX_WIDTH),
        ("detect.cu", r"int CANDIDATES = (\d+)", detect.CANDIDATES),
        ("detect.cuh", r"int MAX_CLASSES = (\d+)", detect.MAX_CLASSES),
    ],
)
def test_numbers(file: str, pattern: str, value: int) -> None:
    (found,) = re.findall(pattern, (SOURCE_FOLDER / file).read_text())
    assert int(found) == value
