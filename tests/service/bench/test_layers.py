"""`inferlane bench --layers` on a real model, and its table on layers of every kind."""

from __future__ import annotations

import io
from pathlib import Path

import orjson
import pytest
from jsonschema import validate
from rich.console import Console
from typer.testing import CliRunner

from service import backends
from service.backends import MachinePeaks
from service.bench import layers_report, trtexec
from service.bench.layers import BucketLayers
from service.buckets import Bucket
from service.cli import app
from service.diagnosis.layers import classify
from service.errors import DeviceError, InvalidInput
from service.layers.figures import known_share, layer_profile
from service.runtime.layer_trace import LayerTrace, Operand, Operation, OperationKind, TracedLayer
from service.runtime.onnx.peaks import CpuPeakSizes, measure_cpu_peaks
from service.telemetry.snapshot_probes import Peaks
from tests.doubles import onnx_models
from tests.doubles.running_server import add_model

CARD = "[batching]\nmax_batch_size = 2\n"
TINY = CpuPeakSizes(side=32, copy_bytes=1 << 16, copied_at_once=1 << 14, nodes=4, rounds=2)
PEAKS = Peaks(flops_per_s={"FP16": 1e15}, bytes_per_s=4e12, empty_kernel_s=2e-6)
IMAGES, WEIGHTS = Operand((8, 12, 64, 64), "FP16"), Operand((12, 12, 3, 3), "FP16")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    backends._cpu_peaks.cache_clear()
    monkeypatch.setattr(
        "service.runtime.onnx.peaks.measure_cpu_peaks", lambda threads: measure_cpu_peaks(threads, TINY)
    )
    add_model(tmp_path, "photos", onnx_models.make_cnn, CARD)
    return tmp_path


def run(repository: Path, *arguments: str) -> str:
    result = CliRunner().invoke(
        app, ["bench", "photos", *arguments, "--repository", str(repository)], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    return result.output


def test_every_bucket_as_json(repository: Path) -> None:
    found = orjson.loads(run(repository, "--layers", "--json"))
    assert [each["bucket"] for each in found] == ["2", "1"]
    for each in found:
        assert each["runs"] == 20
        assert each["known_share"] == 1.0
        assert each["peaks"]["flops_per_s"]["FP32"] > 0
        assert sum(layer["time_s"] for layer in each["layers"]) == pytest.approx(each["span_s"])
        assert "Conv" in [layer["kind"] for layer in each["layers"]]


def test_a_table_and_trtexec_s_file(repository: Path, tmp_path: Path) -> None:
    shown = run(repository, "--bucket", "2", "--export-profile", str(tmp_path / "profile.json"))
    assert "photos: layers of bucket 2" in shown
    assert "FLOPs and bytes are known of 100.0% of the time" in shown
    count, *layers = orjson.loads((tmp_path / "profile.json").read_bytes())
    assert count == {"count": 20}
    assert sum(layer["percentage"] for layer in layers) == pytest.approx(100)
    assert all(0 < layer["medianMs"] <= layer["timeMs"] for layer in layers)
    assert trtexec.is_profile([count, *layers])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--export-profile", "p.json"), "layers of one bucket; name it with one --bucket"),
        (("--layers", "--bucket", "9"), "has no bucket 9"),
        (("--layers", "--lanes", "2", "--registered"), "--lanes, --registered cannot be given with --layers"),
        (("--export-profile", "p.json", "--save", "f.json"), "--save cannot be given with --layers"),
        (("--layers", "--dim", "s=1:2"), "--layers cannot be given with --dim"),
    ],
)
def test_what_cannot_be_timed(repository: Path, arguments: tuple[str, ...], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        run(repository, *arguments)


def test_without_peaks_times_are_shown_all_the_same(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(threads: int) -> Peaks:
        raise DeviceError("no memory is left")

    monkeypatch.setattr("service.runtime.onnx.peaks.measure_cpu_peaks", fail)
    shown = run(repository, "--layers", "--bucket", "1")
    assert "nothing is classified: no memory is left" in shown
    assert orjson.loads(run(repository, "--layers", "--bucket", "1", "--json"))[0]["peaks"] is None


def traced(kind: OperationKind, seconds: float, **rest: object) -> TracedLayer:
    keys = {"name": f"/{kind.name}[0]\a", "word": kind.name, "inputs": (IMAGES,), "outputs": (IMAGES,), "dtype": "FP16"}
    return TracedLayer(Operation(kind=kind, **{**keys, **rest}), (seconds,))  # type: ignore[arg-type]


def bucket_layers(*layers: TracedLayer, peaks: Peaks | None = PEAKS) -> BucketLayers:
    trace = LayerTrace(span_s=sum(layer.time_s for layer in layers) / 1.5, layers=layers, runs=1, is_replayed=True)
    profile = layer_profile(Bucket(8), trace)
    machine = None if peaks is None else MachinePeaks("Fake GPU", peaks)
    return BucketLayers(
        trace=trace, table=classify(profile, peaks), known_share=known_share(profile), peaks=machine, problem=""
    )


def shown(found: BucketLayers) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(layers_report.layers_table(found, "m"))
    for line in layers_report.notes(found):
        console.print(line, soft_wrap=True, markup=False)
    return console.export_text()


def test_what_is_remarkable_is_said() -> None:
    convolution = traced(
        OperationKind.CONVOLUTION, 60e-6, weights=(WEIGHTS,), tactic="sm80_simt", origin=("/a", "/b", "/c")
    )
    text = shown(bucket_layers(convolution, traced(OperationKind.REFORMAT, 30e-6)))
    assert "/a + /b + ..." in text
    assert "/REFORMAT[0]�" in text
    assert "1.5" not in text.splitlines()[0]
    assert "by the graph's replay, its 2 layers add up to 90.0 µs and are scaled by 0.667" in text
    assert "layers that only change type or layout take 33.3%" in text
    assert "products that leave the tensor cores idle take 66.7%: /CONVOLUTION[0]" in text
    assert "products whose channels tensor cores have to pad take 66.7%" in text
    assert "peaks measured on Fake GPU: FP16 1e+03 TFLOP/s, 4,000 GB/s" in text


def test_many_small_layers_are_one_row() -> None:
    small = [traced(OperationKind.POINTWISE, 1e-9) for _ in range(30)]
    text = shown(bucket_layers(traced(OperationKind.POINTWISE, 1e-3), *small))
    assert "30 more" in text
    assert "take less than 5 µs each" not in text
    text = shown(bucket_layers(*[traced(OperationKind.POINTWISE, 1e-6) for _ in range(30)]))
    assert "30 layers take less than 5 µs each and 100.0% together" in text


def test_the_json_is_that_of_the_diagnosis() -> None:
    schema = orjson.loads((Path(__file__).parents[3] / "docs/diagnose.schema.json").read_bytes())
    document = layers_report.to_dict(bucket_layers(traced(OperationKind.UNKNOWN, 1e-6), peaks=None))
    own = {"known_share", "runs", "replayed", "overlapping", "machine", "peaks"}
    of_diagnosis = {key: value for key, value in document.items() if key not in own}
    validate(of_diagnosis, {**schema["properties"]["layers"]["items"], "$defs": schema.get("$defs", {})})
