"""A browser that tests drive as a person would, and that notes what a person would not see: errors, and requests elsewhere."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect, sync_playwright

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
SCREENSHOTS = Path(__file__).parent.parent / "console" / "screenshots"
AXE = Path(__file__).parent.parent / ".assets" / "axe-core" / "axe.min.js"
PATIENCE = 60_000  # milliseconds


def find_chromium() -> str | None:
    """The browser that scripts/chromium has found or installed."""
    return next((path for path in map(shutil.which, PROGRAMS) if path), None)


@contextmanager
def open_browser() -> Iterator[Browser]:
    """A browser without a screen, that asks no proxy and calls nobody by itself."""
    arguments = ["--no-sandbox", "--no-proxy-server", "--disable-background-networking", "--disable-gpu"]
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=arguments)
        try:
            yield browser
        finally:
            browser.close()


class Watched:
    """A page, and all that it complained of or asked for."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.hosts: set[str] = set()
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda message: self._note(message.type, message.text))
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("request", lambda request: self.hosts.add(request.url.split("/")[2].split(":")[0]))

    def _note(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(f"{kind}: {text}")

    def forget_lost_connections(self) -> None:
        """Drop what browsers write when a server that was stopped does not answer: nobody's mistake."""
        self.complaints = [
            said
            for said in self.complaints
            if "ERR_CONNECTION_REFUSED" not in said and "ERR_INCOMPLETE_CHUNKED" not in said
        ]

    def violations(self) -> list[str]:
        """What axe-core finds wrong for people who do not see the page, or do not use a mouse."""
        self.page.evaluate(AXE.read_text() + "\n;0")
        found: list[dict[str, Any]] = json.loads(
            self.page.evaluate("async () => JSON.stringify((await axe.run()).violations)")
        )
        return [f"{one['id']}: {one['help']}: {[node['target'] for node in one['nodes']]}" for one in found]

    def picture(self, name: str) -> None:
        """Keep how it looks, where git does not look."""
        SCREENSHOTS.mkdir(exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png")


@contextmanager
def open_page(
    browser: Browser, address: str, *, width: int = 1600, height: int = 1000, scheme: str = "light"
) -> Iterator[Watched]:
    """A page in a profile of its own."""
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce"
    )
    try:
        watched = Watched(context.new_page())
        watched.page.goto(address)
        yield watched
    finally:
        context.close()
