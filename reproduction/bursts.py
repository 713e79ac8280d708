"""How long SSIJ can take in more than its highest steady rate, until there is no more room. [SSIJ] §VI.D, Table III"""

from __future__ import annotations

from statistics import median
from typing import Any

import pyarrow as pa

from headrace.bench import Stream
from headrace.relation import Relation
from headrace.semistream import SSIJ

_LONGEST = 20.0  # times a burst is looked at, the time in which what waits in all of the memory comes


def longest_burst(
    relation: Relation, stream: Stream, memory: int, rate: float, begins: list[int], **options: Any
) -> float:
    """Seconds until tuples that come at a rate overflow: the median of bursts that begin after so many tuples each.

    Before it begins the join takes what it wants: it is warm, and nothing is left to catch up with.
    """
    return median(
        _lasts(SSIJ(relation, on="k", memory=memory, **options), stream, memory, rate, tuples) for tuples in begins
    )


def _lasts(op: SSIJ, stream: Stream, memory: int, rate: float, begins: int) -> float:
    feed = stream.open()
    while feed.taken < begins:
        _step(op, feed.take(max(1, op.wanted - op.buffered)))
    taken, begun = feed.taken, op.clock.now()
    most = _LONGEST * memory / stream.tuple_bytes / rate
    room = op.backlog_room
    while (now := op.clock.now() - begun) < most:
        come = int(rate * now) + taken - feed.taken
        if come + op.buffered > room:  # when the first came that found no room, during the step before
            return (feed.taken - taken - op.buffered + room) / rate
        room = op.backlog_room
        if come + op.buffered < op.wanted:
            op.clock.sleep(max(1e-9, (feed.taken - taken + op.wanted - op.buffered) / rate - now))
        else:
            _step(op, feed.take(come))
    return most


def _step(op: SSIJ, batch: pa.RecordBatch) -> None:
    if batch.num_rows:
        op.offer(batch)
    for _ in op.advance():
        pass
