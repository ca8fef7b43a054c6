"""Class names from a file: UTF-8, one a line, line i is class i; never from outside the model's folder."""

from __future__ import annotations

from pathlib import Path

from service.errors import CardError

MAX_LABELS_BYTES = 16 << 20


def read_labels(folder: Path, file_name: str) -> tuple[str, ...]:
    """Class names of the file `file_name` in `folder`, their spaces kept.

    Raises:
        CardError: the file is missing, outside the folder, empty, too large, no UTF-8, or has an empty line.
    """
    path = _inside(folder, file_name)
    try:
        if path.stat().st_size > MAX_LABELS_BYTES:
            raise CardError(
                f"{path}: the labels file has {path.stat().st_size} bytes, at most {MAX_LABELS_BYTES} are read"
            )
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise CardError(f"{path}: the labels file cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CardError(f"{path}: byte {error.start} of the labels file is no UTF-8; save it as UTF-8") from error
    # Only line feeds part lines: other separators that str.splitlines knows are labels of text recognisers.
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    if lines == [""]:
        raise CardError(
            f"{path}: the labels file is empty; write one class name a line, or take 'labels' out of the card"
        )
    if "" in lines:
        raise CardError(
            f"{path}: line {lines.index('') + 1} of the labels file is empty; every line names the class of its number"
        )
    return tuple(lines)


def _inside(folder: Path, file_name: str) -> Path:
    try:
        path = (folder / file_name).resolve()
        is_inside = path.is_relative_to(folder.resolve())
        is_file = is_inside and path.is_file()
    except (OSError, ValueError, RuntimeError) as error:  # too long, NUL inside, a loop of links
        raise CardError(f"{folder}: labels = {file_name!r} is no file name: {error}") from error
    if not is_inside:
        raise CardError(f"{folder}: labels = {file_name!r} leads out of the model's folder; put the file inside it")
    if not is_file:
        raise CardError(f"{folder}: labels = {file_name!r}, but there is no such file in the model's folder")
    return path
