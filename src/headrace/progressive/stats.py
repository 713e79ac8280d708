"""The counters of a progressive join."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class ProgressiveStats:
    """What a progressive join did so far. Each result is counted once by the phase that made it; `check` holds the sum."""

    tuples_in: list[int] = field(default_factory=lambda: [0, 0])
    """tuples taken in, left and right"""
    skipped: list[int] = field(default_factory=lambda: [0, 0])
    """of those, tuples with a null or NaN where they are compared: they match nothing and are not kept"""
    outside: list[int] = field(default_factory=lambda: [0, 0])
    """tuples outside the space of a grid, which are in the cells at its edge: many make a join slow, and ask for another space"""
    results: int = 0
    """tuples sent out"""
    in_memory: int = 0
    """results of arriving tuples with tuples in memory"""
    memory_disk: int = 0
    """results of tuples in memory with tuples on disk"""
    disk_disk: int = 0
    """results of tuples that were both on disk"""
    flushes: int = 0
    flushed: int = 0
    """tuples written to disk; one in several cells counts in each"""
    pages_written: int = 0
    pages_read: int = 0
    seeks: int = 0
    """read requests"""
    memory: dict[str, int] = field(default_factory=dict)
    """bytes held now, by part"""
    memory_peak: int = 0
    memory_limit: int = 0

    def check(self) -> None:
        """The sums agree."""
        total = self.in_memory + self.memory_disk + self.disk_disk
        assert self.results == total, f"results={self.results}, but phases add up to {total}"
