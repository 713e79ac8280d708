"""How good a part of a join is: quantity, and the distance of its distribution over join values from that of all. [PQP] §8.2"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike

from headrace.arrays import AnyArray, Float64s, Int64s
from headrace.errors import BadInput, choice, shown
from headrace.progressive.grids.partitioning import SIDES

Reference = Literal["now", "final"]
_ROUNDING = 1e-12  # nats: the sum of two divergences of equal distributions may be below 0 by as much


def quantity(complete: ArrayLike, part: ArrayLike) -> float:
    """The share of all results that were made, from 0 to 1; NaN if there are none.

    Parameters
    ----------
    complete, part
        The numbers of results of each join value: of the complete join, and of the part that was made.

    Example
    -------
    >>> quantity([30, 10], [15, 5])
    0.5
    """
    all_of_them, some = _frequencies(complete, part)
    return _share(some.sum(), all_of_them.sum())


def mse_sum(complete: ArrayLike, part: ArrayLike) -> float:
    """The squared distance of the two normalised histograms: the sum over values of (p - q)², from 0 to 2. [PQP] eq. 8.1

    The text calls it the mean square error, and writes a sum; this is the sum. NaN before the first result.

    Example
    -------
    >>> mse_sum([30, 10], [15, 5]), mse_sum([1, 0], [0, 7])
    (0.0, 2.0)
    """
    p, q = (_normalised(x) for x in _frequencies(complete, part))
    return float(((p - q) ** 2).sum())


def jensen_shannon(complete: ArrayLike, part: ArrayLike) -> float:
    """The Jensen-Shannon divergence of the two distributions, in nats: 0 if they are equal, and ln 2 at most. [PQP] eq. 8.2, 8.3

    NaN before the first result.

    Example
    -------
    >>> jensen_shannon([30, 10], [15, 5]), round(jensen_shannon([1, 0], [0, 7]), 4)
    (0.0, 0.6931)
    """
    p, q = (_normalised(x) for x in _frequencies(complete, part))
    middle = (p + q) / 2
    found = (_kullback_leibler(p, middle) + _kullback_leibler(q, middle)) / 2
    return 0.0 if -_ROUNDING < found < 0 else found


def _kullback_leibler(p: Float64s, q: Float64s) -> float:
    """The divergence of p from q, in nats; 0 ln 0 is 0."""
    if np.isnan(p).any() or np.isnan(q).any():
        return float("nan")
    there = p > 0
    return float((p[there] * np.log(p[there] / q[there])).sum())


def _frequencies(complete: ArrayLike, part: ArrayLike) -> tuple[Float64s, Float64s]:
    a, b = np.asarray(complete, np.float64), np.asarray(part, np.float64)
    if a.ndim != 1 or a.shape != b.shape:
        raise BadInput(
            f"numbers of results of shapes {a.shape} and {b.shape} cannot be compared; give one number for each join value"
        )
    if (a < 0).any() or (b < 0).any():
        raise BadInput(f"{shown(float(min(a.min(), b.min())))} is not a number of results; give 0 or more")
    return a, b


def _normalised(counts: Float64s) -> Float64s:
    total = counts.sum()
    return counts / total if total else np.full(counts.size, np.nan)


def _share(part: float, whole: float) -> float:
    return float(part / whole) if whole else float("nan")


@dataclass(frozen=True, slots=True)
class _Epoch:
    """What had come and what had been made at a time, by join value."""

    at: float
    complete: Float64s
    made: Int64s


class JoinQuality:
    """Follows a join on one equal key, and measures at chosen times how much of the complete join it has made, and which part.

    The complete join is not computed: a value that came l times on the left and r times on the right has l r results.

    Parameters
    ----------
    key, right
        The columns that are equal; `right` if the right side has another name for it. Results have the left name.

    Example
    -------
    >>> import headrace as hr, pyarrow as pa
    >>> from headrace.sampling import ApproximateJoin
    >>> from headrace.sampling.measures import JoinQuality
    >>> op, quality = ApproximateJoin(hr.equal("k"), tuples=4, method="raj"), JoinQuality("k")
    >>> for side, keys in (("left", [1, 1, 2]), ("right", [1, 2, 2])):
    ...     batch = pa.record_batch({"k": keys})
    ...     quality.arrived(side, batch)
    ...     for results in op.insert(side, batch):
    ...         quality.made(results)
    ...     quality.mark(at=len(keys))
    >>> quality.table("final")["quantity"].to_pylist()
    [0.0, 0.75]

    Reference: [PQP] §8.2.
    """

    def __init__(self, key: str, right: str | None = None) -> None:
        self.key, self.right = key, right or key
        self._values: pa.Array | None = None
        self._came: list[Int64s] = [np.zeros(0, np.int64), np.zeros(0, np.int64)]
        self._made: Int64s = np.zeros(0, np.int64)
        self._epochs: list[_Epoch] = []

    @property
    def values(self) -> list[object]:
        """The join values, in the order of first arrival; arrays of frequencies are in the same order."""
        found: list[object] = [] if self._values is None else self._values.to_pylist()
        return found

    @property
    def complete(self) -> Float64s:
        """The number of results of each value in the complete join of what has come."""
        return self._came[0].astype(np.float64) * self._came[1]

    @property
    def results(self) -> Int64s:
        """The number of results of each value that were made."""
        return self._made

    def arrived(self, side: Literal["left", "right"], batch: pa.RecordBatch) -> None:
        """Count tuples that have come."""
        number = SIDES.index(choice("side", side, SIDES))
        places = self._places(batch.column((self.key, self.right)[number]))
        np.add.at(self._came[number], places, 1)

    def made(self, results: pa.RecordBatch) -> None:
        """Count results of the join."""
        places = self._places(results.column(self.key))  # first, since it makes room
        np.add.at(self._made, places, 1)

    def counted(self, side: Literal["left", "right"], batch: pa.RecordBatch, counts: Int64s) -> None:
        """Count the results of arriving tuples that ApproximateJoin.count has counted."""
        values = batch.column((self.key, self.right)[SIDES.index(choice("side", side, SIDES))])
        places = self._places(values)
        np.add.at(self._made, places, counts[values.is_valid().to_numpy(zero_copy_only=False)])

    def mark(self, at: float) -> None:
        """Remember the state; `at` is what the table calls this epoch."""
        self._epochs.append(_Epoch(at, self.complete, self._made.copy()))

    def table(self, reference: Reference = "final") -> pa.Table:
        """The measures at each epoch: `at`, `results`, `quantity`, `mse_sum`, `jensen_shannon`.

        Each is against the complete join of all that has come until now ("final"), or until that epoch ("now").
        """
        choice("reference", reference, ("now", "final"))
        columns: dict[str, list[float]] = {
            name: [] for name in ("at", "results", "quantity", "mse_sum", "jensen_shannon")
        }
        for epoch in self._epochs:
            whole = self.complete if reference == "final" else _padded(epoch.complete, self._made.size)
            made = _padded(epoch.made, self._made.size)
            columns["at"].append(epoch.at)
            columns["results"].append(int(made.sum()))
            for measure in (quantity, mse_sum, jensen_shannon):
                columns[measure.__name__].append(measure(whole, made))
        return pa.table(columns)

    def _places(self, column: pa.Array) -> Int64s:
        """The index of each value that is not null; values that are new get the next ones."""
        column = column.drop_null()
        if self._values is None:
            self._values = column.slice(0, 0)
        new = pc.unique(column.filter(pc.invert(pc.is_in(column, value_set=self._values))))
        if len(new):
            self._values = pa.concat_arrays([self._values, new])
            size = len(self._values)
            self._came = [_padded(one, size) for one in self._came]
            self._made = _padded(self._made, size)
        found: Int64s = pc.index_in(column, value_set=self._values).to_numpy(zero_copy_only=False).astype(np.int64)
        return found


def _padded(counts: AnyArray, size: int) -> AnyArray:
    """Counts with zeros for values that came later."""
    return np.concatenate([counts, np.zeros(size - counts.size, counts.dtype)])
