"""QueueNotes: what a QueuedJoin knows after a micro-batch without reading the rows that stayed behind."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from math import inf

from headrace.semistream.deferred.batch_times import WINDOW
from headrace.semistream.deferred.notes import Notes


@dataclass(kw_only=True)
class QueueNotes(Notes):
    """The facts of a decision. `version` is that of the pages which rows in the queue have met."""

    begun: int = 0
    """rows of those that wait that have met pages of a scan"""
    position: int = 0
    """the page that the scan comes to next; 0 where the join does not scan"""
    scan: int = 0
    """pages of the scan that every row stays for; 0 where rows wait for pages of their own"""
    scanned: list[int] = field(default_factory=list)
    """pages read by each of the last micro-batches, oldest first"""
    due: float = inf
    """when the join must go on, so that no deadline passes"""
    next_number: int = 0
    """the number of the next row that comes"""
    first_batch: int = -1
    """the micro-batch in which the oldest row came that waits; -1 if none does"""
    single: bool = False
    """whether a row has one match at most, and so is done with when it has met it"""

    @classmethod
    def beside(cls, notes: Notes) -> QueueNotes:
        """The notes that every join has, and none of a queue yet."""
        return cls(**asdict(notes))

    @property
    def delay(self) -> float | None:
        """Micro-batches that a row stays for at the pace of the last ones: a scan of R by pages a micro-batch. None: no scan."""
        return self.scan * len(self.scanned) / sum(self.scanned) if self.scan and sum(self.scanned) else None

    def add_pages(self, before: list[int], pages: int) -> None:
        """Note the pages that this micro-batch read, after those before it."""
        self.scanned = [*before, pages][-WINDOW:]
