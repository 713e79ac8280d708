"""Queries through the server: mistakes with their place, save and stop; hostile names, SQL, titles and addresses."""

import json
import socket
import threading

import pytest

from tests.support.console_server import LEFT, PAIRS, RIGHT, WrittenFeeds, rss, running_console, wait_for

HTML = '& "quoted" <b>bold</b>'
SCRIPT = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    feeds = WrittenFeeds(
        {LEFT: rss(["one", "two", HTML], place=(10, 20)), RIGHT: rss(["two", "three", HTML], place=(12, 24))}
    )
    with running_console(tmp_path_factory.mktemp("api"), feeds) as running:
        running.feeds = feeds
        running.run("pairs", PAIRS)
        running.wait_for_results("pairs", 2)
        yield running


def rows(server, name, **options):
    return server.http.get(f"/api/queries/{name}/results", params=options).json()["rows"]


def test_results_have_number_moment_values_and_places(server):
    first, second = rows(server, "pairs")
    assert sorted([first["values"], second["values"]]) == sorted([["two", "two"], [HTML, HTML]])
    assert [first["n"], second["n"]] == [1, 2]
    assert first["at"] > 1.7e12
    assert len(first["id"]) == 32
    assert {place["alias"] for place in first["places"]} == {"a", "b"}
    assert {(place["lat"], place["long"]) for place in first["places"] + second["places"]} >= {
        (11.0, 21.0),
        (12.0, 24.0),
    }
    assert rows(server, "pairs", after=1) == [second]
    assert rows(server, "pairs", limit=1) == [first]


def test_html_in_titles_stays_text_in_every_form(server):
    """The parser takes scripts out of items; a query can put them back, and then they are text too."""
    server.run("scripts", f"SELECT concat('{SCRIPT}', a.title) AS made FROM rss('{LEFT}') a")
    server.wait_for_results("scripts", 3)
    assert {row["values"][0] for row in rows(server, "scripts")} == {
        f"{SCRIPT}{title}" for title in ("one", "two", HTML)
    }
    for ending, kind in (
        ("rss", "application/rss+xml"),
        ("atom", "application/atom+xml"),
        ("json", "application/feed+json"),
    ):
        answer = server.http.get(f"/feeds/scripts.{ending}")
        assert answer.headers["content-type"].startswith(kind)
        if ending == "json":
            assert json.loads(answer.text)["items"]
        else:
            assert "<script" not in answer.text
            assert "<b>" not in answer.text
            assert "&amp;lt;script" in answer.text or "&lt;script" in answer.text
    server.change("DELETE", "/api/queries/scripts")


def test_a_result_feed_has_its_address_and_leads_to_older_results(server):
    server.feeds.documents["https://many.example/"] = rss([f"many {i}" for i in range(130)])
    server.run("a lot", "SELECT a.title FROM rss('https://many.example/') a")
    server.wait_for_results("a lot", 130)
    newest = server.http.get("/feeds/a lot.json").json()
    assert newest["feed_url"] == f"{server.base}/feeds/a%20lot.json"
    older = server.http.get(newest["next_url"]).json()
    assert "next_url" not in older
    numbers = [int(item["title"].partition(")")[0]) for item in newest["items"] + older["items"]]
    assert numbers == list(range(130, 0, -1))
    server.change("DELETE", "/api/queries/a lot")


def test_a_mistake_is_named_with_its_place(server):
    sql = PAIRS.replace("a.title, b", "a.tilte, b")
    for method, path, status in (("POST", "/api/plan", 200), ("PUT", "/api/queries/wrong", 400)):
        answer = server.change(method, path, {"sql": sql})
        assert answer.status_code == status
        said = answer.json()
        assert "title" in said["error"]
        place = said["place"]
        assert sql[place["at"] : place["at"] + place["length"]] == "tilte"
        assert (place["line"], place["column"]) == (1, place["at"] + 1)
    assert not server.query("wrong")


def test_a_plan_is_drawn(server):
    plan = server.change("POST", "/api/plan", {"sql": PAIRS}).json()["plan"]
    assert LEFT in plan
    assert RIGHT in plan


def test_a_query_is_saved_without_running_then_runs_stops_and_goes(server):
    path = "/api/queries/saved one"
    assert server.change("PUT", path, {"sql": PAIRS, "run": False}).status_code == 200
    assert server.query("saved one")["state"] == "stopped"
    server.change("POST", f"{path}/start")
    server.wait_for_results("saved one", 2)
    server.change("POST", f"{path}/stop")
    assert server.query("saved one")["state"] == "stopped"
    assert len(rows(server, "saved one")) == 2
    before = server.query("saved one")["id"]
    # another SQL under the same name begins anew, and a wrong one costs nothing
    assert server.change("PUT", path, {"sql": "SELECT"}).status_code == 400
    assert server.query("saved one")["id"] == before
    server.change("PUT", path, {"sql": PAIRS + " AND a.title = 'two'"})
    wait_for(lambda: server.query("saved one")["count"] == 1, "the one result of the new query")
    assert server.query("saved one")["id"] != before
    assert server.change("DELETE", path).status_code == 200
    assert not server.query("saved one")
    assert server.http.get("/feeds/saved one.rss").status_code == 404


@pytest.mark.parametrize("name", ["..", ".hidden", "%2e%2e", "a%2Fb", "x" * 61, "a%00b", "a%0Ab", " "])
def test_hostile_names_are_refused(server, name):
    answer = server.change("PUT", f"/api/queries/{name}", {"sql": PAIRS})
    assert answer.status_code in (400, 404, 405), answer.text
    assert len(server.http.get("/api/state").json()["queries"]) == 1


@pytest.mark.parametrize("name", ["'; DROP TABLE queries; --", "<img src=x onerror=alert(1)>", "Straße 北京"])
def test_names_that_mean_something_elsewhere_are_only_names(server, name):
    assert server.change("PUT", f"/api/queries/{name}", {"sql": PAIRS}).status_code == 200
    assert server.query(name)["state"] == "running"
    assert server.change("DELETE", f"/api/queries/{name}").status_code == 200


@pytest.mark.parametrize(
    "sql",
    [
        "DROP TABLE items",
        f"SELECT a.title FROM rss('{LEFT}') a; DELETE FROM x",
        f"SELECT a.title FROM rss('{LEFT}') a UNION SELECT 1",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT a.title FROM rss('javascript:alert(1)') a",
        "SELECT a.title FROM rss('ftp://files.example/') a",
        f"SELECT a.title FROM rss('{LEFT}') a WHERE a.title = '' OR pg_sleep(10) = 1",
        "\x00",
        "(" * 5000,
    ],
)
def test_sql_that_is_none_of_the_dialect_is_refused_and_nothing_runs(server, sql):
    answer = server.change("PUT", "/api/queries/injected", {"sql": sql})
    assert answer.status_code == 400, answer.text
    assert not server.query("injected")


def test_a_query_cannot_ask_this_machine(tmp_path):
    """Over HTTP, without the option for private addresses: the feed has an error, and nobody was asked."""
    asked = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        threading.Thread(target=lambda: asked.append(listener.accept()), daemon=True).start()
        with running_console(tmp_path) as server:
            urls = [f"http://127.0.0.1:{port}/feed", f"http://localhost:{port}/feed", "file:///etc/passwd"]
            for i, url in enumerate(urls):
                server.change("PUT", f"/api/queries/q{i}", {"sql": f"SELECT a.title FROM rss('{url}') a"})

            def refused():
                feeds = {feed["url"]: feed["error"] for feed in server.http.get("/api/state").json()["feeds"]["shown"]}
                return all(feeds.get(url, "refused at once") for url in urls)

            wait_for(refused, "the refusals")
    assert not asked


@pytest.mark.parametrize("query", ["after=-1", "after=x", "limit=1001", "limit=99999999999999999999999", "after=١"])
def test_numbers_are_checked(server, query):
    answer = server.http.get(f"/api/queries/pairs/results?{query}")
    assert (answer.status_code, "is not a number" in answer.json()["error"]) == (400, True)


def test_the_state_of_feeds_says_last_pull_items_and_errors(server):
    server.run(
        "failing", f"SELECT a.title FROM rss('{LEFT}') a, rss('https://gone.example/') b WHERE a.title = b.title"
    )

    def feeds():
        found = {feed["url"]: feed for feed in server.http.get("/api/state").json()["feeds"]["shown"]}
        return found if found.get("https://gone.example/", {}).get("error") else None

    found = wait_for(feeds, "the error")
    assert "not written" in found["https://gone.example/"]["error"]
    assert (found[LEFT]["items"], found[LEFT]["title"], found[LEFT]["error"]) == (3, "Test", None)
    server.change("DELETE", "/api/queries/failing")


def test_without_third_party_files_the_server_starts_and_says_what_is_missing(tmp_path):
    with running_console(tmp_path / "state", WrittenFeeds(), place=tmp_path / "none") as server:
        assert server.http.get("/").status_code == 200
        missing = server.http.get("/api/state").json()["missing"]
    assert [name.split()[0] for name in missing] == ["leaflet", "uplot", "topojson-client", "world-atlas"]
