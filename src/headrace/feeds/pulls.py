"""A pull of a feed: when it was made, how it ended, and the items that were new or changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

import pyarrow as pa

from headrace.feeds.items import ITEM_SCHEMA

Outcome = Literal["items", "nothing", "unchanged", "gone", "later", "failed"]
"""items: some are new or changed; nothing: a document without any; unchanged: no new document (304); gone: it will never be back
(410); later: the server asks to come back later (429, 503); failed: no answer that could be used"""

PULL_SCHEMA = pa.schema(
    [
        *ITEM_SCHEMA,
        pa.field("_identity", pa.binary(16)),
        pa.field("_content", pa.binary(16)),
        pa.field("_changed", pa.bool_()),
    ]
)
"""Items as they are logged: with their hashes, so that nobody makes them again, and whether the identity was known before."""

NO_ITEMS = pa.RecordBatch.from_pylist([], PULL_SCHEMA)


@dataclass(frozen=True)
class Pull:
    """One pull of one feed. Only pulls with items are logged, and only these have a number.

    Example
    -------
    >>> Pull("https://example.org/feed", moment(0.0), "unchanged").items.num_rows
    0
    """

    url: str
    """as the feed was added, whatever address it has moved to"""
    at: datetime
    outcome: Outcome
    rows: pa.RecordBatch = field(default_factory=lambda: NO_ITEMS)
    """of PULL_SCHEMA: the new and changed items in the order of the document"""
    error: str | None = None
    """what went wrong, in words"""
    number: int | None = None
    """its place in the log, from 1 on without gaps"""

    @property
    def items(self) -> pa.RecordBatch:
        """The new and changed items, rows of ITEM_SCHEMA."""
        return self.rows.select(ITEM_SCHEMA.names)

    @property
    def identities(self) -> pa.Array:
        """The identity of each item, as `headrace.feeds.items.identities` gives it."""
        return self.rows.column("_identity")

    @property
    def contents(self) -> pa.Array:
        """The hash of what each item says, as `headrace.feeds.items.contents` gives it."""
        return self.rows.column("_content")

    @property
    def changed(self) -> pa.Array:
        """Whether each item's identity was known before, so that it is a new version and no new item."""
        return self.rows.column("_changed")


def moment(seconds: float) -> datetime:
    """Return the moment of a wall clock's seconds since 1970, in UTC."""
    return datetime.fromtimestamp(seconds, UTC)
