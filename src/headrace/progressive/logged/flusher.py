"""Flusher: drops rows from memory when it is full, as the flush policy chooses. They stay in the log. [PQP] ch. 3, Alg. 1"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np

from headrace.errors import MemoryRefused
from headrace.progressive.grids.partitioning import stream_name
from headrace.progressive.logged.checkpoint import Checkpoint
from headrace.progressive.logged.sharding import ShardedRows
from headrace.progressive.logged.state_cache import StateCache
from headrace.units import format_size


class Flush(NamedTuple):
    """One partition's part in a flush. A decision lists them, so that a replay repeats them."""

    after: int
    """the last step whose rows have met those that were flushed"""
    side: int
    partition: int
    first: int
    """memory holds the rows of steps from this one on"""


class Flusher:
    """Keeps the memory of a shard within its limits.

    Parameters
    ----------
    cache
        The memory, with its policy and its limit of bytes.
    capacity
        Tuples in memory at most; None: no such limit.
    """

    def __init__(self, cache: StateCache, capacity: int | None) -> None:
        self.cache, self.capacity = cache, capacity
        self.flushes: list[Flush] = []
        """what was flushed, in this order"""

    def make_room(self, checkpoint: Checkpoint, number: int = 0, placed: ShardedRows | None = None) -> None:
        """Flush until rows of a side fit; without rows, until memory is within its limits."""
        cache = self.cache
        while True:
            need = 0 if placed is None else cache.need(number, placed)
            slots = 0 if placed is None else placed.entries.row.size
            held = int(checkpoint.ledger.held.sum())
            over = 0 if self.capacity is None else held + slots - self.capacity
            short = cache.budget.used + need - cache.memory
            if (over <= 0 and short <= 0) or (not held and short <= 0):
                return
            if not held:
                raise MemoryRefused(
                    f"rows of {stream_name(number, checkpoint.streams)} take {format_size(need)}, and a shard has"
                    f" {format_size(cache.memory)}; give more memory, or fewer shards"
                )
            each = max(1, cache.budget.used // held)
            # Rows that are flushed before the first step are not there when its rows look for matches. Later, the rows of
            # the step have looked already.
            after = checkpoint.steps - (placed is None)
            self._flush(checkpoint, min(held, max(over, -(-short // each), cache.policy.wanted(held))), after)

    def repeat(self, checkpoint: Checkpoint, flushes: deque[Flush], step: int) -> None:
        """Flush what another attempt did after this step or before, and take that off the list."""
        changed = False
        while flushes and flushes[0].after <= step:
            flush, changed = flushes.popleft(), True
            checkpoint.first[flush.side, flush.partition] = flush.first
        if changed:
            self.cache.drop(checkpoint.first)

    def recount(self, checkpoint: Checkpoint) -> None:
        """Count the tuples in memory by side and partition."""
        held = checkpoint.ledger.held
        for side in self.cache.sides:
            held[side.number] = np.bincount(side.partition[side.live()], minlength=held.shape[1])

    def _flush(self, checkpoint: Checkpoint, wanted: int, after: int) -> None:
        first = self.cache.victims(checkpoint, wanted)
        for number, partition in np.argwhere(first > checkpoint.first).tolist():
            self.flushes.append(Flush(after, number, partition, int(first[number, partition])))
            checkpoint.flushed[number, partition] = first[number, partition]
            checkpoint.until[number, partition] = checkpoint.latest[number]
        checkpoint.first = first
        self.cache.drop(first)
        self.recount(checkpoint)
        checkpoint.ledger.fresh[:], checkpoint.ledger.recent[:] = 0, 0
        checkpoint.ledger.flushes += 1
