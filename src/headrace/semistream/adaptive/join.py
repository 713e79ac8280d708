"""AdaptiveJoin: the join behind algorithm="auto". Hot tuples from memory, absent keys by a filter, the rest by planned reads.

Built on [SSIJ] §III-IV (index, batched look-ups, optimal read plan, memory that moves between cache and stream) with three
changes: the cache holds tuples and not pages (DESIGN D5), a filter answers for absent keys (D10), and `join` takes a batch to its
end, so that nothing waits after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from headrace.arrays import Int32s
from headrace.clock import Clock
from headrace.conditions import Condition
from headrace.errors import BadInput, choice
from headrace.memory import MemoryBudget
from headrace.relation import Relation, Sketch
from headrace.semistream.adaptive.group import Group, GroupMembership, HotSetMembership
from headrace.semistream.adaptive.keyed_store import Arrays
from headrace.semistream.adaptive.lookup import KeyLookup
from headrace.semistream.adaptive.memory import JoinMemory
from headrace.semistream.adaptive.memory_plan import MemoryPlan, least_memory, plan_memory
from headrace.semistream.adaptive.ordered import OrderedExecution
from headrace.semistream.adaptive.unordered import UnorderedExecution
from headrace.semistream.adaptive.whole_table import WholeTablePlan
from headrace.semistream.adaptive.whole_table_execution import (
    WholeTableExecution,
    WholeTableMembership,
    WholeTableMemory,
)
from headrace.semistream.base import How, On, Order, SemiStreamJoin
from headrace.semistream.plan_facts import PlanFacts
from headrace.semistream.protocols import DrivenOperator, StreamShedder
from headrace.semistream.results import ResultMaker
from headrace.semistream.snapshot import Snapshot


class AdaptiveJoin(SemiStreamJoin):
    """Join a stream with the relation within a byte budget.

        stream batch -> distinct keys -> hot set -> filter -> index -> read plan -> pages -> results
                                          hit        absent              several reads in flight
                          +-------+--------+--------+--------+---------------+-------------+--------+
        the budget        | index | filter | sketch | hot set| stream buffer | read buffer | output |
                          +-------+--------+--------+--------+---------------+-------------+--------+

    Choose it unless you study a published algorithm: it needs no tuning, and no order of the relation beyond its key. Parts that
    the budget is too small for are left out, and `stats.left_out` says which and why. The split between hot set and stream buffer
    follows what the stream shows: repeated keys earn a larger hot set, scattered ones a larger buffer that shares reads.

    Where the wanted columns of all rows fit the budget, the relation is held whole (whole_table.py), and a batch is one pass:

        stream batch -> keys -> slots of a hash table -> results               +----------------+---------------+--------+
                                                                  the budget   | table and slots| stream buffer | output |
                                                                               +----------------+---------------+--------+

    What the object is made of where they do not, and how a batch goes through it with order="any":

        AdaptiveJoin
          |- JoinMemory (memory.py)          divided by a MemoryPlan (memory_plan.py), in part anew as the stream goes (split.py)
          |    |- HotSet (hot_set.py)        hot tuples, counts of keys, filters: LocalHotSet or SharedHotSet
          |    `- PageReader                 the read buffer
          |- KeyLookup (lookup.py)           distinct keys, hot set, filter, index, planned reads
          |- UnorderedExecution              or OrderedExecution (ordered.py): when the look-up takes which of its steps
          `- GroupMembership (group.py)      where processes share the memory: its slot

        offer     the batch is queued
        advance   UnorderedExecution._online: a piece of the batch at a time is looked up in hot set and filter. Hits and absent
                  keys leave; rows that miss wait. When no more can wait, ._join_phase reads for a quarter of them.
        drain     ._join_phase reads for all rows that wait, in the order of the pages.
        join      offer, then drain. `run` offers and advances batch by batch, and drains when the stream ends.

    With order="stream", `advance` joins what was offered to its end, a slice of the batch at a time.

    Parameters
    ----------
    relation, on, memory, how, columns, suffix
        See SemiStreamJoin.
    order
        "stream": results in the order of the stream. "any": results go out as they are found. What is in memory leaves at once;
        the rest waits, in `run` also for later batches, and is read together in the order of the pages. A waiting tuple takes a
        fraction of what a fetched one does that is held for its turn, so more of them share a read.
    group
        Other processes that join with the same relation: the budget is theirs together, and so is the hot set. Batches are
        joined between `enter` and `leave`.
    mark
        With how="left": the name of a column of the result that says whether the row has a match.
    shed
        With order="any": chooses what is joined when more rows come between two steps than may wait, such as
        headrace.shedding.Shedder; the rest goes to its store. By default all rows are joined.
    whole
        Whether to hold the relation whole where the columns that are wanted fit the budget, unless rows are shed.

    Example
    -------
    >>> import pyarrow as pa, tempfile, headrace as hr
    >>> from headrace.semistream import AdaptiveJoin
    >>> products = pa.table({"product_id": [1, 2], "name": ["bolt", "gear"]})
    >>> rel = hr.Relation.create(tempfile.mkdtemp() + "/products", products, key="product_id")
    >>> op = AdaptiveJoin(rel, on="product_id", memory="4MiB")
    >>> sales = pa.record_batch({"product_id": [2, 1, 2, 7], "amount": [10, 20, 30, 40]})
    >>> pa.Table.from_batches(op.run([sales])).to_pydict()
    {'product_id': [2, 1, 2], 'amount': [10, 20, 30], 'name': ['gear', 'bolt', 'gear']}
    """

    #: What pairs must satisfy beside the key: nothing. ConditionalJoin has a condition.
    condition: Condition | None = None

    def __init__(
        self,
        relation: Relation,
        on: On,
        memory: int | str | MemoryBudget = "64MiB",
        *,
        how: How = "inner",
        columns: Sequence[str] | None = None,
        suffix: str | None = "_right",
        clock: Clock | None = None,
        order: Order = "stream",
        group: Group | None = None,
        mark: str | None = None,
        shed: StreamShedder | None = None,
        whole: bool = True,
    ) -> None:
        super().__init__(relation, on, memory, how=how, columns=columns, suffix=suffix, clock=clock)
        if mark is not None and how != "left":
            raise BadInput(f"mark={mark!r} says which rows have a match, for how='left'; how={how!r} needs none")
        self.mark = mark
        self.order: Order = choice("order", order, ("any", "stream"))  # type: ignore[assignment]
        if shed is not None and order == "stream":
            raise BadInput("shed= chooses among rows that wait, and with order='stream' none does; give order='any'")
        self.shed = shed
        if shed is not None:
            self.budget.reserve("shedding", shed.nbytes)
        limit, shared = self.budget.left, group is not None
        # In a group the index is not loaded here: it is shared as it is in its file.
        index = sum(shard.index.bytes for shard in relation.opened.manifest.shards) if shared else None
        facts = PlanFacts.of(relation, self._payload, index_bytes=index)
        workers = 1 if group is None else group.workers
        plan = self.plan(facts, limit, workers=workers, order=self.order, relation=relation.path)
        fits = whole and shed is None
        table_plan = WholeTablePlan.of_relation(relation, facts, limit, workers=workers) if fits else None
        results = ResultMaker(self.how, self._payload, mark)
        self._memory: JoinMemory | WholeTableMemory
        self._execution: OrderedExecution | UnorderedExecution | WholeTableExecution
        self._lookup: KeyLookup | None = None
        self._membership: GroupMembership | None = None
        if table_plan is not None:
            self._memory = table = WholeTableMemory(relation, self._payload, table_plan, self.budget, self.stats)
            self._execution = WholeTableExecution(table, results, self.stream_key, self.clock)
            if group is not None:
                self._membership = WholeTableMembership(group, table, limit)
        else:
            self._memory = parts = JoinMemory(relation, self._payload, plan, self.budget, self.clock, self.stats)
            self._lookup = KeyLookup(parts, self.stream_key)
            execution = OrderedExecution if self.order == "stream" else UnorderedExecution
            self._execution = execution(parts, self._lookup, results)
            if group is not None:
                self._membership = HotSetMembership(group, parts, limit)
        if group is None:
            self._memory.allocate()

    @staticmethod
    def plan(
        facts: PlanFacts, limit: int, *, workers: int = 1, order: Order = "any", relation: object = ""
    ) -> MemoryPlan:
        """How a budget of `limit` bytes is divided; refuses one that is too small. See memory_plan.py."""
        return plan_memory(facts, limit, workers=workers, ordered=order == "stream", relation=relation)

    @staticmethod
    def least_memory(relation: Relation, columns: Sequence[str] | None = None, workers: int = 1) -> int:
        """The smallest budget, in bytes, that is enough to give these columns to so many workers."""
        return least_memory(PlanFacts.of(relation, relation.payload(columns)), workers)

    def _right_fields(self) -> list[pa.Field]:
        mark = [pa.field(self.mark, pa.bool_())] if self.mark else []
        return super()._right_fields() + mark

    def reset_stats(self) -> None:
        """Set every counter to zero; the operator keeps what it holds in memory."""
        super().reset_stats()
        self._memory.stats = self.stats

    # -- the way of a batch --------------------------------------------------------------------------------------------------

    def offer(self, batch: pa.RecordBatch) -> None:
        """Hand over stream rows. `advance` looks them up; with order="any" those that miss wait."""
        schema = self._schema_of(batch)
        self.stats.batches += 1
        self.stats.tuples_in += batch.num_rows
        self._memory.expect(batch)
        self._execution.offer(batch, schema)
        self._note_memory()

    def advance(self, *, quiet: bool = False) -> Iterator[pa.RecordBatch]:
        """Look up what was offered; read for what waits when there is much of it, and for all of it if no more is awaited."""
        if quiet:
            yield from self.drain()
            return
        self._check_read()
        if self.shed is not None:
            self._execution.shed_surplus(self.shed)
        yield from self._counted(self._execution.advance())

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Have every row leave."""
        yield from self._counted(self._execution.drain())

    def join(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Join one batch to its end, in stream order if that was asked for."""
        self.offer(batch)
        yield from self.drain()

    def _way(self) -> str:
        if self._lookup is None:
            return "the relation fits the budget and is held whole"
        return f"popular rows are held and others read, results in {self.order} order"

    @contextmanager
    def _running(self, deadline: str | float | None) -> Iterator[None]:
        with super()._running(deadline):
            self._execution.deadline = self.deadline
            try:
                yield
            finally:
                self._execution.deadline = None

    def as_waiting(self) -> DrivenOperator | None:
        """This join, with order="any": rows that miss may wait for those of later batches."""
        return self if self.order == "any" else None

    @property
    def popularity(self) -> Sketch:
        """How often the stream asked for each key lately: the counts that the hot set is chosen by."""
        return self._memory.popularity

    @property
    def batch_rows(self) -> int | None:
        """How many rows of a batch it would join at once."""
        return self.wanted_rows

    # -- rows that wait ------------------------------------------------------------------------------------------------------

    @property
    def wanted(self) -> int:
        """Rows that it looks up at a time."""
        return self._memory.piece_rows

    @property
    def capacity(self) -> int:
        """Rows that may wait at the same time."""
        return self._memory.most_rows

    @property
    def output_rows(self) -> int:
        """Rows of a result batch at most."""
        return self._memory.output_rows

    @property
    def buffered(self) -> int:
        """Rows offered and not looked up."""
        return self._execution.buffered

    @property
    def ready(self) -> bool:
        """Whether rows are there to be looked up."""
        return self._execution.buffered > 0

    @property
    def due(self) -> float:
        """When, by its clock, what waits must be read for so that no deadline passes; inf when there is none."""
        return self._execution.due

    def take_in(self) -> Iterator[pa.RecordBatch]:
        """Rows are taken in as they are looked up, by `advance`."""
        return self._counted(iter(()))

    def has_waited(self, seconds: float) -> None:
        """Rows that miss wait for others, however long the stream takes."""

    @property
    def waiting(self) -> int:
        """Rows offered that have not left."""
        return self._execution.buffered + self._execution.waiting

    def let_wait(self) -> pa.RecordBatch | None:
        """Give the rows that wait back: the caller keeps them, and offers them again. They count as `deferred` alone."""
        return self._execution.let_wait()

    def by_page(self, batch: pa.RecordBatch) -> Int32s:
        """The rows in an order in which those of a page are neighbours."""
        if self._lookup is None:  # there are no pages to read
            return np.arange(batch.num_rows, dtype=np.int32)
        return self._lookup.by_page(batch)

    # -- in a group ----------------------------------------------------------------------------------------------------------

    @property
    def wanted_rows(self) -> int:
        """How many rows it would join at once, given them."""
        return self._memory.most_rows

    @property
    def wanted_bytes(self) -> int:
        """Bytes of stream tuples that a worker may gather to be joined at once."""
        return self._memory.gathered_bytes

    def enter(self) -> bool:
        """Take part in the group, until `leave`; False if as many workers as it has room for do so already."""
        assert self._membership is not None, "the join was made without a group"
        return self._membership.enter()

    def leave(self) -> None:
        """Let another worker have the place."""
        assert self._membership is not None, "the join was made without a group"
        self._membership.leave()

    # -- between two batches -------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """What the operator has learned and cached, between two batches. Results do not depend on it; hits do."""
        return self._named(self._memory.dump())

    def restore(self, snapshot: Snapshot) -> None:
        """Go on as the operator did that the snapshot was taken of."""
        snapshot.check(self._named({}))
        self._memory.load(snapshot.arrays)

    def _named(self, arrays: Arrays) -> Snapshot:
        names = tuple(column.name for column in self._payload)
        return Snapshot("AdaptiveJoin", str(self.relation.path), self.relation.version, names, arrays)
