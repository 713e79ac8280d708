"""How AdaptiveJoin divides its budget: what is fixed, and what the stream decides.

The index is needed; filter, sketch and hot set are worth having where they fit; what is left moves between the hot set (fewer
misses) and the stream buffer (more misses share a read), whichever the model below expects to save more time. [SSIJ] §IV.A
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from headrace.errors import MemoryRefused
from headrace.relation import Relation
from headrace.relation.columns import Column
from headrace.semistream.hotset import SEGMENTS, HotSet, KeyedStore
from headrace.units import format_size

ROW_BYTES = 64  # of batch structures for a stream row: hash, number, table, and its share of the distinct keys
MISS_BYTES = 112  # and for a distinct key that is missing: its place in the plan
_MIN_SLICE = 512
_MIN_ENTRIES = 64
_MIN_OUTPUT = 256
_LARGEST_SLICE = 1 << 21
_PAGES_IN_FLIGHT = 1024  # pages a round at most: enough to keep a disk busy
_OUTPUT_ROWS = 1 << 15
_FILTER_SHARE = 0.35  # of the budget after the index: a larger filter would starve the rest
_SHARES = (0.06, 0.12, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # of what moves, for the stream buffer


@dataclass
class Parts:
    """Bytes of the parts that do not move."""

    index: int
    filter: int
    sketch: int
    read: int
    output: int
    output_rows: int
    moving: int
    tuple_bytes: int
    least_room: int
    left_out: dict[str, str] = field(default_factory=dict)


@dataclass
class Workload:
    """What the stream showed: rows a batch, and distinct missing keys a row."""

    rows: float
    missed: float


@dataclass
class Split:
    """Sizes of hot set and stream buffer, and the seconds a row that the model expects of them."""

    slice_rows: int
    young_entries: int
    young_rows: int
    young_data: dict[str, int]
    hot_bytes: int
    hot_entries: int
    seconds: float

    def better_than(self, other: Split) -> bool:
        """Whether changing is worth losing a part of what is cached."""
        return self.slice_rows != other.slice_rows and self.seconds < 0.9 * other.seconds


def tuple_bytes(relation: Relation, payload: Sequence[Column]) -> int:
    """Mean bytes of a tuple's payload in memory."""
    rows = max(1, relation.num_rows)
    total = 0.0
    for column in payload:
        total += column.width or 4 + relation.variable_bytes[column.name] / rows
        total += 1 if column.nullable else 0
    return int(total) + 1


def fixed_parts(relation: Relation, payload: Sequence[Column], limit: int) -> Parts:
    """Divide the budget, or refuse it with the least that would do."""
    page = relation.page_size
    width = tuple_bytes(relation, payload)
    index = relation.index_bytes
    least_room = _young_size(relation, payload, _MIN_ENTRIES, 0)[0]
    least_stream = _MIN_SLICE * (ROW_BYTES + MISS_BYTES) + least_room
    output_row = width + 64
    least = index + 4 * page + _MIN_OUTPUT * output_row + 64 + least_stream
    if limit < least:
        raise MemoryRefused(
            f"memory={format_size(limit)} is too small to join with {relation.path}: the index needs {format_size(index)}"
            f" and the buffers {format_size(least - index)}; give {format_size(least)} or more"
        )
    left = limit - index
    left_out = {}
    filter_bytes = relation.filter_bytes
    if filter_bytes > _FILTER_SHARE * (limit - least):
        left_out["filter"] = (
            f"it needs {format_size(filter_bytes)} and the index and buffers leave {format_size(limit - least)}; absent keys cost reads"
        )
        filter_bytes = 0
    left -= filter_bytes
    read = 2 * page * int(np.clip((left - least_stream) // (12 * page), 2, _PAGES_IN_FLIGHT // 2))
    output_rows = int(np.clip((left - least_stream) // 10 // output_row, _MIN_OUTPUT, _OUTPUT_ROWS))
    output = output_rows * output_row
    left -= read + output
    # A line of the sketch serves about 16 keys; the hot set knows at most so many.
    keys = min(relation.num_rows, left // max(1, _entry_bytes(relation, width)))
    sketch = 1 << max(6, int(4 * keys).bit_length() - 1)
    if left - sketch < 2 * least_stream:
        left_out["hot set"] = f"{format_size(left)} is left, and a batch needs {format_size(least_stream)} of it"
        sketch = 64
    return Parts(
        index, filter_bytes, sketch, read, output, output_rows, left - sketch, width, least_room, left_out
    )


def _entry_bytes(relation: Relation, width: int) -> int:
    """Memory of one key with its tuples."""
    key = 8 if relation.codec.integer else 24
    return int(width * _rows_per_key(relation)) + key + 16


def choose_split(
    relation: Relation, parts: Parts, workload: Workload, hot: HotSet | None, payload: Sequence[Column]
) -> Split:  # fmt: skip
    """The best of some shares by the model; before anything is known, a quarter for the stream buffer."""
    if hot is None or "hot set" in parts.left_out:
        share = 0.25 if "hot set" not in parts.left_out else 1.0
        return _split(relation, parts, workload, share, payload)
    best: Split | None = None
    curve = np.cumsum(hot.use_curve())
    for share in _SHARES:
        split = _split(relation, parts, workload, share, payload)
        split.seconds = _seconds(relation, split, workload, curve, hot)
        if best is None or split.seconds < best.seconds:
            best = split
    assert best is not None
    return best


def _split(
    relation: Relation, parts: Parts, workload: Workload, share: float, payload: Sequence[Column]
) -> Split:  # fmt: skip
    entry = _entry_bytes(relation, parts.tuple_bytes)
    missed = min(1.0, max(0.05, 1.25 * workload.missed))
    row = ROW_BYTES + missed * MISS_BYTES
    stream = max(int(parts.moving * share), int(_MIN_SLICE * row) + parts.least_room)
    slice_rows = int((stream - parts.least_room) / (row + missed * entry))
    slice_rows = max(_MIN_SLICE, min(slice_rows, _LARGEST_SLICE, int(1.25 * workload.rows)))
    room = stream - int(slice_rows * row)
    # No more room for fetched tuples than competes for a segment, unless the slice itself needs it.
    enough = max(int(slice_rows * missed * entry), (parts.moving - stream) // SEGMENTS)
    room = max(parts.least_room, min(room, enough))
    hot_bytes = 0 if "hot set" in parts.left_out else max(0, parts.moving - int(slice_rows * row) - room)
    entries = max(_MIN_ENTRIES, room // entry)
    tuples = int(entries * _rows_per_key(relation))
    size, most, data = _young_size(relation, payload, entries, tuples)
    while size > room and (entries > _MIN_ENTRIES or tuples > 0):
        entries, tuples = max(_MIN_ENTRIES, int(entries * 0.95)), int(tuples * 0.95)
        size, most, data = _young_size(relation, payload, entries, tuples)
    return Split(slice_rows, entries, most, data, hot_bytes, hot_bytes // entry, float("inf"))


def _rows_per_key(relation: Relation) -> float:
    return max(1.0, relation.num_rows / max(1, relation.distinct_keys))


def _young_size(
    relation: Relation, payload: Sequence[Column], entries: int, tuples: int
) -> tuple[int, int, dict[str, int]]:  # fmt: skip
    """Bytes, tuples and bytes a variable column of a young store for tuples of the relation's mean size.

    It has room for one full page of tuples at least: a key with more matches than fit is joined page by page.
    """
    rows = max(1, relation.num_rows)
    integer = relation.codec.integer
    data = {
        c.name: int(1.1 * tuples * relation.variable_bytes[c.name] / rows) + relation.page_size
        for c in payload if c.width == 0
    }  # fmt: skip
    if not integer:
        data[""] = 32 * entries + relation.page_size
    most = max(tuples, relation.opened.layout.most_rows) + 1
    return KeyedStore.size(payload, entries, most, data, integer), most, data


def _seconds(
    relation: Relation, split: Split, workload: Workload, curve: np.ndarray[tuple[int], np.dtype[np.float64]], hot: HotSet
) -> float:  # fmt: skip
    """Expected reading time a stream row."""
    rows = min(split.slice_rows, max(1.0, workload.rows))
    window = max(1, hot.sketch.window)
    missed = workload.missed
    if curve.size:
        held = _covered(curve, hot.entries)
        then = _covered(curve, split.hot_entries * SEGMENTS // (SEGMENTS + 1))
        missed = min(1.0, max(0.001, missed + (held - then) / window))
    return read_seconds(relation, rows * missed) / rows + 1e-3 / rows


def _covered(curve: np.ndarray[tuple[int], np.dtype[np.float64]], entries: int) -> float:
    """Stream tuples in the window that the most used entries serve; beyond what is held, at the rate of its last tenth."""
    if entries <= 0:
        return 0.0
    if entries <= curve.size:
        return float(curve[entries - 1])
    tail = curve.size - max(1, curve.size // 10)
    slope = (curve[-1] - curve[tail - 1]) / (curve.size - tail) if curve.size > 1 and tail > 0 else 0.0
    return float(curve[-1] + 0.7 * slope * (entries - curve.size))


def read_seconds(relation: Relation, keys: float) -> float:
    """Time of an optimal plan for this many keys, scattered evenly: pages wanted, gaps bridged, seeks left."""
    pages = max(1, relation.num_pages)
    disk = relation.disk
    transfer = disk.transfer * relation.page_size / 8192
    wanted = pages * -np.expm1(-keys / pages)
    if wanted <= 0:
        return 0.0
    density = min(1.0, wanted / pages)
    reach = int(min(disk.seek / transfer, 1000))
    gaps = np.arange(reach + 1)
    chance = density * (1 - density) ** gaps
    bridged = float((gaps * chance).sum())
    apart = float((1 - density) ** (reach + 1))
    return float(wanted * (transfer * (1 + bridged) + disk.seek * apart))
