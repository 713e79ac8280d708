"""A scanner that is killed with SIGKILL at any step loses no item and gives none twice."""

import signal

import numpy as np
import pytest

from headrace.feeds.store import FeedStore
from tests.support.feed_documents import record_feeds, seen_in
from tests.support.killable_children import Children

URLS = [f"http://example.org/{n}" for n in range(4)]


@pytest.fixture(scope="module")
def children():
    started = Children("headrace.feeds.scanner", "headrace.feeds.recorded", "concurrent.futures.thread")
    yield started
    started.close()


def check(state, expected):
    pulls = list(FeedStore(state).pulls())
    assert [pull.number for pull in pulls] == list(range(1, len(pulls) + 1))
    assert sorted(seen_in(pulls)) == expected


def killed_again_and_again(children, path, seed, most):
    """Kill a scanner before a random call that changes the disk, start it again, until it comes to its end."""
    expected = record_feeds(path / "recorded", URLS, steps=24)
    random, kills = np.random.default_rng(seed), 0
    while True:
        at = int(random.integers(1, 60)) if kills < most else -1
        ended = children.run("scan_feeds", path / "state", path / "recorded", URLS, at=at)
        assert ended["error"] is None, (seed, ended)
        before = seen_in(FeedStore(path / "state").pulls())
        assert len(before) == len(set(before)), f"seed {seed}, after {kills} kills"
        if ended["signal"] is None:
            break
        assert ended["signal"] == signal.SIGKILL
        kills += 1
    check(path / "state", expected)
    return kills


def test_a_scanner_that_is_killed_again_and_again_logs_every_item_once(children, ram_path):
    assert killed_again_and_again(children, ram_path, seed=1, most=15) == 15


@pytest.mark.parametrize("call", ["fsync", "link", "unlink"])
def test_a_scanner_killed_at_its_first_sync_link_or_removal_goes_on(children, ram_path, call):
    expected = record_feeds(ram_path / "recorded", URLS, steps=6)
    task = ("scan_feeds", ram_path / "state", ram_path / "recorded", URLS)
    assert children.run(*task, name=call)["signal"] == signal.SIGKILL
    assert children.run(*task)["error"] is None
    check(ram_path / "state", expected)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10, 30))
def test_a_scanner_that_is_killed_at_many_moments_logs_every_item_once(children, ram_path, seed):
    assert killed_again_and_again(children, ram_path, seed, most=40)
