from __future__ import annotations

from pathlib import Path

import typer
from typer.testing import CliRunner

from loadtest import peers

app = typer.Typer()
app.command()(peers.main)


def test_every_model_gets_a_repository_of_its_own(tmp_path: Path) -> None:
    models, target = tmp_path / "models", tmp_path / "target"
    models.mkdir()
    for name in ("cnn", "identity"):
        (models / f"{name}.onnx").write_bytes(name.encode())
    (models / "samples.npz").write_bytes(b"not a model")
    result = CliRunner().invoke(app, [str(models), str(target), "--max-batch-size", "7"])
    assert result.exit_code == 0, result.output
    assert result.output.splitlines() == [str(target / "cnn"), str(target / "identity")]
    card = (target / "cnn" / "cnn" / "model.toml").read_text()
    for line in ("max_batch_size = 7", "count = 1", "threads_per_lane = 1"):
        assert line in card
    assert (target / "identity" / "identity" / "1" / "model.onnx").read_bytes() == b"identity"
    again = CliRunner().invoke(app, [str(models), str(target)])
    assert again.exit_code == 2
    assert "is there already" in " ".join(again.output.split())


def test_a_folder_without_models_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, [str(tmp_path), str(tmp_path / "target")])
    assert result.exit_code == 2
    assert "holds no .onnx file" in " ".join(result.output.split())
