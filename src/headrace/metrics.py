"""The counters of a join: one object that tests, cost models and consoles read alike."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from headrace.errors import HeadraceError


@dataclass(frozen=True, slots=True)
class Factors:
    """Seconds that each step of a join takes. [MESH] Table 1, [XHJ] Table 1

    The defaults make a simulated machine of 2008: MESHJOIN with a tenth of the papers' relation in memory joins some 26,000
    stream tuples a second on it.
    """

    c_E: float = 0.6e-6
    """remove a tuple from H and Q"""
    c_S: float = 0.2e-6
    """read a tuple from the stream buffer"""
    c_A: float = 1.0e-6
    """add a tuple to H and Q"""
    c_H: float = 1.0e-6
    """probe H with a tuple of R"""
    c_O: float = 0.5e-6
    """make a result"""
    c_X: float = 0.3e-6
    """look a stream tuple up in the index"""


@dataclass(frozen=True, slots=True)
class Overhead:
    """What an algorithm takes on a real machine besides its reads and steps. The papers' machines have none.

    Most of it is the interpreter's: an iteration is a few dozen calls whatever it works on, and steps in the midst of a join,
    with what it holds in the way of the caches, take longer than steps alone.
    """

    steps: float = 1.0
    """times what Factors say of its steps"""
    iteration: float = 0.0
    """seconds of an iteration"""
    request: float = 0.0
    """seconds of a read request, beyond the disk's"""


@dataclass(slots=True)
class JoinStats:
    """What a join of a stream with a relation did so far.

    Every stream tuple is counted once by how it was served (null, hit, absent or miss) and once by
    how it ended (matched or unmatched); `check` holds both sums. Stats of several shards add up.

    Example:
        >>> stats = JoinStats(tuples_in=10, hits=6, misses=3, absent=1, matched=8, unmatched=2)
        >>> stats.check()
        >>> stats.hit_ratio
        0.6
        >>> (stats + stats).tuples_in
        20
    """

    tuples_in: int = 0
    """stream tuples taken in"""
    nulls: int = 0
    """stream tuples with a null in the key: they match nothing"""
    matched: int = 0
    """stream tuples with at least one match in the relation"""
    unmatched: int = 0
    """stream tuples with none"""
    results: int = 0
    """tuples sent out"""
    batches: int = 0
    """batches taken in"""
    unique_keys: int = 0
    """distinct keys, summed over batches"""
    hits: int = 0
    """stream tuples served from the hot set"""
    absent: int = 0
    """stream tuples that the filter turned away"""
    misses: int = 0
    """stream tuples that needed pages"""
    pages_requested: int = 0
    """pages that held, or could hold, a wanted key"""
    pages_read: int = 0
    """pages read, with the neighbours that the plan read through"""
    reads: int = 0
    """read requests: each costs a seek"""
    bytes_read: int = 0
    """bytes that came from the disk"""
    io_seconds: float = 0.0
    """time spent reading, as the disk counts it"""
    generations: int = 0
    """generations of the hot set published"""
    iterations: int = 0
    """iterations of the algorithm's loop"""
    probes: int = 0
    """tuples of R looked up among the waiting stream tuples"""
    waiting_seconds: float = 0.0
    """time between taking a stream tuple in and letting it go, summed over tuples"""
    longest_wait: float = 0.0
    """the longest such time"""
    late: int = 0
    """stream tuples that left after their deadline"""
    deferred: int = 0
    """stream tuples put into the run log, to be joined later; they count as taken in when they are"""
    waiting: int = 0
    """stream tuples in the run log at the end, whether for their deadline or to be tried again"""
    late_matches: int = 0
    """stream tuples without a match at first that found one when they were tried again"""
    dead_letters: int = 0
    """stream tuples without a match that were put aside"""
    memory: dict[str, int] = field(default_factory=dict)
    """bytes held now, by part"""
    memory_limit: int = 0
    """bytes of the budget"""
    memory_peak: int = 0
    """the most bytes held at one time"""
    left_out: dict[str, str] = field(default_factory=dict)
    """parts that the budget was too small for, and why"""

    @property
    def hit_ratio(self) -> float:
        """The share of stream tuples served from the hot set; 0 before the first."""
        return self.hits / self.tuples_in if self.tuples_in else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Every counter by name, and `hit_ratio`; the dicts in it are copies."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        copied = {name: dict(v) if isinstance(v, dict) else v for name, v in values.items()}
        return copied | {"hit_ratio": self.hit_ratio}

    def check(self) -> None:
        """Raise `HeadraceError` if the counters contradict each other."""
        served = self.nulls + self.hits + self.absent + self.misses
        ended = self.matched + self.unmatched
        if self.tuples_in != served:
            raise HeadraceError(
                f"stats do not add up: {self.tuples_in} tuples in, but {self.nulls} nulls + "
                f"{self.hits} hits + {self.absent} absent + {self.misses} misses = {served}"
            )
        if self.tuples_in != ended:
            raise HeadraceError(
                f"stats do not add up: {self.tuples_in} tuples in, but {self.matched} matched + "
                f"{self.unmatched} unmatched = {ended}"
            )

    def __add__(self, other: JoinStats) -> JoinStats:
        # Peaks are added too: shards peak at different times, so the sum is a safe upper bound.
        memory = dict(self.memory)
        for part, nbytes in other.memory.items():
            memory[part] = memory.get(part, 0) + nbytes
        total = JoinStats(memory=memory, left_out=self.left_out | other.left_out)
        total.longest_wait = max(self.longest_wait, other.longest_wait)
        for f in fields(self):
            if f.name not in ("memory", "left_out", "longest_wait"):
                setattr(total, f.name, getattr(self, f.name) + getattr(other, f.name))
        return total
