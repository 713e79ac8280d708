"""Which split of the memory should take the least time, from what the stream has shown. [SSIJ] §IV.A

SSIJ moves memory when a page is evicted; AdaptiveJoin forecasts the time that misses would take with another split.
"""

from __future__ import annotations

import numpy as np

from headrace.relation import Disk
from headrace.semistream.adaptive.memory_plan import MemoryPlan
from headrace.semistream.adaptive.split import HELD_SHARE, PHASE_SHARE, STREAM_SHARES, Split, split_by_share
from headrace.semistream.adaptive.workload import Workload
from headrace.semistream.plan_facts import PlanFacts

_MISS_SECONDS = 2e-6  # of work for a missing key besides reading, measured
_SLICE_SECONDS = 1e-3  # of work for a slice, however few rows it has
# A split must be so much better to be worth losing a part of what is cached, in stream order and where rows wait.
_CLEARLY, _CLEARLY_UNORDERED = 0.9, 0.95
_LEAST_MISSED = (
    0.01  # share of the stream that is taken to miss now at least: what is divided by it would else mean nothing
)
_LONGEST_GAP = 1000  # pages between two wanted ones that are looked at


def better_split(plan: MemoryPlan, disk: Disk, workload: Workload, moving: int, now: Split) -> Split | None:
    """The best split of `moving` bytes; None if changing from the one there is now would not pay."""
    if not plan.has_hot_set:
        return None
    clearly = _CLEARLY if plan.ordered else _CLEARLY_UNORDERED
    best, least = now, clearly * _seconds(plan, disk, now, workload, now)
    for share in STREAM_SHARES:
        split = split_by_share(plan, workload, moving, share)
        seconds = _seconds(plan, disk, split, workload, now)
        if seconds < least:
            best, least = split, seconds
    return None if best is now else best


def _seconds(plan: MemoryPlan, disk: Disk, split: Split, workload: Workload, now: Split) -> float:
    """Expected time for misses a stream row with a split, from what was missed with the split there is now."""
    served, serving = (workload.hit_curve.hit_ratio(HELD_SHARE * s.hot_entries) for s in (now, split))
    missed = min(1.0, workload.missed * (1 - serving) / max(_LEAST_MISSED, 1 - served))
    if not plan.ordered:
        return float(
            missed * (_shared_read_seconds(plan, disk, split, workload.between * missed) + _waiting_seconds(disk))
        )
    rows = min(split.slice_rows, max(1.0, workload.rows))
    # A batch is cut into slices of about equal size.
    rows = max(1.0, workload.rows) / np.ceil(max(1.0, workload.rows) / rows)
    return float(read_seconds(plan.facts, disk, rows * missed) / rows + _MISS_SECONDS * missed + _SLICE_SECONDS / rows)


def _shared_read_seconds(plan: MemoryPlan, disk: Disk, split: Split, misses: float) -> float:
    """Time of reading for a row that waits, if all rows that wait must leave after so many misses.

    Join phases that make room go round: a page has been waited for by nearly twice as many as if all rows left at once. Rows
    that still wait when all must leave share the reads of that last phase alone.
    """
    at_end = max(1.0, min(split.most_rows, misses))
    share = min(1.0, at_end / misses) if misses > 0 else 1.0
    seconds = share * read_seconds(plan.facts, disk, at_end) / at_end if share else 0.0
    if share < 1:
        turn = max(1.0, (2 - PHASE_SHARE) * split.most_rows)
        seconds += (1 - share) * read_seconds(plan.facts, disk, turn) / turn
    return seconds


def _waiting_seconds(disk: Disk) -> float:
    """Seconds of work for a row that waits, besides reading."""
    if disk.kind == "simulated":
        return disk.factors.c_A + disk.factors.c_X / PHASE_SHARE
    return _MISS_SECONDS


def read_seconds(facts: PlanFacts, disk: Disk, keys: float) -> float:
    """Time of an optimal read plan for so many keys, scattered evenly: pages wanted, gaps bridged, seeks left."""
    pages = facts.pages
    seek, transfer = disk.costs(facts.page_size)
    wanted = pages * -np.expm1(-keys / pages)
    if wanted <= 0:
        return 0.0
    density = min(1.0, wanted / pages)
    reach = int(min(seek / transfer, _LONGEST_GAP))
    gaps = np.arange(reach + 1)
    bridged = float((gaps * density * (1 - density) ** gaps).sum())
    apart = float((1 - density) ** (reach + 1))
    return float(wanted * (transfer * (1 + bridged) + seek * apart))
