"""Dividing the rows of a task into those to join now and those to join later. Runs inside the executors' Python workers."""

from __future__ import annotations

import itertools
import socket
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from headrace.arrays import Bools, Float64s, UInt64s
from headrace.files import NewFile, open_nameless
from headrace.relation import Relation
from headrace.shedding import ALL, STRATEGIES, Cut, KeyFrequencies, Strategy, row_hashes
from headrace.shedding.ledger import BatchHistory, Decision, Ledger, TaskRecord
from headrace.shedding.shed_file import ShedDraft
from headrace.spark.recorded import RecordedJoin, write_recorded
from headrace.spark.reports import ShedReport
from headrace.spark.shed import ShedStep
from headrace.spark.shed_sums import ResultSums, as_facts
from headrace.spark.steps import Batches, SparkTask

_CUT_ROW = 64  # bytes of a row while a cut is found: its word, f_R and score, a partitioned copy, and what these are computed in
_LEAST_CUT = 1024  # rows that a cut is found with at least: its share is then right to some three hundredths


class Divider:
    """Divides the rows of a task into those that are joined now and those that are put aside.

    Parameters
    ----------
    step
        How to shed.
    names
        The stream's columns.
    joins
        How the `enrich` that sheds and the steps after it are repeated for shed rows; None for one that cannot be.
    relation
        R as the task sees it.
    task
        The task, of a micro-batch.
    executor
        A name for the executor that it runs in.
    """

    def __init__(
        self,
        step: ShedStep,
        names: Sequence[str],
        joins: Sequence[RecordedJoin | None],
        relation: Relation,
        task: SparkTask,
        executor: str,
    ) -> None:
        assert task.query is not None and task.batch is not None
        self.step = step
        self.strategy: Strategy = STRATEGIES[step.strategy]
        self.relation = relation
        self.task = task
        self.executor = f"{socket.gethostname()}:{executor}"
        self.rows = self.shed = 0
        self.results = self.results_kept = 0.0
        self.decision, self._number = Decision(), 0
        self._names = list(names)
        self._joins = joins
        self._batch = task.batch
        self._ledger = Ledger(step.state, task.query, step.operator)
        self._seed = step.seed + (task.batch << 20)

    def kept(self, batches: Batches) -> Batches:
        """The rows to join now; the others are on disk when these end. Columns beyond the stream's own stay."""
        batches = self._decide(batches)
        draft: ShedDraft | None = None
        try:
            for batch in batches:
                rows = self._rows(batch)
                self.rows += rows.num_rows
                if self.decision.cut == ALL or not rows.num_rows:
                    yield batch
                    continue
                kept = self._kept(rows)
                if not kept.all():
                    if draft is None:
                        draft = self._ledger.draft(self._batch, self._number, self.task.partition, rows.schema)
                    draft.add(rows.filter(pa.array(~kept)))
                    batch = batch.filter(pa.array(self._among_all(batch, kept)))
                if batch.num_rows:
                    yield batch
            if draft is not None:
                draft.commit()
                self.shed = draft.rows
        except BaseException:
            if draft is not None:
                draft.discard()
            raise

    def _rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The stream's own rows and columns: where rows come by shard, the last column says which are heartbeats."""
        rows = pa.RecordBatch.from_arrays(batch.columns[: len(self._names)], names=self._names)
        if batch.num_columns == len(self._names) or not batch.columns[-1].true_count:
            return rows
        return rows.filter(pa.array(~np.asarray(batch.columns[-1])))

    def _among_all(self, batch: pa.RecordBatch, kept: Bools) -> Bools:
        """Which rows stay of all, heartbeats among them."""
        if kept.size == batch.num_rows:
            return kept
        mask = np.asarray(batch.columns[-1]).copy()
        mask[~mask] = kept
        return mask

    def done(self, seconds: float, sums: ResultSums | None = None) -> ShedReport:
        """Note how long the task took, for later micro-batches, and what its results count for; gives its part of the report."""
        if self.rows:
            took = TaskRecord(self.rows, self.shed, seconds, self.executor, self.task.partitions)
            self._ledger.record_task(self._batch, self._number, self.task.partition, took)
        noted = None
        if sums is not None and self.shed:
            noted = as_facts(sums.columns, sums.stratum(self.rows))
            self._ledger.record_estimate(self._batch, self._number, self.task.partition, noted)
        return ShedReport(
            rows=self.rows,
            shed=self.shed,
            debt=self.decision.debt,
            results=self.results,
            results_kept=self.results_kept,
            noted=noted,
        )

    def _kept(self, rows: pa.RecordBatch) -> Bools:
        """Which rows are kept; looked at in pieces, as a row takes more than its own bytes meanwhile."""
        piece = cut_rows(self.step.held)
        masks = [self._kept_of(rows.slice(at, piece)) for at in range(0, rows.num_rows, piece)]
        return masks[0] if len(masks) == 1 else np.concatenate(masks)

    def _kept_of(self, rows: pa.RecordBatch) -> Bools:
        f, words = self._f(rows), row_hashes(rows, self._seed)
        mask = self.decision.cut.kept(self.strategy.scores(f, words), words)
        self.results += float(f.sum())
        self.results_kept += float(f[mask].sum())
        return mask

    def _f(self, batch: pa.RecordBatch) -> Float64s:
        """f_R of each row; 1 for all rows where keys are unique in R and the strategy does not go by frequency."""
        if not self.step.keys or (self.relation.unique and not self.strategy.by_frequency):
            return np.ones(batch.num_rows)
        return _frequencies(self.relation).of([batch.column(name) for name in self.step.keys])

    def _decide(self, batches: Batches) -> Batches:
        """Find or make the micro-batch's decision, before the first row goes on; gives all rows again."""
        first: list[pa.RecordBatch] = []
        for batch in batches:
            first.append(batch)
            if self._rows(batch).num_rows:
                break
        else:
            return iter(first)  # a task without rows cannot tell how many the others have
        batches = itertools.chain(first, batches)
        found = self._ledger.decided(self._batch, self.task.run)
        if found is None:
            past = self._ledger.history(self._batch, self.step.workers)
            decision, batches = self._proposed(past, batches)
            found = self._ledger.decide(self._batch, self.task.run, decision)
            write_recorded(self._ledger.path, self.step.schema, self._joins)
        self.decision, self._number = found
        return batches

    def _proposed(self, past: BatchHistory, batches: Batches) -> tuple[Decision, Batches]:
        """What this task would decide, from its own rows and from earlier micro-batches; and the rows again."""
        decision = Decision(debt=past.debt, shed_before=past.shed)
        if self.step.rate is None and past.rate is None:  # the first micro-batch: there is nothing to go by
            return decision, batches
        held, sample = _Held(self.step.held // 2), _CutSample(cut_rows(self.step.held))
        for batch in batches:
            held.add(batch)
            mine = self._rows(batch)
            for at in range(0, mine.num_rows, sample.most):
                piece = mine.slice(at, sample.most)
                f = self._f(piece) if self.strategy.by_frequency else np.ones(piece.num_rows)
                sample.add(f, row_hashes(piece, self._seed))
        share = past.share(sample.rows, self.task.partitions, self.step.target, self.step.rate)
        if share < 1:
            decision = replace(decision, cut=sample.cut(self.strategy, share), share=share)
        return decision, held.batches()


def cut_rows(held: int) -> int:
    """How many rows a cut is found with at a time, where so many bytes may be held until it is: half of these are for rows."""
    return max(_LEAST_CUT, held // 2 // _CUT_ROW)


class _CutSample:
    """Scores and words of the rows that a cut is found with: of all, or of every 2nd, 4th, ... where there are too many.

    The cut is one for all tasks of a micro-batch, and found by one of them with its own rows: it is an estimate in any case.

    Parameters
    ----------
    most
        Rows to hold at most.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.rows = 0  # that came
        self._stride = 1
        self._f: list[Float64s] = []
        self._words: list[UInt64s] = []

    def add(self, f: Float64s, words: UInt64s) -> None:
        """Take rows that came, or some of them."""
        first = -self.rows % self._stride  # the first of these whose number in the stream is a multiple of the stride
        self.rows += words.size
        self._f.append(f[first :: self._stride].copy())
        self._words.append(words[first :: self._stride].copy())
        while sum(some.size for some in self._words) > self.most:
            self._stride *= 2
            self._f, self._words = [np.concatenate(self._f)[::2].copy()], [np.concatenate(self._words)[::2].copy()]

    def cut(self, strategy: Strategy, share: float) -> Cut:
        """The cut that keeps a share of the rows."""
        f, words = np.concatenate(self._f), np.concatenate(self._words)
        return strategy.cut(f, words, max(1, round(share * words.size)))


class _Held:
    """Rows held until it is decided what becomes of them: some in memory, the rest in a temporary file."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._first: list[pa.RecordBatch] = []
        self._bytes = 0
        self._file: NewFile | None = None
        self._writer: pa.RecordBatchStreamWriter

    def add(self, batch: pa.RecordBatch) -> None:
        """Hold more rows."""
        if self._file is None and self._bytes + batch.nbytes <= self._room:
            self._first.append(batch)
            self._bytes += batch.nbytes
            return
        if self._file is None:
            self._file = open_nameless(Path(tempfile.gettempdir()))
            self._writer = pa.ipc.new_stream(self._file, batch.schema)
        self._writer.write_batch(batch)

    def batches(self) -> Batches:
        """All of them, in the order they came; once."""
        first, self._first = self._first, []
        yield from first
        del first
        if self._file is not None:
            self._writer.close()
            with self._file:
                yield from pa.ipc.open_stream(pa.PythonFile(_Reading(self._file), "r"))


class _Reading:
    """A file that was written, from its begin on, as Arrow reads it. What is read and not mapped does not stay resident."""

    def __init__(self, file: NewFile) -> None:
        self._file, self._at, self.closed = file, 0, False

    def read(self, size: int) -> bytes:
        data = self._file.read_at(self._at, size)
        self._at += len(data)
        return data

    def tell(self) -> int:
        return self._at

    def close(self) -> None:
        self.closed = True


_known: dict[str, KeyFrequencies] = {}


def _frequencies(relation: Relation) -> KeyFrequencies:
    """f_R of a relation, kept as long as this process joins with that version."""
    name = str(relation.path)
    if name not in _known or _known[name].relation is not relation:
        _known[name] = KeyFrequencies(relation)
    return _known[name]
