"""The device functions, compiled for the host once a session."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from kernels.specs import SOURCE_FOLDER

HOST_SOURCE = Path(__file__).with_name("host") / "host.cpp"


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is not installed: the device functions cannot be compiled for the host")
    library = tmp_path_factory.mktemp("host") / "host.so"
    command = [compiler, "-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-shared", "-fPIC"]
    subprocess.run([*command, f"-I{SOURCE_FOLDER}", str(HOST_SOURCE), "-o", str(library)], check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.host_to_half.restype = ctypes.c_uint16
    loaded.host_to_half.argtypes = [ctypes.c_float]
    loaded.host_to_float.restype = ctypes.c_float
    loaded.host_to_float.argtypes = [ctypes.c_uint16]
    for name, parameters in (("host_rank_key", [ctypes.c_int]), ("host_candidate_key", [ctypes.c_int, ctypes.c_int])):
        function = getattr(loaded, name)
        function.restype = ctypes.c_uint64
        function.argtypes = [ctypes.c_float, *parameters]
    loaded.host_index_of_key.argtypes = [ctypes.c_uint64]
    for name in ("host_blend", "host_constant_row", "host_upper_row"):
        getattr(loaded, name).restype = ctypes.c_float
    loaded.host_saturated_pair.restype = ctypes.c_uint32
    return loaded
