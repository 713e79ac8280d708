"""IndexReads: what reading index pages takes, for joins whose index is not in memory as a whole. [SSIJ] §III"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from headrace.cost.facts import Facts
from headrace.cost.popularity import Popularity
from headrace.cost.read_plan import ReadPlan
from headrace.relation.paged_index import IndexMemory
from headrace.relation.reader import REQUESTS_A_HALF


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

        The pool has what was asked for last: pages above the leaves first, as every key needs them.
        """
        if index.level is None or facts.levels is None or keys <= 0:
            return cls(0.0, 0.0, 0.0)
        total, frames = cls(0.0, 0.0, 0.0), float(index.frames)
        for pages in reversed(facts.levels.pages[: index.level + 1]):
            total += cls._of_level(facts, index, keys, asked or facts.popularity, pages, frames)
            frames = max(0.0, frames - pages)
        return total

    @classmethod
    def _of_level(
        cls, facts: Facts, index: IndexMemory, keys: float, asked: Popularity, pages: int, frames: float
    ) -> IndexReads:
        # The index is in the order of keys, however rows are stored.
        scattered = facts.scattered or facts.ordered
        level = asked.grouped(max(1.0, asked.things / pages), scattered=scattered).mixed(facts.absent, pages)
        chance = -np.expm1(-keys * level.p) * (1 - level.kept_by_recency(frames))
        wanted = float((level.count * chance).sum())
        half = index.read_pages // 2
        serial = facts.machine.in_flight is None
        longest = 2 * half if serial else max(1, half // REQUESTS_A_HALF)
        together = max(1, round(wanted * min(1.0, index.keys / keys)))
        follow, seek = facts.machine.follow, facts.machine.seek
        goes_on = serial and follow is not None and follow < seek
        plan = ReadPlan.of(
            replace(facts, pages=pages), min(wanted, pages), longest, sequential=goes_on, together=together
        )
        return cls(plan.pages, plan.runs, plan.seconds(facts))

    def __add__(self, other: IndexReads) -> IndexReads:
        return IndexReads(self.pages + other.pages, self.runs + other.runs, self.seconds + other.seconds)

    def each(self, tuples: float) -> IndexReads:
        """The same for one of so many tuples."""
        return IndexReads(self.pages / tuples, self.runs / tuples, self.seconds / tuples)


def index_why(index: IndexMemory, pages: float) -> str:
    """Say how many index pages a tuple reads; nothing where the index is in memory as a whole."""
    return f"; a tuple reads {pages:.2g} pages of the index, which does not fit" if index.paged else ""
