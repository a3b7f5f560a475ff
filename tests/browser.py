"""A real browser for tests of pages: Chromium of the system, driven by Playwright; tests skip where it is absent.

Each module starts a browser of its own (`browser`), and each test looks through a fresh `window` of it, which minds its
manners: no error on the console, nothing that the content security policy had to stop, no request to another host.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

__all__ = ["Window", "chromium", "needs_chromium", "open_browser", "open_window"]

_FLAGS = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
)


def chromium() -> str | None:
    """Where Chromium is, or None."""
    return next(
        (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
    )


needs_chromium = pytest.mark.skipif(
    chromium() is None, reason="Chromium is absent: run tests/bring_tools.sh as root, or install it"
)


@contextmanager
def open_browser() -> Iterator[Any]:
    """A browser. Playwright keeps a loop in its thread, so it must end before tests of asyncio begin."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only tests with a browser need it

    path = chromium()
    assert path is not None
    # Chromium's sandbox does not work for root, who runs continuous integrations.
    flags = [*_FLAGS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=flags)
        try:
            yield browser
        finally:
            browser.close()


class Window:
    """A page, and what it should not have done."""

    def __init__(self, page: Any, host: str) -> None:
        self.page = page
        self.wrongs: list[str] = []
        self.forgiven: tuple[str, ...] = ()
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.wrongs.append(f"error: {error}"))
        page.on("request", lambda request: self._requested(request.url, host))

    def forgive(self, *texts: str) -> None:
        """Let console messages that contain one of these texts pass: the browser's own words for a refused request."""
        self.forgiven = texts

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning") and not any(text in message.text for text in self.forgiven):
            self.wrongs.append(f"{message.type}: {message.text}")

    def _requested(self, url: str, host: str) -> None:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https", "ws", "wss") and parts.netloc != host:
            self.wrongs.append(f"request to {url}")


@contextmanager
def open_window(browser: Any, url: str, **settings: Any) -> Iterator[Window]:
    """A fresh window without cookies for the site at `url`; at its end there must be no wrongs.

    Parameters
    ----------
    browser
        What `open_browser` gave.
    url : str
        Address of the site, against which relative addresses count.
    **settings
        Of Playwright's context: ``viewport``, ``java_script_enabled``, ``color_scheme`` and so on.
    """
    context = browser.new_context(base_url=url, **settings)
    context.set_default_timeout(20_000)
    try:
        window = Window(context.new_page(), urlsplit(url).netloc)
        yield window
        assert window.wrongs == []
    finally:
        context.close()
