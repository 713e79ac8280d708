"""The desk: several queries on one scanner, results each once, across restarts."""

import asyncio

import pytest

from headrace.errors import BadInput
from headrace.feeds.sql import BadQuery
from tests.support.feed_queries import RecordedDesk, record_feed

A, B = "http://feeds.example/a", "http://feeds.example/b"
JOIN = (
    f"SELECT a.title, b.title FROM rss('{A}') a, rss('{B}') b WHERE dist(a.geoLat, a.geoLong, b.geoLat, b.geoLong) < 1"
)


def item(name, lat, version=""):
    return {"guid": name, "title": f"{name}{version}", "lat": lat, "long": 0}


@pytest.fixture
def place(tmp_path):
    """Two feeds over ten minutes: items come, go and change; some change back."""
    recording = tmp_path / "recording"
    for minute in range(10):
        record_feed(recording, A, minute, *(item(f"a{i}", i) for i in range(max(0, minute - 3), minute + 1)))
        version = "" if minute % 3 == 0 else "!"
        record_feed(
            recording, B, minute, item("b0", 5.5, version), *(item(f"b{i}", i + 0.5) for i in range(1, minute, 2))
        )
    return RecordedDesk(recording, tmp_path / "state")


def brute_force():
    """The join of all items ever seen, in every version, in plain Python."""
    ones = {(f"a{i}", i) for i in range(10)}
    others = {("b0", 5.5), ("b0!", 5.5)} | {(f"b{i}", i + 0.5) for m in range(10) for i in range(1, m, 2)}
    return sorted((a, b) for a, x in ones for b, y in others if abs(x - y) < 1)


def pairs(desk, name="pairs"):
    return sorted((row["a.title"], row["b.title"]) for row in desk.results(name, limit=10_000).to_pylist())


def test_oracle_results_of_recorded_pulls_are_the_join_of_all_items_seen(place):
    desk = place.desk()
    desk.subscribe("pairs", JOIN)
    place.run(desk, 12)
    assert pairs(desk) == brute_force()
    numbers = desk.results("pairs", limit=10_000).column("_number").to_pylist()
    assert numbers == list(range(1, len(numbers) + 1))


def test_a_restart_after_every_pull_repeats_and_loses_nothing(place):
    ids = []
    for minute in range(1, 13):
        desk = place.desk()
        desk.subscribe("pairs", JOIN)
        place.run(desk, minute)
        ids.append(desk.results("pairs", limit=10_000).column("_id").to_pylist())
        assert len(set(ids[-1])) == len(ids[-1])
        assert ids[-1][: len(ids[-2])] == ids[-2] if len(ids) > 1 else True
    assert pairs(desk) == brute_force()


def test_queries_share_feeds_and_a_new_one_begins_with_what_was_seen_before(place):
    desk = place.desk()
    desk.subscribe("pairs", JOIN)
    place.run(desk, 6)
    desk = place.desk()
    desk.subscribe("again", JOIN)
    desk.subscribe("some", f"SELECT a.title FROM rss('{A}') a WHERE a.title LIKE 'a_'")
    place.run(desk, 12)
    assert pairs(desk, "again") == pairs(desk, "pairs") == brute_force()
    assert [row["a.title"] for row in desk.results("some").to_pylist()] == [f"a{i}" for i in range(10)]
    assert [(one.name, one.state, one.results) for one in desk.queries()][2] == ("some", "running", 10)
    feed = desk.feeds()[0]
    assert (feed.url, feed.title, feed.items, feed.error, feed.queries) == (
        A,
        "t",
        10,
        None,
        ("again", "pairs", "some"),
    )


def test_a_query_that_was_stopped_goes_on_where_it_stopped(place):
    desk = place.desk()
    desk.subscribe("pairs", JOIN)
    desk.subscribe("other", JOIN)
    place.run(desk, 4)
    desk.stop("pairs")
    had = desk.results("pairs").num_rows
    place.run(desk, 8)
    assert desk.results("pairs").num_rows == had < desk.results("other").num_rows
    assert place.desk().queries()[1].state == "stopped"
    desk.start("pairs")
    place.run(desk, 12)
    assert pairs(desk) == brute_force()


def test_a_removed_query_leaves_nothing(place):
    desk = place.desk()
    desk.subscribe("pairs", JOIN)
    place.run(desk, 4)
    desk.remove("pairs")
    assert desk.queries() == [] and list((place.state / "queries").iterdir()) == []
    with pytest.raises(BadInput, match="there is no query 'pairs'"):
        desk.results("pairs")


def test_names_and_queries_are_checked_when_they_are_given(place):
    desk = place.desk()
    desk.subscribe("../pairs", JOIN)
    assert [path.name for path in (place.state / "queries").iterdir()] == ["%2E%2E%2Fpairs"]
    assert desk.subscribe("../pairs", JOIN).name == "../pairs"
    with pytest.raises(BadInput, match="there is a query"):
        desk.subscribe("../pairs", f"SELECT a.title FROM rss('{A}') a")
    with pytest.raises(BadQuery, match="no column 'tilte'"):
        desk.subscribe("wrong", f"SELECT a.tilte FROM rss('{A}') a")
    with pytest.raises(BadInput, match="schemes of feeds"):
        desk.subscribe("wrong", "SELECT a.title FROM rss('gopher://x') a")
    with pytest.raises(BadQuery, match="runs for ever"):
        desk.plan(f"SELECT a.title FROM rss('{A}') a ORDER BY a.title")
    assert [one.name for one in desk.queries()] == ["../pairs"]
    assert desk.plan(f"SELECT a.title FROM rss('{A}') a").startswith("result: a.title")


def test_a_follower_reads_from_the_files_and_costs_nothing_while_it_does_not(place):
    async def follow(desk):
        seen = []
        task = asyncio.create_task(desk.run(None))
        idle = desk.follow("pairs")  # it never asks
        async for batch in desk.follow("pairs", limit=3):
            assert batch.num_rows <= 3
            seen += batch.column("_number").to_pylist()
            if len(seen) == len(brute_force()):
                break
        await idle.aclose()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return seen

    desk = place.desk()
    desk.subscribe("pairs", JOIN)
    assert asyncio.run(follow(desk)) == list(range(1, len(brute_force()) + 1))


def test_old_results_are_removed_and_numbers_go_on(place):
    place.options["keep"] = 4
    desk = place.desk()
    desk.subscribe("pairs", JOIN)
    for minute in range(1, 13):
        place.run(desk, minute)
    kept = desk.results("pairs", limit=1000).column("_number").to_pylist()
    assert kept == list(range(kept[0], len(brute_force()) + 1)) and kept[0] > 1
    assert place.desk().queries()[0].results == len(brute_force())


def test_a_query_that_fails_says_so_and_leaves_the_others_alone(place):
    desk = place.desk()
    desk.subscribe("pairs", JOIN)
    grouped = f"SELECT a.title, count(*) FROM rss('{A}') a GROUP BY a.title, window(a.seen, '1 minute')"
    desk.subscribe("fails", grouped, memory="256B")
    place.run(desk, 12)
    fails = desk.queries()[0]
    assert fails.state == "failed" and "is left" in (fails.error or "")
    assert pairs(desk) == brute_force()


@pytest.mark.parametrize("bound", ["WITHIN '2 minutes'", "WITHIN '30 seconds'"])
def test_a_bound_on_time_bounds_the_state_and_not_the_results(place, bound, tmp_path):
    desk = place.desk()
    desk.subscribe("pairs", f"{JOIN} {bound}")
    for minute in range(1, 13):
        place.run(desk, minute)
        desk = place.desk()
    whole = RecordedDesk(place.recording, tmp_path / "whole")
    other = whole.desk()
    other.subscribe("pairs", f"{JOIN} {bound}")
    whole.run(other, 12)
    assert pairs(desk) == pairs(other) != brute_force()
