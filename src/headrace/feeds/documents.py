"""A document that was pulled, read and compared with what was seen: what a thread of the scanner does."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from headrace.feeds import items as feed_items
from headrace.feeds.fetcher import Answer
from headrace.feeds.limits import FeedLimits
from headrace.feeds.parser import ParsedFeed, parse_feed
from headrace.feeds.pulls import PULL_SCHEMA, moment
from headrace.feeds.seen import OnChange, Seen, pair_up


@dataclass(frozen=True)
class Document:
    """A document, with the items of it that are new or changed."""

    at: float
    parsed: ParsedFeed
    rows: pa.RecordBatch
    """of PULL_SCHEMA"""
    seen: Seen
    """what is seen of the feed once these rows are logged"""


def read_document(
    url: str, answer: Answer, at: float, seen: Seen, horizon: float, on_change: OnChange, limits: FeedLimits
) -> Document:
    """Parse a document and choose the items that are new or changed."""
    parsed = parse_feed(
        answer.content, url, seen=moment(at), content_type=answer.content_type, limits=limits
    )  # fmt: skip
    identities, contents = feed_items.identities(parsed.items), feed_items.contents(parsed.items)
    pairs = pair_up(identities, contents)
    positions, changed = seen.fresh(pairs, on_change)
    taken = pa.array(positions)
    columns = [*parsed.items.take(taken).columns, identities.take(taken), contents.take(taken), pa.array(changed)]
    rows = pa.RecordBatch.from_arrays(columns, schema=PULL_SCHEMA)
    return Document(at, parsed, rows, seen.after(pairs, at, horizon))
