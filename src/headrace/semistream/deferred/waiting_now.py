"""What the shards of a run log owe now: how many rows wait, since when, and until when."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from headrace.runlog import Decision, RunLog, ShardLog, last_decision
from headrace.semistream.deferred.notes import Notes
from headrace.semistream.deferred.queue_notes import QueueNotes


@dataclass(frozen=True, kw_only=True)
class ShardWaiting:
    """What one shard owes after its last micro-batch. Times are seconds of the wall clock."""

    shard: int
    batch: int
    """the micro-batch after which it stands so"""
    owed: int
    """rows that wait; of a join of two streams, pairs"""
    for_deadline: int = 0
    """rows of them that wait for their deadline"""
    for_match: int = 0
    """rows of them that wait for a version of the relation in which they have a match"""
    oldest: float | None = None
    """when the first of them came; None if that is not noted"""
    due: float | None = None
    """when the first of those that wait for their deadline is to leave"""
    first_batch: int | None = None
    """the micro-batch in which the first of them came, where a queue is kept"""
    delay: float | None = None
    """micro-batches that a row stays for at the pace of the last ones, where every row stays for a scan of the relation"""
    warning: str = ""
    """why the deadline cannot be kept, if it cannot"""

    @classmethod
    def of(cls, shard: int, decision: Decision) -> ShardWaiting:
        """Read it from a shard's last decision. One of a join of two streams has no notes of rows that wait."""
        if "waiting" not in decision.facts:
            return cls(shard=shard, batch=decision.batch, owed=decision.owed)
        notes, queue = Notes.of(decision), QueueNotes.of(decision)
        first = min(notes.earliest, notes.oldest)
        due = None if notes.deadline is None or not notes.waiting else notes.earliest + notes.deadline
        return cls(
            shard=shard,
            batch=decision.batch,
            owed=decision.owed,
            for_deadline=notes.waiting,
            for_match=notes.retrying,
            oldest=first if decision.owed and first < inf else None,
            due=due,
            first_batch=None if queue.first_batch < 0 else queue.first_batch,
            delay=queue.delay,
            warning=notes.warning,
        )


def waiting_now(log: RunLog) -> list[ShardWaiting]:
    """Return what each shard owes, of those that have decided anything. Nothing is locked, so a query may go on meanwhile."""
    found = ((shard, last_decision(ShardLog(log.path, shard))) for shard in range(log.shards))
    return [ShardWaiting.of(shard, decision) for shard, decision in found if decision is not None]
