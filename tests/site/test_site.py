"""A part of the documentation site, built as `make docs` builds all of it, and used in a real browser without a network."""

import subprocess
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from playwright.sync_api import expect

from tests.support.browser import find_chromium, open_browser, open_page

ROOT = Path(__file__).parent.parent.parent
pytestmark = pytest.mark.skipif(
    find_chromium() is None, reason="no Chromium: scripts/chromium could not install it here"
)
#: Not built here: what takes most of the time. Links to it are then those to pages that are not there, and no errors.
LEFT_OUT = [
    "site/*",
    *(f"{folder}/[a-hj-z]*" for folder in ("reference", "reproduction")),
    "how-to/[k-z]*",
    "api/[a-bd-hj-z]*",
]


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *words):
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The address of the site."""
    place = tmp_path_factory.mktemp("site")
    options = ["-D", f"exclude_patterns={','.join(LEFT_OUT)}", "-c", "docs/site", "-d", str(place / "doctrees")]
    run = subprocess.run(
        [sys.executable, "-m", "sphinx", "--quiet", *options, "docs", str(place / "html")],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(place / "html")))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def browser():
    with open_browser() as opened:
        yield opened


def test_search_finds_a_word_of_a_page_and_a_name_of_the_api(browser, site):
    with open_page(browser, f"{site}/index.html") as watched:
        page = watched.page
        page.keyboard.press("Control+k")
        page.keyboard.type("fence key")
        page.keyboard.press("Enter")
        expect(page.locator("#search-results li a").first).to_have_text("Concepts")
        page.goto(f"{site}/search.html?q=edit_distance")
        page.locator("#search-results li a", has_text="edit_distance").first.click()
        expect(page.locator("dt[id='headrace.edit_distance']")).to_contain_text("edit_distance")
        assert watched.hosts == {"127.0.0.1"}
        # Sphinx looks for the entry's text by a selector in which dots mean classes, finds none, and shows the page's.
        assert [said for said in watched.complaints if "Anchored content block not found" not in said] == []


@pytest.mark.parametrize(("width", "scheme"), [(400, "light"), (1600, "dark")])
def test_pages_are_no_wider_than_the_screen_and_ask_nobody_else(browser, site, width, scheme):
    with open_page(browser, f"{site}/index.html", width=width, scheme=scheme) as watched:
        expect(watched.page.locator("html")).to_have_attribute("data-theme", scheme)
        for path in ("index", "benchmarks", "how-to/join-a-stream", "api/conditions"):
            watched.page.goto(f"{site}/{path}.html")
            assert watched.page.evaluate("document.documentElement.scrollWidth") <= width, path
        assert (watched.hosts, watched.complaints) == ({"127.0.0.1"}, [])


def test_a_guide_leads_to_the_api_and_to_its_neighbours(browser, site):
    with open_page(browser, f"{site}/how-to/enrich-a-spark-stream.html") as watched:
        watched.page.locator("article a", has_text="hr.edit_distance").first.click()
        expect(watched.page).to_have_url(f"{site}/api/conditions.html#headrace.edit_distance")
    with open_page(browser, f"{site}/how-to/join-a-stream.html") as watched:
        links = watched.page.locator(".bd-sidebar-primary nav a").evaluate_all("all => all.map(a => a.href)")
    shown = {link.rsplit("/", 1)[1].removesuffix(".html").removesuffix("#") for link in links}
    there = {page.stem for page in (ROOT / "docs" / "how-to").glob("[a-j]*.md")}
    assert there - {"index", "join-a-stream"} <= shown
