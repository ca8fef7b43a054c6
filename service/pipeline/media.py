"""The body of a media request as image files: one, or several in a multipart form.

Nothing is copied: the files are views of the body. The content type decides about multipart and nothing else;
what an image is, its own bytes say.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from service.client_text import name_text
from service.errors import InvalidInput, UnsupportedMediaType

MULTIPART = "multipart/form-data"
SINGLE_FILE_TYPES = frozenset({"image/jpeg", "image/jpg", "image/png", "image/webp", "application/octet-stream"})

_UNHEARD = logging.Logger("python_multipart", logging.CRITICAL + 1)
"""The parser would write a line into the server's log for every form that is malformed, which its client is told."""

_ALLOWED = f"image/jpeg, image/png, image/webp, application/octet-stream (told from the bytes) and {MULTIPART}"


@dataclass(frozen=True, slots=True)
class MediaFile:
    """One file of a request.

    Attributes:
        name: how messages call it: its place in the request and the client's own name for it; empty if it is alone.
        data: the file's bytes.
    """

    name: str
    data: bytes | memoryview


def split_media(body: bytes, content_type: str, *, max_files: int) -> tuple[MediaFile, ...]:
    """The files in a body, at least one.

    Args:
        body: the whole, already bounded, body.
        content_type: value of the header; an empty one counts as `application/octet-stream`.
        max_files: most files that one request may hold.

    Raises:
        InvalidInput: the form is malformed or truncated, holds no file, more than `max_files`, or a field that is none.
        UnsupportedMediaType: the content type is not one that is read.
    """
    media_type, parameters = parse_content_type(content_type)
    if media_type == MULTIPART:
        return _split_form(body, parameters.get(b"boundary", b""), max_files)
    if media_type in SINGLE_FILE_TYPES or not media_type:
        return (MediaFile("", body),)
    raise UnsupportedMediaType(
        f"the content type {name_text(media_type)} is none of those allowed: {_ALLOWED}; "
        "set it, for example with curl -H 'Content-Type: image/jpeg'"
    )


def parse_content_type(content_type: str) -> tuple[str, Mapping[bytes, bytes]]:
    """The type in lower case, empty for an empty header, and its parameters by their names in lower case."""
    media_type, parameters = parse_options_header(content_type.encode("latin-1", "replace"))
    return media_type.decode("latin-1").strip().lower(), {name.lower(): value for name, value in parameters.items()}


@dataclass(slots=True)
class _Part:
    """One part of a form while the parser is in it."""

    headers: dict[bytes, bytes] = field(default_factory=dict)
    pieces: list[memoryview] = field(default_factory=list)

    def data(self) -> bytes | memoryview:
        return self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)


@dataclass(slots=True)
class _FormReader:
    """The parser's callbacks: collects the parts of a form."""

    max_files: int
    parts: list[_Part] = field(default_factory=list)
    is_complete: bool = False
    header_name: bytes = b""
    header_value: bytes = b""

    def on_part_begin(self) -> None:
        if len(self.parts) == self.max_files:
            raise InvalidInput(
                f"the form holds more than {self.max_files} files, the most that this model takes in one request; "
                "send the others in further requests"
            )
        self.parts.append(_Part())

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        self.header_name += data[start:end]

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        self.header_value += data[start:end]

    def on_header_end(self) -> None:
        self.parts[-1].headers[self.header_name.lower()] = self.header_value
        self.header_name = self.header_value = b""

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        self.parts[-1].pieces.append(memoryview(data)[start:end])

    def on_end(self) -> None:
        self.is_complete = True


def _split_form(body: bytes, boundary: bytes, max_files: int) -> tuple[MediaFile, ...]:
    if not boundary:
        raise InvalidInput(
            f"the content type '{MULTIPART}' lacks its boundary parameter; let the client library set the header"
        )
    reader = _FormReader(max_files)
    try:
        _create_parser(boundary, reader).write(body)
    except FormParserError as error:
        raise InvalidInput(f"the multipart form is malformed: {error}; let the client library encode it") from None
    if not reader.is_complete:
        raise InvalidInput(
            f"the multipart form is truncated: its {len(body)} bytes do not end with the closing boundary; "
            "send the whole form, with the boundary that the content type names"
        )
    if not reader.parts:
        raise InvalidInput("the multipart form holds no file; add one, for example with curl -F image=@photo.jpg")
    return tuple(_to_file(part, number, len(reader.parts)) for number, part in enumerate(reader.parts, start=1))


def _create_parser(boundary: bytes, reader: _FormReader) -> MultipartParser:
    parser = MultipartParser(
        boundary,
        {
            "on_part_begin": reader.on_part_begin,
            "on_part_data": reader.on_part_data,
            "on_header_field": reader.on_header_field,
            "on_header_value": reader.on_header_value,
            "on_header_end": reader.on_header_end,
            "on_end": reader.on_end,
        },
    )
    parser.logger = _UNHEARD
    return parser


def _to_file(part: _Part, number: int, count: int) -> MediaFile:
    _, parameters = parse_options_header(part.headers.get(b"content-disposition", b""))
    if b"filename" not in parameters:
        field_name = parameters.get(b"name", b"").decode("utf-8", "replace")
        raise InvalidInput(
            f"part {number} of the form, field {name_text(field_name)}, is no file; send images as files "
            "(curl -F image=@photo.jpg) and options in the query (?top_k=3)"
        )
    file_name = parameters[b"filename"].decode("utf-8", "replace")
    return MediaFile(f"image {number} of {count} ({name_text(file_name)})", part.data())
