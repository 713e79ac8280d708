"""A desk that is killed with SIGKILL at any step loses no result and gives none twice."""

import signal

import numpy as np
import pytest

from headrace.feeds.sql import parse_query
from tests.support.feed_queries import RecordedDesk, record_feed
from tests.support.killable_children import Children

A, B = "http://feeds.example/a", "http://feeds.example/b"
PAIRS = f"SELECT a.title, b.title FROM rss('{A}') a, rss('{B}') b WHERE a.description = b.description"
HOURS = f"SELECT window(a.seen, '3 minutes') AS w, count(*) AS n, a.description AS d FROM rss('{A}') a GROUP BY w, d"
QUERIES = {"pairs": PAIRS, "near": f"{PAIRS} WITHIN '2 minutes'", "hours": HOURS}


@pytest.fixture(scope="module")
def children():
    started = Children("headrace.feeds.desk", "headrace.feeds.recorded", "concurrent.futures.thread")
    yield started
    started.close()


def record_day(recording, seed, minutes=12):
    """Two feeds of items that come, go and change; returns what is seen of each: (title, description, minute), each once."""
    rng, seen = np.random.default_rng(seed), {A: {}, B: {}}
    for minute in range(minutes):
        for url in (A, B):
            rows = []
            for i in range(minute, minute + 3):
                version = int(rng.integers(0, 3))
                row = {"guid": str(i), "title": f"{i}.{version}", "description": str(i % 4)}
                rows.append(row)
                seen[url].setdefault(row["title"], (row["title"], row["description"], minute))
            record_feed(recording, url, minute, *rows)
    return {url: list(found.values()) for url, found in seen.items()}


def brute_force(seen, within=None):
    return sorted(
        (a, b)
        for a, x, at in seen[A]
        for b, y, then in seen[B]
        if x == y and (within is None or abs(at - then) <= within)
    )


def windows(seen):
    """Groups of three minutes whose end was seen."""
    found = {}
    for _, key, minute in seen[A]:
        found[minute // 3, key] = found.get((minute // 3, key), 0) + 1
    latest = max(minute for _, _, minute in seen[A])
    return sorted((n, key) for (window, key), n in found.items() if 3 * window + 3 <= latest)


def check(desk, seen):
    def rows(name):
        return desk.results(name, limit=100_000).to_pylist()

    for name, within in (("pairs", None), ("near", 2)):
        ids = [row["_id"] for row in rows(name)]
        assert len(set(ids)) == len(ids)
        assert sorted((row["a.title"], row["b.title"]) for row in rows(name)) == brute_force(seen, within)
    assert sorted((row["n"], row["d"]) for row in rows("hours")) == windows(seen)
    assert [row["_number"] for row in rows("pairs")] == list(range(1, len(brute_force(seen)) + 1))


def killed_again_and_again(children, path, seed, most):
    seen = record_day(path / "recording", seed)
    place = RecordedDesk(path / "recording", path / "state")
    random, kills = np.random.default_rng(seed), 0
    while True:
        at = int(random.integers(1, 20)) if kills < most else -1
        ended = children.run("run_desk", path / "state", path / "recording", QUERIES, at=at)
        assert ended["error"] is None, (seed, ended)
        if ended["signal"] is None:
            break
        assert ended["signal"] == signal.SIGKILL
        kills += 1
    check(place.desk(), seen)
    return kills


def test_oracle_a_desk_that_is_killed_again_and_again_gives_every_result_once(children, ram_path):
    assert killed_again_and_again(children, ram_path, seed=1, most=10) == 10


@pytest.mark.parametrize("call", ["link", "rename", "unlink"])
def test_a_desk_killed_at_its_first_link_replacement_or_removal_goes_on(children, ram_path, call):
    seen = record_day(ram_path / "recording", 2, minutes=6)
    task = ("run_desk", ram_path / "state", ram_path / "recording", QUERIES)
    assert children.run(*task, name=call)["signal"] == signal.SIGKILL
    assert children.run(*task)["error"] is None
    check(RecordedDesk(ram_path / "recording", ram_path / "state").desk(), seen)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10, 30))
def test_oracle_a_desk_that_is_killed_at_many_moments_gives_every_result_once(children, ram_path, seed):
    assert killed_again_and_again(children, ram_path, seed, most=60)


def test_the_queries_of_this_file_are_bounded_as_they_say():
    assert [parse_query(text).history for text in QUERIES.values()] == [None, 120.0, 180.0]
