"""IndexReads: what reading index pages takes, for joins whose index is not in memory as a whole. [SSIJ] §III"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from headrace.arrays import Float64s
from headrace.cost.facts import Facts
from headrace.cost.popularity import Popularity
from headrace.cost.read_plan import ReadPlan
from headrace.relation.index_memory import IndexMemory
from headrace.relation.reader import REQUESTS_A_HALF

_HALVINGS = 40  # of an interval, until a chance is known to twelve digits


@dataclass(frozen=True)
class IndexReads:
    """The expected reads of index pages for keys that are looked up together.

    Parameters
    ----------
    pages, runs
        Pages read, with unwanted ones that the plan reads through, and requests.
    seconds
        The time that they take.
    """

    pages: float
    runs: float
    seconds: float

    @classmethod
    def of(cls, facts: Facts, index: IndexMemory, keys: float, asked: Popularity | None = None) -> IndexReads:
        """Expect the reads for so many keys, drawn by the popularity `asked`; by default that of the stream.

        The pool of the levels between the leaves and the one found from memory is divided among them by their pages.
        """
        total = cls(0.0, 0.0, 0.0)
        if index.level is None or facts.levels is None or keys <= 0:
            return total
        levels, upper = facts.levels.pages[: index.level + 1], sum(facts.levels.pages[1 : index.level + 1])
        for level, pages in enumerate(levels):
            frames = float(index.frames) if level == 0 else index.upper_frames * pages / upper
            total += cls._of_level(facts, index, keys, asked or facts.popularity, pages, frames)
        return total

    @classmethod
    def _of_level(
        cls, facts: Facts, index: IndexMemory, keys: float, asked: Popularity, pages: int, frames: float
    ) -> IndexReads:
        # The index is in the order of keys, however rows are stored.
        scattered = facts.scattered or facts.ordered
        level = asked.grouped(max(1.0, asked.things / pages), scattered=scattered).mixed(facts.absent, pages)
        together = min(keys, index.keys)
        asked_for = -np.expm1(-together * level.p)
        wanted = float((level.count * asked_for * (1 - _pooled(level, asked_for, frames))).sum())
        wanted *= min(
            keys / together, pages / max(1.0, level.distinct(together))
        )  # keys come in order, a few at a time
        half = index.read_pages // 2
        serial = facts.machine.in_flight is None
        longest = 2 * half if serial else max(1, half // REQUESTS_A_HALF)
        follow, seek = facts.machine.follow, facts.machine.seek
        goes_on = serial and follow is not None and follow < seek
        plan = ReadPlan.of(replace(facts, pages=pages), min(wanted, pages), longest, sequential=goes_on)
        return cls(plan.pages, plan.runs, plan.seconds(facts))

    def __add__(self, other: IndexReads) -> IndexReads:
        return IndexReads(self.pages + other.pages, self.runs + other.runs, self.seconds + other.seconds)

    def each(self, tuples: float) -> IndexReads:
        """The same for one of so many tuples."""
        return IndexReads(self.pages / tuples, self.runs / tuples, self.seconds / tuples)


def _pooled(level: Popularity, asked_for: Float64s, frames: float) -> Float64s:
    """The chance that a page of each group is in a pool of so many frames, where a batch asks for it with chance `asked_for`.

    Where a batch asks for fewer pages than there are frames, the pool has those asked for last. Otherwise all that it has was
    asked for by the last batch, in which a page comes in with a chance e that fills the frames, and stays if it is there.
    """
    if float((level.count * asked_for).sum()) <= frames:
        return level.kept_by_recency(frames)
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        e = (low + high) / 2
        pooled: Float64s = asked_for * e / (1 - asked_for * (1 - e))
        low, high = (e, high) if float((level.count * pooled).sum()) < frames else (low, e)
    return pooled


def index_why(index: IndexMemory, pages: float) -> str:
    """Say how many index pages a tuple reads; nothing where the index is in memory as a whole."""
    return f"; a tuple reads {pages:.2g} pages of the index, which does not fit" if index.paged else ""
