"""The bench on the emulated device, with sizes that it can carry: every case runs, and the figures add up."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from kernels import bench, bench_cases, rivals
from kernels.bench import main, measure
from kernels.bench_cases import Case, Peaks, cropped, letterboxed, touched_bytes
from kernels.peaks import Gemm
from kernels.preprocess import Placement, SourceImage
from kernels.session import DeviceSession
from service.cards import BoxLayout, Resize
from tests.doubles.emulated_device import emulated_session

SMALL = {
    "peaks": (partial(bench_cases.copy, nbytes=1 << 14), partial(bench_cases.gemm, side=32, how=Gemm.NAIVE)),
    "preprocess": (
        partial(bench_cases.preprocess, name="small", sizes=((20, 30),) * 2, side=16, place=letterboxed),
        partial(bench_cases.preprocess_nv12, size=2, height=20, width=30, side=16),
        partial(bench_cases.preprocess, name="mixed", sizes=((20, 30), (9, 8)), side=16, place=cropped),
    ),
    "classify": (partial(bench_cases.classify, size=2, classes=10),),
    "embed": (partial(bench_cases.embed, size=2, tokens=3, width=8),),
    "pad": (partial(bench_cases.pad, size=3, width=5),),
    "detect": (
        partial(bench_cases.detect, layout=BoxLayout.YOLOV8, size=1, anchors=50),
        partial(bench_cases.detect, layout=BoxLayout.YOLOV5, size=1, anchors=50),
    ),
    "layernorm": (partial(bench_cases.layernorm, rows=2, width=16),),
}


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bench, "CASES", SMALL)
    monkeypatch.setattr(bench, "ROUND_US", 2.0)
    with emulated_session(tmp_path) as session:
        yield session


def test_every_kernel_is_measured(session: DeviceSession) -> None:
    found = [*measure(session, [])]
    assert len(found) == sum(map(len, SMALL.values()))
    assert all(measurement.time_us > 0 and measurement.gigabytes_per_s > 0 for measurement in found)
    assert found[0].roofline_share == found[1].roofline_share == 1
    assert found[0].gigabytes_per_s == pytest.approx((2 << 14) / found[0].time_us / 1e3)
    assert found[1].teraflops == pytest.approx(2 * 32**3 / found[1].time_us / 1e6)
    assert {"OpenCV x1", "OpenCV x8"} <= {*found[2].rivals_us}
    assert found[4].rivals_us == {}, "mixed sizes have no rival"


def test_one_kernel_alone_still_has_its_roofline(session: DeviceSession) -> None:
    names = [measurement.name.split()[0] for measurement in measure(session, ["pad"])]
    assert names == ["copy", "gemm", "pad"]


def test_command_line(session: DeviceSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(bench, "nvrtc", lambda: None)
    monkeypatch.setattr(bench, "driver_api", lambda: None)
    monkeypatch.setattr(bench.Cuda, "load", lambda: session.cuda)
    monkeypatch.setattr(bench.DeviceSession, "open", lambda *_, **__: session)
    assert main(["--json", str(tmp_path / "found.json"), "--only", "classify"]) == 0
    report = json.loads((tmp_path / "found.json").read_text())
    assert [line["name"].split()[0] for line in report] == ["copy", "gemm", "classify"]
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "Fake GPU"
    assert "TFLOP/s" in printed[2]
    assert "GB/s" in printed[3]


def test_touched_bytes_of_a_threefold_reduction() -> None:
    """Every third row and pixel has all the weight; a row's sectors are all touched."""
    image = SourceImage(0, 1080, 1920, 5760)
    assert touched_bytes(image, letterboxed(1080, 1920, 640), (640, 640)) == 360 * 5760


def test_touched_bytes_of_what_the_canvas_shows() -> None:
    image = SourceImage(0, 40, 640, 1920)
    assert touched_bytes(image, Placement(-10, 0, 40, 640), (10, 640)) == 10 * 1920
    assert touched_bytes(image, Placement(0, 0, 20, 320), (40, 640)) == 40 * 1920, "pairs of rows and pixels"


def test_placements() -> None:
    assert letterboxed(1080, 1920, 640) == Placement(140, 0, 360, 640)
    assert cropped(1080, 1920, 224) == Placement(-16, -116, 256, 455)


def test_share_of_the_best_peak() -> None:
    peaks = Peaks()
    peaks.note(Case("copy", [], 1000), 2.0)
    peaks.note(Case("gemm a", [], 1, flops=800), 2.0)
    peaks.note(Case("gemm b", [], 1, flops=100), 2.0)
    assert peaks.share(Case("pad", [], 100), 1.0) == pytest.approx(0.2)
    assert peaks.share(Case("gemm b", [], 1, flops=100), 1.0) == pytest.approx(0.25)


def test_opencv_rival_is_the_cpu_path() -> None:
    times = rivals.opencv_us(Resize.LETTERBOX, (2, 30, 40, 16))
    assert set(times) == {"OpenCV x1", "OpenCV x8"}
    assert all(us > 0 for us in times.values())


def test_a_rival_that_cannot_run_is_left_out(monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    def fail(torch: object, *sizes: int) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(rivals, "_torch", object)
    monkeypatch.setattr(rivals, "TORCH", {"classify": fail})
    assert rivals.rivals_of(Case("classify", [], 1, rival=("classify", (1, 2)))) == {}
    assert "out of memory" in caplog.text


def test_cases_have_their_rivals() -> None:
    kinds = {"copy", "gemm", "classify", "embed", "layernorm", "detect", "preprocess-letterboxed"}
    assert set(rivals.TORCH) == kinds
    assert np.isfinite(bench_cases.IMAGENET.factor).all()
