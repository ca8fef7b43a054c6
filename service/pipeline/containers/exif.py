"""The orientation tag of EXIF data, and nothing else of it."""

from __future__ import annotations

import struct

UPRIGHT = 1

_ORIENTATION_TAG = 0x0112
_SHORT = 3
_ENTRY_BYTES = 12
_BYTE_ORDERS = {b"II*\0": "<", b"MM\0*": ">"}


def read_orientation(tiff: memoryview) -> int:
    """The orientation, 1 to 8, that EXIF data declares.

    EXIF is a note beside the image: where it is damaged or silent the image counts as upright, as in every viewer.

    Args:
        tiff: the EXIF data from its TIFF header on (what follows the word `Exif` and two zero bytes).
    """
    order = _BYTE_ORDERS.get(bytes(tiff[:4]))
    if order is None:
        return UPRIGHT
    try:
        (directory,) = struct.unpack_from(f"{order}I", tiff, 4)
        (count,) = struct.unpack_from(f"{order}H", tiff, directory)
        for index in range(count):
            tag, kind, _, value = struct.unpack_from(f"{order}HHIH", tiff, directory + 2 + index * _ENTRY_BYTES)
            if tag == _ORIENTATION_TAG:
                return value if kind == _SHORT and 1 <= value <= 8 else UPRIGHT
    except struct.error:
        return UPRIGHT
    return UPRIGHT
