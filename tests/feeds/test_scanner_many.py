"""Thousands of feeds from one server on loopback: all are pulled, in bounded memory and with few syncs."""

import asyncio
import os

import psutil
import pytest

from headrace.clock import ManualClock
from headrace.feeds.http_fetcher import HttpFetcher
from headrace.feeds.scanner import Scanner
from headrace.feeds.store import FeedStore
from tests.support.feed_documents import START, rss
from tests.support.feed_server import FeedServer, Reply

ITEMS = 50


def pull_all(path, feeds, rounds):
    """Pull feeds with 50 items, of which some are new in each round; returns requests, items, pulls, and memory by round."""
    clock = ManualClock(start=START.timestamp())
    store = FeedStore(path, clock=clock)

    async def run():
        memory = []
        async with FeedServer() as server:
            store.add([server.url(f"/{n}") for n in range(feeds)])
            fetcher = HttpFetcher(allow_private=True, clock=clock)
            options = {"host_gap": 0, "per_host": 32, "concurrency": 32}
            async with Scanner(fetcher, store, **options) as scanner:
                for turn in range(rounds):
                    body = rss([(f"g{i}", "some text of a title " * 3) for i in range(turn, turn + ITEMS)])
                    page = Reply(body, headers={"ETag": f'"{turn}"'})
                    server.pages = dict.fromkeys((f"/{n}" for n in range(feeds)), page)
                    pulls = await scanner.step()
                    assert [pull.outcome for pull in pulls] == ["items"] * feeds
                    del pulls
                    memory.append(psutil.Process(os.getpid()).memory_info().rss)
                    clock.advance(60)
                unchanged = await scanner.step()
                assert {pull.outcome for pull in unchanged} == {"unchanged"}
            return len(server.requests), memory

    requests, memory = asyncio.run(run())
    items = sum(state.items for state in store.states().values())
    return requests, items, store.newest, memory


def check(path, feeds, rounds):
    requests, items, newest, memory = pull_all(path, feeds, rounds)
    assert requests == feeds * (rounds + 1)
    assert items == feeds * (ITEMS + rounds - 1)
    assert newest == feeds * rounds
    return memory


def test_a_few_hundred_feeds_are_pulled(ram_path):
    check(ram_path, feeds=200, rounds=2)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_ten_thousand_feeds_are_pulled_in_bounded_memory(ram_path):
    memory = check(ram_path, feeds=10_000, rounds=2)
    # 500,000 items seen take 41 bytes each, and states and schedules some kilobytes a feed; rounds after the first add little.
    assert memory[-1] - memory[0] < 200 << 20
