"""The page in a real browser, on documents made by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from service.api.page.assets import load_assets
from service.diagnosis.finding import BottleneckClass
from tests.doubles.browser import PHONE, Browser, browser
from tests.doubles.page_server import HOSTILE, PageServer, document_of, hostile_document, page_server

__all__ = ["browser"]

pytestmark = pytest.mark.browser

CONTRASTS = """
const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
const rgba = (colour) => {
  context.clearRect(0, 0, 1, 1);
  context.fillStyle = colour;
  context.fillRect(0, 0, 1, 1);
  return [...context.getImageData(0, 0, 1, 1).data].map((part) => part / 255);
};
const over = (front, back) => front.slice(0, 3).map((part, at) => part * front[3] + back[at] * (1 - front[3]));
const ground = (element) => {
  if (!element) return [1, 1, 1];
  const own = rgba(getComputedStyle(element).backgroundColor);
  return own[3] === 1 ? own.slice(0, 3) : over(own, ground(element.parentElement));
};
const light = (colour) => {
  const [r, g, b] = colour.map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const low = [];
for (const element of document.querySelectorAll("body *:not(svg):not(svg *):not(noscript)")) {
  const isText = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  if (!isText || !element.checkVisibility()) continue;
  const back = ground(element);
  const [one, other] = [light(over(rgba(getComputedStyle(element).color), back)), light(back)];
  const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
  if (ratio < 4.5) low.push(`${element.tagName} ${element.className}: ${ratio.toFixed(2)}`);
}
return low;
"""
"""Texts that WCAG 2.2 (1.4.3, level AA) calls too faint."""

BEYOND_THE_EDGE = """
if (document.documentElement.scrollWidth <= innerWidth) return [];
const isBeyond = (element) => element.getBoundingClientRect().right > innerWidth;
const beyond = [...document.querySelectorAll("body *")].filter(isBeyond);
return beyond.map((one) => `${one.tagName} ${one.className} ${one.id}`);
"""
"""What makes a page wider than its window."""

BACKGROUND = "return getComputedStyle(document.body).backgroundColor"


@pytest.fixture(scope="module")
def shared() -> Iterator[PageServer]:
    """A server with a limited model, a healthy one, one full of markup, and one that does not load."""
    with page_server() as made:
        made.documents = {
            "limited": document_of("limited", BottleneckClass.LAUNCH_BOUND),
            "fine": document_of("fine"),
            HOSTILE: hostile_document(),
        }
        made.unready = {"broken": HOSTILE}
        yield made


@pytest.fixture
def server(shared: PageServer, browser: Browser) -> PageServer:
    browser.open(shared.url)
    browser.clear_storage()
    shared.asked.clear()
    return shared


def test_a_diagnosis_is_shown_whole_and_without_complaint(browser: Browser, server: PageServer) -> None:
    browser.open(f"{server.url}/diagnose?model=limited")
    browser.wait_for("#roofline .main-svg .scatterlayer .point")
    browser.wait_for("#trend-chart .main-svg .scatterlayer .trace")
    assert browser.texts("h1") == ["Launching takes longer than computing"]
    assert browser.texts(".finding code.id")[0] == "launch-bound"
    assert browser.texts(".finding .gain strong")[0].endswith("% mean latency")
    assert len(browser.all(".waterfall tbody tr")) == 12
    assert browser.texts("#times .column tbody tr.limiter th") == ["Event looplimits first"]
    assert browser.texts(".heat tbody th")[0].startswith("8")
    assert browser.texts("#found details h2")[-1] == "Ruled out"
    assert browser.complaints() == []


def test_layers_sort_by_mouse_and_keyboard(browser: Browser, server: PageServer) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.open(f"{server.url}/diagnose?model=limited")
    browser.wait_for(".layers tbody tr")
    names = ".layers tbody th"
    assert browser.texts(f"{names}:first-child")[0].startswith("conv1 + relu")
    browser.wait_for('.sorter[data-column="name"]').click()
    assert browser.texts(names)[0].startswith("block0")
    assert browser.texts(names)[1].startswith("block1")
    assert browser.all('th[aria-sort="ascending"]')[0].text.startswith("Layer")
    browser.run("arguments[0].focus()", browser.wait_for('.sorter[data-column="name"]'))
    browser.driver.switch_to.active_element.send_keys(Keys.ENTER)
    assert browser.texts(names)[0].startswith("reshape")
    assert browser.all('th[aria-sort="descending"]')
    assert browser.driver.switch_to.active_element.get_attribute("data-column") == "name"
    browser.wait_for('[data-action="whole"]').click()
    assert len(browser.texts(names)) == 32


@pytest.mark.parametrize("path", ["/", "/diagnose?model=limited", "/diagnose?model=fine"])
def test_light_and_dark_can_be_read(browser: Browser, server: PageServer, path: str) -> None:
    grounds = set()
    for scheme in ("light", "dark"):
        browser.open(server.url + path, scheme=scheme)
        browser.wait_for(".hero h1")
        browser.run("for (const one of document.querySelectorAll('details')) one.open = true")
        grounds.add(browser.run(BACKGROUND))
        assert browser.run(CONTRASTS) == []
    assert len(grounds) == 2


def test_the_switch_overrules_the_system_and_is_remembered(browser: Browser, server: PageServer) -> None:
    browser.open(server.url, scheme="light")
    light = browser.run(BACKGROUND)
    for label in ("Theme: light", "Theme: dark"):
        browser.wait_for("#theme").click()
        assert browser.texts("#theme") == [label]
    dark = browser.run(BACKGROUND)
    assert dark != light
    browser.open(server.url, scheme="light")
    browser.wait_for(".hero h1")
    assert browser.run(BACKGROUND) == dark
    browser.clear_storage()


def test_texts_of_others_stay_texts(browser: Browser, server: PageServer) -> None:
    from urllib.parse import quote

    browser.open(f"{server.url}/diagnose?model={quote(HOSTILE)}")
    browser.wait_for("#roofline .main-svg .point")
    assert HOSTILE in browser.texts(".finding pre code")
    assert browser.texts(".layers tbody th")[0].startswith(HOSTILE)
    browser.open(server.url)
    browser.wait(lambda: HOSTILE in browser.texts(".model h2"))
    assert browser.texts("[data-key='broken/1'] .verdict")[0].startswith(HOSTILE)
    assert browser.run("return globalThis.hacked ?? null") is None
    assert browser.run("return document.querySelectorAll('main img, main script').length") == 0
    assert browser.complaints() == []


@pytest.mark.parametrize("path", ["/", "/diagnose?model=limited"])
def test_a_phone_shows_it_without_scrolling_aside(browser: Browser, server: PageServer, path: str) -> None:
    browser.open(server.url + path, size=PHONE)
    browser.wait_for(".hero h1")
    assert browser.run(BEYOND_THE_EDGE) == []


def test_models_and_their_load_are_listed(browser: Browser, server: PageServer) -> None:
    browser.open(server.url)
    browser.wait(lambda: len(browser.all(".model")) == 4)
    assert browser.texts("[data-key='fine/1'] .badge") == ["✓Healthy"]
    assert browser.texts("[data-key='limited/1'] .badge") == ["!Limited"]
    assert browser.texts("[data-key='broken/1'] .badge") == ["!unavailable"]
    assert "10,000" in browser.texts("[data-key='fine/1'] .small-figures dd")
    browser.all("[data-key='limited/1'] a")[0].click()
    browser.wait_for(".finding")
    assert browser.texts("#model option:checked") == ["limited"]


def test_another_model_and_window_are_asked_for(browser: Browser, server: PageServer) -> None:
    from selenium.webdriver.support.ui import Select

    browser.open(f"{server.url}/diagnose?model=limited")
    browser.wait_for(".finding")
    Select(browser.wait_for("#window")).select_by_value("300")
    Select(browser.wait_for("#model")).select_by_value("fine")
    browser.wait(lambda: browser.texts("h1") == ["Nothing holds this model back"])
    assert "model=fine&window=300" in browser.driver.current_url
    browser.wait(lambda: "GET /diagnose?window=300&model=fine" in server.asked)


def test_a_change_is_reviewed_against_a_held_report(browser: Browser, server: PageServer) -> None:
    browser.open(f"{server.url}/diagnose?model=limited")
    browser.wait_for('[data-action="hold"]').click()
    browser.wait_for(".review tbody tr")
    assert browser.texts(".review tbody th") == ["Launching takes longer than computing"]
    assert "since=a1" in browser.driver.current_url
    browser.wait_for('[data-action="release"]').click()
    browser.wait(lambda: not browser.all(".review"))


def test_probes_run_and_tell_how_far_they_are(browser: Browser, server: PageServer) -> None:
    server.runs = ["running", "running", "done"]
    browser.open(f"{server.url}/diagnose?model=limited")
    browser.wait_for('[data-mode="exclusive"]').click()
    browser.wait(lambda: any("0 of 2 probes over" in text for text in browser.texts("#probes [role=status]")))
    browser.wait(lambda: any("2 of 2 probes over" in text for text in browser.texts("#probes [role=status]")))
    assert browser.complaints() == []


def test_a_key_is_asked_for_and_used(browser: Browser, server: PageServer) -> None:
    server.key = "secret"
    try:
        browser.open(f"{server.url}/diagnose?model=limited")
        browser.wait_for("#key").send_keys("secret\n")
        browser.wait_for(".finding")
        assert not browser.all(".refusal")
    finally:
        server.key = ""


def test_pausing_ends_the_questions(browser: Browser, server: PageServer) -> None:
    browser.open(f"{server.url}/diagnose?model=limited")
    browser.wait_for(".finding")
    browser.wait_for("#pause").click()
    assert browser.texts("#pause") == ["Resume"]
    browser.wait(lambda: browser.texts("#pulse") == ["Paused"])
    before = len(server.asked)
    browser.wait_for("#pause").click()
    browser.wait(lambda: len(server.asked) > before)
    assert browser.texts("#pause") == ["Pause"]


def test_without_the_charts_package_tables_remain(browser: Browser) -> None:
    with page_server(replace(load_assets(), charts_path=None)) as server:
        server.documents = {"limited": document_of("limited", BottleneckClass.LAUNCH_BOUND)}
        browser.open(f"{server.url}/diagnose")
        browser.wait_for(".layers tbody tr")
        assert "pip install 'inferlane[dashboard]'" in browser.texts("#trend code")
        assert not browser.all("#roofline")
        assert browser.complaints() == []


def test_without_scripts_the_report_is_read_as_text(browser: Browser, server: PageServer) -> None:
    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.open(f"{server.url}/diagnose?model=limited")
        browser.driver.switch_to.frame(browser.wait_for("iframe"))
        browser.wait(lambda: "a report as text" in browser.driver.page_source)
    finally:
        browser.driver.switch_to.default_content()
        browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert "GET /diagnose?model=limited&format=text" in server.asked
