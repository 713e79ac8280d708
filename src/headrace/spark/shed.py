"""Shedding on Spark: what of a micro-batch is joined now, and what is put aside to be joined later. [MESH] §4

A task divides its own rows: there is no shuffle. How much is kept is decided once for a micro-batch (`headrace.shedding.ledger`)
by the first task that has seen all its rows, and a row's fate follows from that decision and its content.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headrace.errors import BadInput, UnsupportedType, choice
from headrace.relation import Relation
from headrace.shedding import STRATEGIES, strategy_for
from headrace.shedding.ledger import Ledger
from headrace.shedding.strategies import Objective
from headrace.units import parse_duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class Shedding:
    """How to shed, for `enrich(shed=...)`; a strategy's name alone stands for the others' defaults.

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

    Example
    -------
    >>> import headrace as hr
    >>> hr.Shedding("topw", rate=50_000)
    Shedding(strategy='topw', objective='max-subset', rate=50000, seed=0)
    """

    strategy: str = "auto"
    objective: Objective = "max-subset"
    rate: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        choice("shed", self.strategy, ("auto", *STRATEGIES))
        choice("objective", self.objective, ("max-subset", "random-sample"))
        if self.rate is not None and not self.rate > 0:
            raise BadInput(f"rate={self.rate!r} is not a number of rows a second; give more than 0, or leave it out")


@dataclass(frozen=True)
class ShedStep:
    """Shedding before one `enrich`, as it travels to the executors."""

    strategy: str
    rate: float | None
    seed: int
    target: float  # seconds that a micro-batch may take
    operator: str
    keys: tuple[str, ...]
    schema: str  # of the rows, as Spark's JSON
    workers: int
    partitions: int | None = None


def shed_step(
    shed: str | Shedding | None,
    target_delay: Any,
    df: DataFrame,
    schema: StructType,
    rel: Relation,
    keys: Sequence[str],
    place: int,
    workers: int,
) -> ShedStep:
    """What `enrich` was asked for, checked.

    Parameters
    ----------
    schema
        Of the rows that may be shed.
    place
        Of the `enrich` among those that are one pass.
    """
    if shed is None:
        raise BadInput(
            f"target_delay={target_delay!r} needs shed=...: what to put aside when rows cannot be joined in time"
        )
    options = shed if isinstance(shed, Shedding) else Shedding(shed)
    if not df.isStreaming:
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
    name = strategy_for(rel.unique, options.objective).name if options.strategy == "auto" else options.strategy
    if not keys and STRATEGIES[name].by_frequency:
        raise BadInput(f"shed={name!r} goes by how often a key is in the relation, and on= is not given; choose sample")
    # A row waits for the micro-batch before its own, and then for its own.
    target = parse_duration("5s" if target_delay is None else target_delay, name="target_delay") / 2
    return ShedStep(
        name, options.rate, options.seed, target, f"shed {place} {rel.path.name}", tuple(keys), schema.json(), workers
    )


def with_partitions(steps: tuple[Any, ...], df: DataFrame) -> tuple[Any, ...]:
    """Steps that shed, told how many partitions a micro-batch has: the driver knows, tasks do not."""
    if not any(step.shed for step in steps):
        return steps
    number = int(df._jdf.queryExecution().toRdd().getNumPartitions())
    return tuple(replace(s, shed=replace(s.shed, partitions=number)) if s.shed else s for s in steps)


def note_finished(steps: tuple[Any, ...], query: str, batch: int) -> None:
    """A micro-batch is loaded: what it shed may be replayed."""
    for step in steps:
        if step.shed is not None:
            Ledger(step.state, query, step.shed.operator).finish(batch)


def report_of(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """What tasks of a micro-batch shed, all together: fields of Progress."""
    shed = [p["shed"] for p in parts if p.get("shed")]
    if not shed:
        return {}
    rows, gone = sum(s["rows"] for s in shed), sum(s["shed"] for s in shed)
    results, kept = sum(s["results"] for s in shed), sum(s["results_kept"] for s in shed)
    return {
        "shed": gone,
        "kept_share": 1 - gone / rows if rows else 1.0,
        "results_share": kept / results if results else 1.0,
        "debt": max(s["debt"] for s in shed) + gone,
    }
