"""A plan and its manifest on the disk: hidden until both are complete and accepted, then renamed, or never seen.

    .model.plan.4711.tmp          the plan; locked by the builder that writes it, for as long as that lives
    .model.plan.4711.tmp.json     its manifest

The kernel drops the lock with its process, however that ends: a hidden file that can be locked belongs to nobody any
more, on this machine or on another that shares the folder, and the next build removes it. One that cannot is a build
under way, and a second one of the same plan is refused.

A plan and its manifest cannot be renamed in one step. The manifest goes first: alone it is harmless, while a plan with
the manifest of another is refused, and so an older plan is taken away before.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO

from service.errors import ModelLoadFailed
from service.runtime.trt.manifest import manifest_path

SUFFIX = ".tmp"


class HiddenPlan:
    """The temporary files of one build; entered, they exist and are locked, left, they are gone.

    Attributes:
        path: of the temporary plan, so that `manifest_path` gives that of its manifest.
    """

    def __init__(self, plan_path: Path) -> None:
        self._target = plan_path
        self._file: IO[bytes] | None = None
        self.path = _hidden_path(plan_path)

    def __enter__(self) -> HiddenPlan:
        """Makes and locks the file, then removes what dead builders left.

        In this order, so that of two builds that begin at once one at least sees the other.

        Raises:
            ModelLoadFailed: the folder cannot be written, or the plan is being built already, or it can never get its
                name.
        """
        for path in (self._target, manifest_path(self._target)):
            if path.is_dir():
                raise ModelLoadFailed(f"'{path}' is a folder, where a file is to be; move it away")
        try:
            self._file = _locked(self.path)
            living = remove_leftovers(self._target) - {self.path}
        except BlockingIOError:
            living = {self.path}
        except OSError as error:
            self.discard()
            raise ModelLoadFailed(_cannot_write(self._target, error)) from error
        if living:
            self.discard()
            raise ModelLoadFailed(f"'{self._target}' is being built already; wait until that has ended, or end it")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.discard()

    def write(self, plan: bytes) -> None:
        """Writes the plan and waits for the disk.

        Raises:
            ModelLoadFailed: the disk is full, or fails.
        """
        assert self._file is not None, "the plan is written inside `with`"
        try:
            self._file.write(plan)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise ModelLoadFailed(_cannot_write(self._target, error)) from error

    def write_manifest(self, text: str) -> None:
        """Writes the manifest, or writes it anew.

        Raises:
            ModelLoadFailed: the disk is full, or fails.
        """
        try:
            with manifest_path(self.path).open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise ModelLoadFailed(_cannot_write(self._target, error)) from error

    def publish(self) -> None:
        """Gives both files their names.

        Raises:
            ModelLoadFailed: a file cannot be renamed.
        """
        try:
            self._target.unlink(missing_ok=True)
            manifest_path(self.path).replace(manifest_path(self._target))
            self.path.replace(self._target)
            _sync_folder(self._target.parent)
        except OSError as error:
            raise ModelLoadFailed(_cannot_write(self._target, error)) from error

    def discard(self) -> None:
        """Removes what has not got its name, and unlocks; idempotent."""
        if self._file is not None:
            _remove(self.path)
            with suppress(OSError):  # it tries again to write what a full disk did not take
                self._file.close()
            self._file = None


def remove_leftovers(plan_path: Path) -> set[Path]:
    """Removes what dead builders left of a plan; gives the hidden plans of those that live."""
    living = set()
    for path in plan_path.parent.glob(f".{plan_path.name}.*{SUFFIX}"):
        try:
            _locked(path).close()
            _remove(path)
        except BlockingIOError:
            living.add(path)
        except OSError:
            continue  # another's to remove: it hinders no build
    return living


def discard_own(plan_path: Path) -> None:
    """Removes what a build of this process has of a plan, for whoever ends the process in the midst of it."""
    _remove(_hidden_path(plan_path))


def _remove(hidden_path: Path) -> None:
    """Both files of a hidden plan; what cannot be removed is left for the next build."""
    for path in (manifest_path(hidden_path), hidden_path):
        with suppress(OSError):
            path.unlink()


def _hidden_path(plan_path: Path) -> Path:
    return plan_path.with_name(f".{plan_path.name}.{os.getpid()}{SUFFIX}")


def _locked(path: Path) -> IO[bytes]:
    """The file, made if need be, emptied once it is ours.

    Raises:
        OSError: it cannot be written, or another builder holds it.
    """
    while True:
        file = path.open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file.fileno()).st_nlink:
                file.truncate(0)
                return file
        except BaseException:
            file.close()
            raise
        file.close()  # another build took it for a leftover before it was locked


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _cannot_write(target: Path, error: OSError) -> str:
    return (
        f"'{target}' cannot be written: {error.strerror or error}; the model's folder must be writable and have room "
        "for the plan"
    )
