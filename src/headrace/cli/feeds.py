"""``headrace feeds``: which feeds are pulled, how their last pulls ended, and what an address gives."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.option_names import option_names_command
from headrace.cli.options import FLAG
from headrace.cli.screen import plain, show_facts, show_json, show_table
from headrace.clock import WallClock
from headrace.errors import FeedUnavailable, MissingExtra
from headrace.paths import feeds_directory
from headrace.units import format_duration

if TYPE_CHECKING:
    from headrace.feeds.fetcher import Answer
    from headrace.feeds.store import FeedStore

feeds_app = typer.Typer(help="Feeds that continuous queries read.", no_args_is_help=True)

StateOption = Annotated[
    Path | None,
    typer.Option("--state", help="Where feeds and pulls are kept; by default feeds in the state directory.", show_default=False),
]  # fmt: skip
JsonOption = Annotated[bool, typer.Option("--json", metavar=FLAG, help="Write JSON.")]
PrivateOption = Annotated[
    bool,
    typer.Option("--allow-private", metavar=FLAG, help="Pull from private, loopback and link-local addresses too."),
]
FilesOption = Annotated[bool, typer.Option("--allow-files", metavar=FLAG, help="Pull file:// too.")]
UrlArgument = Annotated[list[str], typer.Argument(metavar="URL...", help="Addresses of RSS or Atom feeds.")]

_NAMES = option_names_command({"url": "URL", "allow_files=True, or --allow-files": "--allow-files"})
_SHOWN_ITEMS = 5  # items that `feeds test` shows: enough to see what a feed is about
_LONGEST = 60  # characters of a title in a table


@feeds_app.command(cls=_NAMES)
def add(
    urls: UrlArgument,
    interval: Annotated[
        str | None,
        typer.Option(help="Time between two pulls, such as 5m; by default the scanner's.", show_default=False),
    ] = None,
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Have feeds pulled, or give them another interval. A scanner that runs takes them over within a second."""
    added = _store(state).add(urls, interval=interval)
    if as_json:
        show_json([{"url": feed.url, "interval": feed.interval} for feed in added])
    else:
        for feed in added:
            typer.echo(f"added {plain(feed.url)}")


@feeds_app.command(cls=_NAMES)
def remove(urls: UrlArgument, state: StateOption = None, as_json: JsonOption = False) -> None:
    """Have feeds not pulled any more. Their items stay known for a while, so that adding them again repeats nothing."""
    _store(state).remove(urls)
    if as_json:
        show_json({"removed": urls})
    else:
        for url in urls:
            typer.echo(f"removed {plain(url)}")


@feeds_app.command("list", cls=_NAMES)
def list_feeds(state: StateOption = None, as_json: JsonOption = False) -> None:
    """Show all feeds: when they were pulled, what came of it, and when they are pulled next."""
    store = _store(state)
    states, now = store.states(), WallClock().now()
    feeds = [(feed, states.get(feed.url) or store.state(feed.url)) for feed in store.feeds()]
    if as_json:
        show_json(
            [
                {
                    "url": feed.url,
                    "interval": feed.interval,
                    "title": known.title,
                    "outcome": known.outcome,
                    "error": known.error,
                    "failures": known.failures,
                    "pulls": known.pulls,
                    "items": known.items,
                    "pulled": known.pulled,
                    "due": known.due,
                    "moved": known.moved,
                    "problems": known.problems,
                }
                for feed, known in feeds
            ]
        )
    elif not feeds:
        typer.echo(f"there are no feeds in {plain(store.path)}; headrace feeds add URL adds one")
    else:
        rows = [
            [
                feed.url,
                (known.title or "")[:_LONGEST],
                _ago(known.pulled, now),
                known.outcome,
                known.items,
                "never" if known.due is None else _in(known.due, now),
                known.error,
            ]
            for feed, known in feeds
        ]
        show_table(["feed", "title", "pulled", "outcome", "items", "next", "error"], rows)


@feeds_app.command("test", cls=_NAMES)
def try_feed(
    url: Annotated[str, typer.Argument(metavar="URL", help="The address of a feed.")],
    allow_private: PrivateOption = False,
    allow_files: FilesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Pull a feed once and show what it is, without keeping anything. Exit code 3 if it cannot be pulled, 2 if it is no feed."""
    _check_installed()
    from headrace.feeds.fetcher import Request, shown_url
    from headrace.feeds.http_fetcher import HttpFetcher
    from headrace.feeds.parser import parse_feed
    from headrace.feeds.pulls import moment

    fetcher = HttpFetcher(allow_private=allow_private, allow_files=allow_files)

    async def pull() -> Answer:
        try:
            return await fetcher.fetch(Request(url))
        finally:
            await fetcher.close()

    answer = asyncio.run(pull())
    if answer.status != 200:
        wait = "" if answer.retry_after is None else f" and asks to wait {format_duration(answer.retry_after)}"
        raise FeedUnavailable(f"{shown_url(url)} answered {answer.status}{wait}")
    feed = parse_feed(answer.content, url, seen=moment(WallClock().now()), content_type=answer.content_type)
    facts = {
        "url": url,
        "moved": answer.moved,
        "format": feed.format,
        "title": feed.title,
        "items": feed.items.num_rows,
        "with_place": feed.items.num_rows - feed.items.column("box").null_count,
        "ttl": feed.ttl,
        "max_age": answer.max_age,
        "conditional": bool(answer.etag or answer.modified),
        "bytes": len(answer.content),
        "problems": list(feed.problems),
    }
    shown = feed.items.slice(0, _SHOWN_ITEMS).select(["title", "link", "pubDate", "geoLat", "geoLong"]).to_pylist()
    if as_json:
        show_json(facts | {"first": shown})
        return
    show_facts(facts)
    if shown:
        show_table(list(shown[0]), [[_short(value) for value in item.values()] for item in shown])


def _store(state: Path | None) -> FeedStore:
    _check_installed()
    from headrace.feeds.store import FeedStore

    return FeedStore(state or feeds_directory())


def _check_installed() -> None:
    if importlib.util.find_spec("httpx") is None:
        raise MissingExtra("headrace feeds", "httpx", "feeds")


def _short(value: object) -> object:
    return f"{value[: _LONGEST - 1]}…" if isinstance(value, str) and len(value) > _LONGEST else value


def _ago(time: float | None, now: float) -> str:
    return "" if time is None else f"{format_duration(max(0.0, round(now - time)))} ago"


def _in(time: float, now: float) -> str:
    return f"in {format_duration(round(time - now))}" if time > now else "now"
