"""Scanner: recorded feeds on a manual clock, and real servers on loopback."""

import asyncio
import threading
from datetime import timedelta

import pytest

from headrace.clock import ManualClock, WallClock
from headrace.errors import BadInput
from headrace.feeds import documents
from headrace.feeds.http_fetcher import HttpFetcher
from headrace.feeds.recorded import RecordedFetcher, ReplayClock, record
from headrace.feeds.scanner import Scanner
from headrace.feeds.schedule import Schedule
from headrace.feeds.store import FeedStore
from tests.support.feed_documents import START, record_feeds, rss, seen_in
from tests.support.feed_server import FeedServer, Reply

URLS = [f"http://example.org/{n}" for n in range(3)]
STEPS = 16


@pytest.fixture
def clock():
    return ManualClock(start=START.timestamp())


@pytest.fixture
def store(ram_path, clock):
    return FeedStore(ram_path / "state", clock=clock)


@pytest.fixture
def recording(ram_path):
    """Three recorded feeds: their directory, and the items that must be logged."""
    return ram_path / "recorded", record_feeds(ram_path / "recorded", URLS, steps=STEPS)


def scanner_of(fetcher, store, **options):
    return Scanner(fetcher, store, **{"host_gap": 0, "per_host": 50, "commit_gap": 0, **options})


def outcomes(pulls):
    return {pull.url.rsplit("/", 1)[1]: pull.outcome for pull in pulls}


def on_server(clock, store, pages, scenario, **options):
    """Run a scenario with a scanner of a real server's pages, all of which are in the list."""

    async def run():
        async with FeedServer() as server:
            server.pages.update(pages)
            store.add([server.url(path) for path in pages])
            async with scanner_of(HttpFetcher(allow_private=True, clock=clock), store, **options) as scanner:
                return await scenario(server, scanner)

    return asyncio.run(run())


# -- recorded feeds --------------------------------------------------------------------------------------------------------


def test_oracle_every_item_of_recorded_feeds_is_logged_once(clock, store, recording):
    directory, expected = recording
    store.add(URLS)

    async def run():
        fetcher = RecordedFetcher(directory, clock)
        async with scanner_of(fetcher, store) as scanner:
            await scanner.run(until=fetcher.end + timedelta(minutes=1))

    asyncio.run(run())
    assert sorted(seen_in(store.pulls())) == expected
    assert [pull.number for pull in store.pulls()] == list(range(1, store.newest + 1))
    changed = [flag for pull in store.pulls() for flag in pull.changed.to_pylist()]
    assert len(changed) - sum(changed) == len({(url, guid) for url, guid, _ in expected})


def test_a_scanner_that_is_restarted_at_every_pull_logs_the_same(clock, store, recording, ram_path):
    directory, expected = recording
    store.add(URLS)

    async def steps(count):
        async with scanner_of(RecordedFetcher(directory, clock), FeedStore(store.path, clock=clock)) as scanner:
            for _ in range(count):
                await scanner.step()
                clock.advance(60)

    for _ in range(STEPS):
        asyncio.run(steps(1))
    assert sorted(seen_in(store.pulls())) == expected
    assert [pull.number for pull in store.pulls()] == list(range(1, store.newest + 1))


def test_a_recorded_day_is_replayed_faster_than_it_was(ram_path, recording):
    directory, expected = recording
    fetcher = RecordedFetcher(directory, ManualClock())
    fetcher.clock = clock = ReplayClock(fetcher.start, speed=20_000)
    store = FeedStore(ram_path / "replayed", clock=clock)
    store.add(URLS)

    async def run():
        async with scanner_of(fetcher, store) as scanner:
            await scanner.run(until=fetcher.end + timedelta(hours=1))

    asyncio.run(run())
    assert set(seen_in(store.pulls())) <= set(expected)
    assert len(seen_in(store.pulls())) == len(set(seen_in(store.pulls())))
    assert {("http://example.org/0", "g15")} <= {(url, guid) for url, guid, _ in seen_in(store.pulls())}


@pytest.mark.parametrize(("on_change", "logged"), [("append", ["a1", "b1", "b2", "a2"]), ("ignore", ["a1", "b1"])])
def test_changed_items_are_new_tuples_or_ignored_and_duplicates_count_once(clock, store, ram_path, on_change, logged):
    versions = [
        [("a", "a1"), ("b", "b1"), ("b", "b1"), ("b", "b2")],
        [("a", "a2"), ("b", "b2"), ("b", "b1")],
        [("a", "a1")],  # as it was before: said already
    ]
    for minute, items in enumerate(versions):
        record(ram_path / "r", URLS[0], START + timedelta(minutes=minute), rss(items))
    store.add(URLS[:1])

    async def run():
        async with scanner_of(RecordedFetcher(ram_path / "r", clock), store, on_change=on_change) as scanner:
            await scanner.run(until=START + timedelta(minutes=4))

    asyncio.run(run())
    assert [text for _, _, text in seen_in(store.pulls())] == logged
    with pytest.raises(BadInput, match="on_change='append2'"):
        Scanner(RecordedFetcher(ram_path / "r", clock), store, on_change="append2")


# -- servers ------------------------------------------------------------------------------------------------------------------


def test_what_servers_answer_decides_when_feeds_are_pulled_next(clock, store):
    pages = {
        "/plain": Reply(rss([("a", "a")]), headers={"ETag": '"1"'}),
        "/ttl": Reply(rss([("a", "a")], ttl=30)),
        "/cached": Reply(rss([("a", "a")]), headers={"Cache-Control": "max-age=600"}),
        "/busy": Reply(status=503, headers={"Retry-After": "900"}),
        "/gone": Reply(status=410),
        "/missing": Reply(status=404),
        "/page": Reply(b"<html><body>hello</body></html>"),
    }

    async def scenario(server, scanner):
        first = outcomes(await scanner.step())
        begun = clock.now()
        due = {path: store.state(server.url(path)).due for path in pages}
        server.pages["/missing"] = Reply(rss([("m", "m")]))
        clock.advance(60)
        second = outcomes(await scanner.step())
        clock.advance(60 * 86_400)
        third = outcomes(await scanner.step())
        return first, {path: at and at - begun for path, at in due.items()}, second, third, server

    first, due, second, third, server = on_server(clock, store, pages, scenario)
    assert first == {
        **dict.fromkeys(("plain", "ttl", "cached"), "items"),
        "busy": "later",
        "gone": "gone",
        "missing": "failed",
        "page": "failed",
    }
    assert (due["/plain"], due["/ttl"], due["/cached"], due["/busy"], due["/gone"]) == (60, 1800, 600, 900, None)
    assert due["/missing"] == pytest.approx(Schedule().after_failure(server.url("/missing"), 1))
    assert second["plain"] == "unchanged"
    assert set(second) <= {"plain", "missing", "page"}
    assert third["missing"] == "items" or second.get("missing") == "items"
    assert len(server.asked("/gone")) == 1
    states = store.states()
    assert states[server.url("/missing")].failures == 0
    assert states[server.url("/page")].failures >= 2
    assert "web page" in states[server.url("/page")].error
    assert "gone for good" in states[server.url("/gone")].error


def test_a_feed_that_is_gone_is_tried_again_when_it_is_added_again(clock, store):
    async def scenario(server, scanner):
        await scanner.step()
        clock.advance(86_400)
        assert await scanner.step() == []
        server.pages["/feed"] = Reply(rss([("a", "a")]))
        store.add([server.url("/feed")])
        return outcomes(await scanner.step())

    assert on_server(clock, store, {"/feed": Reply(status=410)}, scenario) == {"feed": "items"}


def test_a_feed_that_has_moved_is_asked_at_its_new_address_until_that_fails(clock, store):
    async def scenario(server, scanner):
        server.pages["/new"] = Reply(rss([("a", "a")]), headers={"ETag": '"1"'})
        asked = []
        for page in (None, None, Reply(status=404), None):
            if page:
                server.pages["/new"] = page
            server.requests.clear()
            pulls = await scanner.step()
            asked.append(([request.path for request in server.requests], pulls[0].outcome))
            clock.advance(3600)
        return asked

    asked = on_server(clock, store, {"/feed": Reply(status=301, headers={"Location": "/new"})}, scenario)
    assert asked == [
        (["/feed", "/new"], "items"),
        (["/new"], "unchanged"),
        (["/new"], "failed"),
        (["/feed", "/new"], "failed"),
    ]
    assert {url for url, _, _ in seen_in(store.pulls())} == {next(iter(store.states()))}


def test_wrong_content_types_and_encodings_are_read_anyway(clock, store):
    latin = '<?xml version="1.0" encoding="utf-8"?><rss><channel><item><guid>1</guid><title>café</title></item></channel></rss>'
    pages = {
        "/html": Reply(rss([("1", "plain")]), headers={"Content-Type": "text/html"}),
        "/latin": Reply(latin.encode("latin-1"), headers={"Content-Type": "application/rss+xml; charset=utf-8"}),
    }

    async def scenario(server, scanner):
        return outcomes(await scanner.step())

    assert on_server(clock, store, pages, scenario) == {"html": "items", "latin": "items"}
    assert sorted(text for _, _, text in seen_in(store.pulls())) == ["café", "plain"]


def test_one_feed_of_many_queries_is_pulled_once_and_no_more_when_nobody_wants_it(clock, store):
    async def scenario(server, scanner):
        server.pages["/claimed"] = Reply(rss([("c", "c")]))
        url = server.url("/claimed")
        scanner.claim("one", [url, server.url("/listed")])
        scanner.claim("two", [url])
        await scanner.step()
        counts = [len(server.requests)]
        scanner.disclaim("one")
        clock.advance(60)
        await scanner.step()
        counts.append(len(server.asked("/claimed")))
        scanner.disclaim("two")
        clock.advance(60)
        await scanner.step()
        counts.append(len(server.asked("/claimed")))
        return counts

    assert on_server(clock, store, {"/listed": Reply(rss([("a", "a")]))}, scenario) == [2, 2, 2]


def test_a_scanner_that_was_closed_while_it_pulled_pulls_again(clock, store):
    async def run():
        begun = asyncio.Event()

        async def silence(writer):
            begun.set()
            await asyncio.Event().wait()

        async with FeedServer() as server:
            server.pages["/feed"] = silence
            store.add([server.url("/feed")])
            scanner = scanner_of(HttpFetcher(allow_private=True), store)
            async with scanner:
                step = asyncio.create_task(scanner.step())
                await begun.wait()
                step.cancel()
                await asyncio.gather(step, return_exceptions=True)
            server.pages["/feed"] = Reply(rss([("a", "a")]))
            async with scanner:
                return outcomes(await scanner.step())

    assert asyncio.run(run()) == {"feed": "items"}


def test_feeds_that_another_process_adds_are_pulled_while_the_scanner_runs(ram_path):
    store = FeedStore(ram_path / "state", clock=WallClock())

    async def run():
        async with FeedServer() as server:
            server.pages["/a"], server.pages["/b"] = Reply(rss([("a", "a")])), Reply(rss([("b", "b")]))
            store.add([server.url("/a")])
            seen = []
            async with scanner_of(HttpFetcher(allow_private=True), store) as scanner:
                running = asyncio.create_task(scanner.run())
                async for pull in scanner.follow():
                    seen.append((pull.number, pull.items.column("guid")[0].as_py()))
                    if len(seen) == 2:
                        break
                    FeedStore(store.path).add([server.url("/b")])
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
            return seen

    assert asyncio.run(run()) == [(1, "a"), (2, "b")]


def test_followers_end_with_the_scanner(clock, store, recording):
    store.add(URLS)

    async def run():
        fetcher = RecordedFetcher(recording[0], clock)
        async with scanner_of(fetcher, store) as scanner:

            async def follow():
                return [pull.number async for pull in scanner.follow(after=2)]

            following = asyncio.create_task(follow())
            await scanner.run(until=fetcher.end)
        return await following

    assert asyncio.run(run()) == list(range(3, store.newest + 1))


def test_followers_see_what_is_committed_while_they_look_for_the_end(clock, store, recording, monkeypatch):
    store.add(URLS)
    at_the_end, closed = threading.Event(), threading.Event()
    logged = store.pulls

    def slow_end(after=0):
        yield from logged(after)
        at_the_end.set()
        closed.wait(30)

    monkeypatch.setattr(store, "pulls", slow_end)

    async def run():
        fetcher = RecordedFetcher(recording[0], clock)
        scanner = scanner_of(fetcher, store)
        async with scanner:

            async def follow():
                return [pull.number async for pull in scanner.follow()]

            following = asyncio.create_task(follow())
            await asyncio.to_thread(at_the_end.wait, 30)
            await scanner.run(until=fetcher.end)
        closed.set()
        return await following

    assert asyncio.run(run()) == list(range(1, store.newest + 1))
    assert store.newest > 0


def test_documents_are_parsed_off_the_loop(clock, store, recording, monkeypatch):
    store.add(URLS[:1])
    begun, go_on = threading.Event(), threading.Event()

    def waits(*args, **options):
        begun.set()
        assert go_on.wait(60), "the loop stood still"
        return parse(*args, **options)

    parse = documents.parse_feed
    monkeypatch.setattr(documents, "parse_feed", waits)

    async def run():
        async with scanner_of(RecordedFetcher(recording[0], clock), store) as scanner:
            step = asyncio.create_task(scanner.step())
            while not begun.is_set():
                await asyncio.sleep(0)
            go_on.set()  # by the loop, which would wait for ever if it parsed itself
            return await step

    assert [pull.outcome for pull in asyncio.run(run())] == ["items"]


def test_a_feed_that_breaks_the_parser_keeps_no_other_from_being_pulled(clock, store, recording, monkeypatch):
    store.add(URLS)
    parse = documents.parse_feed

    def breaks(content, url, **options):
        if url == URLS[1]:
            raise ZeroDivisionError("of the parser")
        return parse(content, url, **options)

    monkeypatch.setattr(documents, "parse_feed", breaks)

    async def run():
        async with scanner_of(RecordedFetcher(recording[0], clock), store) as scanner:
            return await scanner.step()

    assert outcomes(asyncio.run(run())) == {"0": "items", "1": "failed", "2": "items"}
    assert store.states()[URLS[1]].error == "ZeroDivisionError: of the parser"


def test_items_that_could_not_be_written_come_again(clock, store, recording, monkeypatch):
    store.add(URLS[:1])

    async def run():
        async with scanner_of(RecordedFetcher(recording[0], clock), store) as scanner:
            with monkeypatch.context() as full:

                def no_room(*_, **__):
                    raise OSError(28, "No space left on device")

                full.setattr(store.log, "write", no_room)
                failed = await scanner.step()
            state = store.state(URLS[0])
            clock.advance(3600)
            again = await scanner.step()
            return failed, state, again

    failed, state, again = asyncio.run(run())
    assert [pull.outcome for pull in failed] == ["failed"]
    assert (state.outcome, state.etag, "No space" in state.error) == ("failed", None, True)
    assert again[0].number == 1
    assert len(seen_in(store.pulls())) == again[0].items.num_rows > 0


def test_pulls_that_end_together_are_written_together(clock, store):
    pages = {f"/{n}": Reply(rss([(f"{n}", f"{n}")])) for n in range(60)}

    async def scenario(server, scanner):
        await scanner.step()
        return len(store.log.groups()), store.newest

    groups, newest = on_server(clock, store, pages, scenario, commit_gap=0.05)
    assert newest == 60
    assert groups <= 30


def test_a_host_is_not_asked_more_often_than_its_gap(clock, store):
    pages = {f"/{n}": Reply(rss([(f"{n}", f"{n}")])) for n in range(3)}

    async def scenario(server, scanner):
        made = []
        for _ in range(4):
            made.append(len(await scanner.step()))
            clock.advance(5)
        return made

    assert on_server(clock, store, pages, scenario, host_gap=10, per_host=2) == [1, 0, 1, 0]
