"""Which plans a build command means, and which of them are there already."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engines.request import BuildOptions, BuildRequest
from service.cards import CARD_FILE, ModelCard
from service.errors import ModelLoadFailed, ModelNotFound
from service.repository.layout import ONNX_FILE, PLAN_SUFFIX, ModelFolder, VersionFolder, find, scan
from service.runtime.cuda.device import Cuda
from service.runtime.trt.flavour import Flavour
from service.runtime.trt.manifest import Machine, read_manifest
from service.runtime.trt.plan import check_plan, read_plan


@dataclass(frozen=True, slots=True)
class Target:
    """A model's folder, and the version that is meant.

    Attributes:
        folder: of the model.
        version: a version's number, or "" for the highest.
    """

    folder: ModelFolder
    version: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a plan is to be built.

    Attributes:
        is_needed: whether it is.
        reason: why, or why not.
    """

    is_needed: bool
    reason: str


def find_targets(models: Sequence[str], repository: Path) -> tuple[Target, ...]:
    """The models that a command line names.

    What has a `/` in it, or is `.` or `..`, is the folder of a model or of one of its versions; the rest are names in
    the repository.

    Raises:
        ModelLoadFailed: one is not there.
    """
    return tuple(_by_folder(Path(model)) if _is_path(model) else _by_name(model, repository) for model in models)


def all_targets(repository: Path) -> tuple[Target, ...]:
    """Every model of a repository that has files of its own, by name.

    Raises:
        ModelLoadFailed: the repository cannot be read, or holds no model.
    """
    folders = scan(repository)
    if not folders:
        raise ModelLoadFailed(f"the repository '{repository}' holds no model; give --repository another folder")
    return tuple(Target(folder) for folder in folders.values() if not folder.has_card_alone)


def request_for(name: str, version: VersionFolder, options: BuildOptions) -> BuildRequest:
    """What is asked of the builder: a plan in the place of the one that is there, else `model.plan`."""
    is_numbered = (version.path.parent.name, version.path.name) == (name, version.version)
    return BuildRequest(
        model_folder=version.path.parent if is_numbered else version.path,
        version=version.version,
        plan_path=version.plan or version.path / Path(ONNX_FILE).with_suffix(PLAN_SUFFIX),
        options=options,
    )


def decide(card: ModelCard, version: VersionFolder, card_path: Path, flavour: Flavour, cuda: Cuda) -> Decision:
    """Whether a version's plan is missing or out of date: what the server would refuse or warn of is built again.

    A plan without a manifest is somebody else's and is left alone.

    Raises:
        DeviceError: the GPU cannot be asked.
        OSError: a file cannot be read.
    """
    if version.plan is None:
        return Decision(True, "there is no plan")
    name = version.plan.name
    try:
        manifest = read_manifest(version.plan)
        if manifest is None:
            return Decision(False, f"{name} has no manifest, so it was built by something else; --force replaces it")
        check_plan(read_plan(version.plan), name, flavour, manifest)
        manifest.check_machine(Machine.here(cuda, card.lanes.device), name)
    except ModelLoadFailed as error:
        return Decision(True, error.message)
    if version.onnx is not None and manifest.is_built_from(version.onnx) is False:
        return Decision(True, f"{name} was built from another {ONNX_FILE}")
    if card_path.exists() and card_path.stat().st_mtime_ns > version.plan.stat().st_mtime_ns:
        return Decision(True, f"{CARD_FILE} was changed after {name} was built")
    return Decision(False, f"{name} fits model, card, GPU and TensorRT; --force builds it again")


def _is_path(model: str) -> bool:
    return os.sep in model or model in {".", ".."}


def _by_name(name: str, repository: Path) -> Target:
    try:
        return Target(find(repository, name))
    except ModelNotFound as error:
        raise ModelLoadFailed(
            f"model '{name}' is not in the repository '{repository}', which holds {sorted(scan(repository))}; give "
            "--repository, or the model's folder with a / in it"
        ) from error


def _by_folder(path: Path) -> Target:
    path = Path(os.path.abspath(path))
    is_version = path.name.isdecimal() and (path.parent / CARD_FILE).exists()
    folder, version = (path.parent, path.name) if is_version else (path, "")
    try:
        return Target(find(folder.parent, folder.name), version)
    except ModelNotFound as error:
        raise ModelLoadFailed(
            f"'{path}' is no model: it holds neither {ONNX_FILE} nor version folders; give a model's folder, such as "
            "models/resnet50"
        ) from error
