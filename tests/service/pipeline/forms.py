"""Multipart forms as a client encodes them."""

from __future__ import annotations

BOUNDARY = "----frontier7"
FORM = f"multipart/form-data; boundary={BOUNDARY}"


def part(data: bytes, disposition: str = 'form-data; name="image"; filename="a.jpg"') -> bytes:
    return (
        f"--{BOUNDARY}\r\nContent-Disposition: {disposition}\r\nContent-Type: image/jpeg\r\n\r\n".encode()
        + data
        + b"\r\n"
    )


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()
