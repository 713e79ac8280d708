"""The driver of flush policies: it asks a policy for its scores, checks them, and says what leaves memory.

Policies are written by users too. What every flush needs is done here, so that a policy cannot leave it out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace.arrays import Bools, Float64s, Int64s
from headrace.errors import BadInput
from headrace.progressive.grids.partitioning import stream_name
from headrace.progressive.policies.base import FlushPolicy, TupleFlushPolicy
from headrace.progressive.policies.stats import PartitionStats, TupleStats
from headrace.splitmix import draw


@dataclass(frozen=True, slots=True)
class Victims:
    """The partitions that a flush removes."""

    leave: Bools
    """of shape [side, partition]"""
    last: tuple[int, int]
    """side and partition that is removed last; only its oldest tuples leave if `spare` is above 0"""
    spare: int
    """tuples of the last partition that stay, since enough others leave"""


def partition_scores(policy: FlushPolicy, stats: PartitionStats) -> Float64s:
    """The scores of partitions by a policy, of shape [side, partition]. Refuses an array of another shape, and NaN."""
    scores = np.asarray(policy.scores(stats), np.float64)
    name = f"{type(policy).__name__}.scores"
    if scores.shape != stats.held.shape:
        raise BadInput(
            f"{name} gave an array of shape {scores.shape}; it must give a number for each side and partition,"
            f" {stats.held.shape}"
        )
    if np.isnan(scores).any():
        side, partition = np.argwhere(np.isnan(scores))[0].tolist()
        raise BadInput(f"{name} gave NaN for partition {partition} of {_name(stats, side)}; it must give a number")
    return scores


def tuple_scores(policy: FlushPolicy, stats: PartitionStats, side: int, tuples: TupleStats) -> Float64s:
    """The scores of the tuples of a side by a policy with `per_tuple`. Refuses an array of another shape, and NaN."""
    name = type(policy).__name__
    if not isinstance(policy, TupleFlushPolicy):
        raise BadInput(
            f"{name} is said to score tuples (per_tuple), and has no tuple_scores; make it a TupleFlushPolicy"
        )
    scores = np.asarray(policy.tuple_scores(stats, side, tuples), np.float64)
    if scores.shape != tuples.arrived.shape:
        raise BadInput(
            f"{name}.tuple_scores gave an array of shape {scores.shape}; it must give a number for each tuple of"
            f" {_name(stats, side)} in memory, {tuples.arrived.shape}"
        )
    if np.isnan(scores).any():
        raise BadInput(f"{name}.tuple_scores gave NaN for a tuple of {_name(stats, side)}; it must give a number")
    return scores


def ranked(policy: FlushPolicy, stats: PartitionStats) -> tuple[Int64s, Int64s]:
    """The partitions that hold tuples, those with the lowest scores first, and the tuples of each.

    A partition is the number side * partitions + partition; if both sides leave together, it is that of both. Equal scores are
    put in an order that is drawn anew for each flush. By number, the left side would always leave first, and so would the
    partitions with low numbers, however good they were before.
    """
    scores, held = partition_scores(policy, stats), stats.held
    if policy.pairs:
        scores, held = scores.min(axis=0, keepdims=True), held.sum(axis=0, keepdims=True)
    size = held.reshape(-1)
    present = np.flatnonzero(size)
    order = present[np.lexsort([draw(policy.seed, stats.flushes, present), scores.reshape(-1)[present]])]
    return order, size[order]


def lowest_partitions(policy: FlushPolicy, stats: PartitionStats, wanted: int) -> Victims:
    """The partitions with the lowest scores that hold at least `wanted` tuples together, and no more than needed.

    At least `wanted` tuples must be in memory.
    """
    order, size = ranked(policy, stats)
    last = int(np.searchsorted(np.cumsum(size), wanted))
    leave = np.zeros((1 if policy.pairs else stats.held.shape[0], stats.held.shape[1]), np.bool_)
    leave.reshape(-1)[order[: last + 1]] = True
    spare = 0 if policy.whole or policy.pairs else int(size[: last + 1].sum()) - wanted
    side, partition = divmod(int(order[last]), leave.shape[1])
    return Victims(np.broadcast_to(leave, stats.held.shape), (side, partition), spare)


def _name(stats: PartitionStats, side: int) -> str:
    return stream_name(side, stats.held.shape[0])
