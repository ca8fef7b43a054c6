from __future__ import annotations

import shlex
import sys
from pathlib import Path

import numpy as np
import orjson
import pytest
import typer
from typer.testing import CliRunner

from loadtest import speed
from loadtest.connection import Answer
from loadtest.metadata import ModelMetadata, TensorMetadata
from loadtest.speed import BATCHING_BAR, LARGE_BAR, SMALL_BAR, Bar, Rounds, echo_fault, judge, row_bytes, take_turns
from loadtest.speed_models import CNN_SIDE, add_model, cnn_model, identity_model

app = typer.Typer()
app.command()(speed.main)


@pytest.mark.parametrize(
    ("bar", "subject", "reference", "result", "is_met"),
    [
        (SMALL_BAR, [0.5, 9.0, 0.4], [0.25, 0.25, 0.3], 0.25, True),
        (SMALL_BAR, [0.75], [0.25], 0.5, False),
        (LARGE_BAR, [1.25], [1.0], 1.25, True),
        (LARGE_BAR, [1.5], [1.0], 1.5, False),
        (BATCHING_BAR, [200.0], [100.0], 2.0, True),
        (BATCHING_BAR, [150.0], [100.0], 1.5, False),
    ],
)
def test_bars(bar: Bar, subject: list[float], reference: list[float], result: float, is_met: bool) -> None:
    judged = judge(bar, subject, reference)
    assert (judged.result, judged.is_met) == (result, is_met)


def test_an_echo_must_bring_the_tensor_back() -> None:
    image = ModelMetadata("m", (TensorMetadata("x", "FP32", (-1, 3, 2)), TensorMetadata("z", "UINT8", (-1, 5))), ())
    assert row_bytes(image) == 29
    full, empty = (Answer(200, None, 0, 0, 0, body=bytes(count)) for count in (30, 0))
    assert echo_fault(29, full) is None
    assert "0 bytes" in (echo_fault(29, empty) or "")


def test_sides_take_turns() -> None:
    calls: list[str] = []

    def side(name: str, value: float) -> float:
        calls.append(name)
        return value

    result = take_turns(BATCHING_BAR, Rounds(3, 1.0, 0.0), lambda: side("ours", 3.0), lambda: side("other", 1.0))
    assert calls == ["ours", "other"] * 3
    assert (result.subject, result.reference) == ((3.0,) * 3, (1.0,) * 3)


def test_the_identity_gives_its_input_back() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(identity_model((5,)).SerializeToString(), providers=["CPUExecutionProvider"])
    rows = np.arange(15, dtype=np.float32).reshape(3, 5)
    assert np.array_equal(session.run(None, {"x": rows})[0], rows)


def test_rows_of_the_cnn_do_not_depend_on_their_batch() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(cnn_model().SerializeToString(), providers=["CPUExecutionProvider"])
    rows = np.random.default_rng(0).integers(0, 256, (4, 3, CNN_SIDE, CNN_SIDE), dtype=np.uint8)
    together = session.run(None, {"image": rows})[0]
    alone = np.concatenate([session.run(None, {"image": rows[index : index + 1]})[0] for index in range(4)])
    np.testing.assert_allclose(together, alone, rtol=1e-3, atol=1e-4)
    assert np.abs(together[0] - together[1]).max() > 1e-3


def test_models_are_made_the_same_every_time() -> None:
    assert cnn_model().SerializeToString(deterministic=True) == cnn_model().SerializeToString(deterministic=True)


def test_a_card_says_one_lane_of_one_thread(tmp_path: Path) -> None:
    add_model(tmp_path, "m", identity_model((1,)), 7)
    card = (tmp_path / "m" / "model.toml").read_text()
    for line in ("max_batch_size = 7", "count = 1", "threads_per_lane = 1"):
        assert line in card
    assert (tmp_path / "m" / "1" / "model.onnx").is_file()


STAND_IN = [sys.executable, "-m", "tests.loadtest.stand_in"]


@pytest.mark.e2e
def test_all_bars_on_a_stand_in(tmp_path: Path) -> None:
    path = tmp_path / "speed.json"
    arguments = [
        "--serve",
        shlex.join(STAND_IN),
        "--rounds",
        "1",
        "--seconds",
        "0.1",
        "--warm-up",
        "0",
        "--json",
        str(path),
    ]
    result = CliRunner().invoke(app, arguments)
    document = orjson.loads(path.read_bytes())
    bars = document["bars"]
    assert [bar["limit"] for bar in bars] == [0.3, 1.3, 1.8]
    assert all(bar["subject"][0] > 0 and bar["reference"][0] > 0 for bar in bars)
    assert document["cnn_batch_gain"] > 0
    # The stand-in batches nothing: the third bar can't be met.
    assert (result.exit_code, bars[2]["is_met"]) == (1, False)
    assert "NO" in result.output


def test_a_service_that_does_not_start_exits_with_2() -> None:
    result = CliRunner().invoke(app, ["--serve", shlex.join([sys.executable, "-c", "raise SystemExit('broken')"])])
    assert result.exit_code == 2
    assert "broken" in result.output
