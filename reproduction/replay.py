"""Replays the in-memory phase of a progressive join of keys on counts, to run a policy on many streams in little time.

The policy, its counters and what it flushes are those of the join; rows are not kept, only the number of each key in memory. The
results are those of the join, with one exception: of tuples of a partition that came in one batch and do not all leave, the
first leave here, and any of them in the join. tests/reproduction/test_replay.py compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.progressive import FlushPolicy, PartitionStats
from headrace.progressive.policies.driver import lowest_partitions
from reproduction.pqp import GAP, Setting

Numbers = Any  # arrays


@dataclass(frozen=True)
class Tuples:
    """The tuples of two streams in the order in which they arrive, as numbers."""

    side: Numbers
    partition: Numbers
    key: Numbers
    """the number of each tuple's key, from 0"""
    partitions: int
    capacity: int
    chunk: int

    @classmethod
    def of(cls, setting: Setting) -> Tuples:
        """The tuples of a setting as `course` takes them in; the key must be one column."""
        streams, dividing = setting.streams(), setting.partitioning()
        dividing.bind(0, streams.rows.schema)
        cell = dividing.home(0, dividing.read(0, streams.rows)).cell
        _, key = np.unique(np.asarray(streams.rows.column(0)), return_inverse=True)
        return cls(
            streams.side,
            dividing.partition_of(cell),
            key,
            dividing.partitions,
            round(setting.share * len(streams)),
            max(20, len(streams) // setting.chunks),
        )


class _Memory:
    """The number of tuples of each key in memory. Tuples of a side and partition leave in the order in which they came."""

    def __init__(self, tuples: Tuples) -> None:
        self.tuples = tuples
        self.stats = PartitionStats.empty(tuples.partitions)
        self.count = np.zeros((2, int(tuples.key.max()) + 1), np.int64)
        place = tuples.side * tuples.partitions + tuples.partition
        self.queue = np.argsort(place, kind="stable")
        self.head = np.searchsorted(place[self.queue], np.arange(2 * tuples.partitions))

    @property
    def held(self) -> int:
        """The number of tuples in memory."""
        return int(self.stats.held.sum())

    def probe(self, number: int, some: Numbers) -> int:
        """Count the results of arriving tuples with the other side's memory."""
        found = self.count[1 - number, self.tuples.key[some]]
        made = np.bincount(self.tuples.partition[some], found, self.tuples.partitions).astype(np.int64)
        self.stats.results[1 - number] += made
        self.stats.recent[1 - number] += made
        return int(found.sum())

    def insert(self, number: int, some: Numbers) -> None:
        """Put tuples into memory."""
        np.add.at(self.count[number], self.tuples.key[some], 1)
        self.stats.arrived_tuples(number, self.tuples.partition[some])

    def flush(self, policy: FlushPolicy, least: int) -> None:
        """Remove what the policy chooses, at least `least` tuples."""
        held = self.stats.held
        chosen = lowest_partitions(policy, self.stats, min(self.held, max(least, policy.wanted(self.held))))
        goes = np.where(chosen.leave, held, 0)
        goes[chosen.last] -= chosen.spare
        held -= goes
        goes = goes.reshape(-1)
        places = np.flatnonzero(goes)
        gone = np.concatenate([self.queue[at : at + n] for at, n in zip(self.head[places], goes[places], strict=True)])
        np.subtract.at(self.count, (self.tuples.side[gone], self.tuples.key[gone]), 1)
        self.head += goes
        self.stats.flush_ended()


def replay(tuples: Tuples, policy: FlushPolicy) -> float:
    """Return the results a second of the in-memory phase, for a policy that scores partitions and may flush a part of one."""
    if policy.per_tuple or policy.pairs or policy.whole:
        raise ValueError(f"{type(policy).__name__} does not flush the oldest of a partition; measure it with `course`")
    memory, sent = _Memory(tuples), 0
    for begin in range(0, tuples.side.size, tuples.chunk):
        side = tuples.side[begin : begin + tuples.chunk]
        for number in (0, 1):
            rows, step = begin + np.flatnonzero(side == number), max(1, policy.wanted(tuples.capacity))
            for at in range(0, rows.size, step):
                some = rows[at : at + step]
                sent += memory.probe(number, some)
                policy.arrive(number, tuples.key[some].astype(np.uint64), tuples.partition[some])
                while (over := memory.held + some.size - tuples.capacity) > 0 and memory.held:
                    memory.flush(policy, over)
                memory.insert(number, some)
    return float(sent / (tuples.side.size * GAP))


class Told(FlushPolicy):
    """Flushes the least likely partitions, and is told how likely each is until the next change. No policy can know more.

    Parameters
    ----------
    chances
        The probability of each partition, as [phase, partition].
    phase
        The number of tuples between two changes.
    share
        See FlushPolicy.
    """

    def __init__(self, chances: Numbers, phase: int, share: float = 1 / 32) -> None:
        super().__init__(share)
        self.chances = chances
        self._phase = phase
        self._came = 0

    def arrive(self, side: int, cells: Any, partitions: Any) -> None:
        """Count arrivals, to know which phase it is."""
        self._came += partitions.size

    def scores(self, stats: PartitionStats) -> Numbers:
        """Return the probability of each partition until the next change."""
        now = self.chances[(self._came - 1) // self._phase]
        return np.stack([now, now])
