"""`inferlane inspect` on a machine as it is: the exit status, both forms, and files that are no plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from service import cli
from service.errors import ModelLoadFailed
from tests.doubles.onnx_models import make_identity
from tests.service.plan_report.test_examine import write_plan


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def test_a_plan_for_people(tmp_path: Path) -> None:
    path = write_plan(tmp_path, manifest={"precision": "fp16"})
    result = CliRunner().invoke(cli.app, ["inspect", str(path), "--layers"], env={"COLUMNS": "200"})
    assert "TensorRT 10.13.3.9" in result.output
    assert "fp16" in result.output
    assert "only an engine that was loaded lists them" in result.output


def test_a_plan_for_scripts(tmp_path: Path) -> None:
    path = write_plan(tmp_path, manifest={"plan": {"bytes": 10**6, "sha256": ""}})
    result = CliRunner().invoke(cli.app, ["inspect", str(path), "--json"])
    assert result.exit_code == 1
    content = json.loads(result.stdout)
    assert content["version"] == "10.13.3.9"
    assert content["is_runnable"] is False
    assert "is cut off" in content["checks"][0]["words"]


def test_an_onnx_model_is_an_expected_error(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    make_identity(path)
    result = CliRunner().invoke(cli.app, ["inspect", str(path)])
    assert isinstance(result.exception, ModelLoadFailed)
    assert "looks like an ONNX model" in result.exception.message


def test_no_file_is_an_expected_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli.app, ["inspect", str(tmp_path / "absent.plan")])
    assert isinstance(result.exception, ModelLoadFailed)
    assert "No such file" in result.exception.message
