"""ReadPlan: the expected cost of an optimal read plan, for models of joins that read by a plan. [SSIJ] §IV.D"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np

from headrace.arrays import Float64s, Int64s
from headrace.cost.facts import Facts
from headrace.relation import Disk

_DRAWN = 1 << 13  # wanted pages that are drawn and planned; the result is scaled
_SEED = 20110401  # arbitrary; fixed, so that predictions can be repeated
_PLANS, _LEAST_DRAWN = 32, 1 << 10  # plans and pages that suffice where few pages are planned together


@dataclass(frozen=True)
class ReadPlan:
    """The expected pages and requests of the optimal plan ([SSIJ] §IV.D) for wanted pages at random positions.

    A plan is made for pages that are drawn with a fixed seed, and scaled. With a limit on the length of a run, no formula that we
    tried was close enough.
    """

    pages: float
    """pages read, including unwanted ones that are read through"""
    runs: float
    """requests"""
    beside: float
    """requests that start where the one before ended"""

    @classmethod
    def of(
        cls,
        facts: Facts,
        wanted: float,
        longest: int,
        *,
        sequential: bool = False,
        together: int = 1 << 62,
        chances: tuple[Float64s, Float64s] | None = None,
    ) -> ReadPlan:
        """Plan the reads of so many wanted pages, in requests of at most `longest` pages.

        With `sequential`, a run may be longer and is read in several requests. `together` is the number of pages planned at a
        time: a sequential disk reads on to the next plan if that costs less than a seek; otherwise the last run of a plan is
        planned again with the next one. `chances` are groups of neighbouring pages, as (number of pages, probability that a page
        is wanted), if the probability differs between them.
        """
        if wanted <= 0:
            return cls(0.0, 0.0, 0.0)
        seek, transfer = facts.costs(in_flight=True)
        request = max(1, min(facts.machine.longest, longest))
        longest = facts.machine.longest if sequential else request
        near = facts.costs(scan=True)[0]
        if sequential:
            transfer += near / request
        random = _uniform()
        if chances is None:
            density = min(1.0, wanted / facts.pages)
            random = random[: max(_LEAST_DRAWN, _PLANS * together)]
            steps = np.ones(random.size) if density == 1 else np.ceil(np.log(random) / np.log1p(-density))
            places = np.cumsum(np.maximum(1, steps)).astype(np.int64)
        else:
            ends = np.cumsum(chances[0])
            drawn = max(1, min(random.size, round(ends[-1])))
            group = np.searchsorted(ends, (np.arange(drawn) + 0.5) * ends[-1] / drawn)
            chance = np.tile(chances[1][group], random.size // drawn)  # repeated as long as there are random numbers
            places = np.flatnonzero(random[: chance.size] <= chance)
            if not places.size:
                return cls(wanted, wanted, 0.0)
        disk = Disk("simulated", seek=seek, transfer=transfer, longest=longest)
        parts = list(_plans(disk, places, longest, together, sequential=sequential))
        if sequential:
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
        """Return the time of the plan. Without `follow`, every request costs a seek, as operators assume."""
        seek, transfer = facts.costs(in_flight=True)
        near = facts.costs(in_flight=True, scan=True)[0] if follow else seek
        return self.pages * transfer + (self.runs - self.beside) * seek + self.beside * near


def _plans(
    disk: Disk, places: Int64s, longest: int, together: int, *, sequential: bool
) -> Iterator[tuple[Int64s, Int64s]]:
    a = 0
    while a < places.size:
        some = places[a : a + together]
        first, length = disk.runs(some, 8192, longest)
        taken = some.size
        if not sequential and a + taken < places.size and first.size > 1:
            taken = int(np.searchsorted(some, first[-1]))
            first, length = first[:-1], length[:-1]
        yield first, length
        a += taken


@cache
def _uniform() -> Float64s:
    return 1 - np.random.default_rng(_SEED).random(_DRAWN)
