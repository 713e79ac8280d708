"""The model of SSIJ: our own, since [SSIJ] has none.

A cache serves a part of the stream; what the rest needs is gathered and read all at once. What counts is how much the cache
serves, how many different pages the rest needs, and what the plan makes of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from headrace.cost.facts import Facts
from headrace.cost.prediction import Prediction, Work, output_bytes, refused
from headrace.cost.read_plan import ReadPlan
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
)
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

_PHASES = 24  # after which SSIJ has come to its split
_FIXED_POINT = 6  # rounds until hits and misses agree


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
        "index": facts.index_bytes,
        "read buffer": read,
        "IB": held + IB * SLOT_BYTES,
        "SB and II": int(waiting),
        "CR": CR * (page + FRAME_BYTES),
        "output": output,
    }
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
            plans.append(
                ReadPlan.of(facts, float((pages.count * chance).sum()), scan, together=planned, chances=chances)
            )
        costs = [max(1e-12, plan.seconds(facts, follow=False)) for plan in plans]
        sharing = float(np.clip(1 - np.log2(costs[0] / costs[1]), 0, 1))
        most = float((mass * pages.kept_by_count(0.75 * CR, draws)).sum())
        tail = N * max(0.0, hits - most) / max(1.0, 0.25 * CR)
        # A tuple that is served from CR is not put in SB, nor taken out of it.
        steps = f.c_S + f.c_X + (1 - hits) * (f.c_A + f.c_E) + facts.pages_per_key * f.c_H + facts.matches * f.c_O
        # A request's overhead is that of a read buffer filled: what is in it is worked on together, however it was read.
        work = Work(plans[0].seconds(facts) / N, steps, 1 / IB, plans[0].pages / scan / N)
        return cls(N, work, hits, plans[0].pages, tail, sharing)
