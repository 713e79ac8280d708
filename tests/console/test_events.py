"""The stream of events: each result once, resumed where it was cut, for a thousand clients and beside one that never reads."""

import asyncio
import json
import socket

import httpx
import pytest

from headrace.console import events
from tests.support.console_server import (
    LEFT,
    PAIRS,
    PATIENCE,
    RIGHT,
    WrittenFeeds,
    read_events,
    rss,
    running_console,
    take_results,
    wait_for,
)


def titles(count, start=0):
    return [f"title {i}" for i in range(start, start + count)]


def matching(count, **options):
    """Feeds of which every item of one matches one of the other."""
    return WrittenFeeds({LEFT: rss(titles(count), **options), RIGHT: rss(titles(count), **options)})


def add(feeds, count, start):
    """Let both feeds have other items: what was there before has been seen."""
    feeds.documents[LEFT] = feeds.documents[RIGHT] = rss(titles(count, start))


def test_a_stream_resumes_where_it_was_cut_also_after_a_restart(tmp_path):
    feeds = matching(5)
    with running_console(tmp_path, feeds) as server:
        server.run("pairs", PAIRS)
        first, position = take_results(server, 5)
        assert first == [1, 2, 3, 4, 5]
        add(feeds, 4, start=5)
        server.wait_for_results("pairs", 9)
        second, position = take_results(server, 4, headers={"Last-Event-ID": position})
        assert second == [6, 7, 8, 9]
        port = server.port
    with running_console(tmp_path, feeds, port=port) as server:
        add(feeds, 3, start=9)
        third, _ = take_results(server, 3, headers={"Last-Event-ID": position})
        assert third == [10, 11, 12]
        everything, _ = take_results(server, 12)
        assert everything == list(range(1, 13))


def test_a_client_begins_after_what_it_has_or_with_the_last_results(tmp_path):
    with running_console(tmp_path, matching(20)) as server:
        server.run("pairs", PAIRS)
        server.wait_for_results("pairs", 20)
        identity = server.query("pairs")["id"]
        assert take_results(server, 5, after=f"after={identity}:15")[0] == [16, 17, 18, 19, 20]
        assert take_results(server, 3, after="last=3")[0] == [18, 19, 20]
        # a place beyond the end, as after the state was thrown away, and ids of others, are no places
        assert take_results(server, 20, after=f"after={identity}:99")[0] == list(range(1, 21))
        assert take_results(server, 2, after="last=2&after=zz:1,,:,a:b")[0] == [19, 20]


def test_what_the_ring_has_forgotten_comes_from_the_log(tmp_path, monkeypatch):
    monkeypatch.setattr(events, "RING", 1000)
    monkeypatch.setattr(events, "ROWS", 3)
    feeds = matching(2)
    with running_console(tmp_path, feeds) as server:
        server.run("pairs", PAIRS)
        server.wait_for_results("pairs", 2)
        add(feeds, 60, start=2)
        server.wait_for_results("pairs", 62)
        wait_for(lambda: server.console.broadcast.held() > 0, "the ring")
        assert server.console.broadcast.held() <= 1000
        assert take_results(server, 62)[0] == list(range(1, 63))


def test_a_query_made_again_under_its_name_is_followed_from_its_beginning_also_after_a_restart(tmp_path):
    with running_console(tmp_path, matching(4)) as server:
        server.run("pairs", PAIRS)
        _, position = take_results(server, 4)
        server.change("DELETE", "/api/queries/pairs")
        server.run("pairs", PAIRS)
        numbers, after = take_results(server, 4, headers={"Last-Event-ID": position})
        assert numbers == [1, 2, 3, 4]
        known = server.query("pairs")["id"]
    feeds = matching(6)
    with running_console(tmp_path, feeds) as server:
        assert server.query("pairs")["id"] == known
        assert take_results(server, 6, headers={"Last-Event-ID": position})[0] == [1, 2, 3, 4, 5, 6]
        assert take_results(server, 2, headers={"Last-Event-ID": after})[0] == [5, 6]


def test_one_query_can_be_followed_alone(tmp_path):
    with running_console(tmp_path, matching(4)) as server:
        server.run("pairs", PAIRS)
        server.run("one", f"{PAIRS} AND a.title = 'title 2'")
        server.wait_for_results("pairs", 4)
        assert take_results(server, 1, after="query=one")[0] == [1]
        assert server.http.get("/api/events?query=none").status_code == 404


def test_counters_come_as_they_change(tmp_path):
    feeds = matching(3)
    with running_console(tmp_path, feeds) as server:
        server.run("pairs", PAIRS)
        with server.http.stream("GET", "/api/events") as stream:
            for event in read_events(stream.iter_lines()):
                if event.kind == "status" and event.data["queries"][0]["count"] == 3:
                    query = event.data["queries"][0]
                    if query["items"] == 6:
                        break
        assert query["memory"] >= 0
        assert query["flushed"] == 0
        assert {feed["url"] for feed in event.data["feeds"]["shown"]} == {LEFT, RIGHT}


async def follow(port, count, begun):
    """One of many clients: the numbers of the results that it is sent, until it has so many."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    writer.write(b"GET /api/events?last=0 HTTP/1.1\r\nHost: localhost\r\n\r\n")
    numbers = []
    async for line in reader:
        if line.startswith(b"event: alive") and begun is not None:
            begun.release()
            begun = None
        if line.startswith(b"data: ") and b'"rows"' in line:
            numbers += [row["n"] for row in json.loads(line[6:])["rows"]]
            if len(numbers) >= count:
                break
    writer.close()
    return numbers


def many_clients(server, feeds, clients, results):
    async def all_of_them():
        begun = asyncio.Semaphore(0)
        tasks = [asyncio.create_task(follow(server.port, results, begun)) for _ in range(clients)]
        for _ in range(clients):
            await asyncio.wait_for(begun.acquire(), PATIENCE)
        for start in range(0, results, 10):
            add(feeds, 10, start=100 + start)
            await asyncio.to_thread(server.wait_for_results, "pairs", start + 10)
        return await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)

    return asyncio.run(all_of_them())


@pytest.mark.parametrize(
    ("clients", "results"), [(150, 30), pytest.param(1000, 100, marks=pytest.mark.soak)], ids=["short", "thousand"]
)
def test_many_clients_get_every_result_once(tmp_path, clients, results):
    feeds = matching(0)
    with running_console(tmp_path, feeds) as server:
        server.run("pairs", PAIRS)
        wait_for(lambda: server.query("pairs"), "the query")
        got = many_clients(server, feeds, clients, results)
        assert [sorted(numbers) for numbers in got] == [list(range(1, results + 1))] * clients
        wait_for(lambda: server.console.broadcast.clients == 0, "all to be gone")


def test_a_client_that_never_reads_is_dropped_and_others_go_on(tmp_path):
    feeds = matching(0)
    long = ["x" * 1500 + str(i) for i in range(400)]
    with running_console(tmp_path, feeds, stalled=1) as server:
        server.run("pairs", PAIRS)
        with socket.socket() as silent:
            silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            silent.connect(("127.0.0.1", server.port))
            silent.sendall(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            wait_for(lambda: server.console.broadcast.clients == 1, "the silent client")
            for part in range(0, 400, 50):
                feeds.documents[LEFT] = feeds.documents[RIGHT] = rss(long[part : part + 50])
                server.wait_for_results("pairs", part + 50)
            # one that reads has all of them, while the silent one has not taken what it was sent
            assert take_results(server, 400)[0] == list(range(1, 401))
            # more than the sockets of both sides hold, so that something waits for it
            for part in range(40):
                feeds.documents[LEFT] = feeds.documents[RIGHT] = rss([f"{part} {title}" for title in long])
                server.wait_for_results("pairs", 400 * (part + 2))
                if server.console.broadcast.clients == 0:
                    break
            wait_for(lambda: server.console.broadcast.clients == 0, "the silent client to be dropped")
        assert server.console.broadcast.held() <= 2 * events.RING


def test_more_pages_than_the_server_takes_are_told_to_come_later(tmp_path, monkeypatch):
    monkeypatch.setattr("headrace.console.app.MOST_CLIENTS", 1)
    with running_console(tmp_path, matching(1)) as server:
        server.run("pairs", PAIRS)
        with httpx.stream("GET", f"{server.base}/api/events", trust_env=False) as first:
            assert first.status_code == 200
            answer = server.http.get("/api/events")
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "10")
