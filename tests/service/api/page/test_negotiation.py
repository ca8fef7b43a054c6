from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.api.page.negotiation import wants_page

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"


@pytest.mark.parametrize(
    ("accept", "is_page"),
    [
        (BROWSER, True),
        ("text/html", True),
        ("TEXT/HTML ; Q=0.4", True),
        ("application/json;q=0.5, text/html", True),
        ("text/html, application/json", True),
        ("", False),
        ("*/*", False),
        ("text/*", False),
        ("application/json", False),
        ("application/json, text/html;q=0.9", False),
        ("text/plain, text/html;q=0.9", False),
        ("text/html;q=0", False),
        ("text/html;q=much", False),
        ("application/json, */*", False),
        (";;,,;q=", False),
    ],
)
def test_pages_are_for_those_who_name_them_first(accept: str, is_page: bool) -> None:
    assert wants_page(accept) is is_page


@given(st.text())
def test_no_header_is_an_error(accept: str) -> None:
    assert wants_page(accept) in (True, False)
