"""WholeTable: every tuple of the relation in memory by its key, for a relation whose wanted columns fit the budget.

    slots     key, first tuple, how many tuples      open addressing; one line of memory a key
    columns   values of all tuples, column by column  in the order of the pages, so that the tuples of a key are neighbours

It is made by one scan in which every page is checked, and never changes: another version of the relation is another table.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.arrays import Int32s, Int64s, UInt8s
from headrace.errors import DamagedRelation
from headrace.kernels.whole_table import enter_ints, enter_strings, probe_ints, probe_strings
from headrace.metrics import JoinStats
from headrace.relation import Relation
from headrace.relation.columns import Column, address
from headrace.relation.keys import IntKeys, KeyCodec, Keys
from headrace.relation.reader import PageReader, key_column, stored_keys
from headrace.relation.store import ArrayAllocator, StoreFull, TupleSources, TupleStore
from headrace.semistream.adaptive.memory_plan import output_row, process_bytes
from headrace.semistream.plan_facts import PlanFacts

_LOAD, _LEAST_LOAD = 0.75, 0.5  # share of the slots in use: the most, and the least where there is room
_SLOT_BYTES = 16
_ROW_BYTES, _TEXT_BYTES = (
    56,
    40,
)  # of a stream row while it is looked up; more where keys are byte strings, which are hashed
_LEAST_ROWS, _MOST_ROWS = 256, 1 << 14  # stream rows that are looked up, and results that leave, together
_LEAST_READ_PAGES, _READ_BYTES = 4, 2 << 20  # of the read buffer while the table is made
_LOAD_ROW_BYTES = 32  # of a tuple in the read buffer, while it is copied: where it is, its key and its hash
_LARGEST_TABLE = (
    512 << 20
)  # bytes: a larger one takes seconds to make, again for every version, before the first result
_LARGEST_COLUMN = (1 << 32) - 1  # bytes: offsets in a store are unsigned 32-bit numbers
_TEXT_KEY = Column("", pa.binary(), 0, 0, nullable=False)  # the last column of a table whose keys are byte strings
_USUAL_KEY = 32  # bytes of such a key
_COUNTERS = 4  # bytes of the sketch a key, where popularity is measured


@dataclass(frozen=True, kw_only=True)
class WholeTablePlan:
    """How a budget is divided in which the whole relation fits. Bytes are those of all workers together.

    Parameters
    ----------
    facts, limit, workers
        What is joined, the bytes there are, and the processes that share them.
    columns, data, slots
        The columns that are held, bytes of those with values of any length, and slots of the hash table.
    table
        Bytes of columns and slots, which are there once.
    load
        Bytes that making the table takes beside it; before the first batch, and so not beside `stream` and `output`.
    read
        Bytes of the read buffer within `load`.
    rows
        Stream rows that are looked up together, and results that leave together, at most.
    stream, output, sketch, process
        Bytes of stream rows while they are looked up, of results, of counts of keys, and of a worker's other objects.
    """

    facts: PlanFacts
    limit: int
    workers: int
    columns: tuple[Column, ...]
    data: dict[str, int]
    slots: int
    table: int
    load: int
    read: int
    rows: int
    stream: int
    output: int
    sketch: int
    process: int

    @classmethod
    def of(
        cls, facts: PlanFacts, limit: int, *, workers: int = 1, key_bytes: int | None = None, counted: bool = False
    ) -> WholeTablePlan | None:
        """The plan; None if the relation does not fit. All processes of a group come to the same one.

        Parameters
        ----------
        facts, limit, workers
            See the class.
        key_bytes
            Bytes of all keys at most, where they are byte strings; by default they are taken to be rather short.
        counted
            Whether to measure how popular keys are.
        """
        columns, data = facts.payload, {c.name: facts.variable_bytes[c.name] for c in facts.payload if c.width == 0}
        if not facts.integer_key:  # integers lie in the slots
            columns = (*columns, _TEXT_KEY)
            data[_TEXT_KEY.name] = _USUAL_KEY * facts.rows if key_bytes is None else key_bytes
        store = max(TupleStore.size(columns, facts.rows, data), int(facts.rows * (facts.tuple_bytes - 1)))
        store += ArrayAllocator.slack(_arrays(columns))
        least = store + _SLOT_BYTES * _slots(facts.distinct_keys, _LOAD)
        row = _ROW_BYTES + (0 if facts.integer_key else _TEXT_BYTES)
        result = output_row(facts)
        page = facts.page_size + facts.page_rows * _LOAD_ROW_BYTES
        load = facts.index_bytes + _LEAST_READ_PAGES * page
        sketch = workers * _COUNTERS * facts.distinct_keys if counted else 0
        beside = max(load, workers * _LEAST_ROWS * (row + result)) + sketch
        spare = limit - least - beside
        if spare < 0 or least > _LARGEST_TABLE or max(data.values(), default=0) > _LARGEST_COLUMN:
            return None
        process = process_bytes(spare, workers)
        spare -= process
        slots = _slots(facts.distinct_keys, _LOAD)
        more = min(spare // 2 // _SLOT_BYTES, _slots(facts.distinct_keys, _LEAST_LOAD) - slots)
        table = least + _SLOT_BYTES * more
        room = limit - process - sketch - table
        rows = min(room // workers // (row + result), _MOST_ROWS)
        most = max(_LEAST_READ_PAGES, min(_READ_BYTES // facts.page_size, facts.pages))
        pages = min((room - facts.index_bytes) // page, most)
        return cls(
            facts=facts,
            limit=limit,
            workers=workers,
            columns=columns,
            data=data,
            slots=slots + more,
            table=table,
            load=facts.index_bytes + pages * page,
            read=pages * facts.page_size,
            rows=rows,
            stream=workers * rows * row,
            output=workers * rows * result,
            sketch=sketch,
            process=process,
        )

    @classmethod
    def of_relation(
        cls, relation: Relation, facts: PlanFacts, limit: int, *, workers: int = 1
    ) -> WholeTablePlan | None:
        """The plan for an open relation; None if it does not fit.

        Stored by frequency, the rows of a key that occurs more than once need not be neighbours: such a relation is not held.
        """
        if not relation.unique and relation.order != "key":
            return None
        # How long keys are is known to the pages alone: no longer than what else is not in them leaves room for.
        rest = relation.num_rows * relation.opened.layout.fixed + sum(relation.variable_bytes.values())
        key_bytes = max(0, relation.num_pages * relation.page_size - rest)
        return cls.of(facts, limit, workers=workers, key_bytes=key_bytes, counted=relation.order == "frequency")


def _slots(keys: int, load: float) -> int:
    return int(keys / load) + 2


def _arrays(columns: tuple[Column, ...]) -> int:
    """Arrays of a table: each may lose a few bytes to alignment in a given piece of memory."""
    return 3 * len(columns) + 1


class WholeTable:
    """The tuples of a relation and their hash table, in memory of this process or of a group.

    Parameters
    ----------
    plan, codec
        Its sizes, and the codec of its keys.
    memory
        Where it lies: zeros before `load`, or what another process has loaded; memory of its own by default.
    """

    def __init__(self, plan: WholeTablePlan, codec: KeyCodec, memory: UInt8s | None = None) -> None:
        room = ArrayAllocator(memory)
        self._plan = plan
        self._codec = codec
        self._tuples = TupleStore(plan.columns, plan.facts.rows, plan.data, room)
        words = 2 * plan.slots
        self._slots: Int64s = np.zeros(words, np.int64) if memory is None else room.take(words, np.int64)
        self.sources = TupleSources([self._tuples])  # what results are gathered from: the table is source 0

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return self._tuples.nbytes + self._slots.nbytes

    def load(self, relation: Relation, stats: JoinStats) -> None:
        """Read all tuples, shard by shard in the order of the index, each page checked, and enter their keys."""
        version = relation.opened
        reader = PageReader(version, self._plan.read)
        used = 0
        for shard in range(relation.num_shards):
            index = version.read_index(shard)
            places = index.place(np.arange(index.pages))
            del index
            with closing(reader.in_order(places, stats)) as rounds:
                for pages in rounds:
                    used = self._append(reader, pages, used)
                    if used < 0:
                        name = version.manifest.shards[shard].files[0].name
                        reason = "the rows of a key are not together, or there is more in it than was counted"
                        raise DamagedRelation(version.root / name, reason, shard=shard)

    def _append(self, reader: PageReader, pages: Int64s, used: int) -> int:
        """Add the tuples of pages in the read buffer; gives the distinct keys so far, or -1 as `enter_ints` does."""
        some, at, row = reader.tuples(pages, (key_column(self._codec),))
        keys = stored_keys(some, self._codec.integer)
        try:
            first = self._tuples.append_from_pages(at, row)
        except StoreFull:
            return -1
        if isinstance(keys, IntKeys):
            return int(enter_ints(self._slots, keys.values, first, used))
        return int(enter_strings(self._slots, keys.hashes(), *self._key_addresses, first, used))

    @property
    def _key_addresses(self) -> tuple[int, int]:
        """Where offsets and bytes of keys that are byte strings lie: they are the last column."""
        return int(self.sources.offsets[-1][0]), int(self.sources.values[-1][0])

    def probe(self, keys: Keys, valid: UInt8s, pos: Int32s, count: Int32s) -> int:
        """Find the first tuple of each key and how many it has, none where it is null; gives how many keys have some."""
        at = address(self._slots)
        if isinstance(keys, IntKeys):
            return int(probe_ints(self._slots, at, keys.values, valid, pos, count))
        stored, data = self._key_addresses, address(keys.data)
        return int(probe_strings(self._slots, at, *stored, keys.hashes(), data, keys.offsets, valid, pos, count))
