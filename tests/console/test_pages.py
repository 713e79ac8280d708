"""The pages in a real browser, driven as a person would; with no error on its console and no request to another host."""

import re

import pytest
from playwright.sync_api import expect

from headrace.console import assets
from tests.support.browser import AXE, find_chromium, open_browser, open_page
from tests.support.console_server import LEFT, PAIRS, RIGHT, WrittenFeeds, rss, running_console

pytestmark = [
    pytest.mark.skipif(find_chromium() is None, reason="no Chromium: scripts/chromium could not install it here"),
    pytest.mark.skipif(bool(assets.missing()), reason=f"make setup could not fetch {', '.join(assets.missing())}"),
]
HTML = '<img src="x"> <b>bold</b> & more'
SQL = f"SELECT a.title, b.title, a.geoLat\nFROM rss('{LEFT}') a,\n     rss('{RIGHT}') b\nWHERE a.title = b.title"


@pytest.fixture(scope="module")
def browser():
    with open_browser() as opened:
        yield opened


def feeds_of(titles):
    return WrittenFeeds({LEFT: rss(titles, place=(10, 20)), RIGHT: rss(titles, place=(14, 26))})


def words(count, start=0):
    return [f"item {i:03d}" for i in range(start, start + count)]


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A desk with a query that has results."""
    with running_console(tmp_path_factory.mktemp("pages"), feeds_of([*words(30), HTML])) as server:
        server.run("pairs", SQL)
        server.run("some", f"{PAIRS} AND a.title LIKE '%1%'")
        server.wait_for_results("pairs", 31)
        yield server


def test_a_person_writes_a_query_mends_it_and_watches_results_come(browser, tmp_path):
    feeds = feeds_of(words(3))
    with running_console(tmp_path, feeds) as server:
        port = server.port
        with open_page(browser, server.address) as watched:
            page = watched.page
            expect(page.locator("#link-text")).to_have_text("live")
            assert "token" not in page.url
            # a mistake is shown where it is, with the near word
            page.fill("#name", "my pairs")
            page.fill("#sql", SQL.replace("WHERE a.title", "WHERE a.titel"))
            mistake = page.locator("#mistake")
            expect(mistake).to_contain_text("title")
            expect(mistake.get_by_role("button")).to_have_text(re.compile(r"Line 4, column \d+"))
            expect(page.locator(".sql-wrong").first).to_contain_text("titel")
            watched.picture("mistake")
            page.click("#run")
            expect(page.locator("#queries")).to_contain_text("No queries yet")
            # mended, it has a plan and runs
            page.fill("#sql", SQL)
            expect(mistake).to_be_empty()
            page.click("#plan-box summary")
            expect(page.locator("#plan")).to_contain_text(LEFT)
            page.click("#run")
            expect(page.locator("#count")).to_have_text("Displaying 3 / 3")
            expect(page.locator("#state")).to_have_text("running")
            expect(page.locator("#map")).to_have_attribute("data-marks", "6")
            # results come by themselves
            feeds.documents[LEFT] = feeds.documents[RIGHT] = rss(words(4, start=3), place=(30, 60))
            expect(page.locator("#count")).to_have_text("Displaying 7 / 7")
            expect(page.locator("#counter-items")).to_have_text("14")
            # as a reader would show them, and found by a word
            page.click("#tab-reader")
            expect(page.locator("#reader .item")).to_have_count(7)
            expect(page.locator("#reader .item h3").first).to_contain_text("7)")
            page.fill("#search", "005")
            expect(page.locator("#count")).to_have_text("Displaying 1 / 7")
            expect(page.locator("#reader .item")).to_have_count(1)
            page.click("#reader .show-on-map")
            expect(page.locator(".popup-title")).to_have_text("item 005")
            expect(page.locator("#map")).to_have_attribute("data-marks", "2")
            page.fill("#search", "")
            # stopped, nothing comes
            page.click("#stop")
            expect(page.locator("#state")).to_have_text("stopped")
            assert watched.complaints == []
            server.stop()
            expect(page.locator("#link-text")).to_have_text("connecting")
            # the server is started again: the page comes back by itself, and nothing is there twice
            with running_console(tmp_path, feeds, port=port) as again:
                expect(page.locator("#link-text")).to_have_text("live")
                page.click("#run")
                expect(page.locator("#state")).to_have_text("running")
                feeds.documents[LEFT] = feeds.documents[RIGHT] = rss(words(2, start=7), place=(40, 80))
                expect(page.locator("#count")).to_have_text("Displaying 9 / 9")
                page.click("#tab-table")
                numbers = page.locator("#table tbody tr td:first-child").all_text_contents()
                assert numbers == [str(n) for n in range(9, 0, -1)]
                shown = page.locator("#table tbody tr td:nth-child(3)").all_text_contents()
                assert sorted(shown) == words(9)
                assert again.query("my pairs")["count"] == 9
                watched.forget_lost_connections()
                assert watched.complaints == []
                assert watched.hosts == {"127.0.0.1"}


@pytest.mark.parametrize(("width", "scheme"), [(1600, "light"), (1600, "dark"), (400, "light"), (400, "dark")])
def test_nothing_is_in_the_way_of_people_who_do_not_see_or_point(browser, desk, width, scheme):
    if not AXE.is_file():
        pytest.skip("make setup could not fetch axe-core")
    with open_page(browser, desk.address, width=width, scheme=scheme) as watched:
        page = watched.page
        expect(page.locator("#count")).to_have_text("Displaying 31 / 31")
        found = []
        for tab in ("map", "reader", "table") if (width, scheme) in ((1600, "light"), (400, "dark")) else ("map",):
            page.click(f"#tab-{tab}")
            found += watched.violations()
            watched.picture(f"{tab}-{width}-{scheme}")
        assert found == []
        # nothing is wider than the screen
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert watched.complaints == []


def test_html_in_titles_is_shown_as_text(browser, desk):
    with open_page(browser, desk.address) as watched:
        page = watched.page
        page.on("dialog", lambda dialog: watched.complaints.append(f"dialog: {dialog.message}"))
        page.fill("#search", "bold")
        for tab, place in (("reader", "#reader h3"), ("table", "#table td:nth-child(3)")):
            page.click(f"#tab-{tab}")
            expect(page.locator(place).first).to_contain_text(HTML)
        page.click("#tab-reader")
        page.click("#reader .show-on-map")
        expect(page.locator(".popup-title")).to_have_text(HTML)
        assert page.locator("#results img, #results b").count() == 0
        # a query can put back what the parser takes out of items, and so can its name
        page.fill("#name", "<img src=y onerror=alert(2)>")
        page.fill("#sql", f"SELECT concat('<img src=z onerror=alert(3)>', a.title) AS made FROM rss('{LEFT}') a")
        page.fill("#search", "onerror")
        page.click("#run")
        expect(page.locator("#count")).to_have_text("Displaying 31 / 31")
        expect(page.locator("#queries")).to_contain_text("<img src=y onerror=alert(2)>")
        page.click("#tab-table")
        expect(page.locator("#table tbody tr").first).to_contain_text("<img src=z onerror=alert(3)>")
        assert page.locator("main img, aside img").count() == 0
        page.click("#remove")
        expect(page.locator("#queries")).not_to_contain_text("onerror")
        assert watched.complaints == []


def test_the_keyboard_is_enough(browser, desk):
    with open_page(browser, desk.address) as watched:
        page, keys = watched.page, watched.page.keyboard
        expect(page.locator("#link-text")).to_have_text("live")
        page.focus("#new")
        keys.press("Enter")
        keys.type("by keys")
        for _ in range(4):
            keys.press("Tab")
            if page.evaluate("document.activeElement.id") == "sql":
                break
        keys.press("Control+A")
        keys.type(f"SELECT a.title FROM rss('{LEFT}') a WHERE a.ti")
        expect(page.locator("#completions").get_by_role("option", name=re.compile("^title"))).to_have_attribute(
            "aria-selected", "true"
        )
        keys.press("Enter")
        keys.type(" LIKE '%003%'")
        keys.press("Control+Enter")
        expect(page.locator("#queries")).to_contain_text("by keys")
        expect(page.locator("#count")).to_have_text("Displaying 1 / 1")
        page.focus("#tab-map")
        keys.press("ArrowRight")
        keys.press("ArrowRight")
        expect(page.locator("#tab-table")).to_be_focused()
        expect(page.locator("#table tbody tr")).to_have_count(1)
        page.focus("#remove")
        keys.press("Enter")
        expect(page.locator("#queries")).not_to_contain_text("by keys")
        assert watched.complaints == []


def test_the_editor_offers_columns_functions_aliases_and_feeds(browser, desk):
    with open_page(browser, desk.address) as watched:
        page = watched.page
        expect(page.locator("#link-text")).to_have_text("live")
        for typed, expected in (
            ("SELECT a.geo", "geoLat"),
            ("SELECT int", "intersects("),
            ("SELECT a.title FROM rss('https://le", LEFT),
        ):
            page.fill("#sql", typed)
            expect(page.locator("#completions")).to_contain_text(expected)
        page.keyboard.press("Escape")
        expect(page.locator("#completions")).to_be_hidden()
        page.keyboard.press("Control+Space")
        expect(page.locator("#completions")).to_be_visible()


def test_without_the_token_one_can_watch_and_not_change(browser, desk):
    with open_page(browser, desk.base) as watched:
        page = watched.page
        expect(page.locator("#notice")).to_contain_text("you can watch, not change")
        expect(page.locator("#count")).to_have_text("Displaying 31 / 31")
        for button in ("run", "stop", "save", "remove"):
            expect(page.locator(f"#{button}")).to_be_disabled()
        assert watched.complaints == []


def test_several_queries_are_on_the_map_and_can_be_hidden(browser, desk):
    with open_page(browser, desk.address) as watched:
        page = watched.page
        expect(page.locator("#legend button")).to_have_count(2)
        expect(page.locator("#map")).not_to_have_attribute("data-marks", "62")
        page.get_by_role("button", name="some", exact=True).first.click()
        expect(page.locator("#map")).to_have_attribute("data-marks", "62")
        page.select_option("#sort", "title")
        page.click("#tab-reader")
        expect(page.locator("#reader h3").nth(1)).to_contain_text("item 000")


def test_without_third_party_files_reader_and_table_work_and_the_page_says_so(browser, tmp_path):
    with running_console(tmp_path / "state", feeds_of(words(3)), place=tmp_path / "none") as server:
        server.run("pairs", SQL)
        with open_page(browser, server.address) as watched:
            page = watched.page
            expect(page.locator("#notice")).to_contain_text("Missing: leaflet 1.9.4, uplot 1.6.32")
            expect(page.locator("#map-note")).to_contain_text("no map")
            page.click("#tab-reader")
            expect(page.locator("#reader .item")).to_have_count(3)
            assert watched.complaints == []
