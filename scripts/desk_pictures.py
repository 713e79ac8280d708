"""Make the pictures of docs/how-to/use-the-feed-desk.md: the demonstration in a browser, in few colours to stay small."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from PIL import Image  # noqa: E402
from playwright.sync_api import Page, expect  # noqa: E402

from tests.support.browser import open_browser, open_page  # noqa: E402

PLACE = ROOT / "docs" / "how-to"
COLOURS = 224  # of a picture: text and lines stay clear, and a file stays below 150 kB
MOST = 200_000  # bytes of a picture


def main() -> None:
    """Start the demonstration, let an hour of the day pass, and take the pictures."""
    command = [sys.executable, "-c", "from headrace.cli import app; app()", "console", "--demo", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as server:
        try:
            assert server.stdout is not None
            found = re.search(r"http://\S+", server.stdout.readline())
            assert found is not None, "the server printed no address"
            with open_browser() as browser:
                with open_page(browser, found[0], width=1280, height=860) as watched:
                    expect(watched.page.locator("#map")).not_to_have_attribute("data-marks", "0")
                    watched.page.locator("#queries button", has_text="Earthquakes near cities").click()
                    watched.page.wait_for_timeout(25_000)
                    save(watched.page, "map")
                    watched.page.fill("#sql", watched.page.input_value("#sql").replace("p.title", "p.tilte", 1))
                    expect(watched.page.locator("#mistake")).not_to_be_empty()
                    save(watched.page, "mistake", clip={"x": 0, "y": 50, "width": 900, "height": 330})
                with open_page(browser, found[0], width=400, height=860, scheme="dark") as watched:
                    watched.page.click("#tab-reader")
                    watched.page.locator("#results").scroll_into_view_if_needed()
                    watched.page.wait_for_timeout(1_000)
                    save(watched.page, "reader")
        finally:
            server.terminate()


def save(page: Page, name: str, **options: object) -> None:
    """Keep a picture in few colours."""
    picture = Image.open(io.BytesIO(page.screenshot(**options))).convert("RGB").quantize(COLOURS)  # type: ignore[arg-type]
    path = PLACE / f"feed-desk-{name}.png"
    picture.save(path, optimize=True)
    assert path.stat().st_size < MOST, f"{path} has {path.stat().st_size} bytes"


if __name__ == "__main__":
    main()
