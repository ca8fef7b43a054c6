"""Files that a card names: read whole, bounded in size, and never from outside the model's folder."""

from __future__ import annotations

from pathlib import Path

from service.errors import CardError


def read_inside(folder: Path, file_name: str, *, key: str, max_bytes: int) -> bytes:
    """The content of the file `file_name` in `folder`.

    Args:
        folder: the model's.
        file_name: as the card has it, from the folder.
        key: the card's key that names the file, for messages.
        max_bytes: largest file that is read.

    Raises:
        CardError: the file is missing, outside the folder, too large or cannot be read.
    """
    path = _inside(folder, file_name, key)
    try:
        size = path.stat().st_size
        if size > max_bytes:
            raise CardError(f"{path}: the {key} file has {size} bytes, at most {max_bytes} are read")
        return path.read_bytes()
    except OSError as error:
        raise CardError(f"{path}: the {key} file cannot be read: {error.strerror}") from error


def _inside(folder: Path, file_name: str, key: str) -> Path:
    try:
        path = (folder / file_name).resolve()
        is_inside = path.is_relative_to(folder.resolve())
        is_file = is_inside and path.is_file()
    except (OSError, ValueError, RuntimeError) as error:  # too long, NUL inside, a loop of links
        raise CardError(f"{folder}: {key} = {file_name!r} is no file name: {error}") from error
    if not is_inside:
        raise CardError(f"{folder}: {key} = {file_name!r} leads out of the model's folder; put the file inside it")
    if not is_file:
        raise CardError(f"{folder}: {key} = {file_name!r}, but there is no such file in the model's folder")
    return path
