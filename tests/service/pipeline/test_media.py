from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.errors import InvalidInput, UnsupportedMediaType
from service.pipeline.media import split_media
from tests.service.pipeline.forms import BOUNDARY, FORM, form, part


@pytest.mark.parametrize(
    "content_type",
    [
        "image/jpeg",
        "image/jpg",
        "IMAGE/PNG",
        "image/webp",
        " image/png ; q=1",
        "application/octet-stream",
        "",
    ],
)
def test_a_single_file_is_the_body_itself(content_type: str) -> None:
    body = b"any bytes"
    (file,) = split_media(body, content_type, max_files=1)
    assert file.data is body
    assert file.name == ""


@pytest.mark.parametrize(
    "content_type",
    ["image/gif", "text/plain; charset=utf-8", "application/x-www-form-urlencoded", "image", "multipart/mixed"],
)
def test_other_content_types_name_those_allowed(content_type: str) -> None:
    with pytest.raises(UnsupportedMediaType, match=r"image/jpeg, image/png, image/webp.*multipart/form-data"):
        split_media(b"any", content_type, max_files=1)


@pytest.mark.parametrize("boundary", [BOUNDARY, f'"{BOUNDARY}"'])
def test_a_form_keeps_its_files_in_order(boundary: str) -> None:
    body = form(
        part(b"\xff\xd8first\r\n--"),
        part(b"", 'form-data; name="b"; filename=""'),
        part(b"\r\n\r\nthird--" + BOUNDARY.encode()),
    )
    files = split_media(body, f"Multipart/Form-Data; Boundary={boundary}", max_files=3)
    assert [bytes(file.data) for file in files] == [b"\xff\xd8first\r\n--", b"", b"\r\n\r\nthird--" + BOUNDARY.encode()]
    assert [file.name for file in files] == ["image 1 of 3 ('a.jpg')", "image 2 of 3 ('')", "image 3 of 3 ('a.jpg')"]


def test_files_of_a_form_are_views_of_the_body() -> None:
    body = form(part(b"x" * 1000))
    (file,) = split_media(body, FORM, max_files=1)
    assert isinstance(file.data, memoryview)
    assert file.data.obj is body


@given(st.lists(st.binary(max_size=60).filter(lambda data: BOUNDARY.encode() not in data), min_size=1, max_size=5))
def test_any_bytes_travel_through_a_form(contents: list[bytes]) -> None:
    files = split_media(form(*map(part, contents)), FORM, max_files=5)
    assert [bytes(file.data) for file in files] == contents


def test_a_preamble_of_newlines_and_an_epilogue_are_ignored() -> None:
    files = split_media(b"\r\n" + form(part(b"data")) + b"tail", FORM, max_files=1)
    assert [bytes(file.data) for file in files] == [b"data"]


@pytest.mark.parametrize(
    ("body", "content_type", "message"),
    [
        pytest.param(form(part(b"x")), "multipart/form-data", "lacks its boundary", id="no boundary"),
        pytest.param(form(part(b"x")), "multipart/form-data; boundary=", "lacks its boundary", id="empty boundary"),
        pytest.param(form(part(b"x")), "multipart/form-data; boundary=other", "malformed", id="another boundary"),
        pytest.param(form(part(b"x")), "multipart/form-data; boundary=" + "b" * 500, "malformed", id="long boundary"),
        pytest.param(b"no form at all", FORM, "malformed", id="no form"),
        pytest.param(b"", FORM, "truncated", id="empty body"),
        pytest.param(form(), FORM, "no file|malformed", id="empty form"),
        pytest.param(part(b"x"), FORM, "truncated", id="no closing boundary"),
        pytest.param(form(part(b"x"))[:-5], FORM, "truncated", id="half a closing boundary"),
        pytest.param(form(part(b"3", 'form-data; name="top_k"')), FORM, "field 'top_k'.*in the query", id="a field"),
        pytest.param(form(f"--{BOUNDARY}\r\n\r\ndata\r\n".encode()), FORM, "is no file", id="no headers"),
        pytest.param(form(f"--{BOUNDARY}\r\nbad header\r\n\r\ndata\r\n".encode()), FORM, "malformed", id="bad header"),
        pytest.param(form(*[part(b"x")] * 4), FORM, "more than 3 files", id="too many files"),
    ],
)
def test_forms_that_are_refused(body: bytes, content_type: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        split_media(body, content_type, max_files=3)


@given(st.binary(max_size=200), st.integers(0, 200))
def test_any_damage_to_a_form_is_read_or_refused(junk: bytes, at: int) -> None:
    whole = form(part(b"first"), part(b"second"))
    try:
        files = split_media(whole[:at] + junk + whole[at:], FORM, max_files=3)
    except InvalidInput:
        return
    assert 1 <= len(files) <= 3


def test_a_form_that_is_refused_is_no_matter_for_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    with pytest.raises(InvalidInput, match="malformed"):
        split_media(b"no form at all", FORM, max_files=1)
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"x", "text/" + "x" * 5000),
        (b"x", "text/\x01x"),
        (form(part(b"3", f'form-data; name="{"n" * 3000}"')), FORM),
        (form(part(b"3", 'form-data; name="\x1b[2J"')), FORM),
    ],
)
def test_what_a_message_repeats_is_bounded_and_printable(body: bytes, content_type: str) -> None:
    with pytest.raises((InvalidInput, UnsupportedMediaType)) as caught:
        split_media(body, content_type, max_files=1)
    assert len(caught.value.message) < 400
    assert caught.value.message.isprintable()


def test_a_name_that_a_client_gave_its_file_is_bounded_and_printable() -> None:
    (file,) = split_media(form(part(b"x", f'form-data; filename="\x1b{"n" * 3000}"')), FORM, max_files=1)
    assert len(file.name) < 200
    assert file.name.isprintable()


@given(st.text(max_size=60))
def test_any_content_type_is_read_or_refused(content_type: str) -> None:
    try:
        (file,) = split_media(b"body", content_type, max_files=1)
    except (InvalidInput, UnsupportedMediaType):
        return
    assert file.data == b"body"
