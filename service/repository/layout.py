"""What lies in a repository folder, without opening a model: models, their versions, and what is wrong with each.

    REPOSITORY/<model>/[model.toml]
    REPOSITORY/<model>/<version>/{model.onnx, *.plan}     version: digits, no leading zero; the highest is the default
    REPOSITORY/<model>/{model.onnx, *.plan}               one version, called "1"
    REPOSITORY/<model>/model.toml                         alone: a model composed of others, if its card says so

A version holds `model.onnx`, one plan, or both (one model for two backends). A folder counts as a model if it holds a
card, a folder named in digits, or any `*.onnx` or `*.plan`; others (documents, scripts) and everything hidden are
passed over. What looks like a model but cannot be served keeps its place, with the problem said, so that one
bad folder hides neither itself nor its neighbours. Links are followed: what lies in the repository is its owner's.
Names from clients are only ever compared with the names found, never joined to a path.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from service.cards import CARD_FILE
from service.errors import ModelLoadFailed, ModelNotFound
from service.repository.card_schema import name_problem

ONNX_FILE = "model.onnx"
PLAN_SUFFIX = ".plan"
IMPLICIT_VERSION = "1"

_DIGITS = re.compile(r"[0-9]+")


@dataclass(frozen=True, slots=True)
class VersionFolder:
    """One version of a model.

    Attributes:
        version: its number, as text.
        path: the folder that holds its files; the model's own where the version folder is left out.
        onnx: `model.onnx`, or None.
        plan: the one plan, or None; `onnx` and `plan` are never both None.
    """

    version: str
    path: Path
    onnx: Path | None
    plan: Path | None


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """One model of the repository.

    Attributes:
        name: the folder's name.
        path: the folder.
        versions: ascending by number; empty where there is a problem.
        problem: why the model cannot be loaded and how to mend it, or None.
        has_card_alone: whether there is a card and nothing else of a model, which is a problem unless the card names
            the models that this one is composed of.
    """

    name: str
    path: Path
    versions: tuple[VersionFolder, ...]
    problem: str | None = None
    has_card_alone: bool = False

    def version(self, wanted: str = "") -> VersionFolder:
        """The version `wanted`, or the highest if that is empty.

        Raises:
            ModelLoadFailed: the folder has a problem.
            ModelNotFound: no such version.
        """
        if self.problem is not None:
            raise ModelLoadFailed(f"model '{self.name}' cannot be loaded: {self.problem}")
        if not wanted:
            return self.versions[-1]
        for version in self.versions:
            if version.version == wanted:
                return version
        raise ModelNotFound(
            f"model '{self.name}' version {wanted!r} is not in the repository, "
            f"it has {', '.join(version.version for version in self.versions)}"
        )


class _BadLayout(Exception):
    """A model folder's problem, on its way to `ModelFolder.problem`."""


def scan(repository: Path) -> Mapping[str, ModelFolder]:
    """The models of the repository by name, in the order of their names. Reads the disk: not for the event loop.

    Raises:
        ModelLoadFailed: the repository itself cannot be read.
    """
    folders = [_model_folder(path) for path in _subfolders(repository) if _looks_like_a_model(path)]
    return MappingProxyType({folder.name: folder for folder in folders})


def find(repository: Path, name: str) -> ModelFolder:
    """The model called `name`, which may come from a client: it is compared with what `scan` would list.

    Raises:
        ModelNotFound: no such model.
        ModelLoadFailed: the repository itself cannot be read.
    """
    for path in _subfolders(repository):
        if path.name == name and _looks_like_a_model(path):
            return _model_folder(path)
    raise ModelNotFound(f"model {name!r} is not in the repository; POST /v2/repository/index lists what is")


def _subfolders(repository: Path) -> list[Path]:
    try:
        return sorted(path for path in repository.iterdir() if not path.name.startswith(".") and path.is_dir())
    except OSError as error:
        raise ModelLoadFailed(
            f"the repository '{repository}' cannot be read: {error.strerror}; it must be a folder of models "
            f"(`inferlane demo {repository}` makes one)"
        ) from error


def _looks_like_a_model(path: Path) -> bool:
    try:
        return any(
            entry.name == CARD_FILE
            or entry.suffix in {".onnx", PLAN_SUFFIX}
            or (_DIGITS.fullmatch(entry.name) is not None and entry.is_dir())
            for entry in path.iterdir()
            if not entry.name.startswith(".")
        )
    except OSError:
        return True  # unreadable: listed, so that its problem is seen


def _model_folder(path: Path) -> ModelFolder:
    try:
        if problem := name_problem(path.name):
            raise _BadLayout(f"its name {problem}; rename the folder")
        return ModelFolder(path.name, path, _versions(path))
    except _BadLayout as error:
        return ModelFolder(path.name, path, (), str(error), has_card_alone=_has_card_alone(path))
    except OSError as error:
        return ModelFolder(path.name, path, (), f"'{path}' cannot be read: {error.strerror}")


def _has_card_alone(path: Path) -> bool:
    try:
        names = {entry.name for entry in path.iterdir()}
    except OSError:
        return False
    others = (name for name in names if _DIGITS.fullmatch(name) or name.endswith((".onnx", PLAN_SUFFIX)))
    return CARD_FILE in names and name_problem(path.name) is None and not any(others)


def _versions(path: Path) -> tuple[VersionFolder, ...]:
    numbered = [entry for entry in path.iterdir() if _DIGITS.fullmatch(entry.name) and entry.is_dir()]
    implicit = _version_folder(IMPLICIT_VERSION, path)
    if implicit is not None and numbered:
        raise _BadLayout(
            f"'{path}' holds both {_model_files(path)} and version folders {sorted(entry.name for entry in numbered)}; "
            "move the model into a version folder"
        )
    if implicit is not None:
        return (implicit,)
    if not numbered:
        raise _BadLayout(_nothing_in(path))
    versions = [_numbered(entry) for entry in numbered]
    return tuple(sorted(versions, key=lambda version: int(version.version)))


def _numbered(path: Path) -> VersionFolder:
    if path.name != "0" and path.name.startswith("0"):
        raise _BadLayout(f"version folder '{path.name}' has a leading zero; call it '{path.name.lstrip('0') or '0'}'")
    version = _version_folder(path.name, path)
    if version is None:
        # Passing over it would serve an older version than its owner believes.
        raise _BadLayout(_nothing_in(path))
    return version


def _version_folder(version: str, path: Path) -> VersionFolder | None:
    files = _model_files(path)
    plans = [name for name in files if name.endswith(PLAN_SUFFIX)]
    if len(plans) > 1:
        raise _BadLayout(f"'{path}' holds {len(plans)} plans, {plans}; leave one per version")
    if ONNX_FILE not in files and not plans:
        return None
    return VersionFolder(
        version,
        path,
        onnx=path / ONNX_FILE if ONNX_FILE in files else None,
        plan=path / plans[0] if plans else None,
    )


def _model_files(path: Path) -> list[str]:
    return sorted(
        entry.name
        for entry in path.iterdir()
        if (entry.name == ONNX_FILE or (entry.suffix == PLAN_SUFFIX and not entry.name.startswith(".")))
        and entry.is_file()
    )


def _nothing_in(path: Path) -> str:
    """Words for a folder without a model, which name what may have been meant."""
    found = sorted(entry.name for entry in path.iterdir() if not entry.name.startswith("."))
    words = f"'{path}' holds neither {ONNX_FILE} nor a *{PLAN_SUFFIX} file, only {found[:10]}"
    others = [name for name in found if name.endswith(".onnx")]
    return f"{words}; rename '{others[0]}' to {ONNX_FILE}" if others else f"{words}; put the model there"
