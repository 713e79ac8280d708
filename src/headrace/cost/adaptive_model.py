"""The model of AdaptiveJoin: a hot set serves a part of the stream, planned reads the rest."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf

import numpy as np

from headrace.cost.facts import Facts
from headrace.cost.popularity import Popularity
from headrace.cost.prediction import Prediction, Work, refused
from headrace.cost.read_plan import ReadPlan
from headrace.semistream.adaptive import memory_plan
from headrace.semistream.adaptive.hot_set import ENTRY_BYTES, SEGMENTS
from headrace.units import format_size

_SHARES = (0.04, 0.08, 0.12, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # of what moves, for the stream buffer
_HELD = SEGMENTS / (SEGMENTS + 1)  # of the hot set: one segment is spare
_HORIZON = 1 << 16  # of AdaptiveJoin's sketch at least
_FIXED_POINT = 6  # rounds until hits and misses agree


def adaptive(facts: Facts, memory: int) -> Prediction:
    """AdaptiveJoin in a memory, with the split it would come to: see semistream/adaptive/memory_plan.py.

    Of a stream without end with order="any", so that rows wait; of batches that are joined to their end with order="stream".
    """
    width, page = facts.tuple_bytes, facts.page_size
    ordered, serial = facts.batch_rows is not None, facts.machine.in_flight is None
    one_page = int(4 / 3 * page * facts.texts if facts.texts else 1.1 * facts.rows_per_page * width) + 64 * (
        ENTRY_BYTES + 8
    )
    least = facts.index_bytes + 4 * page + 256 * (width + 64) + 512 * _row_bytes(1, 1) + one_page
    spare = memory - least
    if spare < 0:
        return refused("adaptive", memory, f"index and buffers need {format_size(int(least))} or more")
    filtered = facts.filter_bytes <= 0.35 * spare
    # When the sizes of buffers are chosen; it leaves where it turns nothing away
    there = facts.filter_bytes if filtered else 0
    filter_bytes = there if facts.absent >= 0.002 else 0
    share = int(spare - there) // page
    pages = int(np.clip(share // 12, 2, 256))
    if ordered:
        seek, transfer = facts.costs()
        pages = max(pages, min(share // 10, int(seek / transfer / 2)))
    else:
        runs = memory_plan.long_runs(*facts.costs(scan=True), int(memory - facts.index_bytes - there) // page) // 2
        pages = max(2, runs) if serial else max(pages, runs)
    read = 2 * page * pages
    some = (spare - there) // (16 if ordered else 32) // (width + 64)
    output = int(np.clip(some, 256 if ordered else 64, 1 << 14)) * int(width + 64)
    entry = int(width * facts.rows_per_key) + ENTRY_BYTES + 8
    left = memory - facts.index_bytes - there - read - output
    sketch = 1 << max(6, int(4 * min(facts.rows, left // entry)).bit_length() - 1)
    moving = left - sketch + there - filter_bytes
    # A disk that serves one request at a time reads into the whole buffer; another into a half, several requests at a time.
    longest = 2 * pages if serial else max(1, pages // 4)
    room = _Room(moving, one_page, entry, filter_bytes > 0, longest, pages)
    overhead = facts.machine.overhead("adaptive")
    found = [(_slice if ordered else _round)(facts, room, share) for share in _SHARES]
    work, rows, entries, missed = min(found, key=lambda one: one[0].seconds(overhead))
    hot = int(entries * entry)
    parts = {
        "index": facts.index_bytes,
        "filter": filter_bytes,
        "sketch": sketch,
        "read buffer": read,
        "output": output,
        "hot set": hot,
        "stream buffer": moving - hot,
    }
    served = facts.popularity.top(_HELD * entries)
    what = f"a slice of {rows:,} rows reads" if ordered else f"{rows:,} rows wait; a round over the pages reads for"
    why = f"{served:.0%} of present keys served by {entries:,.0f} hot ones; {what} {missed:,.0f} keys"
    return Prediction("adaptive", memory, 1 / work.seconds(overhead), {}, parts, why, work)


@dataclass(frozen=True)
class _Room:
    """What hot set and stream buffer of AdaptiveJoin share, and what is the same however they do."""

    moving: int
    one_page: int  # bytes
    entry: int  # bytes of a hot key with its tuples
    filtered: bool
    longest: int  # pages of a request
    buffer: int  # pages that are worked on together

    def reads(self, facts: Facts, wanted: float, together: int = 1 << 62) -> tuple[float, float]:
        """Seconds of plans for so many pages, a few together, and read buffers filled."""
        machine = facts.machine
        goes_on = machine.in_flight is None and machine.follow is not None and machine.follow < machine.seek
        plan = ReadPlan.of(facts, wanted, self.longest, sequential=goes_on, together=together)
        return plan.seconds(facts), plan.pages / self.buffer


@dataclass(frozen=True)
class _Some:
    """A part of the keys, by chance, and the share of the stream that asks for them."""

    keys: Popularity
    share: float

    @classmethod
    def of(cls, keys: Popularity, chance: np.ndarray[tuple[int], np.dtype[np.float64]]) -> _Some:
        """Those of each group that the chance leaves."""
        count = keys.count * chance
        some = count > 1e-9
        share = float((count * keys.p)[some].sum())
        return cls(Popularity(count[some], keys.p[some] / share), share) if share > 0 else cls(keys, 0.0)


def _round(facts: Facts, room: _Room, share: float) -> tuple[Work, int, float, float]:
    """The work of a row, rows that wait, hot keys, and keys read in a round over the relation, for a share of what moves.

    A join phase is for a part f of the W rows that wait, from where the last one ended. The pages ahead have been waited for
    longest: counted in join phases, ages are even from 1 to a whole round, so a round is for W * (2 - f) rows.
    """
    f, keys, v_S = facts.machine.factors, facts.popularity, facts.stream_bytes
    row, waits = _row_bytes(1, 1) + int(v_S), 1.5 * v_S + memory_plan.WAITING_BYTES
    piece = int(np.clip(room.moving // 16 // row, memory_plan.MIN_PIECE, memory_plan.PIECE_ROWS))
    needed = piece * row + room.one_page
    stream = needed + max(0.0, share * room.moving - needed)
    hot = max(0.0, (room.moving - stream) / (1 + 0.5 / SEGMENTS))
    entries = hot / room.entry
    young = max(64, 0.5 / SEGMENTS * entries) * room.entry
    most = max(float(memory_plan.MIN_PIECE), (room.moving - hot - piece * row - young - room.one_page) / waits)
    # Keys are hot by the sketch's counts, over a window that grows to its horizon and is halved: so luck has a part in it.
    kept = keys.kept_by_count(_HELD * entries, 0.75 * max(_HORIZON, 10 * entries))
    rest = _Some.of(keys, 1 - kept)
    asked = (1 - facts.absent) * rest.share  # of rows: whose key is there and not hot
    unknown = 0.0 if room.filtered else facts.absent
    missed = max(1e-6, asked + unknown)
    W = most + missed * piece / 2  # it is looked at after each piece
    turn = W * (2 - memory_plan.PHASE)
    wanted = _pages_of(facts, rest.keys, turn * asked / missed, turn * unknown / missed)
    distinct = keys.distinct(piece * (1 - facts.absent)) / piece + facts.absent
    lookups = distinct + rest.keys.distinct(piece * asked) / piece + unknown
    lookups += missed * (1 / memory_plan.PHASE - 1)  # to sort a row again takes as long
    cpu = f.c_S + lookups * f.c_X + missed * f.c_A + facts.matches * f.c_O
    seconds, buffers = room.reads(facts, wanted, max(1, round(piece * wanted / turn)))
    work = Work(missed * seconds / turn, cpu, (1 + missed) / piece, missed * buffers / turn)
    return work, int(W), entries, turn


def _slice(facts: Facts, room: _Room, share: float) -> tuple[Work, int, float, float]:
    """The work of a row, rows of a slice, keys in the hot set and keys read a slice, for a share of what moves."""
    f, keys = facts.machine.factors, facts.popularity
    moving, one_page, entry = room.moving, room.one_page, room.entry
    width = facts.tuple_bytes * facts.rows_per_key
    batch = float(facts.batch_rows or inf)
    rows, distinct, missed, entries = 512.0, 1.0, 1.0, 0.0
    for _ in range(_FIXED_POINT):
        row = _row_bytes(min(1.0, 1.2 * distinct), min(1.0, max(0.02, 1.2 * missed)))
        each = row + min(1.0, max(0.02, 1.2 * missed)) * width
        rows = float(np.clip((share * moving - one_page) / each, 512, 1 << 21))
        rows = batch / ceil(batch / rows) if batch < inf else rows
        entries = max(0.0, (moving - rows * each - one_page) / (1 + 0.5 / SEGMENTS) / entry)
        present, absent = rows * (1 - facts.absent), rows * facts.absent
        rest = keys.without_top(_HELD * entries)
        asked = present * (1 - keys.top(_HELD * entries))  # tuples whose key is not hot
        unknown = 0.0 if room.filtered else absent
        missed = (rest.distinct(asked) + unknown) / rows
        distinct = (keys.distinct(present) + absent) / rows
    wanted = _pages_of(facts, rest, asked, unknown)
    cpu = f.c_S + (distinct + missed) * f.c_X + facts.matches * f.c_O
    seconds, buffers = room.reads(facts, wanted)
    return Work(seconds / rows, cpu, 1 / rows, buffers / rows), int(rows), entries, missed * rows


def _pages_of(facts: Facts, rest: Popularity, tuples: float, absent: float) -> float:
    """Different pages that some tuples need, and some absent keys."""
    pages = facts.pages
    if facts.scattered:
        needed = facts.pages_per_key * rest.distinct(tuples)
        found = pages * -np.expm1(-needed / pages)
    else:
        found = facts.pages_per_key * rest.grouped(facts.distinct_keys / pages, scattered=False).distinct(tuples)
    found = min(found, pages)
    return float(found + (pages - found) * -np.expm1(-absent / pages))


def _row_bytes(distinct: float, missed: float) -> float:
    """Batch structures a stream row."""
    structures = memory_plan.ROW_BYTES + distinct * memory_plan.KEY_BYTES + missed * memory_plan.MISS_BYTES
    return max(memory_plan.DISTINCT_BYTES, structures)
