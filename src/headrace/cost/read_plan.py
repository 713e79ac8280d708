"""What an optimal read plan makes of wanted pages, in the mean: models of joins that read by a plan ask it. [SSIJ] §IV.D"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np

from headrace.arrays import Float64s, Int64s
from headrace.cost.facts import Facts
from headrace.relation import Disk

_DRAWN, _SEED = 1 << 13, 20110401  # pages of a plan that stands for others
_PLANS, _LEAST_DRAWN = 32, 1 << 10  # plans that stand for more, where few pages are planned together


@dataclass(frozen=True)
class ReadPlan:
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
        cls,
        facts: Facts,
        wanted: float,
        longest: int,
        *,
        goes_on: bool = False,
        together: int = 1 << 62,
        chances: tuple[Float64s, Float64s] | None = None,
    ) -> ReadPlan:
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
    disk: Disk, places: Int64s, longest: int, together: int, *, goes_on: bool
) -> Iterator[tuple[Int64s, Int64s]]:
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
def _uniform() -> Float64s:
    return 1 - np.random.default_rng(_SEED).random(_DRAWN)
