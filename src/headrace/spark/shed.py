"""Shedding on Spark: what of a micro-batch is joined now, and what is put aside to be joined later. [MESH] §4

A task divides its own rows: there is no shuffle. How much is kept is decided once for a micro-batch (`headrace.shedding.ledger`)
by the first task that has seen all its rows, and a row's fate follows from that decision and its content.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.errors import BadInput, UnsupportedType, choice
from headrace.relation import Relation
from headrace.sampling.estimates import column_names, field_of
from headrace.shedding import STRATEGIES, strategy_for
from headrace.shedding.strategies import Objective
from headrace.units import parse_duration

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_HELD = 16 << 20  # bytes that a task holds in memory until it is decided what to shed, at most; more rows go to a file
_HELD_SHARE = 8  # of what a worker has, one part in so many is held; the join has the rest


@dataclass(frozen=True)
class Shedding:
    """What to do about overload, for `enrich(shed=...)`; a strategy's name alone stands for the others' defaults.

    Parameters
    ----------
    strategy
        keep, sample, topw or cluster; "auto" chooses by the relation (unique keys or not) and the objective. [MESH] Table 2
    objective
        For "auto": "max-subset", as many results as possible, or "random-sample", results that stand for all.
    rate
        Rows a second that the query can sustain, from a cost model for example; learned from earlier micro-batches by default.
    seed
        Of the choice.
    target_delay
        How long after its arrival a row should be joined at the latest.
    state
        Where rows that are put aside are kept: a directory that driver and executors see under the same path. By default that
        of `hr.Defer`, if the join has one, or else `headrace` in spark.sql.streaming.checkpointLocation.
    estimate
        Whether to note what results count for, so that hr.progress and hr.estimate_shed say what is missing, with confidence
        intervals: True for the number of results, or result columns that are summed. Rows must be shed at random, by "sample".

    Example
    -------
    >>> import headrace as hr
    >>> hr.Shedding("topw", rate=50_000)
    Shedding(strategy='topw', objective='max-subset', rate=50000, seed=0, target_delay='5s', state=None, estimate=False)
    """

    strategy: str = "auto"
    objective: Objective = "max-subset"
    rate: float | None = None
    seed: int = 0
    target_delay: str | float = "5s"
    state: str | Path | None = None
    estimate: bool | str | Sequence[str] = False

    def __post_init__(self) -> None:
        choice("shed", self.strategy, ("auto", *STRATEGIES))
        choice("objective", self.objective, ("max-subset", "random-sample"))
        if self.rate is not None and not self.rate > 0:
            raise BadInput(f"rate={self.rate!r} is not a number of rows a second; give more than 0, or leave it out")
        parse_duration(self.target_delay, name="target_delay")


@dataclass(frozen=True, kw_only=True)
class ShedStep:
    """Shedding before one `enrich`, as it travels to the executors."""

    strategy: str
    rate: float | None
    seed: int
    target: float
    """seconds that a micro-batch may take"""
    state: str
    """the directory in which shed rows are kept"""
    operator: str
    """the name of the shed table there"""
    keys: tuple[str, ...]
    """the stream's columns of the join's key"""
    schema: str
    """of the rows, as Spark writes it as JSON"""
    workers: int
    """tasks that an executor runs at the same time"""
    held: int
    """bytes of a task's memory for rows until it is decided what becomes of them, and for deciding it; half for each"""
    estimate: tuple[str, ...] | None = None
    """result columns whose sums are noted; None: nothing is"""


def check_shed(schema: StructType, streaming: bool) -> None:
    """Refuse a DataFrame whose rows cannot be put aside."""
    if not streaming:
        raise BadInput("shed=... is for a streaming DataFrame, and this is a batch one: it has no rate to keep up with")
    names = [name.lower() for name in schema.names]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise BadInput(f"column {twice!r} is there twice, and shed rows are kept as Parquet; rename one of them")
    for field in schema.fields:
        if "interval" in field.dataType.simpleString():
            raise UnsupportedType(
                f"column {field.name!r} has type {field.dataType.simpleString()}, which Parquet cannot keep for shed rows;"
                " cast it first"
            )


def shed_room(worker_memory: int) -> int:
    """Bytes of a worker's memory that shedding takes; the join has the rest."""
    return min(_HELD, worker_memory // _HELD_SHARE)


def strategy_name(shedding: Shedding, unique: bool) -> str:
    """The strategy for a relation whose keys are unique, or not."""
    return strategy_for(unique, shedding.objective).name if shedding.strategy == "auto" else shedding.strategy


def estimated_columns(shedding: Shedding, unique: bool, result: pa.Schema) -> tuple[str, ...] | None:
    """The result columns whose sums are noted; None: nothing is. Refuses those that cannot be estimated."""
    if shedding.estimate is False:
        return None
    name = strategy_name(shedding, unique)
    if name != "sample":
        raise BadInput(
            f"estimate= needs rows that are shed at random, and shed={name!r} chooses them; use shed='sample'"
        )
    columns = () if shedding.estimate is True else column_names("estimate", shedding.estimate)
    for column in columns:
        field_of(result, column, summed=True)
    return columns


def shed_step(
    shedding: Shedding,
    schema: StructType,
    rel: Relation,
    *,
    keys: Sequence[str],
    place: int,
    state: str,
    workers: int,
    held: int,
    result: pa.Schema,
) -> ShedStep:
    """What `enrich` was asked for, as it travels to the executors.

    Parameters
    ----------
    schema
        Of the rows that may be shed.
    keys
        The stream's columns of the join's key; none where it joins by a condition alone.
    place
        The number of the `enrich` among those of the query.
    state
        The directory in which shed rows are kept.
    workers, held
        Tasks that an executor runs at the same time, and the bytes of each that shedding takes.
    result
        The schema of the join's results.
    """
    name = strategy_name(shedding, rel.unique)
    if not keys and STRATEGIES[name].by_frequency:
        raise BadInput(f"shed={name!r} goes by how often a key is in the relation, and on= is not given; choose sample")
    estimate = estimated_columns(shedding, rel.unique, result)
    return ShedStep(
        strategy=name,
        rate=shedding.rate,
        seed=shedding.seed,
        # A row waits for the micro-batch before its own, and then for its own.
        target=parse_duration(shedding.target_delay, name="target_delay") / 2,
        state=state,
        operator=f"shed {place} {rel.path.name}",
        keys=tuple(keys),
        schema=schema.json(),
        workers=workers,
        held=held,
        estimate=estimate,
    )
