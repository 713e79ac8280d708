"""`Defer`: which rows of `enrich` may wait, for how long, and where they are kept."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headrace.errors import BadInput, choice
from headrace.semistream import ALGORITHMS
from headrace.semistream.base import How, Order
from headrace.semistream.deferred.deferral import Deferral, Unmatched
from headrace.semistream.waiting_join import WaitingJoin
from headrace.units import parse_duration

_OFTEN, _SELDOM = 0.25, 10.0  # seconds between two heartbeats, at least and at most
_BEATS = 8  # heartbeats until a deadline: a row leaves late by an eighth of it at most for want of a micro-batch
#: Algorithms whose queue can be kept.
QUEUEING = tuple(name for name, join in ALGORITHMS.items() if issubclass(join, WaitingJoin))


@dataclass(frozen=True, kw_only=True)
class Defer:
    """Rows that wait from one micro-batch to the next, for `enrich(defer=...)`.

    Parameters
    ----------
    deadline
        "10s": rows that must be read for may wait so long, in the run log, to share reads. Rows found in memory leave in their
        micro-batch. A published join (`enrich(algorithm="meshjoin")`) keeps its queue and the place of its scan from one
        micro-batch to the next, and lets rows leave when the algorithm says so, or earlier so that no deadline passes. A bounded
        run ends with `hr.finish`.
    unmatched
        What becomes of rows without a match, instead of `how`: "drop" (inner), "null" (left), "dead_letter" (put aside as Parquet
        in `state`), or "retry" (kept, and tried again when the relation has a new version; a dead letter after `retry_for`).
    retry_for
        How long rows are tried again, with unmatched="retry".
    state
        Where the run log is kept, for a deadline, "dead_letter" and "retry": a directory that driver and executors see under the
        same path. By default `headrace` in spark.sql.streaming.checkpointLocation.
    shards
        Parts of the stream by key, each a task that remembers its rows; as many as there are cores by default. It cannot change
        while the query's checkpoint is used.

    Example
    -------
    >>> import headrace as hr
    >>> hr.Defer(deadline="10s", unmatched="dead_letter", state="warehouse/state")
    Defer(deadline='10s', unmatched='dead_letter', retry_for='1h', state='warehouse/state', shards=None)
    """

    deadline: str | float | None = None
    unmatched: Unmatched | None = None
    retry_for: str | float = "1h"
    state: str | Path | None = None
    shards: int | None = None

    def __post_init__(self) -> None:
        if self.unmatched is not None:
            choice("unmatched", self.unmatched, ("drop", "null", "dead_letter", "retry"))
        deferral = self.deferral()
        if self.shards is not None and self.shards < 1:
            raise BadInput(f"shards={self.shards} is not a number of shards; give 1 or more, or leave it out")
        if deferral is None and (self.state is not None or self.shards is not None):
            raise BadInput("state= and shards= are for deadline=..., unmatched='dead_letter' and unmatched='retry'")

    def how(self, how: How) -> How:
        """How to join, from `enrich(how=...)` and from what becomes of rows without a match."""
        if self.unmatched is None:
            return how
        if how != "inner":
            raise BadInput(
                f"how={how!r} and unmatched={self.unmatched!r} both say what becomes of rows without a match; give one of them"
            )
        return "inner" if self.unmatched == "drop" else "left"

    def check_join(self, algorithm: str, order: Order) -> None:
        """Refuse an algorithm whose rows cannot wait, and an order that waiting rows cannot keep."""
        deferral = self.deferral()
        if deferral is None:
            return
        if algorithm in QUEUEING and deferral.sorts_out:
            raise BadInput(
                f"unmatched={self.unmatched!r} works with algorithm='auto'; algorithm={algorithm!r} keeps its queue and takes"
                " unmatched='drop' or 'null'"
            )
        if algorithm not in ("auto", "adaptive", *QUEUEING):
            raise BadInput(
                f"{deferral.asked} works with algorithm='auto' and with joins whose rows wait ({', '.join(QUEUEING)});"
                f" algorithm={algorithm!r} joins the rows of a task to their end"
            )
        if order != "any":
            raise BadInput(f"{deferral.asked} lets rows leave in another order; order={order!r} cannot be kept")

    def deferral(self) -> Deferral | None:
        """What may be put off, in seconds; None if no row has to be remembered."""
        limit = None if self.deadline is None else parse_duration(self.deadline, name="deadline")
        again = parse_duration(self.retry_for, name="retry_for")
        unmatched = self.unmatched or "drop"
        if limit is None and unmatched not in ("dead_letter", "retry"):
            return None
        waits = [seconds for seconds in (limit, again if unmatched == "retry" else None) if seconds is not None]
        period = min(_SELDOM, max(_OFTEN, min(waits, default=_BEATS * _SELDOM) / _BEATS))
        return Deferral(limit, unmatched, again, period)
