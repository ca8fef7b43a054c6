"""The manifest that goes beside a plan: what `service.runtime.trt.manifest` reads, and what people and tools look up.

Beside the keys that the reader names it has: `onnx` (bytes and sha256 of the model), `built_on.driver` (the newest CUDA
that the driver supports), `built_on.tensorrt`, `precision` (mode, strongly_typed, flags, layers by type), `options`,
`profiles` (per profile and input min, opt and max), `scratch_bytes` (by profile), `layers`, `build_seconds`, and
`accuracy`, which is null where nothing was checked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from engines.config import BuildSettings
from engines.onnx_facts import OnnxFacts
from engines.precision import Precision
from engines.report import BuildReport
from service.runtime.trt.manifest import MANIFEST_FORMAT, Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a plan comes from.

    Attributes:
        machine: what it was built on.
        driver_version: the newest CUDA that the driver supports, as 1000 major + 10 minor.
        tensorrt: flavour and version.
        facts: of the ONNX file.
        precision: how it is typed.
        settings: how it was built.
    """

    machine: Machine
    driver_version: int
    tensorrt: str
    facts: OnnxFacts
    precision: Precision
    settings: BuildSettings


def manifest_text(origin: Origin, report: BuildReport, plan_sha256: str) -> str:
    """The manifest as JSON, a key a line, with the accuracy as far as it is known."""
    content = report.to_content()
    return _lines(
        {
            "format": MANIFEST_FORMAT,
            "plan": {"bytes": report.plan_bytes, "sha256": plan_sha256},
            "built_on": _built_on(origin),
            "onnx": {"bytes": origin.facts.nbytes, "sha256": origin.facts.sha256},
            "precision": {
                "mode": origin.precision.mode,
                "strongly_typed": origin.precision.is_strongly_typed,
                "flags": list(origin.precision.flags),
                "layers": content["layer_precisions"],
            },
            "options": asdict(origin.settings),
            "hardware_compatibility": origin.settings.hardware_compatibility,
            "version_compatible": origin.settings.is_version_compatible,
            "dims": {tensor.name: list(tensor.dims) for tensor in (*origin.facts.inputs, *origin.facts.outputs)},
            "profiles": content["profiles"],
            "scratch_bytes": content["scratch_bytes"],
            "layers": report.layer_count,
            "build_seconds": round(report.build_s, 3),
            "accuracy": content["accuracy"],
        }
    )


def _lines(content: Mapping[str, Any]) -> str:
    """JSON that people can read: a line for each key of the top level."""
    lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in content.items())
    return f"{{\n{lines}\n}}\n"


def _built_on(origin: Origin) -> Mapping[str, Any]:
    machine, driver = origin.machine, origin.driver_version
    return {
        "gpu": machine.gpu_name,
        "compute_capability": ".".join(map(str, machine.compute_capability)),
        "cuda": ".".join(map(str, machine.cuda_version)),
        "driver": f"{driver // 1000}.{driver % 1000 // 10}",
        "tensorrt": origin.tensorrt,
    }
