"""Class names from a file: UTF-8, one a line, line i is class i; never from outside the model's folder."""

from __future__ import annotations

from pathlib import Path

from service.errors import CardError
from service.repository.inside import read_inside

MAX_LABELS_BYTES = 16 << 20


def read_labels(folder: Path, file_name: str) -> tuple[str, ...]:
    """Class names of the file `file_name` in `folder`, their spaces kept.

    Raises:
        CardError: the file is missing, outside the folder, empty, too large, no UTF-8, or has an empty line.
    """
    path = folder / file_name
    content = read_inside(folder, file_name, key="labels", max_bytes=MAX_LABELS_BYTES)
    try:
        text = content.decode("utf-8-sig")
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
