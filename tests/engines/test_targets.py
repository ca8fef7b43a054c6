"""Which models a command line means, and which plans fit."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from engines.request import BuildOptions
from engines.targets import all_targets, decide, find_targets, request_for
from service.cards import CARD_FILE, LanesCard, ModelCard
from service.errors import ModelLoadFailed, ModelNotFound
from service.repository.layout import find
from service.runtime.cuda.device import Cuda
from service.runtime.trt.flavour import describe
from service.runtime.trt.manifest import manifest_path
from tests.doubles.fake_cuda import FakeCuda
from tests.doubles.fake_tensorrt import fake_tensorrt
from tests.doubles.fake_tensorrt_model import plan_of
from tests.doubles.fake_tensorrt_world import VERSIONS
from tests.doubles.trt_models import DOUBLE

ONNX = b"the model"
PLAN = plan_of(DOUBLE, VERSIONS["10"])


def touch_onnx(path: Path) -> Path:
    path.write_bytes(ONNX)
    return path


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """`bert`, of versions 2 and 10, and `flat`, whose version folder is left out."""
    for folder in ("bert/2", "bert/10", "flat"):
        (tmp_path / folder).mkdir(parents=True)
        touch_onnx(tmp_path / folder / "model.onnx")
    (tmp_path / "bert" / CARD_FILE).write_text("")
    return tmp_path


@pytest.mark.parametrize(
    ("model", "place"),
    [
        ("bert", "bert/10"),
        ("flat", "flat"),
        ("{repository}/bert", "bert/10"),
        ("{repository}/bert/", "bert/10"),
        ("{repository}/bert/2", "bert/2"),
        ("{repository}/bert/../flat", "flat"),
        ("./flat", "flat"),
    ],
)
def test_models_are_found_by_name_and_by_folder(
    repository: Path, monkeypatch: pytest.MonkeyPatch, model: str, place: str
) -> None:
    monkeypatch.chdir(repository)
    (target,) = find_targets([model.format(repository=repository)], repository)
    version = target.folder.version(target.version)
    request = request_for(target.folder.name, version, BuildOptions())
    assert version.path == repository / place
    assert request.model_folder == repository / Path(place).parts[0]
    assert request.plan_path == repository / place / "model.plan"
    assert find(request.model_folder.parent, request.model_folder.name).version(request.version) == version


def test_a_plan_of_another_name_keeps_its_place(repository: Path) -> None:
    (repository / "flat" / "flat_fp16.plan").write_bytes(PLAN)
    version = find(repository, "flat").version()
    assert request_for("flat", version, BuildOptions()).plan_path == repository / "flat" / "flat_fp16.plan"


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("best", r"model 'best' is not in the repository '.*', which holds \['bert', 'flat'\]; give --repository"),
        ("./best", "'.*best' is no model: it holds neither model.onnx nor version folders"),
    ],
)
def test_a_model_that_is_not_there(repository: Path, monkeypatch: pytest.MonkeyPatch, model: str, said: str) -> None:
    monkeypatch.chdir(repository)
    with pytest.raises(ModelLoadFailed, match=said):
        find_targets([model], repository)


def test_a_version_that_is_not_there(repository: Path) -> None:
    (target,) = find_targets([f"{repository}/bert/7"], repository)
    with pytest.raises(ModelNotFound, match="version '7' is not in the repository, it has 2, 10"):
        target.folder.version(target.version)


def test_all_models_of_a_repository(repository: Path, tmp_path: Path) -> None:
    (repository / "composed").mkdir()
    (repository / "composed" / CARD_FILE).write_text('task = "ocr"\n')
    assert [target.folder.name for target in all_targets(repository)] == ["bert", "flat"]
    (tmp_path / "bert" / ".empty").mkdir()
    with pytest.raises(ModelLoadFailed, match="holds no model; give --repository another folder"):
        all_targets(tmp_path / "bert" / ".empty")


def built(repository: Path, **changes: object) -> Path:
    """A plan of `flat` with its manifest, which `changes` has keys of."""
    plan = repository / "flat" / "model.plan"
    plan.write_bytes(PLAN)
    content = {
        "format": 1,
        "plan": {"bytes": len(PLAN), "sha256": hashlib.sha256(PLAN).hexdigest()},
        "built_on": {"gpu": "Fake GPU", "compute_capability": "9.0", "cuda": "13.0"},
        "onnx": {"bytes": len(ONNX), "sha256": hashlib.sha256(ONNX).hexdigest()},
        **changes,
    }
    manifest_path(plan).write_text(json.dumps(content))
    return plan


def change_model(folder: Path) -> None:
    (folder / "model.onnx").write_bytes(ONNX[::-1])


def change_card(folder: Path) -> None:
    (folder / CARD_FILE).touch()
    later = (folder / "model.plan").stat().st_mtime_ns + 1
    os.utime(folder / CARD_FILE, ns=(later, later))


def keep_card(folder: Path) -> None:
    (folder / CARD_FILE).touch()
    os.utime(folder / CARD_FILE, ns=(1, 1))


def cut_off(folder: Path) -> None:
    (folder / "model.plan").write_bytes(PLAN[:-1])


def lose_manifest(folder: Path) -> None:
    (folder / "model.plan.json").unlink()


def lose_plan(folder: Path) -> None:
    (folder / "model.plan").unlink()


@pytest.mark.parametrize(
    ("happens", "generation", "is_needed", "reason"),
    [
        (keep_card, "10", False, "model.plan fits model, card, GPU and TensorRT; --force builds it again"),
        (lose_plan, "10", True, "there is no plan"),
        (change_model, "10", True, "model.plan was built from another model.onnx"),
        (change_card, "10", True, "model.toml was changed after model.plan was built"),
        (cut_off, "10", True, "model.plan is cut off"),
        (keep_card, "11", True, "model.plan was built by TensorRT 10.13.3.9, this server runs tensorrt 11.4.0.106"),
        (lose_manifest, "10", False, "model.plan has no manifest, so it was built by something else; --force"),
    ],
)
def test_what_is_missing_or_out_of_date_is_built(
    repository: Path, happens: Callable[[Path], None], generation: str, is_needed: bool, reason: str
) -> None:
    built(repository)
    happens(repository / "flat")
    decision = decided(repository, generation)
    assert decision == (is_needed, decision[1])
    assert decision[1].startswith(reason)


def test_a_plan_for_another_gpu_is_built_again(repository: Path) -> None:
    built(repository, built_on={"gpu": "Old GPU", "compute_capability": "8.0", "cuda": "13.0"})
    is_needed, reason = decided(repository, "10")
    assert is_needed
    assert "was built for compute capability 8.0 (Old GPU)" in reason


def decided(repository: Path, generation: str) -> tuple[bool, str]:
    api = FakeCuda()
    card = ModelCard(name="flat", lanes=LanesCard(device=0))
    flavour = describe("tensorrt", fake_tensorrt(api, generation))
    folder = find(repository, "flat")
    decision = decide(card, folder.version(), folder.path / CARD_FILE, flavour, Cuda(api))
    return decision.is_needed, decision.reason
