"""How AdaptiveJoin divides its budget: what is fixed, and what the stream decides.

The index is needed; the rest is worth having where it pays. The filter stays while absent keys are seen. What is left
moves between the hot set (fewer misses) and the stream buffer (more misses share a read), whichever the model below
expects to save more time: [SSIJ] §IV.A with a forecast in place of eviction on demand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from headrace.errors import MemoryRefused
from headrace.relation import Relation
from headrace.relation.columns import Column
from headrace.relation.keys import Ints
from headrace.semistream.adaptive.hot_set import ENTRY_BYTES, SEGMENTS, KeyedStore
from headrace.units import format_size

# Batch structures, measured with tracemalloc. While distinct keys are found a row takes hash, number and a share of the
# table; after that only its number, with each distinct key its hash, count and place of its matches, and each missing
# one its place in the plan.
DISTINCT_BYTES = 64
ROW_BYTES = 6
KEY_BYTES = 34
MISS_BYTES = 62
WAITING_BYTES = 20  # of a row that waits for a join phase, besides its own: its key and its place in the order
TEXT_BYTES = 32  # more for each copy of a key that is a byte string
MISS_CPU = 2e-6  # seconds of work for a missing key besides reading
_HELD = SEGMENTS / (SEGMENTS + 1)  # of the hot set: one segment is spare
_MIN_SLICE = 512
_MIN_ENTRIES = 64
_MIN_OUTPUT = 256
_LARGEST_SLICE = 1 << 21
MIN_PIECE, PIECE_ROWS = 128, 1 << 15  # looked up at a time, where rows wait
PHASE = 0.25  # of the rows that wait, for a join phase that makes room: a smaller part shares more reads and sorts more often
_SMALL_OUTPUT = 64  # rows of results at a time at least, where rows wait
_PAGES_IN_FLIGHT = 512  # pages in read buffers at most: enough to keep a disk busy
_OUTPUT_ROWS = 1 << 14
# A worker's own memory that no array of ours accounts for: objects, threads, and what malloc cannot put to use between arrays of
# other sizes. Measured as RSS; a worker of a small budget has less to put aside.
_PROCESS, _PROCESS_SHARE = 2 << 20, 3
_FILTER_SHARE = 0.35  # of the budget after what is needed: a larger filter would starve the rest
_SHARES = (0.04, 0.08, 0.12, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # of what moves, for the stream buffer

Floats = np.ndarray[tuple[int], np.dtype[np.float64]]


@dataclass
class Parts:
    """Bytes of the parts that do not move: of all workers together."""

    index: int
    filter: int
    sketch: int
    read: int
    output: int
    output_rows: int
    moving: int  # what hot set and stream buffer share while the filter is there
    tuple_bytes: int
    least_room: int
    left_out: dict[str, str] = field(default_factory=dict)
    workers: int = 1  # processes that join at the same time, each with buffers of its own
    input: int = 0  # stream tuples gathered to be joined together
    process: int = 0  # what workers need besides: see _PROCESS
    ordered: bool = (
        True  # whether tuples that were fetched must be held until their slice's results go out in stream order
    )


@dataclass(frozen=True)
class Popularity:
    """Which share of the stream the most popular keys make: hits[i] if entries[i] keys are held."""

    entries: Floats
    hits: Floats

    @classmethod
    def of(cls, before: Ints, counts: Ints, window: int, strangers: Ints) -> Popularity:
        """From some keys of a slice: how often each was seen before it, in a window of so many tuples, and in it.

        A key seen p times comes back in n tuples n * p / window times, so each return stands for window / (n * p) such keys.
        Half is taken off p: among keys seen once, most were lucky. Counts share their cells: `strangers` are what keys count that
        never came, and a key that counts no more than they do was as likely not seen at all.
        """
        seen = before > 0
        order = np.argsort(-before[seen], kind="stable")
        back, p = counts[seen][order] / max(1, int(counts.sum())), before[seen][order] - 0.5
        if strangers.any():
            back = back * _really_seen(before, strangers)[before[seen][order]]
        zero = np.zeros(1)
        return cls(np.concatenate([zero, np.cumsum(back * window / p)]), np.concatenate([zero, np.cumsum(back)]))

    def hit_ratio(self, entries: float) -> float:
        return float(np.interp(entries, self.entries, self.hits))


def _really_seen(before: Ints, strangers: Ints) -> Floats:
    """The share of keys with a count that were seen, for every count: the others are like strangers."""
    levels = int(max(before.max(initial=0), strangers.max(initial=0))) + 1
    mine, theirs = (np.bincount(x, minlength=levels) / max(1, x.size) for x in (before, strangers))
    middle = int(np.median(strangers))
    # Keys of the slice that come for the first time
    new = min(1.0, mine[: middle + 1].sum() / theirs[: middle + 1].sum())
    share: Floats = np.clip(1 - new * theirs / np.maximum(mine, 1e-12), 0, 1)
    return share


@dataclass
class Workload:
    """What the stream showed, as running means: rows a batch; distinct, missing and absent keys a row."""

    rows: float
    distinct: float = 1.0
    missed: float = 1.0
    absent: float = 1.0
    seen: int = 0  # slices so far
    popularity: Popularity = field(default_factory=lambda: Popularity(np.zeros(1), np.zeros(1)))
    stream_bytes: float = 32.0  # of a row
    between: float = np.inf  # rows from one time that all must leave to the next: no more than their misses can wait

    def observe(self, weight: float, rows: int, distinct: int, missed: int, absent: int) -> None:
        """Take in what a slice of so many rows showed."""
        for name, seen in (("distinct", distinct), ("missed", missed), ("absent", absent)):
            old = getattr(self, name)
            share = seen / max(1, rows)
            setattr(self, name, old + weight * (share - old) if self.seen else share)
        self.seen += 1


@dataclass
class Split:
    """Sizes of hot set and stream buffer; the latter, and young in it, are one worker's."""

    slice_rows: int
    most_rows: int  # a slice could have, were batches larger
    stream_bytes: int
    young_entries: int
    young_rows: int
    young_data: dict[str, int]
    hot_bytes: int
    hot_entries: int


def least_memory(relation: Relation, payload: Sequence[Column], index: int, workers: int = 1) -> int:
    """The smallest budget that a join can work with."""
    least_room = _young_size(relation, payload, _MIN_ENTRIES, 0)[0]
    least_stream = _MIN_SLICE * _row_bytes(relation, 1.0, 1.0) + least_room
    output = _MIN_OUTPUT * (tuple_bytes(relation, payload) + 64)
    return index + 64 + workers * (4 * relation.page_size + output + least_stream)


def fixed_parts(
    relation: Relation, payload: Sequence[Column], limit: int, index: int, workers: int = 1, *, ordered: bool = True
) -> Parts:
    """Divide the budget, or refuse it with the least that would do. The same in all processes: they find each other's by it."""
    page = relation.page_size
    width = tuple_bytes(relation, payload)
    least_room = _young_size(relation, payload, _MIN_ENTRIES, 0)[0]
    least_rows, least_output = (_MIN_SLICE, _MIN_OUTPUT) if ordered else (MIN_PIECE, _SMALL_OUTPUT)
    least_stream = workers * (least_rows * _row_bytes(relation, 1.0, 1.0) + least_room)
    output_row = width + 64
    least = least_memory(relation, payload, index, workers)
    if limit < least:
        each = f" for each of {workers} workers" if workers > 1 else ""
        raise MemoryRefused(
            f"memory={format_size(limit)} is too small to join with {relation.path}: the index needs {format_size(index)}"
            f" and the buffers {format_size((least - index) // workers)}{each}; give {format_size(least)} or more"
        )
    process = workers * min(_PROCESS, (limit - least) // workers // _PROCESS_SHARE) if workers > 1 else 0
    limit -= process
    spare = limit - least
    left_out = {}
    filter_bytes = relation.filter_bytes
    if filter_bytes > _FILTER_SHARE * spare:
        left_out["filter"] = (
            f"it needs {format_size(filter_bytes)}, and index and buffers leave {format_size(spare)}; absent keys cost reads"
        )
        filter_bytes = 0
    spare -= filter_bytes
    # Enough to keep a disk busy; more where a request is dear, so that reading on pays.
    share = spare // workers // page
    pages = int(np.clip(share // 12, 2, _PAGES_IN_FLIGHT // 2 // workers))
    if ordered:
        seek, transfer = relation.disk.costs(page, known=True)
        pages = max(pages, min(share // 10, int(seek / transfer / 2)))
    else:
        runs = (
            long_runs(*relation.disk.scan_costs(page, known=True), (limit - index - filter_bytes) // workers // page)
            // 2
        )
        # A disk that serves one request at a time is busy with one.
        pages = max(2, runs) if relation.disk.workers == 1 else max(pages, runs)
    read = workers * 2 * page * pages
    output_rows = int(np.clip(spare // workers // (16 if ordered else 32) // output_row, least_output, _OUTPUT_ROWS))
    output = workers * output_rows * output_row
    gathered = spare // 12 if workers > 1 and ordered else 0  # rows that wait are gathered anyway
    left = limit - index - filter_bytes - read - output - gathered
    # Four counters a key that the hot set can know; a line of the sketch serves 16 of them.
    keys = min(relation.num_rows, left // _entry_bytes(relation, width))
    sketch = 1 << max(6, int(4 * keys).bit_length() - 1)
    if left - sketch < 2 * least_stream:
        left_out["hot set"] = f"{format_size(left)} is left, and a batch needs {format_size(least_stream)} of it"
        sketch = 64
    return Parts(
        index,
        filter_bytes,
        sketch,
        read,
        output,
        output_rows,
        left - sketch,
        width,
        least_room,
        left_out,
        workers,
        gathered,
        process,
        ordered,
    )


def long_runs(seek: float, transfer: float, room: int) -> int:
    """Pages of a read buffer out of `room` pages, the rest of which are for rows that wait.

    Where most pages are wanted a pass takes transfer + seek / b a page with runs of b pages, for room - b pages of rows: with
    x = seek / transfer, (1 + x / b) / (room - b) is least where b * b + 2 * x * b = x * room.
    """
    x = seek / transfer
    return int(np.sqrt(x * x + x * max(0, room)) - x)


def tuple_bytes(relation: Relation, payload: Sequence[Column]) -> int:
    """Mean bytes of a tuple's payload in memory."""
    rows = max(1, relation.num_rows)
    total = 0.0
    for column in payload:
        total += column.width or 4 + relation.variable_bytes[column.name] / rows
        total += 1 if column.nullable else 0
    return int(total) + 1


def first_split(relation: Relation, parts: Parts, workload: Workload, payload: Sequence[Column]) -> Split:
    """Before anything is known of the stream but the size of a batch: half for the stream buffer, or what the batch needs."""
    share = 1.0 if "hot set" in parts.left_out else 0.5
    return _split(relation, parts, workload, parts.moving, share, payload)


def better_split(
    relation: Relation, parts: Parts, workload: Workload, payload: Sequence[Column], moving: int, now: Split
) -> Split | None:
    """The best split of `moving` bytes by the model, if changing is worth losing a part of what is cached."""
    if "hot set" in parts.left_out:
        return None
    clearly = 0.9 if parts.ordered else 0.95
    best, least = now, clearly * _seconds(relation, now, workload, now, parts.ordered)
    for share in _SHARES:
        split = _split(relation, parts, workload, moving, share, payload)
        seconds = _seconds(relation, split, workload, now, parts.ordered)
        if seconds < least:
            best, least = split, seconds
    return None if best is now else best


def resized(
    relation: Relation, parts: Parts, workload: Workload, payload: Sequence[Column], moving: int, now: Split
) -> Split:
    """The same stream buffer in another number of bytes; the hot set takes up or gives the difference."""
    return _split(relation, parts, workload, moving, min(1.0, parts.workers * now.stream_bytes / moving), payload)


def split_beside(
    relation: Relation, parts: Parts, workload: Workload, payload: Sequence[Column], moving: int, hot_bytes: int
) -> Split:
    """A worker's stream buffer beside a hot set of a size that was agreed on."""
    return _split(relation, parts, workload, moving, 1 - hot_bytes / moving, payload, hot_bytes)


def _split(
    relation: Relation,
    parts: Parts,
    workload: Workload,
    moving: int,
    share: float,
    payload: Sequence[Column],
    hot: int | None = None,
) -> Split:
    """So large a share of what moves for stream buffers; the hot set gets what they leave, or has an agreed size."""
    if not parts.ordered:
        return _phases(relation, parts, workload, moving, share, payload, hot)
    missed = min(1.0, max(0.02, 1.2 * workload.missed))
    distinct = min(1.0, 1.2 * workload.distinct)
    row = _row_bytes(relation, distinct, missed)
    width = parts.tuple_bytes * _rows_per_key(relation)
    entry = _entry_bytes(relation, parts.tuple_bytes)
    workers, each = parts.workers, moving // parts.workers
    stream = max(int(each * share), int(_MIN_SLICE * row) + parts.least_room)
    most_rows = max(_MIN_SLICE, min(_LARGEST_SLICE, int((stream - parts.least_room) / (row + missed * width))))
    rows = max(_MIN_SLICE, min(most_rows, int(1.25 * workload.rows)))
    # Fetched tuples stay until they compete for a segment, so half a segment's worth of them get an entry: fewer would have
    # a segment written for little. Many workers have to do with less each.
    young = min(workers, 4) * 0.5 / SEGMENTS
    room = each
    if "hot set" in parts.left_out:
        hot = 0
    elif hot is None:
        spare = each - int(rows * (row + missed * width)) - parts.least_room
        hot = max(0, int(workers * spare / (1 + young)))
    else:
        room = each - hot // workers
    entries = max(_MIN_ENTRIES, int(young * hot / workers) // entry)
    tuples = int(max(rows * missed, entries) * _rows_per_key(relation))
    size, most, data = _young_size(relation, payload, entries, tuples)
    while size > room - int(rows * row) and tuples > 0:
        tuples = int(tuples * 0.97)
        entries = min(entries, max(_MIN_ENTRIES, tuples))
        size, most, data = _young_size(relation, payload, entries, tuples)
    stream = int(rows * row) + size
    if room == each and hot:
        hot = max(0, workers * (each - stream))
    return Split(rows, most_rows, stream, entries, most, data, hot, hot // entry)


def _phases(
    relation: Relation,
    parts: Parts,
    workload: Workload,
    moving: int,
    share: float,
    payload: Sequence[Column],
    hot: int | None,
) -> Split:
    """The same where rows wait for a join phase: look-ups are made for a piece at a time, and the rest is for rows that wait."""
    # One column of the rows that wait is there twice while they are put together; one piece of the stream is held, too.
    row = _row_bytes(relation, 1.0, 1.0) + int(workload.stream_bytes)
    waiting = 1.5 * workload.stream_bytes + WAITING_BYTES
    entry = _entry_bytes(relation, parts.tuple_bytes)
    workers, each = parts.workers, moving // parts.workers
    piece = int(np.clip(each // 16 // row, MIN_PIECE, PIECE_ROWS))
    young = min(workers, 4) * 0.5 / SEGMENTS
    if "hot set" in parts.left_out:
        hot = 0
    elif hot is None:
        needed = piece * row + parts.least_room
        useful = workload.between * min(1.0, 1.2 * workload.missed) * waiting
        stream = needed + int(min(max(0.0, each * share - needed), useful))
        hot = max(0, int(workers * (each - stream) / (1 + young)))
    entries = max(_MIN_ENTRIES, int(young * hot / workers) // entry)
    tuples = int(entries * _rows_per_key(relation))
    size, most, data = _young_size(relation, payload, entries, tuples)
    mine = each - -(-hot // workers)  # rounded so that all workers and the hot set are not a byte more than there is
    room = mine - piece * row
    while size > room and tuples > 0:
        tuples = int(tuples * 0.9)
        entries = min(entries, max(_MIN_ENTRIES, tuples))
        size, most, data = _young_size(relation, payload, entries, tuples)
    rows = max(MIN_PIECE, int((room - size) / waiting))
    stream = min(mine, piece * row + size + int(rows * waiting))
    return Split(piece, rows, stream, entries, most, data, hot, hot // entry)


def _row_bytes(relation: Relation, distinct: float, missed: float) -> int:
    """Batch structures a stream row, for so many distinct and missing keys a row."""
    text = 0 if relation.codec.integer else TEXT_BYTES
    finding = DISTINCT_BYTES + text
    return int(max(finding, ROW_BYTES + text + distinct * (KEY_BYTES + text) + missed * (MISS_BYTES + text)))


def _entry_bytes(relation: Relation, width: int) -> int:
    """Memory of one key with its tuples."""
    return int(width * _rows_per_key(relation)) + ENTRY_BYTES + (8 if relation.codec.integer else 32)


def _rows_per_key(relation: Relation) -> float:
    return max(1.0, relation.num_rows / max(1, relation.distinct_keys))


def _young_size(
    relation: Relation, payload: Sequence[Column], entries: int, tuples: int
) -> tuple[int, int, dict[str, int]]:
    """Bytes, tuples and bytes a variable column of a young store for tuples of the relation's mean size.

    It has room for one full page of tuples at least: a key with more matches than fit is joined page by page.
    """
    rows = max(1, relation.num_rows)
    integer = relation.codec.integer
    data = {
        c.name: int(1.05 * tuples * relation.variable_bytes[c.name] / rows) + relation.page_size
        for c in payload
        if c.width == 0
    }
    if not integer:
        data[""] = 32 * entries + relation.page_size
    most = max(tuples, relation.opened.layout.most_rows) + 1
    return KeyedStore.size(payload, entries, most, data, integer), most, data


def _seconds(relation: Relation, split: Split, workload: Workload, now: Split, ordered: bool) -> float:
    """Expected time for misses a stream row, from what was missed with the split there is now."""
    if not ordered:
        served, serving = (workload.popularity.hit_ratio(_HELD * s.hot_entries) for s in (now, split))
        missed = min(1.0, workload.missed * (1 - serving) / max(0.01, 1 - served))
        # Join phases go round: a page has been waited for by nearly twice as many as if all rows left at once.
        together = max(1.0, min((2 - PHASE) * split.most_rows, workload.between * missed))
        return float(missed * (read_seconds(relation, together) / together + _miss_cpu(relation)))
    rows = min(split.slice_rows, max(1.0, workload.rows))
    # A batch is cut into slices of about equal size.
    rows = max(1.0, workload.rows) / np.ceil(max(1.0, workload.rows) / rows)
    served, serving = (workload.popularity.hit_ratio(_HELD * s.hot_entries) for s in (now, split))
    missed = min(1.0, workload.missed * (1 - serving) / max(0.01, 1 - served))
    return float(read_seconds(relation, rows * missed) / rows + MISS_CPU * missed + 1e-3 / rows)


def _miss_cpu(relation: Relation) -> float:
    """Seconds of work for a row that waits, besides reading."""
    disk = relation.disk
    return disk.factors.c_A + disk.factors.c_X / PHASE if disk.kind == "simulated" else MISS_CPU


def read_seconds(relation: Relation, keys: float) -> float:
    """Time of an optimal plan for this many keys, scattered evenly: pages wanted, gaps bridged, seeks left."""
    pages = max(1, relation.num_pages)
    disk = relation.disk
    seek, transfer = disk.costs(relation.page_size)
    wanted = pages * -np.expm1(-keys / pages)
    if wanted <= 0:
        return 0.0
    density = min(1.0, wanted / pages)
    reach = int(min(seek / transfer, 1000))
    gaps = np.arange(reach + 1)
    bridged = float((gaps * density * (1 - density) ** gaps).sum())
    apart = float((1 - density) ** (reach + 1))
    return float(wanted * (transfer * (1 + bridged) + seek * apart))
