"""The counters of a progressive join."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class ProgressiveStats:
    """Counts what a progressive join has done so far. Each result is counted once, by the phase that made it."""

    tuples_in: list[int] = field(default_factory=lambda: [0, 0])
    """tuples that were taken in, left and right"""
    skipped: list[int] = field(default_factory=lambda: [0, 0])
    """tuples among them with a null or NaN where they are compared: they match nothing and are not kept"""
    outside: list[int] = field(default_factory=lambda: [0, 0])
    """tuples outside the space of a grid, which are put into the cells at its edge: many of them make a join slow"""
    results: int = 0
    """results that were sent"""
    in_memory: int = 0
    """results of arriving tuples with tuples in memory"""
    memory_disk: int = 0
    """results of tuples in memory with tuples on disk"""
    disk_disk: int = 0
    """results of tuples that were both on disk"""
    flushes: int = 0
    """times that tuples were moved from memory to disk"""
    flushed: int = 0
    """tuples that were written to disk; one in several cells counts in each"""
    pages_written: int = 0
    """pages of 4 KiB that were written to disk"""
    pages_read: int = 0
    """pages of 4 KiB that were read from disk"""
    seeks: int = 0
    """read requests that do not go on where the last request ended"""
    memory: dict[str, int] = field(default_factory=dict)
    """bytes held now, by part"""
    memory_peak: int = 0
    """bytes held at most so far"""
    memory_limit: int = 0
    """bytes of the budget"""

    def check(self) -> None:
        """Raise AssertionError unless the results of the phases add up to all results."""
        total = self.in_memory + self.memory_disk + self.disk_disk
        assert self.results == total, f"results={self.results}, but phases add up to {total}"
