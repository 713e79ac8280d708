"""``headrace feeds`` on a real store and real files."""

import json

import pytest
from typer.testing import CliRunner

from headrace.cli import app
from headrace.feeds.feed_state import FeedState
from headrace.feeds.store import Change, FeedStore
from tests.support.feed_documents import rss

URL = "https://example.org/feed"


def run(*args, **env):
    return CliRunner().invoke(app, ["feeds", *map(str, args)], env={"COLUMNS": "200", "NO_COLOR": "1", **env})


@pytest.fixture
def state(tmp_path):
    return tmp_path / "state"


def test_feeds_are_added_listed_and_removed(state):
    added = run("add", URL, "http://x.example/", "--interval", "5m", "--state", state)
    assert (added.exit_code, added.stdout) == (0, f"added {URL}\nadded http://x.example/\n")
    listed = json.loads(run("list", "--state", state, "--json").stdout)
    assert [(feed["url"], feed["interval"], feed["outcome"]) for feed in listed] == [
        (URL, 300.0, None),
        ("http://x.example/", 300.0, None),
    ]
    assert run("remove", "http://x.example/", "--state", state).exit_code == 0
    assert "x.example" not in run("list", "--state", state).stdout
    assert run("remove", "http://x.example/", "--state", state).exit_code == 2


def test_the_list_shows_how_pulls_ended_and_nothing_that_controls_the_terminal(state):
    store = FeedStore(state)
    store.add([URL])
    with store.held():
        store.note(
            Change(FeedState(URL, title="quakes\x1b[31m", outcome="gone", error="gone for good", due=None, items=7))
        )
        store.commit()
    shown = run("list", "--state", state).stdout
    assert "quakes\\x1b[31m" in shown
    assert all(word in shown for word in ("gone for good", "never", "7"))
    assert "no feeds" in run("list", "--state", state / "other").stdout


def test_the_default_state_is_in_the_state_directory(tmp_path):
    assert run("add", URL, HEADRACE_STATE=str(tmp_path)).exit_code == 0
    assert (tmp_path / "feeds" / "feeds.json").exists()


def test_an_address_is_tried_without_keeping_anything(tmp_path):
    (tmp_path / "feed.xml").write_bytes(rss([("1", "first"), ("2", "second")], title="all the news", ttl=5))
    url = (tmp_path / "feed.xml").as_uri()
    facts = json.loads(run("test", url, "--allow-files", "--json", HEADRACE_STATE=str(tmp_path / "s")).stdout)
    assert (facts["title"], facts["items"], facts["ttl"], facts["format"]) == ("all the news", 2, 300, "rss 2.0")
    assert [item["title"] for item in facts["first"]] == ["first", "second"]
    shown = run("test", url, "--allow-files").stdout
    assert "all the news" in shown and "second" in shown
    assert not (tmp_path / "s").exists()


def test_addresses_that_cannot_be_pulled_end_with_a_code_and_a_line(tmp_path):
    (tmp_path / "page.html").write_text("<html></html>")
    page = (tmp_path / "page.html").as_uri()
    for args, code, words in [
        (("test", page), 2, "http and https"),
        (("test", page, "--allow-files"), 2, "give the address of an RSS or Atom feed"),
        (("test", "http://127.0.0.1:1234/"), 2, "--allow-private"),
        (("test", (tmp_path / "none.xml").as_uri(), "--allow-files"), 3, "could not be read"),
        (("add", "ftp://example.org/", "--state", tmp_path / "s"), 2, "schemes"),
        (("add", "http://ann:hunter2@example.org/", "--state", tmp_path / "s"), 2, "a user or a password"),
    ]:
        ended = run(*args)
        assert (ended.exit_code, words in ended.stderr) == (code, True), (args, ended.stderr)
        assert "hunter2" not in ended.stderr
