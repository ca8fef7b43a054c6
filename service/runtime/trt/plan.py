"""The pre-flight: what a plan's first bytes and its manifest say, before any GPU is touched.

TensorRT answers a plan that it cannot run with nothing but a null engine. These checks name the cause and the mend.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path

from service.errors import ModelLoadFailed
from service.runtime.trt.files import read_regular
from service.runtime.trt.flavour import Flavour
from service.runtime.trt.manifest import Manifest

HEADER_BYTES = 28
MAGIC = 0x74727466
RTX_MAGIC = 0x74727476
TENSORRT = "TensorRT"
TENSORRT_RTX = "TensorRT-RTX"
_VERSION_AT = 24
_PRODUCTS = {struct.pack("<I", MAGIC): TENSORRT, struct.pack("<I", RTX_MAGIC): TENSORRT_RTX}
"""What built a plan, by its first bytes: `trtexec --getPlanVersionOnly` reads the header of the first; that of the
other was seen to be laid out alike in plans of TensorRT-RTX 1.4 and 1.7.
"""

ONNX_MAGIC = b"\x08"


@dataclass(frozen=True, slots=True)
class PlanHeader:
    """What built a plan.

    Attributes:
        version: major, minor, patch and build.
        product: `TENSORRT` or `TENSORRT_RTX`; neither runs the other's plans.
    """

    version: tuple[int, int, int, int]
    product: str = TENSORRT

    @property
    def text(self) -> str:
        """Such as `10.13.3.9`."""
        return ".".join(map(str, self.version))


def read_header(plan: bytes, name: str) -> PlanHeader:
    """Reads a plan's header.

    Args:
        plan: the plan, or its first `HEADER_BYTES` bytes at least.
        name: the file's name, for messages.

    Raises:
        ModelLoadFailed: it is no plan, or not even its header is complete.
    """
    if not plan:
        raise ModelLoadFailed(f"{name} is empty; copy it again, or build it again from its ONNX model")
    product = next((product for magic, product in _PRODUCTS.items() if magic.startswith(plan[:4])), None)
    if product is not None and len(plan) < HEADER_BYTES:
        raise ModelLoadFailed(
            f"{name} is cut off: it has {len(plan)} bytes, less than a plan's header; copy it again, or build it again"
        )
    if product is None:
        raise ModelLoadFailed(f"{name} is not a TensorRT plan: {_looks_like(plan)}")
    major, minor, patch, build = plan[_VERSION_AT:HEADER_BYTES]
    return PlanHeader((major, minor, patch, build), product)


def check_plan(plan: bytes, name: str, flavour: Flavour, manifest: Manifest | None) -> PlanHeader:
    """Refuses a plan that this TensorRT cannot run, or that is not the one its manifest describes.

    Raises:
        ModelLoadFailed: no plan, cut off, changed since it was built, or built by another TensorRT.
    """
    header = read_header(plan, name)
    if manifest is not None:
        manifest.check_content(plan, name)
    check_version(header, name, flavour, manifest)
    return header


def check_version(header: PlanHeader, name: str, flavour: Flavour, manifest: Manifest | None) -> None:
    """Refuses a plan of a TensorRT whose plans this one cannot run.

    Major and minor version decide here; the bindings of one patch may run on the library of another, so a plan of
    another patch is left to TensorRT. What builds none, the lean and the dispatch runtime, runs none but
    version-compatible ones.

    Raises:
        ModelLoadFailed: it was built by another TensorRT, or for the full one alone.
    """
    built_by = f"{name} was built by {header.product} {header.text}"
    here = f"this server runs {flavour.name} {flavour.version}"
    if header.product != (TENSORRT_RTX if flavour.name == "tensorrt_rtx" else TENSORRT):
        raise ModelLoadFailed(
            f"{built_by}, {here}; neither product runs the other's plans: build it again with the server's"
        )
    runtime = flavour.version_numbers[:2]
    is_compatible = manifest is not None and manifest.is_version_compatible and header.version[:2] < runtime
    if header.version[:2] != runtime and not is_compatible:
        raise ModelLoadFailed(f"{built_by}, {here}; {_mend(header, runtime)}")
    if manifest is not None and not (manifest.is_version_compatible or flavour.capabilities.builder):
        raise ModelLoadFailed(
            f"{built_by} for the full TensorRT alone, {here}, which runs version-compatible plans only; build it again "
            "with version_compatible = true in [build], or install the full TensorRT of its version"
        )


def read_plan(path: Path) -> bytes:
    """The plan's bytes.

    Raises:
        ModelLoadFailed: the file cannot be read.
    """
    try:
        return read_regular(path)
    except OSError as error:
        mend = "name the *.plan file in it" if os.path.isdir(path) else "check the file and its rights"
        raise ModelLoadFailed(f"{path.name or path} cannot be read: {error.strerror}; {mend}") from error


def _mend(header: PlanHeader, runtime: tuple[int, ...]) -> str:
    release = ".".join(map(str, header.version[:3]))
    mend = f"build it again with the server's version, or install {header.product} {release}"
    if header.version[:2] > runtime:
        return f"{mend}: plans never run on an older one"
    return f"{mend} (a newer one runs it only if it was built version-compatible and its manifest says so)"


def _looks_like(plan: bytes) -> str:
    start = plan[:8].hex(" ")
    if plan.startswith((b"version https://git-lfs", b"oid sha256")):
        return "it is a Git LFS pointer; fetch the file itself with `git lfs pull`"
    if plan.startswith(b"PK"):
        return "it is a ZIP archive, perhaps a PyTorch model; export it to ONNX and build a plan from that"
    if plan.startswith(ONNX_MAGIC):
        return "it looks like an ONNX model; as model.onnx of a model's folder, `inferlane build` makes a plan of it"
    return (
        f"it begins with {start}, a plan with 66 74 72 74; give the file that TensorRT's builder wrote, "
        "of TensorRT 8.6 or newer"
    )
