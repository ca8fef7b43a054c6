"""Headless Chromium, driven by Selenium; tests are skipped where one of them is missing."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

WAIT_S = 10
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--force-color-profile=srgb")
DESKTOP = (1280, 900)
PHONE = (390, 844)


class Browser:
    """One window; every question waits for its answer without sleeping."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, url: str, *, size: tuple[int, int] = DESKTOP, scheme: str = "light") -> None:
        """Opens a page in a window of this size, in the system's light or dark."""
        width, height = size
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        self.driver.get("about:blank")
        self.complaints()
        self.driver.get(url)

    def complaints(self) -> list[str]:
        """What the console said since it was last asked: errors, and what the page's policy forbade."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] != "INFO"]

    def run(self, script: str, *arguments: object) -> Any:
        """The value of a script's `return`."""
        return self.driver.execute_script(script, *arguments)

    def all(self, selector: str) -> list[Any]:
        """Every element that the selector finds now."""
        found: list[Any] = self.driver.find_elements("css selector", selector)
        return found

    def texts(self, selector: str) -> list[str]:
        """Their texts, hidden ones too."""
        found: list[str] = self.run(
            "return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent)", selector
        )
        return found

    def wait(self, condition: Callable[[], Any]) -> Any:
        """Waits until `condition` holds, and returns its value."""
        from selenium.webdriver.support.ui import WebDriverWait

        return WebDriverWait(self.driver, WAIT_S, poll_frequency=0.05).until(lambda _: condition())

    def wait_for(self, selector: str) -> Any:
        """The first element that the selector finds, once there is one."""
        return self.wait(lambda: self.all(selector))[0]

    def clear_storage(self) -> None:
        """Forgets what pages of this server have kept."""
        self.run("localStorage.clear(); sessionStorage.clear();")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A browser for all tests of a session."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium: it is in the extra `test`")
    chromium = next(filter(None, map(shutil.which, CHROMIUM)), None)
    driver_path = shutil.which("chromedriver")
    if chromium is None or driver_path is None:
        pytest.skip("needs Chromium and its driver: Debian has them as chromium and chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for option in OPTIONS:
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver_path))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
