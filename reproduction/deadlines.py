"""The highest rate at which SSIJ keeps a deadline: tuples come one by one, and leave in time. [SSIJ] §IV.F, Fig. 16"""

from __future__ import annotations

import numpy as np

from headrace.bench import Stream
from headrace.relation import Relation
from headrace.semistream import SSIJ

_LATE = 0.005  # of the tuples, at most
_CLOSE = 1.1  # how near to the highest rate the answer is, as a factor
_LEAST = 1.0  # tuples a second, below which nothing is looked for
_DEADLINES = 8  # how long tuples come
_BACKLOG_SHARE = 0.5  # of the memory, for tuples that have come and not been looked up: beyond it is an overflow
_LOOKS = 50  # at what has come, in the time of a deadline
_TUPLES = 2_000  # so many at least


def highest_rate(relation: Relation, stream: Stream, memory: int, deadline: float) -> float:
    """By doubling, then halving."""
    low, high = 0.0, 256.0
    while keeps(relation, stream, memory, deadline, high):
        low, high = high, 2 * high
    while high > _CLOSE * max(low, _LEAST):
        rate = (low * high) ** 0.5 if low else high / 2
        if keeps(relation, stream, memory, deadline, rate):
            low = rate
        else:
            high = rate
    return low


def keeps(relation: Relation, stream: Stream, memory: int, deadline: float, rate: float) -> bool:
    """Whether results are there in time, for tuples that come at a rate; those of the first half warm the cache."""
    op = SSIJ(relation, on="k", memory=memory, deadline=deadline)
    feed, begun = stream.open(), op.clock.now()
    total = max(_TUPLES, int(_DEADLINES * deadline * rate))
    room = int(_BACKLOG_SHARE * memory / stream.tuple_bytes)
    late_before = left_before = 0
    while feed.taken < total:
        now = op.clock.now()
        come = min(total, int((now - begun) * rate)) - feed.taken
        if come > 0:
            came = begun + np.arange(feed.taken + 1, feed.taken + come + 1) / rate
            if now - came[0] > deadline or come + op.buffered > room:
                return False  # a join phase alone takes longer, or overflow
            op.offer(feed.take(come), list(came + deadline - now))
        if feed.taken < total // 2:
            late_before, left_before = op.stats.late, op.stats.matched
        if op.buffered >= op.wanted or now >= op.due:
            for _ in op.advance():
                pass
        else:
            # Not until there are enough: what has come must be offered for `due` to know of it.
            op.clock.sleep(max(1e-9, min(max(begun + (feed.taken + 1) / rate, now + deadline / _LOOKS), op.due) - now))
    return op.stats.late - late_before <= _LATE * max(1, op.stats.matched - left_before)
