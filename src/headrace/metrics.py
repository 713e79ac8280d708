"""The counters of a join, in one object that tests, cost models and displays read."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from headrace.errors import HeadraceError


@dataclass(frozen=True, slots=True)
class Factors:
    """The seconds that each step of a join takes. [MESH] Table 1, [XHJ] Table 1

    The defaults describe a simulated machine of 2008, on which MESHJOIN with a tenth of the papers' relation in memory joins some
    26,000 stream tuples per second.
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
    """The time that an algorithm takes on a real machine besides its reads and steps. The papers' machines have none.

    Most of it is the interpreter's: an iteration makes a few dozen calls however few tuples it handles. And steps within a join
    take longer than steps measured alone, because the join's data displace each other in the processor's caches.
    """

    steps: float = 1.0
    """factor on the time of steps by `Factors`"""
    iteration: float = 0.0
    """seconds per iteration"""
    request: float = 0.0
    """seconds per read request, besides the disk's"""


@dataclass(slots=True, kw_only=True)
class JoinStats:
    """The counters of a join of a stream with a relation.

    Every stream tuple is counted once by how it was served (null, hit, absent or miss) and once by its outcome (matched or
    unmatched); `check` verifies both sums. Stats of several shards can be added.

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
    """stream tuples without a match in the relation"""
    results: int = 0
    """result tuples returned"""
    batches: int = 0
    """batches taken in"""
    unique_keys: int = 0
    """distinct keys, summed over batches"""
    hits: int = 0
    """stream tuples served from the hot set"""
    absent: int = 0
    """stream tuples whose key the filter or the index knew to be absent"""
    misses: int = 0
    """stream tuples that needed pages"""
    pages_requested: int = 0
    """pages that could hold a wanted key"""
    pages_read: int = 0
    """pages read, including unwanted neighbours that the plan read through"""
    reads: int = 0
    """read requests: each costs a seek"""
    bytes_read: int = 0
    """bytes read from disk"""
    index_pages_read: int = 0
    """pages of the index read, where it is not in memory as a whole; they count in no counter but these two"""
    index_reads: int = 0
    """read requests for pages of the index"""
    io_seconds: float = 0.0
    """seconds spent reading, by the disk's clock"""
    generations: int = 0
    """generations of the hot set published"""
    iterations: int = 0
    """iterations of the algorithm's loop"""
    probes: int = 0
    """tuples of R that were probed against the waiting stream tuples; of several streams, probes of their memories"""
    waiting_seconds: float = 0.0
    """seconds between the arrival of a stream tuple and its result, summed over tuples"""
    longest_wait: float = 0.0
    """the longest of these times"""
    longest_wait_batches: int = 0
    """micro-batches after their own in which the last of the stream tuples left that a run log kept in a queue"""
    late: int = 0
    """stream tuples that left after their deadline; of AdaptiveJoin, those that left after the deadline of the oldest"""
    shed: int = 0
    """stream tuples put aside because they came too fast; they count in `tuples_in` when they are joined"""
    deferred: int = 0
    """stream tuples put into the run log to be joined later; they count in `tuples_in` when they are joined"""
    waiting: int = 0
    """stream tuples in the run log at the end, waiting for their deadline or for another try"""
    late_matches: int = 0
    """stream tuples that found a match only when they were tried again"""
    dead_letters: int = 0
    """stream tuples that were given up without a match"""
    memory: dict[str, int] = field(default_factory=dict)
    """bytes held now, by part"""
    memory_limit: int = 0
    """bytes of the budget"""
    memory_peak: int = 0
    """the most bytes held at one time"""
    left_out: dict[str, str] = field(default_factory=dict)
    """optional parts that the budget has no room for, with the reason"""
    warnings: dict[str, str] = field(default_factory=dict)
    """what cannot be kept, such as a deadline, with the reason"""

    @property
    def hit_ratio(self) -> float:
        """The share of stream tuples served from the hot set; 0 before the first."""
        return self.hits / self.tuples_in if self.tuples_in else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return every counter by name, and `hit_ratio`; nested dicts are copies."""
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
        # Peaks are added as well: shards may peak at different times, so the sum is an upper bound.
        memory = dict(self.memory)
        for part, nbytes in other.memory.items():
            memory[part] = memory.get(part, 0) + nbytes
        total = JoinStats(
            memory=memory, left_out=self.left_out | other.left_out, warnings=self.warnings | other.warnings
        )
        longest = "longest_wait", "longest_wait_batches"
        for name in longest:
            setattr(total, name, max(getattr(self, name), getattr(other, name)))
        for f in fields(self):
            if f.name not in ("memory", "left_out", "warnings", *longest):
                setattr(total, f.name, getattr(self, f.name) + getattr(other, f.name))
        return total
