"""Every source compiles for every architecture, and the cache gives what was built, or builds it again."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from kernels import compile as compiler
from kernels.compile import PTX_ARCHITECTURE, Toolchain, compile_ptx, cubin, main, nvrtc
from kernels.specs import ARCHITECTURES, SOURCE_FOLDER, SOURCES, target_of
from service.errors import ModelLoadFailed

ELF = b"\x7fELF"


class CountingToolchain:
    """Compiles nothing; gives what it was asked for, and counts."""

    def __init__(self, version: str = "13.0") -> None:
        self.asked: list[str] = []
        self.toolchain = Toolchain(version, self.compile)

    def compile(self, text: str, architecture: str) -> bytes:
        self.asked.append(architecture)
        return f"{architecture} {len(text)}".encode()

    def build(self, cache: Path, architecture: str = "sm_90", source: str = "preprocess") -> bytes:
        return cubin(source, architecture, cache=cache, toolchain=self.toolchain)


@pytest.fixture(scope="module")
def installed() -> Toolchain:
    try:
        return nvrtc()
    except ModelLoadFailed as error:
        pytest.skip(error.message)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("source", SOURCES)
def test_every_source_compiles(installed: Toolchain, source: str, architecture: str, tmp_path: Path) -> None:
    target = target_of(source, architecture)
    if target is None:
        pytest.skip(f"{source} is for another architecture alone")
    built = cubin(source, target, cache=tmp_path, toolchain=installed)
    assert built.startswith(ELF)
    for entry in SOURCES[source]:
        assert b"\0" + entry.encode() + b"\0" in built, "the entry point keeps its name"


def test_sources_are_all_named() -> None:
    assert {path.stem for path in SOURCE_FOLDER.glob("*.cu")} == set(SOURCES)


def test_a_source_that_does_not_compile_is_told(installed: Toolchain) -> None:
    with pytest.raises(ModelLoadFailed, match=r"(?s)does not compile for sm_90.*undefined_name"):
        installed.compile('extern "C" __global__ void k(int* p) { *p = undefined_name; }', "sm_90")


def test_second_time_comes_from_the_cache(tmp_path: Path) -> None:
    toolchain = CountingToolchain()
    assert toolchain.build(tmp_path) == toolchain.build(tmp_path)
    assert toolchain.asked == ["sm_90"]
    assert [path.suffix for path in tmp_path.iterdir()] == [".cubin"], "no scratch file stays"


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: b"", id="empty"),
        pytest.param(lambda data: data[:-1], id="cut"),
        pytest.param(lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:], id="flipped"),
        pytest.param(lambda data: data[:32], id="digest alone"),
    ],
)
def test_damaged_entries_are_built_again(tmp_path: Path, damage, caplog: pytest.LogCaptureFixture) -> None:
    toolchain = CountingToolchain()
    built = toolchain.build(tmp_path)
    (entry,) = tmp_path.iterdir()
    entry.write_bytes(damage(entry.read_bytes()))
    assert toolchain.build(tmp_path) == built
    assert toolchain.build(tmp_path) == built
    assert toolchain.asked == ["sm_90", "sm_90"]
    assert "damaged" in caplog.text


def test_what_goes_into_a_cubin_is_in_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = tmp_path / "csrc"
    sources.mkdir()
    (sources / "preprocess.cu").write_text("a")
    (sources / "x.cuh").write_text("b")
    monkeypatch.setattr(compiler, "SOURCE_FOLDER", sources)
    cache = tmp_path / "cache"
    toolchain = CountingToolchain()

    def entries() -> int:
        toolchain.build(cache)
        return len(list(cache.iterdir()))

    assert entries() == 1
    (sources / "preprocess.cu").write_text("aa")
    assert entries() == 2
    (sources / "x.cuh").write_text("bb")
    assert entries() == 3
    (sources / "x.cuh").rename(sources / "y.cuh")
    assert entries() == 4
    toolchain.build(cache, "sm_80")
    CountingToolchain("13.1").build(cache)
    monkeypatch.setattr(compiler, "FLAGS", {"std": "c++20"})
    assert entries() == 7


def test_a_cache_that_cannot_be_written_is_no_failure(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("in the way")
    toolchain = CountingToolchain()
    assert toolchain.build(tmp_path / "file") == toolchain.build(tmp_path / "file")
    assert toolchain.asked == ["sm_90", "sm_90"]
    assert "cannot be written" in caplog.text


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Path, target: Path) -> Path:
        raise OSError("no space")

    monkeypatch.setattr(Path, "replace", fail)
    CountingToolchain().build(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(compiler, "nvrtc", lambda: CountingToolchain().toolchain)
    assert main([str(tmp_path), "sm_80", "sm_90"]) == 0
    assert len(list(tmp_path.iterdir())) == 2 * len(SOURCES) - 1
    printed = capsys.readouterr().out
    assert "preprocess sm_90: " in printed
    assert "gemm_wgmma sm_90a: " in printed
    assert main([]) == 2


def test_missing_packages_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cuda.bindings", None)
    with pytest.raises(ModelLoadFailed, match=r"install inferlane\[kernels\]"):
        nvrtc()


def test_headers_compile_alone(tmp_path: Path) -> None:
    """A header that needs another one says so itself."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    for header in {*SOURCE_FOLDER.glob("*.cuh")} - {SOURCE_FOLDER / "block.cuh"}:  # that one needs a GPU's barriers
        source = tmp_path / f"{header.stem}.cpp"
        source.write_text(f'#include "{header.name}"\n')
        subprocess.run(["g++", "-std=c++17", "-fsyntax-only", "-Wall", f"-I{SOURCE_FOLDER}", str(source)], check=True)


def test_ptx_keeps_the_entries_and_runs_on_every_architecture(installed: Toolchain) -> None:
    text = compile_ptx("layernorm").decode()
    assert text.rstrip().endswith("}"), "no terminator of a C string is part of it"
    for entry in SOURCES["layernorm"]:
        assert f".visible .entry {entry}(" in text
    assert f".target {PTX_ARCHITECTURE.replace('compute', 'sm')}" in text


def test_ptx_of_a_source_that_does_not_compile(
    installed: Toolchain, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "broken.cu").write_text('extern "C" __global__ void k(int *p) { *p = undefined_name; }')
    monkeypatch.setattr(compiler, "SOURCE_FOLDER", tmp_path)
    with pytest.raises(ModelLoadFailed, match=r"(?s)'broken' does not compile to PTX.*undefined_name"):
        compile_ptx("broken")


@pytest.mark.parametrize(
    ("call", "answer"), [("nvrtcCreateProgram", (7, None)), ("nvrtcGetPTXSize", (7, 0)), ("nvrtcGetPTX", (7,))]
)
def test_a_call_that_nvrtc_refuses_is_named(
    installed: Toolchain, monkeypatch: pytest.MonkeyPatch, call: str, answer: tuple[object, ...]
) -> None:
    from cuda.bindings import nvrtc as binding

    monkeypatch.setattr(binding, call, lambda *_: answer)
    with pytest.raises(ModelLoadFailed, match=f"{call} gave 7; reinstall"):
        compile_ptx("layernorm")
