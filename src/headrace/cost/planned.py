"""Models of the joins that read by a plan, SSIJ and AdaptiveJoin: our own, since [SSIJ] has none.

Both have a cache that serves a part of the stream, gather what the rest needs, and read it all at once. What counts is how much
the cache serves, how many different pages the rest needs, and what the plan makes of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import ceil, inf

import numpy as np

from headrace.cost.facts import Facts
from headrace.cost.popularity import Floats, Popularity
from headrace.cost.prediction import Prediction, Work, output_bytes, refused
from headrace.relation import Disk
from headrace.relation.columns import Longs
from headrace.semistream.adaptive import memory_plan
from headrace.semistream.adaptive.hot_set import ENTRY_BYTES, SEGMENTS
from headrace.semistream.ssij.balance import Balance
from headrace.semistream.ssij.memory import (
    _IB_SHARE,
    _LEAST_CHUNK,
    _LEAST_IB,
    _MOST_IB,
    _PLAN_BYTES,
    _SCAN_SHARE,
    _WORK_BYTES,
    planned_together,
)  # fmt: skip
from headrace.semistream.ssij.page_cache import FRAME_BYTES
from headrace.semistream.ssij.stream_buffer import (
    LIST_BYTES,
    NUMBER_BYTES,
    PAIR_BYTES,
    SLOT_BYTES,
    InvertedIndex,
    tuples_that_fit,
)
from headrace.semistream.waiting_join import LEAST_WINDOW
from headrace.units import format_size

_SHARES = (0.04, 0.08, 0.12, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # of what moves, for the stream buffer
_HELD = SEGMENTS / (SEGMENTS + 1)  # of the hot set: one segment is spare
_HORIZON = 1 << 16  # of AdaptiveJoin's sketch at least
_PHASES = 24  # after which SSIJ has come to its split
_DRAWN, _SEED = 1 << 13, 20110401  # pages of a plan that stands for others
_PLANS, _LEAST_DRAWN = 32, 1 << 10  # plans that stand for more, where few pages are planned together
_FIXED_POINT = 6  # rounds until hits and misses agree


@dataclass(frozen=True)
class Plan:
    """What the optimal plan ([SSIJ] §IV.D) makes of wanted pages that lie anywhere, in the mean.

    The plan is made, for some pages drawn with a fixed seed, and scaled: where a limit on the length of a run meets gaps, no
    formula we tried came near.
    """

    pages: float
    """read, with those that are read through"""
    runs: float
    """requests"""
    beside: float
    """of which so many go on where the one before ended"""

    @classmethod
    def of(
        cls, facts: Facts, wanted: float, longest: int, *, goes_on: bool = False, together: int = 1 << 62,
        chances: tuple[Floats, Floats] | None = None,
    ) -> Plan:  # fmt: skip
        """For so many wanted pages, in requests of at most `longest`. `goes_on`: a run may be longer, as several requests.

        `together`: so many are planned at a time. A disk that goes on reads as far as the next plan, if that is less than a seek;
        else the last run of a plan waits for the next one. `chances`: how many pages lie side by side that are wanted
        with a chance, group by group, where that is not the same everywhere.
        """
        if wanted <= 0:
            return cls(0.0, 0.0, 0.0)
        seek, transfer = facts.costs(in_flight=True)
        request = max(1, min(facts.machine.longest, longest))
        longest = facts.machine.longest if goes_on else request
        near = facts.costs(scan=True)[0]
        if goes_on:
            transfer += near / request
        luck = _uniform()
        if chances is None:
            density = min(1.0, wanted / facts.pages)
            luck = luck[: max(_LEAST_DRAWN, _PLANS * together)]
            steps = np.ones(luck.size) if density == 1 else np.ceil(np.log(luck) / np.log1p(-density))
            places = np.cumsum(np.maximum(1, steps)).astype(np.int64)
        else:
            ends = np.cumsum(chances[0])
            drawn = max(1, min(luck.size, round(ends[-1])))
            group = np.searchsorted(ends, (np.arange(drawn) + 0.5) * ends[-1] / drawn)
            chance = np.tile(chances[1][group], luck.size // drawn)  # several rounds, if there is luck for them
            places = np.flatnonzero(luck[: chance.size] <= chance)
            if not places.size:
                return cls(wanted, wanted, 0.0)
        disk = Disk("simulated", seek=seek, transfer=transfer, longest=longest)
        parts = list(_plans(disk, places, longest, together, goes_on=goes_on))
        if goes_on:
            for (begins, lasts), (first, length) in pairwise(parts):
                gap = int(first[0] - begins[-1] - lasts[-1])
                if gap * transfer < seek - near:
                    first[0] -= gap
                    length[0] += gap
        first, length = (np.concatenate(some) for some in zip(*parts, strict=True))
        scale = wanted / places.size
        beside = int((first[1:] == first[:-1] + length[:-1]).sum())
        more = int((-(-length // request)).sum()) - first.size
        return cls(scale * int(length.sum()), scale * (first.size + more), scale * (beside + more))

    def seconds(self, facts: Facts, *, follow: bool = True) -> float:
        """Time for it. Without `follow` every request is a seek, as operators reckon."""
        seek, transfer = facts.costs(in_flight=True)
        near = facts.costs(in_flight=True, scan=True)[0] if follow else seek
        return self.pages * transfer + (self.runs - self.beside) * seek + self.beside * near


def _plans(
    disk: Disk, places: Longs, longest: int, together: int, *, goes_on: bool
) -> Iterator[tuple[Longs, Longs]]:  # fmt: skip
    a = 0
    while a < places.size:
        some = places[a : a + together]
        first, length = disk.runs(some, 8192, longest)
        taken = some.size
        if not goes_on and a + taken < places.size and first.size > 1:
            taken = int(np.searchsorted(some, first[-1]))
            first, length = first[:-1], length[:-1]
        yield first, length
        a += taken


@cache
def _uniform() -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return 1 - np.random.default_rng(_SEED).random(_DRAWN)


# -- SSIJ ----------------------------------------------------------------------------------------------------------------


def ssij(facts: Facts, memory: int) -> Prediction:
    """SSIJ in a memory, with the thresholds that it comes to by itself: see its `_begin` and Balance."""
    page, v_S = facts.page_size, facts.stream_bytes
    own, entry = v_S + NUMBER_BYTES + SLOT_BYTES, PAIR_BYTES + LIST_BYTES  # of a tuple in SB, and of a pair in II
    least = facts.index_bytes + 3.0 * (page + FRAME_BYTES)
    least += LEAST_WINDOW * (64 + NUMBER_BYTES + SLOT_BYTES + entry)
    least += (_LEAST_IB + _LEAST_CHUNK) * (64 + _WORK_BYTES)
    least += 16 * (facts.tuple_bytes + 40) + facts.texts * page
    if memory < least:
        return refused("ssij", memory, f"index and buffers need {format_size(int(least))} or more")
    output = output_bytes(facts, memory, least)
    left = memory - output - facts.index_bytes
    halves = 1 if facts.machine.in_flight is None else 2
    scan = max(1, min(facts.machine.longest, facts.pages, int(_SCAN_SHARE * left) // page // halves))
    IB = int(np.clip(_IB_SHARE * left / (v_S + _WORK_BYTES), _LEAST_IB, _MOST_IB))
    planned = planned_together(left, scan)
    read = scan * halves * page + min(planned, facts.pages) * _PLAN_BYTES
    held = int(IB * v_S) + max(_LEAST_CHUNK, IB) * _WORK_BYTES
    moving = max(0.0, left - read - held - IB * SLOT_BYTES)
    balance = Balance()
    for _ in range(_PHASES):
        SB = max(1, int(tuples_that_fit(balance.share * moving, own, facts.pages_per_key, facts.pages)))
        pairs = facts.pages_per_key * SB
        waiting = SB * own + InvertedIndex.size(pairs, facts.pages)
        CR = max(0, int((moving - waiting) / (page + FRAME_BYTES)))
        phase = _Phase.of(facts, SB, IB, CR, scan, planned)
        before = balance.share
        if CR:
            more = own + facts.pages_per_key * (entry if pairs < facts.pages else PAIR_BYTES)  # of one tuple more
            balance.move(phase.tail, page + FRAME_BYTES, int(phase.misses), more, int(phase.misses), phase.sharing)
        if balance.share == before:
            break
    parts = {
        "index": facts.index_bytes, "read buffer": read, "IB": held + IB * SLOT_BYTES, "SB and II": int(waiting),
        "CR": CR * (page + FRAME_BYTES), "output": output,
    }  # fmt: skip
    why = (
        f"{phase.hits:.0%} served by {CR:,} cached pages; a join phase reads {phase.pages:,.0f} pages for"
        f" {phase.misses:,.0f} tuples"
    )
    rate = 1 / phase.work.seconds(facts.machine.overhead("ssij"))
    return Prediction("ssij", memory, rate, {"IB_thresh": IB, "SB_thresh": SB}, parts, why, phase.work)


@dataclass(frozen=True)
class _Phase:
    """From one join phase to the next."""

    tuples: float
    work: Work
    hits: float  # share of tuples served by cached pages
    pages: float  # read
    tail: float  # tuples that a page at the end of CR serves
    sharing: float  # see Balance

    @property
    def misses(self) -> float:
        return self.tuples * (1 - self.hits)

    @classmethod
    def of(cls, facts: Facts, SB: int, IB: int, CR: int, scan: int, planned: int) -> _Phase:
        """Pages stay by the number of tuples that asked for them since the last join phase: so they are chosen with luck."""
        f, pages = facts.machine.factors, facts.page_popularity
        mass, N, hits = pages.count * pages.p, float(SB), 0.0
        kept = np.zeros(pages.p.size)
        for _ in range(_FIXED_POINT):
            kept = pages.kept_by_count(CR, N * facts.pages_per_key)
            hits = float((mass * kept).sum())
            # SB is looked at after each online phase, and is half of one over its threshold then.
            N = min(SB / max(1e-3, 1 - hits) + IB / 2, float(facts.batch_rows or inf))
        draws = N * facts.pages_per_key
        plans = []
        for some in (draws, draws / 2):
            chance = (1 - kept) * -np.expm1(-some * pages.p)
            chances = None if facts.scattered else (pages.count, chance)
            plans.append(Plan.of(facts, float((pages.count * chance).sum()), scan, together=planned, chances=chances))
        costs = [max(1e-12, plan.seconds(facts, follow=False)) for plan in plans]
        sharing = float(np.clip(1 - np.log2(costs[0] / costs[1]), 0, 1))
        most = float((mass * pages.kept_by_count(0.75 * CR, draws)).sum())
        tail = N * max(0.0, hits - most) / max(1.0, 0.25 * CR)
        # A tuple that is served from CR is not put in SB, nor taken out of it.
        steps = f.c_S + f.c_X + (1 - hits) * (f.c_A + f.c_E) + facts.pages_per_key * f.c_H + facts.matches * f.c_O
        # A request's overhead is that of a read buffer filled: what is in it is worked on together, however it was read.
        work = Work(plans[0].seconds(facts) / N, steps, 1 / IB, plans[0].pages / scan / N)
        return cls(N, work, hits, plans[0].pages, tail, sharing)


# -- AdaptiveJoin --------------------------------------------------------------------------------------------------------


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
    there = (
        facts.filter_bytes if filtered else 0
    )  # when the sizes of buffers are chosen; it leaves where it turns nothing away
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
        "index": facts.index_bytes, "filter": filter_bytes, "sketch": sketch, "read buffer": read, "output": output,
        "hot set": hot, "stream buffer": moving - hot,
    }  # fmt: skip
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
        plan = Plan.of(facts, wanted, self.longest, goes_on=goes_on, together=together)
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
