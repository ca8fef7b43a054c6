"""Which TensorRT is installed and what it can do: decided by what is there, never by comparing version numbers."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from service.errors import BuilderMissing, ModelLoadFailed

FLAVOURS = ("tensorrt", "tensorrt_lean", "tensorrt_dispatch", "tensorrt_rtx")
"""The packages that can run a plan, the most capable first."""

_LEADING_NUMBERS = re.compile(r"\d+(?:\.\d+)*")


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What differs between TensorRT 8.6, 10 and 11, and between the full package and the lean one.

    Attributes:
        user_managed_strategy: contexts without scratch are asked for by a strategy, not by a function of their own.
        profile_scratch_v2: scratch of one profile, 64 bit (10.1 and later).
        profile_scratch: the same as 10.0 has it. With neither, only the maximum over all profiles is known.
        profile_values: the values that a profile allows an input read on the host are asked for by the input's name;
            8.6 has an older function for it.
        sized_scratch: scratch is given with its size, so that TensorRT can check it.
        inspector: the layers of an engine can be listed.
        builder: plans can be built; the lean and the dispatch runtime only run them.
    """

    user_managed_strategy: bool
    profile_scratch_v2: bool
    profile_scratch: bool
    profile_values: bool
    sized_scratch: bool
    inspector: bool
    builder: bool


@dataclass(frozen=True, slots=True)
class Flavour:
    """One installed TensorRT.

    Attributes:
        name: the package, one of `FLAVOURS`.
        module: the imported package; typed loosely, because its types differ between versions.
        version: as the package says, such as `10.13.3.9`.
        capabilities: what it offers.
    """

    name: str
    module: Any
    version: str
    capabilities: Capabilities

    @property
    def version_numbers(self) -> tuple[int, ...]:
        """The version for comparison with a plan's; empty if it does not begin with a number."""
        numbers = _LEADING_NUMBERS.match(self.version)
        return tuple(map(int, numbers.group().split("."))) if numbers else ()

    def require_builder(self) -> None:
        """Refuses a TensorRT that can only run plans.

        Raises:
            BuilderMissing: it has no builder; the message says what to install, or to build elsewhere.
        """
        if not self.capabilities.builder:
            raise BuilderMissing(
                f"{self.name} {self.version} runs plans but cannot build them; install the full TensorRT of that "
                "version (pip install -e '.[build,gpu,tensorrt-cu13]'), or build the plan with `inferlane build` where "
                "that and such a GPU are, with version_compatible = true in [build] for the lean runtime, and copy "
                "plan and manifest to beside the ONNX model"
            )


def find_flavour(import_module: Callable[[str], Any] = importlib.import_module) -> Flavour:
    """Imports the first flavour that is installed.

    Raises:
        ModelLoadFailed: none is installed, or what is installed does not load; the message has every cause.
    """
    broken = []
    for name in FLAVOURS:
        try:
            return describe(name, import_module(name))
        except ModuleNotFoundError as error:
            if error.name != name:
                broken.append(f"{name} lacks {error.name}")
        except (ImportError, OSError, RuntimeError) as error:
            broken.append(f"{name} does not load ({error})")
    causes = "; ".join(broken) or f"none of {', '.join(FLAVOURS)} is installed"
    raise ModelLoadFailed(
        f"TensorRT cannot be used: {causes}; pip install -e '.[gpu,tensorrt-cu13]' "
        "(`inferlane doctor` names the extra that fits this machine), or serve the ONNX model on the CPU"
    )


def describe(name: str, module: Any) -> Flavour:
    """Probes an imported package."""
    engine, context = module.ICudaEngine, module.IExecutionContext
    return Flavour(
        name=name,
        module=module,
        version=str(module.__version__),
        capabilities=Capabilities(
            user_managed_strategy=hasattr(module, "ExecutionContextAllocationStrategy"),
            profile_scratch_v2=hasattr(engine, "get_device_memory_size_for_profile_v2"),
            profile_scratch=hasattr(engine, "get_device_memory_size_for_profile"),
            profile_values=hasattr(engine, "get_tensor_profile_values"),
            sized_scratch=hasattr(context, "set_device_memory"),
            # The lean runtime has the function that makes an inspector, but not the inspector.
            inspector=hasattr(module, "EngineInspector"),
            builder=hasattr(module, "Builder"),
        ),
    )
