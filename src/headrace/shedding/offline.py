"""OPTOFFLINESHED: the least loss of any shedding, when the whole stream is known. [MESH] §4.2, Fig. 9"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace.arrays import Bools, Float64s
from headrace.errors import BadInput
from headrace.kernels.shedding import offline_gains


@dataclass(frozen=True)
class OfflineOptimum:
    """The tuples that the optimum keeps, and the results that it loses."""

    kept: Bools
    loss: float


def opt_offline_shed(f: Float64s, w: int, c_loop: int, request: int = 0) -> OfflineOptimum:
    """Find the optimal choice for a stream with one tuple at each time 0, 1, 2, ...: a yardstick for strategies.

    The buffer holds w tuples. It is handed over when it is full and the join has asked for it, which the join does c_loop after
    the last hand-over, so the join can be made to wait for better tuples. Tuples in the buffer at the end are not lost.

    Parameters
    ----------
    f
        f_R of each tuple: the results that are lost with it; 0 for a time without a tuple.
    w
        Capacity of the buffer in tuples.
    c_loop
        Time of an iteration of the join.
    request
        When the join asks for the first time: at once, or at c_loop if an iteration is under way.

    Example
    -------
    >>> f = np.array([1.0, 1, 1, 1, 4, 4, 4, 4])
    >>> opt_offline_shed(f, w=2, c_loop=4, request=4).loss
    4.0

    Reference: [MESH] §4.2, Fig. 9.

    Deviations: the recurrence is the paper's (with the loss that line 8 of Fig. 9 leaves out), but over hand-overs and not over
    single tuples: between two of them the w best are kept. As no interval longer than about 2 c_loop need be tried, it takes
    O(|S| c_loop log w) time and O(|S|) memory, where Fig. 9 takes O(|S|² w) and O(|S| w).
    """
    if w < 1 or c_loop < 1:
        raise BadInput(
            f"w={w}, c_loop={c_loop}: a join takes at least 1 tuple in at least 1 unit of time; give 1 or more"
        )
    values = np.ascontiguousarray(f, np.float64)
    if values.size and not values.min() >= 0:
        raise BadInput(f"f has {values.min()}, which is no number of results; give 0 or more for every tuple")
    gains, ends = np.empty(values.size + 1), np.empty(values.size + 1, np.int64)
    offline_gains(values, w, max(c_loop, w), max(request, w), gains, ends, np.empty(w))
    kept = np.zeros(values.size, np.bool_)
    start = 0
    while start < values.size:
        end = int(ends[start])
        best = np.argsort(-values[start:end], kind="stable")[:w]
        kept[start + best] = True
        start = end
    return OfflineOptimum(kept, float(values.sum() - gains[0]))
