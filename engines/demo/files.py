"""Files that are either whole or absent, whoever else writes them at the same time."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import BinaryIO

_CHUNK_BYTES = 1 << 20


def write_atomically(path: Path, content: bytes) -> None:
    """Puts `content` at `path` in one step; makes the folders above. A reader sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o644)  # mkstemp leaves the file to its owner alone
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def sha256_of(path: Path) -> str | None:
    """The SHA-256 of the file at `path` in hexadecimal digits, or None if there is no file."""
    try:
        with path.open("rb") as file:
            return _sha256(file)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _sha256(file: BinaryIO) -> str:
    digest = hashlib.sha256()
    while chunk := file.read(_CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest()
