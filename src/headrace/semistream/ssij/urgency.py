"""When SSIJ must begin a join phase so that no deadline passes. [SSIJ] §IV.F"""

from __future__ import annotations

from headrace.clock import Clock
from headrace.relation import Relation
from headrace.semistream.deadlines import Deadlines, JoinTime
from headrace.semistream.ssij.memory import SSIJMemory


class Urgency:
    """The deadlines of tuples in IB, and how long the phases take that they have to go through.

    Parameters
    ----------
    relation
        Its disk says what reads and steps cost.
    clock
        Of the operator.
    """

    def __init__(self, relation: Relation, clock: Clock) -> None:
        self.IB = Deadlines()
        self.time = JoinTime(relation.disk.costs(relation.page_size), relation.disk.factors)
        self._clock = clock

    def begin(self, relation: Relation, pages: int, scan: int) -> None:
        """No join phase takes longer than a scan of so many pages, in requests of `scan` pages."""
        seek, transfer = relation.disk.costs(relation.page_size)
        requests = -(-pages // scan) + relation.num_shards - 1  # one at the end of a shard may be shorter
        self.time.scan = requests * seek + pages * transfer

    def must_take_part(self, parts: SSIJMemory) -> bool:
        """Whether the deadline of a tuple in IB would pass during a join phase that it has no part in."""
        phase = self.time.estimate(parts.II.distinct, parts.SB.used, parts.plan.IB)
        return self.IB.earliest < self._clock.now() + phase
