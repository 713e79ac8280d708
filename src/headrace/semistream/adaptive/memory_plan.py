"""How AdaptiveJoin divides its budget into parts of fixed size. The operator and its cost model both use this plan.

+-------+--------+--------+-------------+--------+-------+---------+-----------------------------+
| index | filter | sketch | read buffer | output | input | process | hot set <-> stream buffer   |
+-------+--------+--------+-------------+--------+-------+---------+-----------------------------+
needed  if it    fixed    fixed         fixed    only in a group   `moving`: see split.py
fits
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from headrace.errors import MemoryRefused
from headrace.relation.index_memory import IndexMemory
from headrace.semistream.adaptive.structure_sizes import YoungSize, entry_bytes, row_bytes
from headrace.semistream.plan_facts import PlanFacts
from headrace.units import format_size

#: Share of stream rows without a match below which the filter is not worth its memory.
FEW_ABSENT = 0.002

MIN_SLICE = 512  # rows that are joined together at least, in stream order: fewer would share no reads
MIN_PIECE = 128  # rows that are looked up together at least, where rows wait: reads are shared by those that wait
MIN_ENTRIES = 64  # keys of the store for fetched tuples at least
_MIN_OUTPUT, _MIN_PIECE_OUTPUT = 256, 64  # rows of a result batch at least, in stream order and where rows wait
_OUTPUT_ROWS = 1 << 14  # rows of a result batch at most: larger ones are not handed on faster
_OUTPUT_BYTES = 64  # of a result, besides its columns of the relation
_OUTPUT_SHARE, _PIECE_OUTPUT_SHARE = 16, 32  # one part in so many of the spare bytes for results, likewise
_MIN_READ_PAGES = 4  # of the read buffer: two halves of two pages
_READ_SHARE = 12  # one part in so many of the spare pages for each half of the read buffer
_LONG_READ_SHARE = 10  # likewise at most, where a seek is worth many pages and long runs pay
_BYTES_IN_FLIGHT = 8 << 20  # of the read buffers of all workers: enough to keep a disk busy
_INPUT_SHARE = 12  # one part in so many of the spare bytes for rows that a worker gathers to be joined together
_COUNTERS = 4  # bytes of the sketch for each key that the hot set can hold
_MIN_SKETCH = 64  # bytes: one cache line
_FILTER_SHARE = 0.35  # of the spare bytes at most: a larger filter would starve the rest
# A worker's own memory that no array of ours accounts for: objects, threads, and what malloc cannot put to use between arrays of
# other sizes. Bytes measured as RSS; a worker with a small budget puts a third of its spare bytes aside at most.
_PROCESS_BYTES, _PROCESS_SHARE = 2 << 20, 3


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """Bytes of each part of the memory, of all workers together.

    Parameters
    ----------
    facts
        What the plan was made from.
    index, filter, sketch, read, output, input, process
        Bytes of the parts of fixed size; a part that there is no room for has none.
    index_memory
        How the index is held: as a whole, by all workers together, or its upper part, by each.
    output_rows
        Rows of a result batch at most.
    moving
        Bytes that hot set and stream buffers share while the filter is in memory; see split.py.
    least_young
        Bytes of the smallest store for fetched tuples.
    left_out
        Parts that the budget is too small for, and why.
    workers
        Processes that join at the same time, each with buffers of its own.
    ordered
        Whether results leave in stream order, so that fetched tuples are held until it is their row's turn.
    """

    facts: PlanFacts
    index_memory: IndexMemory
    index: int
    filter: int
    sketch: int
    read: int
    output: int
    output_rows: int
    moving: int
    least_young: int
    left_out: Mapping[str, str]
    workers: int
    input: int
    process: int
    ordered: bool

    @property
    def limit(self) -> int:
        """Bytes of all parts together."""
        fixed = self.index + self.filter + self.sketch + self.read + self.output + self.input + self.process
        return fixed + self.moving

    @property
    def has_hot_set(self) -> bool:
        """Whether there is room for a hot set."""
        return "hot set" not in self.left_out

    @property
    def read_pages(self) -> int:
        """Pages of one half of a worker's read buffer."""
        return self.read // self.workers // self.facts.page_size // 2

    def moving_bytes(self, *, filtered: bool) -> int:
        """Bytes that hot set and stream buffers share, with the filter in memory or without."""
        return self.moving + (0 if filtered else self.filter)


def least_memory(facts: PlanFacts, workers: int = 1) -> int:
    """The smallest budget, in bytes, that a join can work with."""
    return _index_bytes(_index_in(facts, 0, workers), workers) + _least_beside(facts, workers)


def _least_beside(facts: PlanFacts, workers: int) -> int:
    """The least bytes beside the index."""
    output = _MIN_OUTPUT * output_row(facts)
    stream = MIN_SLICE * row_bytes(facts, 1.0, 1.0) + _least_young(facts)
    return _MIN_SKETCH + workers * (_MIN_READ_PAGES * facts.page_size + output + stream)


def _index_in(facts: PlanFacts, room: int, workers: int) -> IndexMemory:
    """How the index is held in so many bytes: once for all workers if it fits as a whole, else in part by each of them."""
    each = facts.index_in(room if facts.index_bytes <= room else room // workers)
    # The least parts of many workers may take more than the whole.
    return each if _index_bytes(each, workers) < facts.index_bytes else IndexMemory(nbytes=facts.index_bytes)


def _index_bytes(index: IndexMemory, workers: int) -> int:
    """Bytes of the index for all workers."""
    return index.nbytes * (workers if index.paged else 1)


def plan_memory(facts: PlanFacts, limit: int, *, workers: int = 1, ordered: bool, relation: object = "") -> MemoryPlan:
    """Divide a budget of `limit` bytes; refuses one that is too small, and says what would do.

    All processes of a group come to the same plan: they find each other's parts in shared memory by it.

    Parameters
    ----------
    facts, limit
        What is joined, and the bytes there are.
    workers
        Processes that share the budget.
    ordered
        Whether results leave in stream order.
    relation
        The relation's name in a refusal.
    """
    beside = _least_beside(facts, workers)
    index = _index_in(facts, limit - beside, workers)
    index_bytes = _index_bytes(index, workers)
    least = index_bytes + beside
    if limit < least:
        each = f" for each of {workers} workers" if workers > 1 else ""
        raise MemoryRefused(
            f"memory={format_size(limit)} is too small to join with {relation}: the index needs"
            f" {format_size(index_bytes)} and the buffers {format_size(beside // workers)}{each};"
            f" give {format_size(least)} or more"
        )
    process = process_bytes(limit - least, workers)
    limit -= process
    spare = limit - least
    left_out = {}
    filter_bytes = facts.filter_bytes
    if filter_bytes > _FILTER_SHARE * spare:
        left_out["filter"] = (
            f"it needs {format_size(filter_bytes)}, and index and buffers leave {format_size(spare)}; absent keys cost reads"
        )
        filter_bytes = 0
    spare -= filter_bytes
    beside_index = limit - index_bytes - filter_bytes
    read = (
        workers * 2 * facts.page_size * _read_pages(facts, spare // workers, beside_index // workers, workers, ordered)
    )
    least_output, output_share = (_MIN_OUTPUT, _OUTPUT_SHARE) if ordered else (_MIN_PIECE_OUTPUT, _PIECE_OUTPUT_SHARE)
    result_bytes = output_row(facts)
    output_rows = int(np.clip(spare // workers // output_share // result_bytes, least_output, _OUTPUT_ROWS))
    output = workers * output_rows * result_bytes
    gathered = spare // _INPUT_SHARE if workers > 1 and ordered else 0  # rows that wait are gathered anyway
    left = beside_index - read - output - gathered
    keys = min(facts.rows, left // entry_bytes(facts))
    sketch = 1 << max(_MIN_SKETCH.bit_length() - 1, int(_COUNTERS * keys).bit_length() - 1)
    least_rows = MIN_SLICE if ordered else MIN_PIECE
    least_stream = workers * (least_rows * row_bytes(facts, 1.0, 1.0) + _least_young(facts))
    if left - sketch < 2 * least_stream:
        left_out["hot set"] = f"{format_size(left)} is left, and a batch needs {format_size(least_stream)} of it"
        sketch = _MIN_SKETCH
    return MemoryPlan(
        facts=facts,
        index_memory=index,
        index=index_bytes,
        filter=filter_bytes,
        sketch=sketch,
        read=read,
        output=output,
        output_rows=output_rows,
        moving=left - sketch,
        least_young=_least_young(facts),
        left_out=left_out,
        workers=workers,
        input=gathered,
        process=process,
        ordered=ordered,
    )


def _read_pages(facts: PlanFacts, spare: int, beside_index: int, workers: int, ordered: bool) -> int:
    """Pages of one half of a worker's read buffer: enough to keep a disk busy, more where a request is dear.

    `spare` and `beside_index` are a worker's bytes beyond the least it needs, and beyond its part of index and filter.
    """
    share = spare // facts.page_size
    pages = int(np.clip(share // _READ_SHARE, 2, _BYTES_IN_FLIGHT // facts.page_size // 2 // workers))
    if ordered:
        seek, transfer = facts.in_flight or (facts.seek, facts.transfer)
        return max(pages, min(share // _LONG_READ_SHARE, int(seek / transfer / 2)))
    runs = long_runs(facts.scan_seek, facts.transfer, beside_index // facts.page_size) // 2
    # A disk that serves one request at a time is busy with one.
    return max(2, runs) if facts.serial else max(pages, runs)


def long_runs(seek: float, transfer: float, room: int) -> int:
    """Pages of a read buffer out of `room` pages, the rest of which are for rows that wait.

    Where most pages are wanted a pass takes transfer + seek / b a page with runs of b pages, for room - b pages of rows: with
    x = seek / transfer, (1 + x / b) / (room - b) is least where b * b + 2 * x * b = x * room.
    """
    x = seek / transfer
    return int(np.sqrt(x * x + x * max(0, room)) - x)


def process_bytes(spare: int, workers: int) -> int:
    """Bytes of `spare` ones that are put aside for what no array of ours accounts for; none outside of a group."""
    return workers * min(_PROCESS_BYTES, spare // workers // _PROCESS_SHARE) if workers > 1 else 0


def output_row(facts: PlanFacts) -> int:
    """Bytes of a result."""
    return int(facts.tuple_bytes) + _OUTPUT_BYTES


def _least_young(facts: PlanFacts) -> int:
    return YoungSize.of(facts, MIN_ENTRIES, 0).nbytes
