"""The choice of an algorithm by cost models, from the relation, the budget and a sample of the stream. [MESH] §3.3

algorithm="auto" of `enrich` uses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.arrays import Int64s, UInt64s
from headrace.conditions import parse_on
from headrace.cost.facts import Facts, Machine
from headrace.cost.models import MODELS, predict
from headrace.cost.popularity import fitted_zipf
from headrace.cost.prediction import Prediction
from headrace.errors import BadInput, MemoryRefused, choice
from headrace.relation import Relation
from headrace.semistream.base import On, Order
from headrace.units import format_size

CLOSE = 0.05  # relative distance from the best rate that counts as equal, as models are no more accurate
_PROBED = 4096  # keys of a sample that are looked up in the relation: enough for 1% of accuracy


@dataclass(frozen=True, kw_only=True)
class Observed:
    """The statistics of a sample of the stream.

    Parameters
    ----------
    tuples, distinct
        Tuples of the sample, and distinct keys among them.
    stream_bytes
        Bytes of a stream tuple.
    absent
        Share of tuples whose key the relation does not have.
    batch_rows
        Tuples per batch.
    skew
        The exponent of the Zipf distribution over the relation's keys that would give as many distinct keys.
    rate
        Tuples per second, if the duration of the sample was given.
    """

    tuples: int
    distinct: int
    stream_bytes: float
    absent: float
    batch_rows: int
    skew: float
    rate: float | None = None

    @classmethod
    def of(
        cls, batches: Iterable[pa.RecordBatch], relation: Relation, on: On, *, seconds: float | None = None
    ) -> Observed:
        """Compute the statistics of batches. A few thousand of their keys are looked up in the relation."""
        held = list(batches)
        rows = sum(batch.num_rows for batch in held)
        if not rows:
            raise BadInput("the sample has no rows; give some batches of the stream")
        condition = parse_on(on)
        stream_of = dict(zip(condition.right, condition.left, strict=True))
        names = [stream_of[name] for name in relation.key]
        table = pa.Table.from_batches(held).select(names)
        keys, valid = relation.codec.encode([column.combine_chunks() for column in table.columns])
        there = np.flatnonzero(valid) if valid.size else np.arange(rows)
        hashes, first, counts = np.unique(keys.hashes()[there], return_index=True, return_counts=True)
        absent = _absent(relation, table.take(there[first]), hashes, counts) if hashes.size else 0.0
        present = max(1, round((1 - absent) * there.size))
        distinct = round(hashes.size * present / max(1, there.size))
        return cls(
            tuples=rows,
            distinct=hashes.size,
            stream_bytes=max(1.0, sum(batch.nbytes for batch in held) / rows),
            absent=absent,
            batch_rows=max(1, rows // len(held)),
            skew=fitted_zipf(max(1, relation.distinct_keys), present, distinct),
            rate=rows / seconds if seconds else None,
        )

    def facts(
        self,
        relation: Relation,
        *,
        machine: Machine | None = None,
        columns: Sequence[str] | None = None,
        in_batches: bool = True,
        scattered: bool | None = None,
        order: Order = "any",
    ) -> Facts:
        """Return the facts that cost models take.

        With `in_batches`, each batch is joined to its end, as on Spark; `order` is that of the results, see Facts.
        """
        return Facts.of(
            relation,
            skew=self.skew,
            stream_bytes=self.stream_bytes,
            absent=self.absent,
            machine=machine,
            columns=columns,
            batch_rows=self.batch_rows if in_batches else None,
            scattered=scattered,
            order=order,
        )


@dataclass(frozen=True)
class AlgorithmChoice:
    """An algorithm, the parameters it would run with, and why."""

    algorithm: str
    parameters: dict[str, int]
    why: str
    predictions: tuple[Prediction, ...]
    """predictions of every algorithm, the best first"""


def choose(
    facts: Facts, memory: int, *, algorithms: Iterable[str] | None = None, rate: float | None = None
) -> AlgorithmChoice:
    """Choose the algorithm with the best predicted rate in a memory budget.

    Parameters
    ----------
    facts, memory
        What is joined, and the budget in bytes.
    algorithms
        The algorithms to choose from; all by default.
    rate
        Tuples per second of the stream; `why` says whether the choice keeps up with it.

    Example
    -------
    >>> import pyarrow as pa, tempfile, headrace as hr
    >>> from headrace.cost import Facts, choose
    >>> rel = hr.Relation.create(tempfile.mkdtemp() + "/r", pa.table({"id": range(9999), "v": range(9999)}), key="id")
    >>> choose(Facts.of(rel, skew=1.0), 1 << 20, algorithms=["meshjoin", "inl"]).algorithm in ("meshjoin", "inl")
    True
    """
    names = list(MODELS) if algorithms is None else [choice("algorithm", name, MODELS) for name in algorithms]
    if not names:
        raise BadInput("algorithms names none to choose from; give one or more, or None for all")
    found = sorted((predict(name, facts, memory) for name in names), key=lambda p: -p.rate)
    if found[0].rate == 0:
        raise MemoryRefused(
            f"memory={format_size(memory)} is too small for every algorithm: "
            + "; ".join(f"{p.algorithm}: {p.why}" for p in found)
        )
    best = preferred(found)
    return AlgorithmChoice(best.algorithm, best.parameters, _reason(best, found, rate), tuple(found))


def preferred(found: Sequence[Prediction]) -> Prediction:
    """Return the best prediction; among near equals, the first in the order of MODELS, which assumes least about its input."""
    order = list(MODELS)
    most = max(p.rate for p in found)
    return min((p for p in found if p.rate >= (1 - CLOSE) * most), key=lambda p: order.index(p.algorithm))


def _reason(best: Prediction, found: Sequence[Prediction], rate: float | None) -> str:
    text = f"{best.algorithm} is expected to join {best.rate:,.0f} tuples/s ({best.why})"
    others = [p for p in found if p.algorithm != best.algorithm and p.rate > 0]
    if others:
        text += f"; next is {others[0].algorithm} with {others[0].rate:,.0f}"
    if rate is not None:
        text += f"; the stream brings {rate:,.0f}" + ("" if best.rate >= rate else ", more than any keeps up with")
    return text


def _absent(
    relation: Relation,
    keys: pa.Table,
    hashes: UInt64s,
    counts: Int64s,
) -> float:
    """Estimate the share of tuples whose key is not in the relation, from some of the distinct keys."""
    some = np.arange(0, len(keys), max(1, -(-len(keys) // _PROBED)))
    asked = keys.take(some).rename_columns(list(relation.key))
    found = relation.lookup(asked.column(0) if len(relation.key) == 1 else asked, columns=[])
    there, _ = relation.codec.encode([found.column(name).combine_chunks() for name in relation.key])
    missing = ~np.isin(hashes[some], there.hashes())
    return float(counts[some][missing].sum() / counts[some].sum())
