from __future__ import annotations

from html.parser import HTMLParser
from urllib.parse import parse_qs, urlsplit

from hypothesis import given
from hypothesis import strategies as st

from service.api.page.assets import load_assets
from service.api.page.shell import DASHBOARD, DIAGNOSIS, View, render_shell

TEMPLATE = load_assets().files["shell.html"].content.decode()
HOSTILE = "model=%3C%2Fiframe%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E%22%27&window=5&evil=%22onload=%22x"


class Elements(HTMLParser):
    """Every start tag with its attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


def shell(view: View = DIAGNOSIS, query: str = "", *, has_charts: bool = True, has_report: bool = True) -> Elements:
    page = render_shell(TEMPLATE, view, base="page/d1", has_charts=has_charts, has_report=has_report, query=query)
    return Elements(page)


def test_scripts_and_styles_are_files_of_the_server() -> None:
    page = shell(DASHBOARD)
    sources = [script["src"] for script in page.all("script")]
    assert sources == ["page/d1/theme.js", "page/d1/dashboard.js"]
    assert all(str(link["href"]).startswith("page/d1/") for link in page.all("link"))
    assert not page.all("style")


def test_without_scripts_the_report_is_there_as_text() -> None:
    (frame,) = shell(query="model=two+words&window=30").all("iframe")
    address = urlsplit(str(frame["src"]))
    assert address.path == "diagnose"
    assert parse_qs(address.query) == {"model": ["two words"], "window": ["30"], "format": ["text"]}


def test_without_charts_or_a_diagnosis_the_page_names_neither() -> None:
    page = shell(DASHBOARD, has_charts=False, has_report=False)
    assert page.all("body")[0]["data-charts"] == ""
    assert [link["data-page"] for link in page.all("a") if "hidden" in link] == ["diagnosis"]
    assert not [link for link in shell().all("a") if "hidden" in link]
    assert "?format=json" in [link["href"] for link in page.all("a")]
    assert shell().all("body")[0]["data-charts"] == "page/d1/plotly.min.js"


def test_a_hostile_query_stays_inside_its_attribute() -> None:
    plain, hostile = shell(query="model=x&window=5"), shell(query=HOSTILE)
    assert [tag for tag, _ in hostile.found] == [tag for tag, _ in plain.found]
    (frame,) = hostile.all("iframe")
    assert set(frame) == {"class", "title", "src"}
    assert "evil" not in str(frame["src"])


@given(st.text())
def test_no_query_adds_an_element(query: str) -> None:
    assert len(shell(query=query).found) == len(shell().found)
