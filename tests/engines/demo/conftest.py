"""A small wheel of the demo's kind, and a folder that real pip finds it in without a network."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from engines.demo.catalog import DemoModel
from engines.demo.wheels import Member, Wheel

CHARACTERS = ("!", "#", "\u3000", "ß")


@dataclass(frozen=True)
class FakeIndex:
    """A folder of wheels that pip is told to look in, and what the wheel in it holds."""

    folder: Path
    wheel: Wheel
    files: dict[str, bytes]

    @property
    def model(self) -> DemoModel:
        return DemoModel("ocr-rec", self.wheel, "tiny.onnx", ("LICENSE",), has_ctc_labels=True)


def tiny_onnx(characters: tuple[str, ...] = CHARACTERS) -> bytes:
    """An identity model that names its characters as text recognisers do."""
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 2]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "tiny", tensors[:1], tensors[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    if characters:
        helper.set_model_props(model, {"character": "\n".join(characters)})
    onnx.checker.check_model(model)
    return model.SerializeToString()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def write_wheel(folder: Path, files: dict[str, bytes]) -> Wheel:
    """Writes a wheel whose metadata refuses this Python and wants a package that no index here has."""
    info = "tiny_models-1.0.dist-info"
    metadata = (
        "Metadata-Version: 2.1\nName: tiny-models\nVersion: 1.0\nRequires-Python: <3.8\nRequires-Dist: opencv-python\n"
    )
    meta = {
        f"{info}/METADATA": metadata.encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": b"",
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tiny_models-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {**files, **meta}.items():
            archive.writestr(name, content)
    members = tuple(Member(name, sha256(content)) for name, content in files.items())
    return Wheel("tiny_models", "1.0", sha256(path.read_bytes()), path.stat().st_size, members)


@pytest.fixture
def make_onnx() -> Callable[..., bytes]:
    return tiny_onnx


@pytest.fixture
def offline_pip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder in which pip looks instead of an index, whatever this machine's pip is configured to do."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", folder.as_uri())
    return folder


@pytest.fixture
def index(offline_pip: Path) -> FakeIndex:
    files = {"tiny_models/models/tiny.onnx": tiny_onnx(), "tiny_models-1.0.dist-info/licenses/LICENSE": b"be kind\n"}
    return FakeIndex(offline_pip, write_wheel(offline_pip, files), files)


@pytest.fixture
def filled_cache(index: FakeIndex, tmp_path: Path) -> Path:
    """A cache as a download leaves it, made without pip."""
    cache = tmp_path / "cache"
    for path, content in index.files.items():
        target = index.wheel.cached(cache, path.rpartition("/")[2])
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return cache
