"""A real browser for tests of pages: Chromium of the system, driven by Playwright; tests skip where it is absent.

Chromium's headless shell comes first: it has the engine of the browser and none of its windows, and a page takes half
the processor time.

Each module starts its own browser (the fixture `chromium`), and each test opens a fresh window of it. The test fails if
the page logs an error or a warning on the console, violates its content security policy, or sends a request to another
host.
"""

import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from importlib import resources
from typing import Any
from urllib.parse import urlsplit

import pytest

_FLAGS = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
    "--renderer-process-limit=1",  # a process for each window takes a fifth more time
)


def chromium() -> str | None:
    """Return the path of Chromium, or None."""
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    return next((found for name in names if (found := shutil.which(name))), None)


needs_chromium = pytest.mark.skipif(
    chromium() is None, reason="Chromium is absent: run tests/bring_tools.sh as root, or install it"
)


@contextmanager
def open_browser() -> Iterator[Any]:
    """Start a browser. Playwright runs an event loop in this thread, so it must end before tests of asyncio begin."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only tests with a browser need it

    path = chromium()
    assert path is not None
    # Chromium's sandbox does not work for root, and continuous integrations run as root.
    flags = [*_FLAGS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=flags)
        try:
            yield browser
        finally:
            browser.close()


class Window:
    """A page, and the violations on it and on pages that it opens: console errors and requests to other servers."""

    def __init__(self, context: Any, hosts: Collection[str]) -> None:
        self.violations: list[str] = []
        self._allowed: tuple[str, ...] = ()
        self._hosts = hosts
        context.on("page", self._watch)
        self.page = context.new_page()

    def _watch(self, page: Any) -> None:
        page.on("console", self._on_console)
        # An error may have no message, such as the reason of a promise that is no error: its name and place tell more.
        page.on("pageerror", lambda error: self.violations.append(f"error: {error.name}: {error} {error.stack}"))
        page.on("request", lambda request: self._on_request(request.url))

    def allow_console_messages(self, *texts: str) -> None:
        """Ignore console messages that contain one of these texts, as the browser logs for each refused request."""
        self._allowed = texts

    def _on_console(self, message: Any) -> None:
        if message.type in ("error", "warning") and not any(text in message.text for text in self._allowed):
            place = message.location
            self.violations.append(f"{message.type}: {message.text} ({place.get('url')}, {place.get('lineNumber')})")

    def _on_request(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https", "ws", "wss") and parts.netloc not in self._hosts:
            self.violations.append(f"request to {url}")


def accessibility_findings(page: Any, *rules: str, without: Collection[str] = ()) -> list[str]:
    """Return what axe-core finds on a page, by all rules or these: the rule, and the first element that breaks it."""
    if not page.evaluate("'axe' in window"):  # once for each page: it is half a megabyte
        script = resources.files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
        page.evaluate(script)  # not as an element: the content security policy of the page forbids that
    # Without this, it describes each element that breaks no rule as well.
    chosen: dict[str, Any] = {"resultTypes": ["violations"]}
    if rules:
        chosen["runOnly"] = {"type": "rule", "values": list(rules)}
    chosen["rules"] = {name: {"enabled": False} for name in without}
    found = page.evaluate("(chosen) => axe.run(chosen).then((found) => found.violations)", chosen)
    return [f"{one['id']}: {one['help']}: {one['nodes'][0]['html'][:200]}" for one in found]


@contextmanager
def open_window(browser: Any, url: str, *also: str, **settings: Any) -> Iterator[Window]:
    """Open a fresh window without cookies for the site at `url`, and assert at its end that there are no violations.

    Parameters
    ----------
    browser
        The result of `open_browser`.
    url : str
        Address of the site; relative addresses are resolved against it.
    *also : str
        Addresses of other servers that its pages may lead to.
    **settings
        Options of Playwright's browser context: ``viewport``, ``java_script_enabled``, ``color_scheme`` and so on.
    """
    context = browser.new_context(base_url=url, **settings)
    context.set_default_timeout(120_000)  # a busy machine is slow
    try:
        window = Window(context, {urlsplit(one).netloc for one in (url, *also)})
        yield window
        assert window.violations == [], window.violations  # pytest shows no values here
    finally:
        context.close()
