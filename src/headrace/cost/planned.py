"""Models of the joins that read by a plan, SSIJ and AdaptiveJoin: our own, since [SSIJ] has none.

Both have a cache that serves a part of the stream, gather what the rest needs, and read it all at once. What counts is how much
the cache serves, how many different pages the rest needs, and what the plan makes of them.
"""

from __future__ import annotations

from math import ceil, inf

import numpy as np

from headrace.cost.facts import Facts
from headrace.cost.popularity import Popularity
from headrace.cost.prediction import Prediction, output_bytes, refused
from headrace.semistream import split
from headrace.semistream.cache import FRAME_BYTES
from headrace.semistream.hotset import ENTRY_BYTES, SEGMENTS
from headrace.semistream.inverted import PAIR_BYTES, SLOT_BYTES
from headrace.semistream.waiting import LEAST_WINDOW
from headrace.units import format_size

_SHARES = (0.04, 0.08, 0.12, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # of what moves, for the stream buffer
_HELD = SEGMENTS / (SEGMENTS + 1)  # of the hot set: one segment is spare
# See SSIJ: bytes of a tuple in an online phase; shares of the memory that is left.
WORK_BYTES, IB_SHARE, SB_SHARE, SCAN_SHARE = 160, 0.05, 0.5, 0.2
_FIXED_POINT = 6  # rounds until hits and misses agree


def plan_seconds(facts: Facts, wanted: float, longest: int) -> float:
    """Time of an optimal plan ([SSIJ] §IV.D) for so many pages that lie anywhere.

    A gap is read through where that costs less than a seek, which leaves the gaps that are longer; a run has an end at
    `longest` pages all the same.
    """
    if wanted <= 0:
        return 0.0
    seek, transfer = facts.costs(in_flight=True)
    longest = max(1, min(facts.machine.longest, longest))
    density = min(1.0, wanted / facts.pages)
    # Two wanted pages and the gap between them must fit one run.
    reach = int(max(0, min(seek / transfer if transfer else inf, longest - 2, 10_000)))
    gaps = np.arange(reach + 1)
    empty = (1 - density) ** gaps
    bridged = float((gaps * density * empty).sum())  # unwanted pages read after each wanted one
    apart = float((1 - density) ** (reach + 1))
    pages = 1 + bridged
    # Runs that end at a gap have lengths like waiting times; those beyond `longest` are cut into pieces of it.
    cut = longest * apart / pages
    runs = apart / -np.expm1(-cut) if cut > 1e-9 else pages / longest
    # A piece goes on where the one before ended, unless the page between them is not wanted.
    follow = seek if facts.machine.follow is None else facts.machine.follow
    beside = density / (1 - apart) if apart < 1 else 0.0
    again = beside * follow + (1 - beside) * seek
    return float(wanted * (transfer * pages + seek * apart + again * (runs - apart)))


# -- SSIJ ----------------------------------------------------------------------------------------------------------------


def ssij(facts: Facts, memory: int) -> Prediction:
    """SSIJ in a memory, with the thresholds it chooses by default: see its `_begin`."""
    page, v_S = facts.page_size, facts.stream_bytes
    waits = v_S + SLOT_BYTES + 16 + facts.pages_per_key * PAIR_BYTES  # of a tuple in SB and II
    least = facts.index_bytes + 3 * (page + FRAME_BYTES) + LEAST_WINDOW * (waits + 64) + 272 * (64 + WORK_BYTES)
    least += 16 * (facts.tuple_bytes + 40) + facts.texts * page
    if memory < least:
        return refused("ssij", memory, f"index and buffers need {format_size(int(least))} or more")
    output = output_bytes(facts, memory, least)
    left = memory - output - facts.index_bytes
    halves = 1 if facts.machine.in_flight is None else 2
    scan = max(1, min(facts.machine.longest, facts.pages, int(SCAN_SHARE * left) // page // halves))
    IB = int(np.clip(IB_SHARE * left / (v_S + WORK_BYTES), 16, 1 << 13))
    held = int(IB * v_S) + max(256, IB) * WORK_BYTES
    moving = left - scan * halves * page - held - IB * SLOT_BYTES
    SB = max(1, int(SB_SHARE * moving / waits))
    CR = max(0, int((moving - SB * waits) / (page + FRAME_BYTES)))
    seconds, N, hits, wanted = _join_phase(facts, SB, IB, CR, scan)
    parts = {
        "index": facts.index_bytes, "read buffer": scan * halves * page, "IB": held, "SB and II": int(SB * waits),
        "CR": CR * (page + FRAME_BYTES), "output": output,
    }  # fmt: skip
    why = f"{hits:.0%} served by {CR:,} cached pages; a join phase reads {wanted:,.0f} pages for {N * (1 - hits):,.0f} tuples"
    return Prediction("ssij", memory, N / seconds, {"IB_thresh": IB, "SB_thresh": SB}, parts, why)


def _join_phase(facts: Facts, SB: int, IB: int, CR: int, scan: int) -> tuple[float, float, float, float]:
    """Seconds and stream tuples between two join phases, the share that cached pages serve, and the pages read.

    Pages stay by the number of tuples that asked for them since the last join phase, so what is cached is chosen with luck.
    """
    f, pages = facts.machine.factors, facts.page_popularity
    N, hits, kept = float(SB), 0.0, np.zeros(pages.p.size)
    for _ in range(_FIXED_POINT):
        kept = pages.kept_by_count(CR, N * facts.pages_per_key)
        hits = float((pages.count * pages.p * kept).sum())
        # SB is looked at after each online phase, and is half of one over its threshold then.
        N = min(SB / max(1e-3, 1 - hits) + IB / 2, float(facts.batch_rows or inf))
    asked = -np.expm1(-N * facts.pages_per_key * pages.p)
    wanted = float((pages.count * (1 - kept) * asked).sum())
    steps = f.c_S + f.c_X + f.c_E + (1 - hits) * f.c_A + facts.pages_per_key * f.c_H + facts.matches * f.c_O
    return plan_seconds(facts, wanted, scan) + N * steps, N, hits, wanted


# -- AdaptiveJoin --------------------------------------------------------------------------------------------------------


def adaptive(facts: Facts, memory: int) -> Prediction:
    """AdaptiveJoin in a memory, with the split it would come to: see semistream/split.py."""
    width, page = facts.tuple_bytes, facts.page_size
    one_page = int(1.1 * facts.rows_per_page * width) + facts.texts * page
    least = facts.index_bytes + 4 * page + 256 * (width + 64) + 512 * _row_bytes(1, 1) + one_page
    spare = memory - least
    if spare < 0:
        return refused("adaptive", memory, f"index and buffers need {format_size(int(least))} or more")
    filtered = facts.filter_bytes <= 0.35 * spare and facts.absent >= 0.002
    filter_bytes = facts.filter_bytes if filtered else 0
    read = 2 * page * int(np.clip(spare // (12 * page), 2, 256))
    output = int(np.clip(spare // 16 // (width + 64), 256, 1 << 14)) * int(width + 64)
    entry = int(width * facts.rows_per_key) + ENTRY_BYTES + 8
    left = memory - facts.index_bytes - filter_bytes - read - output
    sketch = 1 << max(6, int(4 * min(facts.rows, left // entry)).bit_length() - 1)
    moving = left - sketch
    best: tuple[float, int, float, float] | None = None
    for share in _SHARES:
        found = _slice(facts, moving, share, one_page, entry, filtered, read // 8 // page)
        if best is None or found[0] < best[0]:
            best = found
    assert best is not None
    seconds, rows, entries, missed = best
    hot = int(entries * entry)
    parts = {
        "index": facts.index_bytes, "filter": filter_bytes, "sketch": sketch, "read buffer": read, "output": output,
        "hot set": hot, "stream buffer": moving - hot,
    }  # fmt: skip
    served = facts.popularity.top(_HELD * entries)
    why = f"{served:.0%} of present keys served by {entries:,.0f} hot ones; a slice of {rows:,} rows reads {missed:,.0f} keys"
    return Prediction("adaptive", memory, 1 / seconds, {}, parts, why)


def _slice(
    facts: Facts, moving: int, share: float, one_page: int, entry: int, filtered: bool, longest: int
) -> tuple[float, int, float, float]:  # fmt: skip
    """Seconds a row, rows of a slice, keys in the hot set and keys read a slice, for a share of what moves."""
    f, keys = facts.machine.factors, facts.popularity
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
        unknown = 0.0 if filtered else absent
        missed = (rest.distinct(asked) + unknown) / rows
        distinct = (keys.distinct(present) + absent) / rows
    wanted = _pages_of(facts, rest, asked, unknown)
    cpu = f.c_S + (distinct + missed) * f.c_X + facts.matches * f.c_O
    return cpu + plan_seconds(facts, wanted, longest) / rows, int(rows), entries, missed * rows


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
    structures = split.ROW_BYTES + distinct * split.KEY_BYTES + missed * split.MISS_BYTES
    return max(split.DISTINCT_BYTES, structures)
