"""The options of the source `rss`, which Spark passes on as texts."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from headrace.errors import BadInput, choice, shown
from headrace.feeds.addresses import check_url
from headrace.feeds.items import ITEM_SCHEMA
from headrace.paths import local_path
from headrace.units import parse_duration

NAME = "rss"
OPTIONS = (
    "url",
    "urls",
    "state",
    "interval",
    "horizon",
    "max_pulls",
    "pulls",
    "recorded",
    "allow_private",
    "allow_files",
)
INTERVAL = "60s"  # between two pulls of a feed that does not say how often it wants to be asked
HORIZON = "7d"  # how long an item is remembered after it has left its feed
MAX_PULLS = 10_000  # of a micro-batch: those of a round of as many feeds
NUMBERED_ITEMS = ITEM_SCHEMA.append(pa.field("pull", pa.int64()))
"""The columns of items with the number of their pull."""

_NEXT = re.compile(r"\s*,\s*(?=[A-Za-z][A-Za-z0-9+.-]*:)")  # a comma before a scheme: commas inside a URL are its own
_TRUTH = {"true": True, "false": False}


@dataclass(frozen=True, kw_only=True)
class FeedOptions:
    """What a reader of `rss` pulls, and how.

    Parameters
    ----------
    urls
        The feeds, each once.
    state
        The directory of the feed store; None for a batch read, which keeps nothing.
    interval
        Seconds between two pulls of a feed.
    horizon
        Seconds that an item is remembered after it has left its feed: one that comes back later is new.
    max_pulls
        Pulls with items that a micro-batch has at most.
    pulls
        Whether items have a last column `pull`, the number of the pull that they came with.
    recorded
        A directory of recorded pulls that is read in place of the network; None for none.
    allow_private, allow_files
        Whether addresses of private networks, and files, may be pulled.
    """

    urls: tuple[str, ...]
    state: str | None
    interval: float
    horizon: float
    max_pulls: int
    pulls: bool
    recorded: str | None
    allow_private: bool
    allow_files: bool

    @property
    def schema(self) -> pa.Schema:
        """The columns of items."""
        return NUMBERED_ITEMS if self.pulls else ITEM_SCHEMA

    @classmethod
    def of(cls, options: Mapping[str, str]) -> FeedOptions:
        """The options as Spark has them; refuses those that nobody knows, by name."""
        for name in options:
            choice(f"an option of {NAME!r}", name, OPTIONS)
        state, recorded = options.get("state"), options.get("recorded")
        urls, private, files = _urls(options), _truth(options, "allow_private"), _truth(options, "allow_files")
        for url in urls if recorded is None else ():
            check_url(url, allow_files=files, any_port=private)
        return cls(
            urls=urls,
            state=None if state is None else str(local_path(state, "state")),
            interval=parse_duration(options.get("interval", INTERVAL), name="interval"),
            horizon=parse_duration(options.get("horizon", HORIZON), name="horizon"),
            max_pulls=_count(options, "max_pulls", MAX_PULLS),
            pulls=_truth(options, "pulls"),
            recorded=None if recorded is None else str(local_path(recorded, "recorded")),
            allow_private=private,
            allow_files=files,
        )


def url_options(urls: tuple[str, ...]) -> dict[str, str]:
    """The option that names feeds, whatever characters are in their URLs."""
    return {"urls": json.dumps(list(urls))}


def _urls(options: Mapping[str, str]) -> tuple[str, ...]:
    given = [part for part in _NEXT.split(options.get("url", "").strip()) if part]
    if "urls" in options:
        text = options["urls"]
        try:
            more = json.loads(text)
        except ValueError:
            more = None
        if not isinstance(more, list) or not all(isinstance(url, str) and url for url in more):
            raise BadInput(f'urls={shown(text)} is not a list of feeds; give JSON, as ["https://a.org/feed", ...]')
        given += more
    if not given:
        raise BadInput(
            f'{NAME!r} has no feed to pull; give option("url", "https://...") or option("urls", \'["https://...", ...]\')'
        )
    return tuple(dict.fromkeys(given))


def _truth(options: Mapping[str, str], name: str) -> bool:
    return _TRUTH[choice(name, options.get(name, "false").lower(), _TRUTH)]


def _count(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name, str(default))
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise BadInput(f"{name}={shown(text)} is not a number of pulls; give 1 or more")
    return int(text)
