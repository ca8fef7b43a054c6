from __future__ import annotations

import numpy as np
import pytest

from service.tensors import first_not_utf8


@pytest.mark.parametrize(
    ("values", "index"),
    [
        ([[b"", b"plain"], ["caf\u00e9".encode(), b"a\0b"]], None),
        ([[b"ok", b"\xff"], [b"\xfe", b"ok"]], 1),
        ([[b"ok", b"ok"], [b"ok", b"\xc3"]], 3),
        ([[b"\xed\xa0\x80"]], 0),
    ],
)
def test_first_not_utf8(values: list[list[bytes]], index: int | None) -> None:
    assert first_not_utf8(np.array(values, np.object_)) == index
