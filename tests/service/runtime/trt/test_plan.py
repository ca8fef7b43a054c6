"""The pre-flight: each kind of wrong file gets the message that mends it, without a GPU."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import ModelLoadFailed
from service.runtime.trt.flavour import Capabilities, Flavour
from service.runtime.trt.manifest import Machine, Manifest
from service.runtime.trt.plan import HEADER_BYTES, TENSORRT_RTX, check_plan, read_header, read_plan
from tests.doubles.fake_tensorrt_model import plan_of
from tests.doubles.trt_models import DOUBLE

PLAN = plan_of(DOUBLE, (10, 13, 3, 9))
RTX_PLAN = bytes.fromhex("76747274 00000000 02000000 00000000 2c517c00 00000000 01070174 76747274")
"""The beginning of a plan of TensorRT-RTX 1.7.1.116."""


def flavour(version: str, name: str = "tensorrt") -> Flavour:
    return Flavour(name, object(), version, Capabilities(*(True,) * 7))


def manifest(plan: bytes, *, is_version_compatible: bool = False) -> Manifest:
    return Manifest(
        plan_bytes=len(plan),
        plan_sha256=hashlib.sha256(plan).hexdigest(),
        machine=Machine("Fake GPU", (9, 0), (13, 0)),
        is_version_compatible=is_version_compatible,
        is_ampere_compatible=False,
        dims={},
    )


def test_the_header_has_the_version() -> None:
    assert read_header(PLAN, "m.plan").text == "10.13.3.9"
    assert read_header(PLAN[:HEADER_BYTES], "m.plan").version == (10, 13, 3, 9)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "m.plan is empty"),
        (PLAN[:3], "m.plan is cut off: it has 3 bytes"),
        (PLAN[: HEADER_BYTES - 1], "m.plan is cut off: it has 27 bytes"),
        (b"version https://git-lfs.github.com/spec/v1", "git lfs pull"),
        (b"PK\x03\x04" + bytes(40), "ZIP archive"),
        (b"\x08\x08\x12\x07pytorch" + bytes(40), "looks like an ONNX model; .* `inferlane build` makes a plan of it"),
        (b"\x7fELF" + bytes(40), "begins with 7f 45 4c 46 .* a plan with 66 74 72 74"),
    ],
)
def test_no_plan(content: bytes, said: str) -> None:
    with pytest.raises(ModelLoadFailed, match=said):
        check_plan(content, "m.plan", flavour("10.13.3.9"), None)


@given(st.binary(max_size=64))
def test_no_bytes_break_the_reader(content: bytes) -> None:
    with pytest.raises(ModelLoadFailed, match=r"^m\.plan "):
        read_header(content, "m.plan")


@pytest.mark.parametrize("version", ["10.13.3.9", "10.13.0", "10.13"])
def test_the_same_major_and_minor_is_left_to_tensorrt(version: str) -> None:
    assert check_plan(PLAN, "m.plan", flavour(version), None).version[:2] == (10, 13)


@pytest.mark.parametrize(
    ("version", "is_compatible", "said"),
    [
        ("11.4.0.106", False, "built by TensorRT 10.13.3.9, this server runs tensorrt 11.4.0.106; build it again"),
        ("11.4.0.106", False, "or install TensorRT 10.13.3 .a newer one runs it only if"),
        ("10.1.0", False, "plans never run on an older one"),
        ("8.6.1", True, "plans never run on an older one"),
    ],
)
def test_another_version(version: str, is_compatible: bool, said: str) -> None:
    with pytest.raises(ModelLoadFailed, match=said):
        check_plan(PLAN, "m.plan", flavour(version), manifest(PLAN, is_version_compatible=is_compatible))


def test_tensorrt_rtx_is_another_product() -> None:
    header = check_plan(RTX_PLAN, "m.plan", flavour("1.7.1.116", "tensorrt_rtx"), None)
    assert (header.text, header.product) == ("1.7.1.116", TENSORRT_RTX)
    with pytest.raises(ModelLoadFailed, match=r"built by TensorRT-RTX 1\.7\.1\.116, .* neither product runs"):
        check_plan(RTX_PLAN, "m.plan", flavour("1.7.1.116"), None)
    with pytest.raises(ModelLoadFailed, match=r"built by TensorRT 10\.13\.3\.9, .* neither product runs"):
        check_plan(PLAN, "m.plan", flavour("10.13.3.9", "tensorrt_rtx"), None)
    with pytest.raises(ModelLoadFailed, match=r"install TensorRT-RTX 1\.7\.1: plans never run on an older one"):
        check_plan(RTX_PLAN, "m.plan", flavour("1.4.0.76", "tensorrt_rtx"), None)


@pytest.mark.parametrize("name", ["tensorrt_lean", "tensorrt_dispatch"])
def test_what_builds_no_plans_runs_version_compatible_ones_alone(name: str) -> None:
    here = flavour("10.13.3.9", name)
    here = replace(here, capabilities=replace(here.capabilities, builder=False))
    with pytest.raises(ModelLoadFailed, match=rf"this server runs {name} 10.*version_compatible = true in \[build\]"):
        check_plan(PLAN, "m.plan", here, manifest(PLAN))
    assert check_plan(PLAN, "m.plan", here, manifest(PLAN, is_version_compatible=True)).text == "10.13.3.9"
    assert check_plan(PLAN, "m.plan", here, None).text == "10.13.3.9"


def test_a_version_compatible_plan_runs_on_a_newer_one() -> None:
    described = manifest(PLAN, is_version_compatible=True)
    assert check_plan(PLAN, "m.plan", flavour("11.4.0.106"), described).version == (10, 13, 3, 9)


def test_a_plan_that_is_not_the_manifests() -> None:
    described = manifest(PLAN)
    with pytest.raises(ModelLoadFailed, match=f"cut off: it has {len(PLAN) - 5} bytes of {len(PLAN)}"):
        check_plan(PLAN[:-5], "m.plan", flavour("10.13.3.9"), described)
    for changed in (PLAN + b"x", PLAN[:-1] + b"\x00"):
        with pytest.raises(ModelLoadFailed, match=r"not the plan that its manifest describes.*m\.plan\.json"):
            check_plan(changed, "m.plan", flavour("10.13.3.9"), described)


@pytest.mark.parametrize("name", ["x" * 300, "x/" * 3000])
def test_a_name_that_no_file_can_have(tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelLoadFailed, match="cannot be read: File name too long"):
        read_plan(tmp_path / name)


def test_an_unreadable_plan(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadFailed, match=r"m\.plan cannot be read: No such file"):
        read_plan(tmp_path / "m.plan")


@pytest.mark.parametrize("folder", [Path("."), Path("models")])
def test_a_folder_is_no_plan(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models").mkdir()
    monkeypatch.chdir(tmp_path)
    said = rf"^{re.escape(str(folder))} cannot be read: .*; name the \*\.plan file in it"
    with pytest.raises(ModelLoadFailed, match=said):
        read_plan(folder)
