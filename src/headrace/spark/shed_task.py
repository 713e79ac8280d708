"""Dividing the rows of a task into those to join now and those to join later. Runs inside the executors' Python workers."""

from __future__ import annotations

import itertools
import json
import socket
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.relation import Relation
from headrace.runlog.files import replace_text
from headrace.shedding import ALL, STRATEGIES, KeyFrequencies, Strategy, row_hashes
from headrace.shedding.ledger import BatchHistory, Decision, Ledger, TaskRecord
from headrace.shedding.shed_file import ShedDraft
from headrace.shedding.strategies import Mask
from headrace.spark.shed import ShedStep
from headrace.splitmix import Floats, Words

if TYPE_CHECKING:
    from pyspark import TaskContext

_HELD = 16 << 20  # bytes of rows held in memory until it is decided, at most; more go to a file
_SHARE = 8  # of what a task has for its join, one part in so many, for them

Batches = Iterator[pa.RecordBatch]


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
        self._names = list(steps[0].names)
        self._batch = int(context.getLocalProperty("streaming.sql.batchId"))
        self._run = context.getLocalProperty("spark.jobGroup.id") or ""
        query = context.getLocalProperty("sql.streaming.queryId")
        self._ledger = Ledger(steps[0].state, query, self.step.operator)
        self._seed = self.step.seed + (self._batch << 20)

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
                        draft = self._ledger.draft(self._batch, self._number, self.partition, rows.schema)
                    draft.add(rows.filter(pa.array(~kept)))
                    batch = batch.filter(pa.array(self._among_all(batch, kept)))
                if batch.num_rows:
                    yield batch
        except BaseException:
            if draft is not None:
                draft.discard()
            raise
        if draft is not None:
            draft.commit()
            self.shed = draft.rows

    def _rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The stream's own rows and columns: where rows come by shard, the last column says which are heartbeats."""
        rows = pa.RecordBatch.from_arrays(batch.columns[: len(self._names)], names=self._names)
        if batch.num_columns == len(self._names) or not batch.columns[-1].true_count:
            return rows
        return rows.filter(pa.array(~np.asarray(batch.columns[-1])))

    def _among_all(self, batch: pa.RecordBatch, kept: Mask) -> Mask:
        """Which rows stay of all, heartbeats among them."""
        if kept.size == batch.num_rows:
            return kept
        mask = np.asarray(batch.columns[-1]).copy()
        mask[~mask] = kept
        return mask

    def done(self, seconds: float) -> dict[str, Any]:
        """Note what the task took; gives its part of the report."""
        if self.rows:
            took = TaskRecord(self.rows, self.shed, seconds, self.executor, self.step.partitions)
            self._ledger.record_task(self._batch, self._number, self.partition, took)
        return {
            "rows": self.rows,
            "shed": self.shed,
            "debt": self.decision.debt,
            "results": self.results,
            "results_kept": self.results_kept,
        }

    def _kept(self, rows: pa.RecordBatch) -> Mask:
        f, words = self._f(rows), row_hashes(rows, self._seed)
        mask = self.decision.cut.kept(self.strategy.scores(f, words), words)
        self.results += float(f.sum())
        self.results_kept += float(f[mask].sum())
        return mask

    def _f(self, batch: pa.RecordBatch) -> Floats:
        """f_R of each row; where a key is in R once at most and the strategy does not ask, all rows are alike."""
        if not self.step.keys or (self.relation.unique and not self.strategy.by_frequency):
            return np.ones(batch.num_rows)
        return _frequencies(self.relation).of([batch.column(name) for name in self.step.keys])

    def _decide(self, batches: Batches) -> Batches:
        """Know the micro-batch's decision before the first row goes on; gives all rows again."""
        first: list[pa.RecordBatch] = []
        for batch in batches:
            first.append(batch)
            if self._rows(batch).num_rows:
                break
        else:
            return iter(first)  # a task without rows knows nothing of the others'
        batches = itertools.chain(first, batches)
        found = self._ledger.decided(self._batch, self._run)
        if found is None:
            past = self._ledger.history(self._batch, self.step.workers)
            decision, batches = self._proposed(past, batches)
            found = self._ledger.decide(self._batch, self._run, decision)
            _note_join(self._ledger.path / "join.json", self.step, self._steps)
        self.decision, self._number = found
        return batches

    def _proposed(self, past: BatchHistory, batches: Batches) -> tuple[Decision, Batches]:
        """What this task would decide, from its own rows and the past."""
        decision = Decision(debt=past.debt, shed_before=past.shed)
        if self.step.rate is None and past.rate is None:  # the first micro-batch: there is nothing to go by
            return decision, batches
        held = _Held(min(_HELD, self._steps[0].memory // self.step.workers // _SHARE))
        f: list[Floats] = []
        words: list[Words] = []
        rows = 0
        for batch in batches:
            held.add(batch)
            mine = self._rows(batch)
            rows += mine.num_rows
            if self.strategy.by_frequency:
                f.append(self._f(mine))
            words.append(row_hashes(mine, self._seed))
        share = past.share(rows, self.step.partitions, self.step.target, self.step.rate)
        if share < 1:
            w = max(1, round(share * rows))
            one = np.concatenate(f) if f else np.ones(rows)
            decision = replace(decision, cut=self.strategy.cut(one, np.concatenate(words), w), share=share)
        return decision, held.batches()


class _Held:
    """Rows held back until it is known what becomes of them: some in memory, the rest in a file that nobody else sees."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._first: list[pa.RecordBatch] = []
        self._bytes = 0
        self._file: Any = None
        self._writer: Any = None

    def add(self, batch: pa.RecordBatch) -> None:
        """More rows."""
        if self._file is None and self._bytes + batch.nbytes <= self._room:
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


_known: dict[str, KeyFrequencies] = {}


def _frequencies(relation: Relation) -> KeyFrequencies:
    """f_R of a relation, kept as long as this process joins with that version."""
    name = str(relation.path)
    if name not in _known or _known[name].relation is not relation:
        _known[name] = KeyFrequencies(relation)
    return _known[name]


def _note_join(path: Path, step: ShedStep, steps: Sequence[Any]) -> None:
    """How shed rows are to be joined later: as the query does it."""
    wanted = ("path", "on", "how", "algorithm", "order", "memory", "columns", "suffix", "version_column")
    text = json.dumps(
        {
            "schema": json.loads(step.schema),
            "steps": [
                {name: getattr(s, name) for name in wanted}
                | {"condition": s.condition and str(s.condition), "unmatched": s.deferral and s.deferral.unmatched}
                | {"plain": type(s).__name__ == "Step" and s.flag is None}  # and not surrogate keys, or duplicates
                for s in steps
            ],
        }
    )
    if not path.exists() or path.read_text() != text:
        replace_text(path, text)  # several tasks may note it at the same moment
