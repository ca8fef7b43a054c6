"""The exact commands by which Nsight Systems and Nsight Compute look at one bucket of a model. Pure.

Both run `inferlane bench`: it drives a lane with full batches of one bucket and nothing else, so a timeline shows what
serving that bucket is, and every kernel comes again and again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

TIMELINE_S = 3
"""Seconds of the measured time: thousands of batches; longer timelines only load slower."""

KERNEL_S = 0.1
SKIPPED_LAUNCHES = 5
"""Launches of a kernel before the one that is looked at: the first ones are the warm-up's."""

_PLAIN_NAME = re.compile(r"[A-Za-z_]\w{7,}")


def nsys_command(model: str, bucket: str, repository: Path) -> tuple[str, ...]:
    """A timeline of kernels, copies, CUDA's calls and the lane's own ranges; kernels of graphs one by one.

    Args:
        model: its name.
        bucket: its label.
        repository: the model's.
    """
    return (
        "nsys",
        "profile",
        "--trace=cuda,nvtx,osrt",
        "--cuda-graph-trace=node",
        "--env-var=INFERLANE_NVTX_ENABLED=true",
        f"--output={_file_name(model, bucket)}",
        "--force-overwrite=true",
        *_bench(model, bucket, repository, TIMELINE_S),
    )


def ncu_command(model: str, bucket: str, repository: Path, tactic: str) -> tuple[str, ...]:
    """All that Nsight Compute measures of one launch of a layer's kernel, by its name.

    Args:
        model: its name.
        bucket: its label.
        repository: the model's.
        tactic: the layer's; where it is a number, or empty, the first kernels of any name are taken.
    """
    named = _PLAIN_NAME.fullmatch(tactic) is not None
    which = ("--kernel-name", f"regex:{tactic}", "--launch-count", "1") if named else ("--launch-count", "20")
    return (
        "ncu",
        "--set=full",
        "--graph-profiling=node",
        *which,
        "--launch-skip",
        str(SKIPPED_LAUNCHES),
        f"--export={_file_name(model, bucket)}",
        "--force-overwrite",
        *_bench(model, bucket, repository, KERNEL_S),
    )


def _bench(model: str, bucket: str, repository: Path, duration_s: float) -> Sequence[str]:
    return (
        *("inferlane", "bench", model, "--bucket", bucket),
        *("--repository", str(repository), "--duration", str(duration_s)),
    )


def _file_name(model: str, bucket: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "-", f"{model}-{bucket}")
