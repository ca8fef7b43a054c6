"""Cubins from the CUDA sources of this package: compiled by NVRTC, kept on disk, rebuilt when anything differs.

A cubin's name in the cache is the hash of all that went into it: its source, every header, the flags, the
architecture and NVRTC's version. An entry that does not match its own digest counts as absent. Compiling needs
neither a GPU nor its driver.

    python -m kernels.compile FOLDER [sm_90 ...]     fills a cache ahead, as an image's build does
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.specs import ARCHITECTURES, SOURCE_FOLDER, SOURCES, target_of
from service.errors import ModelLoadFailed

_LOG = logging.getLogger(__name__)

FLAGS = {"std": "c++17", "fma": False}
"""Options of `cuda.core.ProgramOptions` beside the architecture and the headers' folder. Products and sums are fused
only where a source says `fmaf`: the GPU then rounds where the host and the references do."""

PTX_ARCHITECTURE = "compute_75"
"""The virtual architecture of PTX: the least of `ARCHITECTURES`, whose PTX a driver compiles for every later one."""

_DIGEST_BYTES = 32

Compiler = Callable[[str, str], bytes]
"""Takes a source's text and an architecture and gives a cubin, or raises `ModelLoadFailed`."""


@dataclass(frozen=True, slots=True)
class Toolchain:
    """What compiles.

    Attributes:
        version: part of every cache key.
        compile: the compiler.
    """

    version: str
    compile: Compiler


def nvrtc() -> Toolchain:
    """The NVRTC that is installed.

    Raises:
        ModelLoadFailed: it, or one of NVIDIA's Python packages around it, is missing.
    """
    try:
        from cuda.bindings import nvrtc as binding  # noqa: PLC0415 - only machines that compile have it
        from cuda.core import Program, ProgramOptions  # noqa: PLC0415

        code, major, minor = binding.nvrtcVersion()
    except Exception as error:  # a missing library is no ImportError: its loader raises classes of its own
        raise ModelLoadFailed(
            f"CUDA kernels cannot be compiled: {error}; install inferlane[kernels], or set CUDA_HOME to a CUDA toolkit "
            "of version 12.8 or later"
        ) from error
    if code:
        raise ModelLoadFailed(
            f"CUDA kernels cannot be compiled: nvrtcVersion gave {code}; reinstall inferlane[kernels]"
        )

    def build(text: str, architecture: str) -> bytes:
        options = ProgramOptions(arch=architecture, include_path=str(SOURCE_FOLDER), **FLAGS)
        try:
            return bytes(Program(text, "c++", options).compile("cubin").code)
        except Exception as error:  # NVRTC's errors have no common base; their text holds the compiler's log
            raise ModelLoadFailed(f"a CUDA source does not compile for {architecture}: {error}") from error

    return Toolchain(f"{major}.{minor}", build)


def cubin(source: str, architecture: str, *, cache: Path, toolchain: Toolchain) -> bytes:
    """The machine code of one source, from the cache if it is there.

    Args:
        source: one of `specs.SOURCES`.
        architecture: such as `sm_90`.
        cache: folder of the cache; made if absent. One that cannot be written costs a compilation every time.
        toolchain: what compiles.

    Raises:
        ModelLoadFailed: the source does not compile.
    """
    text = (SOURCE_FOLDER / f"{source}.cu").read_text(encoding="utf-8")
    key = _key(text, architecture, toolchain.version)
    path = cache / f"{source}-{architecture}-{key}.cubin"
    found = _read(path)
    if found is not None:
        return found
    built = toolchain.compile(text, architecture)
    try:
        _write(path, built)
    except OSError as error:
        _LOG.warning("the kernel cache %s cannot be written (%s); every start compiles again", cache, error)
    return built


def compile_ptx(source: str) -> bytes:
    """PTX of one source, for whatever keeps kernels of its own, as TensorRT does with those of plugins; not cached.

    It is NVRTC's own: `cuda.core` asks the driver whether it takes such PTX, and where plans are compiled for other
    machines there may be none.

    Args:
        source: one of `specs.SOURCES`.

    Raises:
        ModelLoadFailed: NVRTC is missing or refuses a call, or the source does not compile.
    """
    nvrtc()  # says what to install where it is missing
    from cuda.bindings import nvrtc as binding  # noqa: PLC0415 - only machines that compile have it

    text = (SOURCE_FOLDER / f"{source}.cu").read_bytes()
    flags = [f"-arch={PTX_ARCHITECTURE}", f"-std={FLAGS['std']}", f"-fmad={str(FLAGS['fma']).lower()}"]
    options = [flag.encode() for flag in (*flags, f"-I{SOURCE_FOLDER}")]
    program = _made("nvrtcCreateProgram", binding.nvrtcCreateProgram(text, f"{source}.cu".encode(), 0, [], []))
    try:
        (code,) = binding.nvrtcCompileProgram(program, len(options), options)
        if code:
            log = b" " * _made("nvrtcGetProgramLogSize", binding.nvrtcGetProgramLogSize(program))
            _made("nvrtcGetProgramLog", binding.nvrtcGetProgramLog(program, log))
            raise ModelLoadFailed(f"'{source}' does not compile to PTX: {log.decode(errors='replace')}")
        built: bytes = b" " * _made("nvrtcGetPTXSize", binding.nvrtcGetPTXSize(program))
        _made("nvrtcGetPTX", binding.nvrtcGetPTX(program, built))
        return built.rstrip(b"\0")
    finally:
        binding.nvrtcDestroyProgram(program)  # unchecked: what is wrong with it by then was told before


def _made(call: str, answer: tuple[Any, ...]) -> Any:
    """What a call of NVRTC gave beside its code; None where that is all.

    Raises:
        ModelLoadFailed: the code is an error's.
    """
    code, *made = answer
    if code:
        raise ModelLoadFailed(f"CUDA kernels cannot be compiled: {call} gave {code}; reinstall inferlane[kernels]")
    return made[0] if made else None


def _key(text: str, architecture: str, version: str) -> str:
    parts = [text, architecture, version, repr(sorted(FLAGS.items()))]
    for header in sorted(SOURCE_FOLDER.glob("*.cuh")):
        parts += [header.name, header.read_text(encoding="utf-8")]
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:32]


def _read(path: Path) -> bytes | None:
    """An entry's cubin, if it is there and whole."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    digest, found = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
    if found and hashlib.sha256(found).digest() == digest:
        return found
    _LOG.warning("%s is damaged; it is built again", path)
    return None


def _write(path: Path, built: bytes) -> None:
    """Either the whole entry is there afterwards or nothing new, whoever else writes it at the same time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(hashlib.sha256(built).digest() + built)
        Path(scratch).replace(path)
    except BaseException:
        Path(scratch).unlink(missing_ok=True)
        raise


def main(arguments: list[str]) -> int:
    """Compiles every source for the named architectures, or for all, into the cache that comes first."""
    if not arguments:
        sys.stderr.write("usage: python -m kernels.compile FOLDER [sm_90 ...]\n")
        return 2
    toolchain = nvrtc()
    for architecture in arguments[1:] or ARCHITECTURES:
        for source in SOURCES:
            target = target_of(source, architecture)
            if target is None:
                continue
            size = len(cubin(source, target, cache=Path(arguments[0]), toolchain=toolchain))
            sys.stdout.write(f"{source} {target}: {size} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
