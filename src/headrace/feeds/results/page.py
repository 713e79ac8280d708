"""A page of results of a query, which becomes a feed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa


@dataclass(frozen=True)
class ResultPage:
    """The newest results of a query, or older ones, and where the feed of them lies.

    Parameters
    ----------
    query
        The query's name, the title of the feed.
    sql
        Its text, the description of the feed.
    link
        The address of this page of the feed.
    updated
        When the last result was produced, or the query started.
    rows
        Results, oldest first: the columns that were selected, and `_number` (running number), `_produced` (when), `_id`
        (16 bytes) and `_places`. A column named ``a.title`` is shown as ``a title``; a field with the metadata ``label`` by that.
    older
        The address of the page with older results, if there are any.
    """

    query: str
    sql: str
    link: str
    updated: datetime
    rows: pa.RecordBatch
    older: str | None = None
