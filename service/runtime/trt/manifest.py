"""`<plan>.json`, which the builder writes beside a plan: where and for what the plan was built.

A plan without a manifest is served too, with fewer checks. Keys that this file does not name are the builder's own;
which TensorRT built the plan is not among them, because the plan's own header says it.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.errors import ModelLoadFailed
from service.runtime.cuda.device import Cuda
from service.runtime.trt.files import read_regular
from service.tensors import Dim

MANIFEST_FORMAT = 1
AMPERE = (8, 0)
AMPERE_PLUS = "ampere+"
"""The one hardware compatibility that leads beyond the compute capability that a plan was built on."""

READ_BYTES = 1 << 20

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Machine:
    """What a plan depends on beside TensorRT: the GPU, and the CUDA version as (major, minor)."""

    gpu_name: str
    compute_capability: tuple[int, int]
    cuda_version: tuple[int, int]

    @classmethod
    def here(cls, cuda: Cuda, device: int) -> Machine:
        """This machine with its GPU of ordinal `device`.

        Raises:
            DeviceError: the GPU cannot be asked.
        """
        version = cuda.runtime_version
        return cls(cuda.device_name(device), cuda.compute_capability(device), (version // 1000, version % 1000 // 10))


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What is read of a manifest.

    Attributes:
        plan_bytes: the plan's size.
        plan_sha256: its digest, in lower-case hexadecimal.
        machine: where it was built.
        is_version_compatible: newer versions of TensorRT may run it.
        is_ampere_compatible: GPUs of every compute capability from Ampere's, 8.0, on may run it.
        dims: per tensor its dimensions by name and extent, as the ONNX model has them; a plan has lost the names.
        onnx_bytes: size of the ONNX file that the plan was built from, or None where the manifest does not say.
        onnx_sha256: its digest, in lower-case hexadecimal, or empty.
    """

    plan_bytes: int
    plan_sha256: str
    machine: Machine
    is_version_compatible: bool
    is_ampere_compatible: bool
    dims: Mapping[str, tuple[Dim, ...]]
    onnx_bytes: int | None = None
    onnx_sha256: str = ""

    def is_built_from(self, onnx_path: Path) -> bool | None:
        """Whether just this ONNX file was built; None where the manifest does not say. Reads all of the file.

        Weights that lie in files of their own are not looked at.

        Raises:
            OSError: the file cannot be read.
        """
        if self.onnx_bytes is None:
            return None
        return onnx_path.stat().st_size == self.onnx_bytes and file_sha256(onnx_path) == self.onnx_sha256

    def check_content(self, plan: bytes, name: str) -> None:
        """Refuses a plan that is not, byte for byte, the one that was built.

        Raises:
            ModelLoadFailed: it is cut off, or differs.
        """
        if len(plan) < self.plan_bytes:
            raise ModelLoadFailed(
                f"{name} is cut off: it has {len(plan)} bytes of {self.plan_bytes}; copy it again, or build it again"
            )
        if len(plan) != self.plan_bytes or hashlib.sha256(plan).hexdigest() != self.plan_sha256:
            raise ModelLoadFailed(
                f"{name} is not the plan that its manifest describes; copy both again from where they were built, "
                f"or delete {name}.json if the plan was replaced on purpose"
            )

    def check_machine(self, here: Machine, name: str) -> None:
        """Refuses a plan that was built for another kind of machine, and warns of one for another GPU of its kind.

        Raises:
            ModelLoadFailed: its compute capability or its CUDA's major version is another.
        """
        built = self.machine
        is_compatible = self.is_ampere_compatible and here.compute_capability >= AMPERE
        if here.compute_capability != built.compute_capability and not is_compatible:
            raise ModelLoadFailed(
                f"{name} was built for compute capability {_dotted(built.compute_capability)} ({built.gpu_name}), this "
                f"GPU is a {here.gpu_name} of {_dotted(here.compute_capability)}; build it again on this GPU"
            )
        if here.cuda_version[0] != built.cuda_version[0]:
            raise ModelLoadFailed(
                f"{name} was built with CUDA {_dotted(built.cuda_version)}, this server runs CUDA "
                f"{_dotted(here.cuda_version)}; build it again, or install the packages for CUDA "
                f"{built.cuda_version[0]}"
            )
        if here.gpu_name != built.gpu_name:
            _log.warning(
                "%s was built on %s and runs on %s: correct, but its kernels were chosen for the other; "
                "build it again on this GPU for full speed",
                name,
                built.gpu_name,
                here.gpu_name,
            )


def manifest_path(plan_path: Path) -> Path:
    """Where a plan's manifest lies: `model.plan.json` beside `model.plan`."""
    return plan_path.with_name(f"{plan_path.name}.json")


def read_manifest(plan_path: Path) -> Manifest | None:
    """The manifest of a plan, or None if it has none.

    Raises:
        ModelLoadFailed: it cannot be read, or lacks something.
    """
    path = manifest_path(plan_path)
    try:
        content = json.loads(read_regular(path).decode())
        return _parsed(content)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ModelLoadFailed(f"{path.name} cannot be read: {error.strerror}; check the file and its rights") from error
    except KeyError as error:
        raise ModelLoadFailed(f"{path.name} lacks {error}; build the plan again, or delete its manifest") from error
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ModelLoadFailed(
            f"{path.name} is no manifest of format {MANIFEST_FORMAT} ({error}); build the plan again, or delete its "
            "manifest"
        ) from error


def _parsed(content: Mapping[str, Any]) -> Manifest:
    if content["format"] != MANIFEST_FORMAT:
        raise ValueError(f"its format is {content['format']!r}")
    built_on, onnx = content["built_on"], content.get("onnx")
    return Manifest(
        plan_bytes=int(content["plan"]["bytes"]),
        plan_sha256=str(content["plan"]["sha256"]).lower(),
        machine=Machine(str(built_on["gpu"]), _version(built_on["compute_capability"]), _version(built_on["cuda"])),
        is_version_compatible=bool(content.get("version_compatible", False)),
        is_ampere_compatible=content.get("hardware_compatibility") == AMPERE_PLUS,
        dims={name: tuple(dims) for name, dims in content.get("dims", {}).items()},
        onnx_bytes=None if onnx is None else int(onnx["bytes"]),
        onnx_sha256="" if onnx is None else str(onnx["sha256"]).lower(),
    )


def file_sha256(path: Path) -> str:
    """A file's digest, in lower-case hexadecimal, without holding the file in memory.

    Raises:
        OSError: it cannot be read.
    """
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(READ_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def _version(text: str) -> tuple[int, int]:
    major, minor = str(text).split(".")[:2]
    return int(major), int(minor)


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
