"""The model of AdaptiveJoin: a hot set serves a part of the stream, planned reads the rest.

Memory is divided by the operator's own plan and splits (semistream/adaptive/memory_plan.py, split.py); the model says what each
split would miss, and what reading for that takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf

import numpy as np

from headrace.arrays import Float64s
from headrace.cost.facts import Facts
from headrace.cost.index_reads import IndexReads, index_why
from headrace.cost.popularity import Popularity
from headrace.cost.prediction import Prediction, Work, refused
from headrace.cost.read_plan import ReadPlan
from headrace.errors import MemoryRefused
from headrace.relation.reader import REQUESTS_A_HALF
from headrace.semistream.adaptive.join import AdaptiveJoin
from headrace.semistream.adaptive.memory_plan import FEW_ABSENT, MemoryPlan, least_memory
from headrace.semistream.adaptive.split import (
    HELD_SHARE,
    PHASE_SHARE,
    STREAM_SHARES,
    Split,
    sketch_horizon,
    split_by_share,
)
from headrace.semistream.adaptive.whole_table import WholeTablePlan
from headrace.semistream.adaptive.workload import Workload
from headrace.units import format_size

_FIXED_POINT = 6  # rounds until hits and misses agree
_WINDOW = 0.75  # of the sketch's horizon that its counts stand for: they grow to all of it, and are halved
_ENDLESS = 1 << 40  # rows of a batch that is never the limit


def adaptive(facts: Facts, memory: int) -> Prediction:
    """AdaptiveJoin in a memory, with the split that takes the least time.

    With order="any" rows wait: for later ones without end, or until their batch ends. With order="stream" a batch is joined in
    slices.
    """
    try:
        plan = AdaptiveJoin.plan(facts.plan_facts("adaptive"), memory, order=facts.order)
    except MemoryRefused:
        least = format_size(least_memory(facts.plan_facts("adaptive")))
        return refused("adaptive", memory, f"index and buffers need {least} or more")
    whole = WholeTablePlan.of(plan.facts, memory) if not facts.ordered or facts.distinct_keys == facts.rows else None
    if whole is not None:
        return _in_memory(facts, memory, whole)
    room = _Room.of(facts, plan)
    overhead = facts.machine.overhead("adaptive")
    model = _slices if plan.ordered else _phases
    best = min((model(facts, room, share) for share in STREAM_SHARES), key=lambda one: one.work.seconds(overhead))
    split = best.split
    parts = {
        "index": plan.index,
        "filter": plan.filter if room.filtered else 0,
        "sketch": plan.sketch,
        "read buffer": plan.read,
        "output": plan.output,
        "hot set": split.hot_bytes,
        "stream buffer": split.stream_bytes,
    }
    served = facts.popularity.top(HELD_SHARE * split.hot_entries)
    why = f"{served:.0%} of present keys served by {split.hot_entries:,} hot ones; {best.why}"
    why += index_why(plan.index_memory, best.work.index_pages)
    return Prediction(
        "adaptive", memory, 1 / best.work.seconds(overhead), parameters={}, parts=parts, why=why, work=best.work
    )


def _in_memory(facts: Facts, memory: int, whole: WholeTablePlan) -> Prediction:
    """A relation that fits: a stream tuple is one look-up, and nothing is read. Loading is not of an endless stream."""
    f = facts.machine.factors
    rows = float(min(whole.rows, facts.batch_rows or whole.rows))
    work = Work(0.0, f.c_S + f.c_X + facts.matches * f.c_O, 1 / rows)
    parts = {"table": whole.table, "sketch": whole.sketch, "output": whole.output, "stream buffer": whole.stream}
    seconds = work.seconds(facts.machine.overhead("adaptive"))
    why = f"all {facts.rows:,} rows are in memory, and none is read twice"
    return Prediction("adaptive", memory, 1 / seconds, parts=parts, why=why, work=work)


@dataclass(frozen=True)
class _Outcome:
    """What a stream row takes with a split of the memory."""

    split: Split
    work: Work
    why: str


@dataclass(frozen=True)
class _Room:
    """A memory plan, and what is the same however hot set and stream buffer share the bytes that move."""

    plan: MemoryPlan
    filtered: bool  # whether the filter stays in memory
    moving: int  # bytes
    horizon: int  # stream tuples
    longest: int  # pages of a request
    buffer: int  # pages that are worked on together

    @classmethod
    def of(cls, facts: Facts, plan: MemoryPlan) -> _Room:
        """The filter stays where it turns keys away."""
        filtered = plan.filter > 0 and facts.absent >= FEW_ABSENT
        half = plan.read_pages
        # A disk that serves one request at a time reads into the whole buffer; another into a half, several requests at a time.
        longest = 2 * half if plan.facts.serial else max(1, half // REQUESTS_A_HALF)
        return cls(plan, filtered, plan.moving_bytes(filtered=filtered), sketch_horizon(plan), longest, half)

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
    def of(cls, keys: Popularity, chance: Float64s) -> _Some:
        """Those of each group that the chance leaves."""
        count = keys.count * chance
        some = count > 1e-9
        share = float((count * keys.p)[some].sum())
        return cls(Popularity(count[some], keys.p[some] / share), share) if share > 0 else cls(keys, 0.0)


def _phases(facts: Facts, room: _Room, share: float) -> _Outcome:
    """Rows that miss wait, and leave in join phases.

    When a batch ends, all that waits is read for at once: W rows, or all that the batch misses where that is less. _join_phases
    says what those share that leave before.
    """
    f, keys = facts.machine.factors, facts.popularity
    batch = float(facts.batch_rows or inf)
    load = Workload(rows=facts.batch_rows or _ENDLESS, stream_bytes=facts.stream_bytes, between=batch)
    unknown = 0.0 if room.filtered else facts.absent
    for _ in range(_FIXED_POINT if batch < inf else 1):  # without end the split does not depend on what is missed
        split = split_by_share(room.plan, load, room.moving, share)
        piece = min(split.slice_rows, batch)
        # Keys are hot by the sketch's counts: so luck has a part in it.
        kept = keys.kept_by_count(HELD_SHARE * split.hot_entries, _WINDOW * room.horizon)
        rest = _Some.of(keys, 1 - kept)
        asked = (1 - facts.absent) * rest.share  # of rows: whose key is there and not hot
        load.missed = rest.keys.distinct(piece * asked) / piece + unknown
    missed = max(1e-6, asked + unknown)
    waiting = split.most_rows + missed * piece / 2  # it is looked at after each piece
    at_end = min(waiting, missed * batch)
    before = (
        1 - at_end / (missed * batch) if batch < inf else 1.0
    )  # share of the rows that wait: leave before the batch ends

    def read(rows: float) -> tuple[float, float, float]:
        """Seconds, read buffers filled, and index pages, a row where so many that wait are read for together."""
        wanted = _pages_of(facts, rest.keys, rows * asked / missed, rows * unknown / missed)
        seconds, buffers = room.reads(facts, wanted, max(1, round(piece * wanted / rows)))
        index = index_reads(rows)
        return seconds / rows + index.seconds, buffers / rows + index.runs, index.pages

    def index_reads(rows: float) -> IndexReads:
        """Of a row. By frequency the order of pages is not that of keys: each join phase looks all rows up that wait."""
        looked_up, served = (rows, rows) if rows == at_end or not facts.ordered else (waiting, PHASE_SHARE * waiting)
        return IndexReads.of(facts, room.plan.index_memory, looked_up, rest.keys).each(served)

    phases = [*_join_phases(waiting, missed * batch - at_end), (1 - before, at_end)]
    costs = [(part, read(rows)) for part, rows in phases if part > 0]
    seconds, buffers, index = (sum(part * cost[i] for part, cost in costs) for i in (0, 1, 2))
    distinct = keys.distinct(piece * (1 - facts.absent)) / piece + facts.absent
    lookups = distinct + load.missed
    lookups += missed * before * (1 / PHASE_SHARE - 1)  # to sort a row again takes as long
    cpu = f.c_S + lookups * f.c_X + missed * f.c_A + facts.matches * f.c_O
    work = Work(missed * seconds, cpu, (1 + missed) / piece, missed * buffers, missed * index)
    if batch == inf:
        why = f"{waiting:,.0f} rows wait; a round over the pages reads for {_in_a_round(waiting):,.0f} keys"
    else:
        why = f"of a batch of {batch:,.0f} rows {missed * batch:,.0f} wait, {at_end:,.0f} of them to its end"
    return _Outcome(split, work, why)


def _in_a_round(waiting: float) -> float:
    """Rows that join phases read for while they go once round the relation.

    A join phase is for a part f of the W rows that wait, from where the last one ended. The pages ahead have been waited for
    longest: counted in join phases, ages are even from 1 to a whole round, so a round is for W * (2 - f) rows.
    """
    return waiting * (2 - PHASE_SHARE)


def _join_phases(waiting: float, leaving: float) -> list[tuple[float, float]]:
    """What happens to rows that leave before a batch ends: shares of all rows that wait, and how many would share reads.

    In the first round over the relation after all had left, the pages ahead are waited for by all rows so far: W in the first
    phase, f * W more in each that follows.
    """
    if leaving == inf:
        return [(1.0, _in_a_round(waiting))]
    phase, total = PHASE_SHARE * waiting, waiting + leaving
    found, done, seen = [], 0.0, waiting
    while leaving > 0 and done < 1:
        rows = min(phase, leaving)
        found.append((rows / total, seen))
        done += rows / seen
        leaving -= rows
        seen += rows
    return [*found, (leaving / total, _in_a_round(waiting))]


def _slices(facts: Facts, room: _Room, share: float) -> _Outcome:
    """Results in stream order: a batch is cut into slices, and what a slice misses is read for together."""
    f, keys = facts.machine.factors, facts.popularity
    batch = facts.batch_rows or _ENDLESS
    load = Workload(rows=batch, stream_bytes=facts.stream_bytes)
    for _ in range(_FIXED_POINT):
        split = split_by_share(room.plan, load, room.moving, share)
        rows = float(split.slice_rows)
        rows = batch / ceil(batch / rows)
        present, absent = rows * (1 - facts.absent), rows * facts.absent
        hot = HELD_SHARE * split.hot_entries
        rest = keys.without_top(hot)
        asked = present * (1 - keys.top(hot))  # tuples whose key is not hot
        unknown = 0.0 if room.filtered else absent
        load.missed = (rest.distinct(asked) + unknown) / rows
        load.distinct = (keys.distinct(present) + absent) / rows
    cpu = f.c_S + (load.distinct + load.missed) * f.c_X + facts.matches * f.c_O
    seconds, buffers = room.reads(facts, _pages_of(facts, rest, asked, unknown))
    index = IndexReads.of(facts, room.plan.index_memory, rest.distinct(asked) + unknown, rest)
    work = Work((seconds + index.seconds) / rows, cpu, 1 / rows, (buffers + index.runs) / rows, index.pages / rows)
    return _Outcome(split, work, f"a slice of {rows:,.0f} rows reads {load.missed * rows:,.0f} keys")


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
