"""The model of SSIJ: our own, since [SSIJ] has none.

A cache serves a part of the stream; what the rest needs is gathered and read all at once. What counts is how much the cache
serves, how many different pages the rest needs, and what the plan makes of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from headrace.cost.facts import Facts
from headrace.cost.index_reads import IndexReads, index_why
from headrace.cost.prediction import Prediction, Work, refused
from headrace.cost.read_plan import ReadPlan
from headrace.semistream import SSIJ
from headrace.semistream.ssij.balance import Balance
from headrace.semistream.ssij.memory_plan import SSIJPlan
from headrace.units import format_size

_PHASES = 24  # join phases after which SSIJ has come to its split
_FIXED_POINT = 6  # rounds until hits and misses agree


def ssij(facts: Facts, memory: int) -> Prediction:
    """SSIJ in a memory, with the SB_thresh that it comes to by itself: see Balance."""
    plan = SSIJ.plan(facts.plan_facts("ssij"), memory)
    if memory < plan.output.least:
        return refused("ssij", memory, f"index and buffers need {format_size(plan.output.least)} or more")
    balance = Balance()
    for _ in range(_PHASES):
        SB = plan.SB(balance.share)
        CR = plan.CR(SB)
        phase = _Phase.of(facts, plan, SB, CR)
        before, misses = balance.share, int(phase.misses)
        if CR:
            balance.move(phase.tail, plan.frame_bytes, misses, plan.tuple_bytes(SB), misses, phase.sharing)
        if balance.share == before:
            break
    parts = plan.parts | {"SB and II": plan.waiting_bytes(SB), "CR": CR * plan.frame_bytes}
    parts["IB"] += plan.IB_slot_bytes
    why = (
        f"{phase.hits:.0%} served by {CR:,} cached pages; a join phase reads {phase.pages:,.0f} pages for"
        f" {phase.misses:,.0f} tuples{index_why(plan.index, phase.work.index_pages)}"
    )
    rate = 1 / phase.work.seconds(facts.machine.overhead("ssij"))
    return Prediction(
        "ssij", memory, rate, parameters={"IB_thresh": plan.IB, "SB_thresh": SB}, parts=parts, why=why, work=phase.work
    )


@dataclass(frozen=True)
class _Phase:
    """What happens from one join phase to the next."""

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
    def of(cls, facts: Facts, plan: SSIJPlan, SB: int, CR: int) -> _Phase:
        """With so many tuples in SB and pages in CR.

        Pages stay by the number of tuples that asked for them since the last join phase: so they are chosen with luck.
        """
        f, pages = facts.machine.factors, facts.page_popularity
        mass, N, hits = pages.count * pages.p, float(SB), 0.0
        kept = np.zeros(pages.p.size)
        for _ in range(_FIXED_POINT):
            kept = pages.kept_by_count(CR, N * facts.pages_per_key)
            hits = float((mass * kept).sum())
            # SB is looked at after each online phase, and is half of one over its threshold then.
            N = min(SB / max(1e-3, 1 - hits) + plan.IB / 2, float(facts.batch_rows or inf))
        draws = N * facts.pages_per_key
        plans = []
        for some in (draws, draws / 2):
            chance = (1 - kept) * -np.expm1(-some * pages.p)
            chances = None if facts.scattered else (pages.count, chance)
            wanted = float((pages.count * chance).sum())
            plans.append(ReadPlan.of(facts, wanted, plan.scan, together=plan.planned, chances=chances))
        costs = [max(1e-12, read.seconds(facts, follow=False)) for read in plans]
        sharing = float(np.clip(1 - np.log2(costs[0] / costs[1]), 0, 1))
        most = float((mass * pages.kept_by_count(0.75 * CR, draws)).sum())
        tail = N * max(0.0, hits - most) / max(1.0, 0.25 * CR)
        # A tuple that is served from CR is not put in SB, nor taken out of it.
        steps = f.c_S + f.c_X + (1 - hits) * (f.c_A + f.c_E) + facts.pages_per_key * f.c_H + facts.matches * f.c_O
        # A request's overhead is that of a read buffer filled: what is in it is worked on together, however it was read.
        # Every tuple is looked up, with those of its online phase, before it is known whether its page is cached.
        index = IndexReads.of(facts, plan.index, plan.IB).each(plan.IB)
        read, filled = plans[0].seconds(facts) / N + index.seconds, plans[0].pages / plan.scan / N
        work = Work(read, steps, 1 / plan.IB, filled + index.runs, index.pages)
        return cls(N, work, hits, plans[0].pages, tail, sharing)
