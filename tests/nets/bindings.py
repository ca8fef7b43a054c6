"""What the real TensorRT bindings offer, told by the bindings themselves on a machine with neither TensorRT nor GPU.

pip downloads the bindings' wheels alone (a few MB each). They are linked against TensorRT's libraries; stubs that gcc
makes of their undefined symbols let them be imported, and nothing is ever called.
Each is imported in a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.nets.packages import kept, need_tools, pip

_DESCRIBE = r"""
import importlib, inspect, json, re, sys, warnings

warnings.simplefilter("ignore")
module = importlib.import_module(sys.argv[1])
SIGNATURE = re.compile(r"\((.*)\) -> (.+)$", re.MULTILINE)
PARAMETER = re.compile(r"(?:^|, )(\w+): ")
OVERRIDE = re.compile(r"def (\w+)\(([^)]*)\):")

def signatures(member):
    function = getattr(member, "fget", None) if isinstance(member, property) else member
    found = SIGNATURE.findall(getattr(function, "__doc__", None) or "")
    return [[PARAMETER.findall(parameters), returned] for parameters, returned in found]

def described(owner):
    # What one overrides need not be a member: then only the class's own description says it.
    shown = {name: [[parameters.split(", "), "None"]] for name, parameters in OVERRIDE.findall(owner.__doc__ or "")}
    described = {name: {"signatures": signatures, "is_writable": True} for name, signatures in shown.items()}
    names = (name for name in dir(owner) if not name.startswith("__"))
    return {**described, **{name: entry(owner, name) for name in names}}

def entry(owner, name):
    member = inspect.getattr_static(owner, name)
    is_writable = not isinstance(member, property) or member.fset is not None
    return {"signatures": signatures(getattr(owner, name)), "is_writable": is_writable}

classes = {}
for name, value in vars(module).items():
    if isinstance(value, type):
        classes[name] = described(value)
        nested = {f"{name}.{part}": inner for part, inner in vars(value).items() if isinstance(inner, type)}
        classes.update((part, described(inner)) for part, inner in nested.items())
print(json.dumps({"version": module.__version__, "names": sorted(vars(module)), "classes": classes}))
"""


@dataclass(frozen=True)
class Wheel:
    """A wheel of bindings: project, exact version, and the module in it."""

    project: str
    version: str
    module: str

    @property
    def is_lean(self) -> bool:
        return "lean" in self.project

    @property
    def label(self) -> str:
        return f"{self.project} {self.version}"


OLDEST = Wheel("tensorrt_bindings", "8.6.1", "tensorrt_bindings")
FIRST_OF_10 = Wheel("tensorrt_cu12_bindings", "10.0.1", "tensorrt_bindings")
"""These two were not made for the newest Pythons."""

NEWEST = (
    Wheel("tensorrt_cu13_bindings", "10.16.1.11", "tensorrt_bindings"),
    Wheel("tensorrt_cu13_bindings", "11.4.0.106", "tensorrt_bindings"),
    Wheel("tensorrt_lean_cu13_bindings", "10.16.1.11", "tensorrt_lean_bindings"),
    Wheel("tensorrt_lean_cu13_bindings", "11.4.0.106", "tensorrt_lean_bindings"),
)
WHEELS = (OLDEST, FIRST_OF_10, *NEWEST)


@dataclass(frozen=True)
class Bindings:
    """What one wheel offers.

    Attributes:
        label: which one it is.
        is_lean: it can run plans, and not build any.
        names: of the module.
        classes: by name their members, and of each the signatures that pybind11 wrote into its docstring.
    """

    label: str
    is_lean: bool
    names: frozenset[str]
    classes: dict[str, dict[str, dict[str, Any]]]


def describe(wheel: Wheel) -> Bindings:
    """Imports a wheel's bindings in a child and says what is in them; skips the test where that cannot be done."""
    folder = folder_of(wheel)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder / "stubs"), "PYTHONPATH": str(folder)}
    command = [sys.executable, "-c", _DESCRIBE, wheel.module]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, f"{wheel.label} does not import: {done.stderr}"
    content = json.loads(done.stdout)
    assert content["version"] == wheel.version
    return Bindings(wheel.label, wheel.is_lean, frozenset(content["names"]), content["classes"])


def folder_of(wheel: Wheel) -> Path:
    """Where a wheel's bindings lie, and in `stubs` what they are linked against; skips where that cannot be had."""
    need_tools("gcc", "nm", "readelf")
    return kept(wheel.label.replace(" ", "-"), lambda folder: _fill(folder, wheel))


def _fill(folder: Path, wheel: Wheel) -> None:
    arguments = ["download", "--no-deps", "--only-binary=:all:", "--dest", str(folder)]
    pip(arguments, f"{wheel.project}=={wheel.version}", timeout_s=100)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as archive:
        archive.extractall(folder)
    _make_stubs(folder, wheel.module)


def _make_stubs(folder: Path, module: str) -> None:
    """Libraries by the names that the bindings ask for, of functions that do nothing."""
    library = next((folder / module).glob("*.so"))
    symbols = [
        line.split()[-1]
        for line in _output("nm", "--dynamic", "--undefined-only", str(library)).splitlines()
        if line.split()[0] == "U" and "@" not in line and not line.split()[-1].startswith(("Py", "_Py"))
    ]
    needed = [
        line.partition("[")[2].rstrip("]")
        for line in _output("readelf", "--dynamic", str(library)).splitlines()
        if "(NEEDED)" in line and "libnv" in line
    ]
    assert needed, f"{library.name} needs none of TensorRT's libraries: stubs are the wrong way to import it"
    stubs = folder / "stubs"
    stubs.mkdir(exist_ok=True)
    source = stubs / "stubs.c"
    source.write_text(
        "".join(
            f'void *stub_{index}(void) __asm__("{symbol}");\nvoid *stub_{index}(void) {{ return 0; }}\n'
            for index, symbol in enumerate(symbols)
        ),
        encoding="utf-8",
    )
    for name in needed:
        _output("gcc", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", str(stubs / name), str(source))


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
