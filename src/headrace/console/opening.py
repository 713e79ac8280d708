"""Opening a room: the desk of a state directory, or that of the demonstration."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headrace.clock import Clock, WallClock
from headrace.console.demo.day import make_day
from headrace.console.demo.documents import FEEDS
from headrace.console.demo.replay import QUERIES, DayFetcher
from headrace.console.room import FeedRoom
from headrace.errors import BadInput
from headrace.feeds.desk import Desk
from headrace.feeds.fetcher import Fetcher
from headrace.feeds.http_fetcher import HttpFetcher
from headrace.feeds.recorded import ReplayClock
from headrace.feeds.scanner import Scanner
from headrace.feeds.schedule import Schedule
from headrace.feeds.store import FeedStore
from headrace.units import parse_duration

DEMO_SECONDS = 600.0  # real seconds that the recorded day takes
_DEMO_INTERVAL = 60.0  # seconds of the recorded day between two pulls: some 0.4 real ones


@dataclass(frozen=True)
class Opened:
    """A room, the clock of its pages, and what these say of a recorded day."""

    room: FeedRoom
    clock: Clock
    recorded: dict[str, Any] | None = None


def open_desk(
    state: Path,
    *,
    memory: str = "64MiB",
    interval: str = "60s",
    allow_private: bool = False,
    fetcher: Fetcher | None = None,
) -> Opened:
    """Open the desk whose queries, pulls and results are in a directory.

    Args:
        state: the directory.
        memory: the budget of each query.
        interval: how often feeds are pulled.
        allow_private: lets queries name feeds of this machine and of private networks.
        fetcher: fetches documents; over HTTP if none is given.
    """
    schedule = Schedule(interval=parse_duration(interval, name="interval"))
    scanner = Scanner(
        fetcher or HttpFetcher(allow_private=allow_private), FeedStore(state), schedule=schedule, listed=False
    )
    return Opened(FeedRoom(Desk(state, scanner, memory=memory)), WallClock())


def open_demo(state: Path, *, seconds: float = DEMO_SECONDS, memory: str = "64MiB") -> Opened:
    """Open the demonstration: the recorded day in so many seconds, with queries that are ready. It goes on where a state is."""
    if not seconds > 0:
        raise BadInput(f"a day cannot pass in {seconds:g} seconds; give more than 0")
    day = make_day()
    reached = [state.pulled or day.begin for state in FeedStore(state).states().values() if state.url in FEEDS]
    begin = max(reached, default=day.begin)
    clock = ReplayClock(datetime.fromtimestamp(begin, UTC), (day.end - day.begin) / seconds)
    store = FeedStore(state, clock=clock)
    scanner = Scanner(
        DayFetcher(day, clock), store, clock=clock, schedule=Schedule(interval=_DEMO_INTERVAL), listed=False
    )
    desk = Desk(state, scanner, memory=memory)
    if not desk.queries():
        for name, sql in QUERIES.items():
            desk.subscribe(name, sql)
    recorded = {"begin": round(day.begin * 1000), "end": round(day.end * 1000), "speed": clock.speed}
    return Opened(FeedRoom(desk), clock, recorded)
