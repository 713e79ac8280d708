"""How hot set and stream buffers share the bytes that move between them. [SSIJ] §IV.A

A larger hot set misses less; a larger stream buffer has more misses share a read. The cost model of AdaptiveJoin divides the
bytes by these functions too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace.semistream.adaptive.hot_set import SEGMENTS
from headrace.semistream.adaptive.memory_plan import MIN_ENTRIES, MIN_PIECE, MIN_SLICE, MemoryPlan
from headrace.semistream.adaptive.structure_sizes import YoungSize, entry_bytes, row_bytes, waiting_bytes
from headrace.semistream.adaptive.workload import FIRST_BATCH_ROWS, Workload

#: Share of the hot set's bytes that hold tuples: one segment is spare.
HELD_SHARE = SEGMENTS / (SEGMENTS + 1)

#: Shares of the moving bytes for the stream buffer that are compared.
STREAM_SHARES = (0.04, 0.08, 0.12, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)

#: Of the rows that wait, for a join phase that makes room: a smaller part shares more reads and sorts more often.
PHASE_SHARE = 0.25

_FIRST_SHARE = 0.5  # of the moving bytes for the stream buffer, before anything is known of the stream
_MARGIN = 1.2  # a slice may have so many times the mean of distinct and missing keys
_MIN_MISSED = 0.02  # share of missing keys that there is always room for
_BATCH_MARGIN = 1.25  # a batch may have so many times the mean of rows
_LARGEST_SLICE = 1 << 21  # rows: positions in a slice are 32-bit numbers, and reads are shared by then
_LARGEST_PIECE = 1 << 15  # rows looked up together, where rows wait: more would not fit the processor's caches
_PIECE_SHARE = 16  # one part in so many of a worker's moving bytes for the piece that is looked up
# Fetched tuples stay in the young store until they compete for a segment, so half a segment's worth of them get an entry: fewer
# would have a segment written for little. Many workers have to do with less each: four times as much for all of them.
_YOUNG_SHARE, _YOUNG_WORKERS = 0.5 / SEGMENTS, 4
_SHRINK, _SHRINK_PIECE = (
    0.97,
    0.9,
)  # factors by which the young store shrinks until it fits, in stream order and where rows wait
_LEAST_HORIZON, _HORIZON_ENTRIES = 1 << 16, 10  # stream tuples that the sketch counts: at least, and for each hot key


@dataclass(frozen=True, kw_only=True)
class Split:
    """Sizes of the hot set and of one worker's stream buffer.

    Parameters
    ----------
    slice_rows
        Rows that are looked up together.
    most_rows
        Rows that a slice could have were batches larger; or that may wait, where rows wait.
    slice_bytes, most_bytes
        Bytes of as many rows as that, as rows were when the split was made: later ones may be longer.
    stream_bytes
        Bytes of a worker's stream buffer, the young store included.
    young
        ArrayAllocator of the young store, which takes in fetched tuples.
    hot_bytes, hot_entries
        Bytes of the hot set, and keys that they hold.
    """

    slice_rows: int
    most_rows: int
    slice_bytes: int
    most_bytes: int
    stream_bytes: int
    young: YoungSize
    hot_bytes: int
    hot_entries: int


def first_split(plan: MemoryPlan, workload: Workload) -> Split:
    """The split before anything is known of the stream but the size of a batch."""
    return split_by_share(plan, workload, plan.moving, _FIRST_SHARE if plan.has_hot_set else 1.0)


def resized(plan: MemoryPlan, workload: Workload, moving: int, now: Split) -> Split:
    """A split of another number of bytes with as large a stream buffer as now; the hot set takes up or gives the difference."""
    return split_by_share(plan, workload, moving, min(1.0, plan.workers * now.stream_bytes / moving))


def split_beside(plan: MemoryPlan, workload: Workload, moving: int, hot_bytes: int) -> Split:
    """A worker's stream buffer beside a hot set whose size the group agreed on."""
    return split_by_share(plan, workload, moving, 1 - hot_bytes / moving, hot_bytes)


def sketch_horizon(plan: MemoryPlan) -> int:
    """Stream tuples after which the sketch halves its counts: enough to tell the keys apart that the hot set can hold."""
    entries = first_split(plan, Workload(rows=FIRST_BATCH_ROWS)).hot_entries
    return max(_LEAST_HORIZON, _HORIZON_ENTRIES * entries)


def split_by_share(plan: MemoryPlan, workload: Workload, moving: int, share: float, hot: int | None = None) -> Split:
    """Give stream buffers a share of `moving` bytes; the hot set gets what they leave, or has the size `hot`."""
    divide = _ordered_split if plan.ordered else _unordered_split
    return divide(plan, workload, moving, share, hot)


def _ordered_split(plan: MemoryPlan, workload: Workload, moving: int, share: float, hot: int | None) -> Split:
    """Results leave in stream order: the tuples of a slice's misses are held until the slice is done."""
    facts = plan.facts
    missed = min(1.0, max(_MIN_MISSED, _MARGIN * workload.missed))
    row = row_bytes(facts, min(1.0, _MARGIN * workload.distinct), missed)
    width = int(facts.tuple_bytes) * facts.rows_per_key
    entry = entry_bytes(facts)
    workers, each = plan.workers, moving // plan.workers
    stream = max(int(each * share), int(MIN_SLICE * row) + plan.least_young)
    most_rows = max(MIN_SLICE, min(_LARGEST_SLICE, int((stream - plan.least_young) / (row + missed * width))))
    rows = max(MIN_SLICE, min(most_rows, int(_BATCH_MARGIN * workload.rows)))
    young_share = min(workers, _YOUNG_WORKERS) * _YOUNG_SHARE
    room = each
    if not plan.has_hot_set:
        hot = 0
    elif hot is None:
        spare = each - int(rows * (row + missed * width)) - plan.least_young
        hot = max(0, int(workers * spare / (1 + young_share)))
    else:
        room = each - hot // workers
    entries = max(MIN_ENTRIES, int(young_share * hot / workers) // entry)
    tuples = int(max(rows * missed, entries) * facts.rows_per_key)
    young = _fitting(plan, entries, tuples, room - int(rows * row), _SHRINK)
    stream = int(rows * row) + young.nbytes
    if room == each and hot:
        hot = max(0, workers * (each - stream))
    return Split(
        slice_rows=rows,
        most_rows=most_rows,
        slice_bytes=int(rows * workload.stream_bytes),
        most_bytes=int(most_rows * workload.stream_bytes),
        stream_bytes=stream,
        young=young,
        hot_bytes=hot,
        hot_entries=hot // entry,
    )


def _unordered_split(plan: MemoryPlan, workload: Workload, moving: int, share: float, hot: int | None) -> Split:
    """Rows wait for a join phase: look-ups are made for a piece at a time, and the rest is for rows that wait."""
    facts = plan.facts
    row = row_bytes(facts, 1.0, 1.0) + int(workload.stream_bytes)  # a piece of the stream itself is held, too
    waiting = waiting_bytes(workload.stream_bytes, workload.copies)
    entry = entry_bytes(facts)
    workers, each = plan.workers, moving // plan.workers
    piece = int(np.clip(each // _PIECE_SHARE // row, MIN_PIECE, _LARGEST_PIECE))
    young_share = min(workers, _YOUNG_WORKERS) * _YOUNG_SHARE
    if not plan.has_hot_set:
        hot = 0
    elif hot is None:
        needed = piece * row + plan.least_young
        useful = workload.between * min(1.0, _MARGIN * workload.missed) * waiting
        stream = needed + int(min(max(0.0, each * share - needed), useful))
        hot = max(0, int(workers * (each - stream) / (1 + young_share)))
    entries = max(MIN_ENTRIES, int(young_share * hot / workers) // entry)
    mine = each - -(-hot // workers)  # rounded so that all workers and the hot set are not a byte more than there is
    room = mine - piece * row
    young = _fitting(plan, entries, int(entries * facts.rows_per_key), room, _SHRINK_PIECE)
    rows = max(MIN_PIECE, int((room - young.nbytes) / waiting))
    return Split(
        slice_rows=piece,
        most_rows=rows,
        slice_bytes=int(piece * workload.stream_bytes),
        most_bytes=int(rows * workload.stream_bytes),
        stream_bytes=min(mine, piece * row + young.nbytes + int(rows * waiting)),
        young=young,
        hot_bytes=hot,
        hot_entries=hot // entry,
    )


def _fitting(plan: MemoryPlan, entries: int, tuples: int, room: int, factor: float) -> YoungSize:
    """The young store for so many keys and tuples, or for as many of them as fit."""
    young = YoungSize.of(plan.facts, entries, tuples)
    while young.nbytes > room and tuples > 0:
        tuples = int(tuples * factor)
        entries = min(entries, max(MIN_ENTRIES, tuples))
        young = YoungSize.of(plan.facts, entries, tuples)
    return young
