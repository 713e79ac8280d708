"""Shedding on Spark: what of a micro-batch is joined now, and what is put aside to be joined later. [MESH] §4

A task divides its own rows: there is no shuffle. How much is kept is decided once for a micro-batch (`headrace.shedding.ledger`)
by the first task that has seen all its rows, and a row's fate follows from that decision and its content.
"""

from __future__ import annotations

import json
import socket
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.chance import Floats, Words
from headrace.errors import BadInput, UnsupportedType, choice
from headrace.relation import Relation
from headrace.shedding import ALL, STRATEGIES, KeyFrequencies, Strategy, row_words, strategy_for
from headrace.shedding.ledger import Decision, Ledger, Past, ShedDraft, Took
from headrace.shedding.strategies import Objective
from headrace.units import parse_duration

if TYPE_CHECKING:
    from pyspark import TaskContext
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_HELD = 16 << 20  # bytes of rows held in memory until it is decided; more go to a file
_LEAST = 1e-3  # of the rows, what is kept however slow the join is

Batches = Iterator[pa.RecordBatch]


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
    state: str
    operator: str
    keys: tuple[str, ...]
    schema: str  # of the rows, as Spark's JSON
    workers: int
    partitions: int | None = None


def shed_step(
    shed: str | Shedding, target_delay: Any, state: Any, df: DataFrame, schema: StructType, rel: Relation,
    keys: Sequence[str], place: int, workers: int,
) -> ShedStep:  # fmt: skip
    """What `enrich` was asked for, checked.

    Parameters
    ----------
    schema
        Of the rows that may be shed.
    place
        Of the `enrich` among those that are one pass.
    """
    options = shed if isinstance(shed, Shedding) else Shedding(shed)
    if not df.isStreaming:
        raise BadInput("shed=... is for a streaming DataFrame, and this is a batch one: it has no rate to keep up with")
    if state is None:
        raise BadInput(
            "shed=... needs state=...: a directory for the rows that are shed, kept between runs of the query"
        )
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
        name, options.rate, options.seed, target, str(Path(state).absolute()), f"shed {place} {rel.path.name}", tuple(keys),
        schema.json(), workers,
    )  # fmt: skip


def with_partitions(steps: tuple[Any, ...], df: DataFrame) -> tuple[Any, ...]:
    """Steps that shed, told how many partitions a micro-batch has: the driver knows, tasks do not."""
    if not any(step.shed for step in steps):
        return steps
    number = int(df._jdf.queryExecution().toRdd().getNumPartitions())
    return tuple(replace(s, shed=replace(s.shed, partitions=number)) if s.shed else s for s in steps)


class Divider:
    """Divides the rows of a task.

    Parameters
    ----------
    steps
        The `enrich` that sheds, and those after it in the same pass.
    relation
        R as the task sees it.
    context
        The task.
    executor
        A name for where it runs.
    """

    def __init__(self, steps: Sequence[Any], relation: Relation, context: TaskContext, executor: str) -> None:
        self.step: ShedStep = steps[0].shed
        self.strategy: Strategy = STRATEGIES[self.step.strategy]
        self.relation = relation
        self.partition = context.partitionId()
        self.executor = f"{socket.gethostname()}:{executor}"
        self.rows = self.shed = 0
        self.results = self.results_kept = 0.0
        self.decision, self._number = Decision(), 0
        self._steps = steps
        self._batch = int(context.getLocalProperty("streaming.sql.batchId"))
        self._run = context.getLocalProperty("spark.jobGroup.id") or ""
        query = context.getLocalProperty("sql.streaming.queryId")
        self._ledger = Ledger(self.step.state, query, self.step.operator)
        self._seed = self.step.seed + (self._batch << 20)

    def kept(self, batches: Batches) -> Batches:
        """The rows to join now; the others are on disk when these end."""
        batches = self._decide(batches)
        draft: ShedDraft | None = None
        try:
            for batch in batches:
                self.rows += batch.num_rows
                if self.decision.cut == ALL:
                    yield batch
                    continue
                keep, rest = self._divide(batch)
                if rest.num_rows:
                    if draft is None:
                        draft = self._ledger.draft(self._batch, self._number, self.partition, batch.schema)
                    draft.add(rest)
                if keep.num_rows:
                    yield keep
        except BaseException:
            if draft is not None:
                draft.discard()
            raise
        if draft is not None:
            draft.commit()
            self.shed = draft.rows

    def done(self, seconds: float) -> dict[str, Any]:
        """Note what the task took; gives its part of the report."""
        if self.rows:
            took = Took(self.rows, self.shed, seconds, self.executor, self.step.partitions)
            self._ledger.took(self._batch, self._number, self.partition, took)
        return {
            "rows": self.rows, "shed": self.shed, "debt": self.decision.debt, "results": self.results,
            "results_kept": self.results_kept,
        }  # fmt: skip

    def _divide(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        f, words = self._f(batch), row_words(batch, self._seed)
        mask = self.decision.cut.kept(self.strategy.scores(f, words), words)
        self.results += float(f.sum())
        self.results_kept += float(f[mask].sum())
        return batch.filter(pa.array(mask)), batch.filter(pa.array(~mask))

    def _f(self, batch: pa.RecordBatch) -> Floats:
        """f_R of each row; where a key is in R once at most and the strategy does not ask, all rows are alike."""
        if not self.step.keys or (self.relation.unique and not self.strategy.by_frequency):
            return np.ones(batch.num_rows)
        return _frequencies(self.relation).of([batch.column(name) for name in self.step.keys])

    def _decide(self, batches: Batches) -> Batches:
        """Know the micro-batch's decision before the first row goes on; gives all rows again."""
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return iter(())
        batches = _chained(first, batches)
        found = self._ledger.decided(self._batch, self._run)
        if found is None:
            past = self._ledger.past(self._batch, self.step.workers)
            decision, batches = self._proposed(past, batches)
            found = self._ledger.decide(self._batch, self._run, decision)
            _note_join(self._ledger.path / "join.json", self.step, self._steps)
        self.decision, self._number = found
        return batches

    def _proposed(self, past: Past, batches: Batches) -> tuple[Decision, Batches]:
        """What this task would decide, from its own rows and the past."""
        rate = self.step.rate or past.rate
        decision = Decision(debt=past.debt, shed_before=past.shed)
        if rate is None:  # the first micro-batch: there is nothing to go by
            return decision, batches
        held = _Held()
        f: list[Floats] = []
        words: list[Words] = []
        rows = 0
        for batch in batches:
            held.add(batch)
            rows += batch.num_rows
            if self.strategy.by_frequency:
                f.append(self._f(batch))
            words.append(row_words(batch, self._seed))
        parts = past.tasks if self.step.partitions is None else max(1.0, self.step.partitions * past.filled)
        share = max(rate * self.step.target / (rows * parts), _LEAST)
        if share < 1:
            w = max(1, round(share * rows))
            one = np.concatenate(f) if f else np.ones(rows)
            decision = replace(decision, cut=self.strategy.cut(one, np.concatenate(words), w), share=share)
        return decision, held.batches()


class _Held:
    """Rows held back until it is known what becomes of them: some in memory, the rest in a file that nobody else sees."""

    def __init__(self) -> None:
        self._first: list[pa.RecordBatch] = []
        self._bytes = 0
        self._file: Any = None
        self._writer: Any = None

    def add(self, batch: pa.RecordBatch) -> None:
        """More rows."""
        if self._file is None and self._bytes + batch.nbytes <= _HELD:
            self._first.append(batch)
            self._bytes += batch.nbytes
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as this is
            self._writer = pa.ipc.new_stream(self._file, batch.schema)
        self._writer.write_batch(batch)

    def batches(self) -> Batches:
        """All of them, in the order they came; once."""
        first, self._first = self._first, []
        yield from first
        del first
        if self._file is not None:
            self._writer.close()
            self._file.seek(0)
            with self._file:
                yield from pa.ipc.open_stream(self._file)


def _chained(first: pa.RecordBatch, others: Batches) -> Batches:
    yield first
    yield from others


_known: dict[str, KeyFrequencies] = {}


def _frequencies(relation: Relation) -> KeyFrequencies:
    """f_R of a relation, kept as long as this process joins with that version."""
    name = str(relation.path)
    if name not in _known or _known[name].relation is not relation:
        _known[name] = KeyFrequencies(relation)
    return _known[name]


def _note_join(path: Path, step: ShedStep, steps: Sequence[Any]) -> None:
    """How shed rows are to be joined later: as the query does it."""
    wanted = ("path", "on", "how", "algorithm", "order", "memory", "columns", "suffix")
    text = json.dumps({
        "schema": json.loads(step.schema),
        "steps": [
            {name: getattr(s, name) for name in wanted} | {"condition": None if s.condition is None else str(s.condition)}
            for s in steps
        ],
    })  # fmt: skip
    if not path.exists() or path.read_text() != text:
        draft = path.with_name(f".{path.name}")
        draft.write_text(text)
        draft.replace(path)


def report_of(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """What tasks of a micro-batch shed, all together: fields of Progress."""
    shed = [p["shed"] for p in parts if p.get("shed")]
    if not shed:
        return {}
    rows, gone = sum(s["rows"] for s in shed), sum(s["shed"] for s in shed)
    results, kept = sum(s["results"] for s in shed), sum(s["results_kept"] for s in shed)
    return {
        "shed": gone, "kept_share": 1 - gone / rows if rows else 1.0, "results_share": kept / results if results else 1.0,
        "debt": max(s["debt"] for s in shed) + gone,
    }  # fmt: skip
