"""The facts about a machine that the doctor's verdicts rest on; frozen, gathered once."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Package:
    """A Python package as found here.

    Attributes:
        name: the module's name.
        version: its version, or None if it is not installed.
        error: why importing it failed, where that was tried.
        details: more that it tells about itself.
    """

    name: str
    version: str | None = None
    error: str | None = None
    details: tuple[str, ...] = ()

    @property
    def is_usable(self) -> bool:
        """Whether it is installed and, where that was tried, imports."""
        return self.version is not None and self.error is None


@dataclass(frozen=True, slots=True)
class Gpu:
    """One NVIDIA GPU."""

    name: str
    memory_bytes: int
    compute_capability: str


@dataclass(frozen=True, slots=True)
class Nvidia:
    """The NVIDIA driver and what it lists.

    Attributes:
        driver: the driver's version, or None.
        gpus: as the driver lists them.
        note: why either could not be asked, or None.
    """

    driver: str | None = None
    gpus: tuple[Gpu, ...] = ()
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything that the verdicts rest on.

    Attributes:
        python: version of the interpreter: major, minor, micro.
        executable: the interpreter's path.
        system: operating system, C library and machine.
        cpu_model: the processor's own name.
        machine_cores: logical processors of the machine.
        usable_cores: what affinity and the container's quota leave of them; may be a fraction.
        memory_bytes: memory that this process may use: the machine's, or the container's limit if that is less.
        onnxruntime: imported; its details are its execution providers.
        opencv: `cv2`, imported; its details are the installed distributions that hold a `cv2`.
        nvidia: driver and GPUs.
        tensorrt: each flavour of TensorRT, by its metadata.
        others: other packages, by their metadata.
    """

    python: tuple[int, int, int]
    executable: str
    system: str
    cpu_model: str
    machine_cores: int
    usable_cores: float
    memory_bytes: int
    onnxruntime: Package
    opencv: Package
    nvidia: Nvidia = Nvidia()
    tensorrt: tuple[Package, ...] = ()
    others: tuple[Package, ...] = ()

    def has(self, module: str) -> bool:
        """Whether the package with this module is usable."""
        packages = (self.onnxruntime, self.opencv, *self.tensorrt, *self.others)
        return any(package.name == module and package.is_usable for package in packages)
