"""Deadlines of stream tuples: which tuples are the most urgent, and how long a step or a join phase will take. [SSIJ] §IV.F"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

import numpy as np

from headrace.arrays import Bools, Float64s, Int64s
from headrace.errors import BadInput
from headrace.metrics import Factors
from headrace.units import parse_duration

_TRUSTED = 3  # join phases of a size that must have been seen before the longest of them is taken for the worst
_MARGIN = 1.1  # times the estimate: the next phase may be worse, and tuples come at the last moment
_RECENT = (
    64  # steps of which the longest is taken for the next: a scan of a small relation, or some loads of partitions
)


class Deadlines:
    """The deadlines of the tuples in IB, in the order the tuples came; inf for tuples that may wait."""

    def __init__(self) -> None:
        self._times: Float64s = np.empty(0)
        self._rising = True  # the first tuples are the most urgent: the usual case

    @property
    def earliest(self) -> float:
        """The earliest deadline."""
        return float(self._times[:1].min(initial=np.inf) if self._rising else self._times.min())

    def add(self, times: Float64s) -> None:
        """Note the deadlines of tuples that came."""
        together = np.concatenate([self._times, times])
        seam = together[max(0, self._times.size - 1) :]
        self._rising = self._rising and not (seam[1:] < seam[:-1]).any()
        self._times = together

    def take(self, count: int) -> tuple[Float64s, Int64s | None]:
        """The most urgent tuples leave IB: their deadlines, and which they are; None for the first ones, in order."""
        if self._rising:
            taken, self._times = self._times[:count], self._times[count:]
            return taken, None
        first = np.sort(np.argsort(self._times, kind="stable")[:count])
        taken, self._times = self._times[first], np.delete(self._times, first)
        self._rising = self._rising or not self._times.size
        return taken, first

    def keep(self, mask: Bools) -> None:
        """Some tuples stay in IB; the others were shed."""
        self._times = self._times[mask]
        self._rising = self._rising or not self._times.size


def seconds(deadlines: str | float | Sequence[float], rows: int) -> Float64s:
    """How long each of so many tuples may take, from one value for all or from a value for each."""
    if isinstance(deadlines, str | float | int):
        return np.full(rows, parse_duration(deadlines, name="deadlines"))
    each = np.asarray(deadlines, np.float64)
    if each.shape != (rows,) or np.isnan(each).any():
        raise BadInput(f"deadlines has {each.size} values, for {rows} tuples; give one number of seconds for each")
    return each


class StepTime:
    """How long the steps of a join took lately, and the time in which the stream let it wait and it did none."""

    def __init__(self) -> None:
        self.waited: float | None = None  # seconds that the stream let it wait in all; None where nobody says
        self.owed = 0.0  # seconds of waiting that no step has made up for
        self.served = 0  # tuples that left in the last step
        self.came = 0  # tuples that were offered since
        self._recent: deque[float] = deque(maxlen=_RECENT)

    @property
    def longest(self) -> float:
        """Seconds of the longest of the last steps; 0 before the first."""
        return max(self._recent, default=0.0)

    @property
    def last(self) -> float:
        """Seconds of the last step; 0 before the first."""
        return self._recent[-1] if self._recent else 0.0

    def bound(self, steps: float, first: float) -> float:
        """Seconds of so many steps and of the one that may have just begun, at most; `first`: by a model, before one was seen."""
        return _MARGIN * (steps + 1) * max(self.longest, first)

    def note(self, seconds: float, served: int) -> None:
        """Note that a step took so long, in which so many tuples left."""
        self.served, self.came = served, 0
        self._recent.append(seconds)
        self.owed = max(0.0, self.owed - seconds)


class JoinTime:
    """Estimates how long the next join phase takes at most: at first a random read a block, later the worst of its size.

    A plan is never worse than a scan of the whole relation ([SSIJ] §V), which the text's first estimate leaves out: by it alone a
    deadline would keep phases from ever becoming large enough to be learned from.

    Parameters
    ----------
    costs
        Seconds for a request and for a page of it.
    factors
        Seconds of the steps of a tuple.
    """

    def __init__(self, costs: tuple[float, float], factors: Factors) -> None:
        self._block = sum(costs)
        self._tuple = factors.c_E + factors.c_H + factors.c_O
        self._new = factors.c_S + factors.c_X + factors.c_A
        self._worst: dict[int, tuple[float, float]] = {}  # seconds and seconds a block, by size in powers of two
        self._seen: Counter[int] = Counter()  # phases of such a size
        self._online = 0.0
        self.scan = np.inf  # seconds to read the whole relation

    def online(self, seconds: float) -> None:
        """Note that an online phase took so long."""
        self._online = max(self._online, seconds)

    def joined(self, blocks: int, seconds: float) -> None:
        """Note that a join phase that read so many wanted blocks took so long."""
        size = blocks.bit_length()
        self._seen[size] += 1
        total, block = self._worst.get(size, (0.0, 0.0))
        self._worst[size] = max(total, seconds), max(block, seconds / max(1, blocks))

    def estimate(self, blocks: int, tuples: int, more: int) -> float:
        """Seconds of an online phase and a join phase for so many blocks and tuples, and for more tuples with a block each."""
        blocks, tuples = blocks + more, tuples + more
        size, join = blocks.bit_length(), min(blocks * self._block, self.scan) + tuples * self._tuple + more * self._new
        if self._seen[size] >= _TRUSTED:
            # Fewer blocks cost more each, as fewer share a seek, but not more in all.
            total, block = self._worst[size]
            join = min(join, max(total, blocks * block))
        return _MARGIN * join + self._online
