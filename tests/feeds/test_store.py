"""FeedStore: what is remembered, commits, compaction, and damage."""

import errno
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa
import pytest

from headrace.clock import ManualClock
from headrace.errors import BadInput, DamagedLog, FeedRefused, FileFault, RunLogError
from headrace.feeds import items as feed_items
from headrace.feeds.feed_state import FeedState
from headrace.feeds.items import ITEM_SCHEMA
from headrace.feeds.pulls import PULL_SCHEMA, Pull, moment
from headrace.feeds.seen import NOTHING_SEEN, pair_up
from headrace.feeds.store import Change, FeedStore
from headrace.files import LocalFiles, using
from tests.support.feed_documents import seen_in

URL = "https://example.org/feed"
DAY = 86_400.0


def pull_of(url, texts, at):
    """A pull with an item for each text, and what is seen after it."""
    batch = pa.RecordBatch.from_pylist([{"guid": text, "title": text} for text in texts], ITEM_SCHEMA)
    hashes = feed_items.identities(batch), feed_items.contents(batch)
    flags = pa.array([False] * len(texts))
    rows = pa.RecordBatch.from_arrays([*batch.columns, *hashes, flags], schema=PULL_SCHEMA)
    return Pull(url, moment(at), "items", rows), pair_up(*hashes)


def change_of(store, url, texts, at, etag=None):
    pull, pairs = pull_of(url, texts, at)
    state = replace(store.state(url), etag=etag, pulled=at, outcome="items", items=store.state(url).items + len(texts))
    return Change(state, store.seen(url).after(pairs, at, store.horizon), pull)


def titles(store, after=0):
    return [(pull.number, title) for pull in store.pulls(after) for title in pull.items.column("title").to_pylist()]


@pytest.fixture
def clock():
    return ManualClock(start=2 * DAY)


@pytest.fixture
def store(ram_path, clock):
    return FeedStore(ram_path / "state", horizon="7d", clock=clock)


def test_a_commit_numbers_pulls_and_everything_is_there_again_after_opening(store, clock):
    with store.held():
        first = store.commit([change_of(store, URL, ["a", "b"], 1.0, '"1"'), change_of(store, "http://x/", ["c"], 1.0)])
        store.note(Change(FeedState("http://y/", outcome="failed", error="no", failures=3, due=99.0)))
        second = store.commit([change_of(store, URL, ["d"], 2.0, '"2"')])
        assert ([p.number for p in first], [p.number for p in second], store.newest) == ([1, 2], [3], 3)
    for other in (store, FeedStore(store.path, clock=clock)):
        assert titles(other) == [(1, "a"), (1, "b"), (2, "c"), (3, "d")]
        assert titles(other, after=2) == [(3, "d")]
        assert (other.newest, other.states()[URL].etag, other.states()[URL].items) == (3, '"2"', 3)
        assert other.states()["http://y/"] == FeedState("http://y/", outcome="failed", error="no", failures=3, due=99.0)
        assert [p.at for p in other.pulls()] == [moment(1.0), moment(1.0), moment(2.0)]
        assert [p.items.schema for p in other.pulls()] == [ITEM_SCHEMA] * 3


def test_items_seen_come_back_from_the_log_and_from_a_snapshot(store, clock):
    with store.held():
        store.commit([change_of(store, URL, ["a", "b"], 1.0)])
        from_log = FeedStore(store.path, clock=clock)
        from_log.states()
        assert set(from_log.seen(URL).pairs) == set(store.seen(URL).pairs)
    with store.held():
        assert not list(store.log.groups()) or store.seen(URL).current.all()
        assert store.seen(URL).fresh(pull_of(URL, ["a", "b"], 0)[1], "append")[0].tolist() == []
        assert store.seen("http://other/") is NOTHING_SEEN
        store.commit([change_of(store, URL, ["b", "c"], 2.0)])
        assert len(store.seen(URL).pairs) == 3


def test_one_scanner_at_a_time_works_on_a_store_and_nobody_writes_without(store, clock):
    with store.held(), pytest.raises(RunLogError, match="another scanner works in"), FeedStore(store.path).held():
        pass
    with pytest.raises(BadInput, match="not held"):
        store.commit([])


def test_pulls_past_the_horizon_go_unless_a_query_needs_them(store, clock):
    with store.held():
        for n in range(4):
            store.commit([change_of(store, URL, [f"t{n}"], clock.now())])
            store.compact()
            clock.advance(2 * DAY)
        clock.advance(2 * DAY)  # the pulls are 10, 8, 6 and 4 days old
        store.hold("query", after=1)
        store.compact()
        assert [n for n, _ in titles(store)] == [2, 3, 4]
        store.hold("query", after=3)
        store.hold("other", after=0)
        store.compact()
        assert [n for n, _ in titles(store)] == [2, 3, 4]
        store.release("other")
        store.compact()
        assert [n for n, _ in titles(store)] == [3, 4]
        store.release("query")
        clock.advance(30 * DAY)
        store.compact()
        assert (titles(store), store.newest) == ([], 4)
    assert store.newest == 4
    with store.held():
        assert store.commit([change_of(store, URL, ["t5"], clock.now())])[0].number == 5


def test_small_files_are_merged_and_readers_see_every_pull_once(store, clock):
    with store.held():
        for n in range(40):
            store.commit([change_of(store, URL, [f"t{n}"], clock.now())])
            if n % 4 == 0:
                store.note(Change(replace(store.state(URL), error=f"note {n}")))
                store.commit()
        reader = store.pulls()
        begun = [next(reader).number for _ in range(3)]
        store.compact()
        files = list(store.log.directory.iterdir())
        assert len(files) == 1
        assert begun + [pull.number for pull in reader] == list(range(1, 41))
        assert titles(store) == [(n + 1, f"t{n}") for n in range(40)]
    with store.held():
        assert titles(store, after=38) == [(39, "t38"), (40, "t39")]


def test_a_merge_that_was_stopped_before_it_removed_its_files_repeats_nothing(store, clock):
    with store.held():
        for n in range(20):
            store.commit([change_of(store, URL, [f"t{n}"], clock.now())])
        kept = {path.name: path.read_bytes() for path in store.log.directory.iterdir()}
    for name, data in kept.items():
        (store.log.directory / name).write_bytes(data)
    (store.log.directory / ".draft-left").write_bytes(b"half")
    assert [n for n, _ in titles(store)] == list(range(1, 21))
    with store.held():
        assert len(list(store.log.directory.iterdir())) == 1
        assert [n for n, _ in titles(store)] == list(range(1, 21))


def test_a_snapshot_is_written_when_the_log_has_grown(store, clock):
    text = "x" * 100_000
    with store.held():
        for n in range(12):
            store.commit([change_of(store, URL, [f"{n}{text}"], clock.now())])
        assert len(list((store.path / "snapshots").iterdir())) == 1
    assert [n for n, _ in titles(store)] == list(range(1, 13))


def test_feeds_that_nobody_pulls_are_forgotten_after_the_horizon(store, clock):
    store.add([URL])
    with store.held():
        store.commit([change_of(store, url, ["a"], clock.now()) for url in (URL, "http://x/")])
        clock.advance(6 * DAY)
        store.compact()
        assert len(store.seen("http://x/").pairs) == 1
        clock.advance(2 * DAY)
        store.commit([change_of(store, "http://y/", ["a"], clock.now())])
        store.compact()
        assert (len(store.seen("http://x/").pairs), len(store.seen(URL).pairs)) == (0, 1)
        assert set(store.states()) == {URL, "http://y/"}


def test_damage_and_missing_groups_are_named(store, clock):
    with store.held():
        for n in range(3):
            store.commit([change_of(store, URL, [f"t{n}"], clock.now())])
        paths = sorted(store.log.directory.iterdir())
        data = bytearray(paths[1].read_bytes())
        data[100] ^= 1
        paths[1].write_bytes(data)
        with pytest.raises(DamagedLog, match=paths[1].name):
            FeedStore(store.path).states()
        with pytest.raises(DamagedLog, match=paths[1].name):
            list(store.pulls())
        paths[1].unlink()
        with pytest.raises(DamagedLog, match="group 2 is missing"):
            FeedStore(store.path).states()


class FullDisk(LocalFiles):
    """A disk without room for another name."""

    def link(self, old, new):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_changes_nothing(store, clock):
    with store.held():
        store.note(Change(FeedState("http://y/", error="noted")))
        store.commit([change_of(store, URL, ["a"], 1.0, '"1"')])
        store.note(Change(FeedState("http://y/", error="again")))
        with using(FullDisk()), pytest.raises(FileFault, match="No space"):
            store.commit([change_of(store, URL, ["b"], 2.0, '"2"')])
        assert (store.state(URL).etag, store.newest, titles(store)) == ('"1"', 1, [(1, "a")])
        store.commit([change_of(store, URL, ["b"], 2.0, '"2"')])
    assert (titles(store), store.states()["http://y/"].error) == ([(1, "a"), (2, "b")], "again")


def test_the_list_of_feeds_is_changed_by_one_at_a_time_while_a_scanner_works(store):
    store.add([URL], interval="5m")

    def add(n):
        other = FeedStore(store.path)  # locks of its own, as another process has
        for i in range(20):
            other.add([f"https://example.org/{n}/{i}"])

    with store.held(), ThreadPoolExecutor(2) as pool:
        list(pool.map(add, range(2)))
        assert len(store.feeds()) == 41
        store.remove([f"https://example.org/{n}/{i}" for n in range(2) for i in range(20)])
        assert [(feed.url, feed.interval) for feed in store.feeds()] == [(URL, 300.0)]
        with pytest.raises(BadInput, match="there is no feed 'http://other/'"):
            store.remove(["http://other/"])


@pytest.mark.parametrize("url", ["ftp://example.org/", "http://a:b@example.org/", "example.org/feed", "http:///x"])
def test_addresses_that_are_never_pulled_are_not_added(store, url):
    with pytest.raises(FeedRefused):
        store.add([URL, url])
    assert store.feeds() == []


def test_seen_in_is_the_order_of_pulls(store):
    with store.held():
        store.commit([change_of(store, URL, ["a", "b"], 1.0)])
    assert seen_in(store.pulls()) == [(URL, "a", "a"), (URL, "b", "b")]
