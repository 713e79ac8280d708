"""OuterJoin: the rows of a join of two streams that leave alone, because none of the other side matches them. (DESIGN D7)"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.errors import OtherLog, RunLogError
from headrace.metrics import JoinStats
from headrace.progressive.grids.partitioning import LEFT, RIGHT, SIDES
from headrace.progressive.logged.checkpoint import NEVER, Checkpoint
from headrace.progressive.logged.matched_rows import MatchedRows
from headrace.progressive.logged.outer_output import How, kept_sides, number_column
from headrace.progressive.logged.rows import LoggedRows
from headrace.row_copies import take
from headrace.runlog import Decision, DecisionDraft, ShardLog
from headrace.runlog.files import StateDraft

if TYPE_CHECKING:
    from headrace.progressive.logged.join import LoggedSpec

_MATCHED = "matched"  # the kind of the files with the bits of all rows
_BITS = pa.schema({"side": pa.int32(), "base": pa.int64(), "bits": pa.binary()})

Batches = Iterator[pa.RecordBatch]


class OuterJoin:
    """Knows which rows have found a partner, and gives those that will find none, in one micro-batch of one shard.

        pairs --> bits of their rows --> left, right, full: the pairs; semi: left rows whose bit is new; anti: nothing
        rows without a key, or without an event time --> out at once
        rows that the watermark has passed, and whose pairs are all out --> read from the log: those without a bit --> out
        hr.finish --> all rows without a bit --> out

    Rows of a side that is kept have a number, a column of theirs on disk and in memory. Bits are written with every decision. A
    replay begins with the bits of the micro-batch before, makes the same pairs and passes the same time, so it gives the same
    rows. What leaves alone in a micro-batch is read from files that the next one may remove, and not this one.

    Parameters
    ----------
    spec
        The join; of an inner one nothing has to be known, and nothing is done.
    shard
        The shard of the run log, held.
    rows
        The log's rows of both sides.
    batch
        The micro-batch's number; only rows of earlier ones are read.
    stats
        Counts results.
    """

    def __init__(
        self, spec: LoggedSpec, shard: ShardLog, rows: Sequence[LoggedRows], batch: int, stats: JoinStats
    ) -> None:
        self.results, self.bound = spec.results, spec.bound
        self.how: How = "inner" if spec.results is None else spec.results.how
        self.partitioning = spec.partitioning
        self.shard, self.rows, self.batch, self.stats = shard, rows, batch, stats
        self.sides = kept_sides(self.how)
        self._matched = {side: MatchedRows() for side in self.sides}
        self._files: dict[int, StateDraft] = {}
        self._ended = False

    @property
    def beside(self) -> tuple[str, ...]:
        """The kinds of files that it writes beside a decision."""
        return (_MATCHED, *(_alone_kind(side) for side in self.sides)) if self.sides else ()

    @property
    def nbytes(self) -> int:
        """Bytes of the bits."""
        return sum(side.bits.nbytes for side in self._matched.values())

    @property
    def alone(self) -> int:
        """How many rows are to leave alone if no partner comes."""
        return 0 if self.how == "semi" else sum(side.alone for side in self._matched.values())

    def facts(self) -> dict[str, str]:
        """What a decision says of it."""
        return {"how": self.how} if self.sides else {}

    def pending(self, checkpoint: Checkpoint) -> int:
        """Whether rows may leave alone as soon as there is a micro-batch: 1, otherwise 0."""
        if self.bound is None or not self.alone or checkpoint.owed.any():
            return 0
        return int(self.bound.watermark(checkpoint.latest) - self.bound.within > checkpoint.unmatched_before)

    # -- across micro-batches --------------------------------------------------------------------------------------------

    def restore(self, decision: Decision | None) -> None:
        """Take up the bits of the last micro-batch."""
        if not self.sides or decision is None:
            return
        file, how = self.shard.find(_MATCHED, decision.batch), decision.facts.get("how", "inner")
        if file is None or how != self.how:
            raise OtherLog(
                f"{decision.file.path} is of a join with how={how!r}, and how={self.how!r} is asked for; go on with how={how!r},"
                " or begin anew with another state directory and checkpoint"
            )
        for row in file.table().to_pylist():
            bits = np.frombuffer(row["bits"], np.uint8).copy()
            self._matched[row["side"]] = MatchedRows(row["base"], bits, decision.facts["numbers"][row["side"]])
        self._ended = decision.finished and self.how != "semi"
        if decision.finished:
            for side in self._matched.values():
                side.all_done()

    def write(self, draft: DecisionDraft, checkpoint: Checkpoint) -> None:
        """Write the bits beside the decision."""
        if self.sides:
            checkpoint.numbers = [self._matched[n].count if n in self._matched else 0 for n in (LEFT, RIGHT)]
            values = [(number, side.base, side.bits.tobytes()) for number, side in self._matched.items()]
            columns = [
                pa.array(column, field.type) for column, field in zip(zip(*values, strict=True), _BITS, strict=True)
            ]
            draft.beside(_MATCHED, _BITS).add(pa.RecordBatch.from_arrays(columns, schema=_BITS))

    def tidy(self, checkpoint: Checkpoint) -> None:
        """Remove bits and rows of micro-batches that cannot be replayed any more."""
        for kind in self.beside:
            self.shard.expire(kind, before=checkpoint.batch)

    # -- rows that come --------------------------------------------------------------------------------------------------

    def take(self, number: int, batch: pa.RecordBatch, draft: DecisionDraft) -> tuple[pa.RecordBatch, Batches]:
        """Number rows of a side that came, and give those that can match nothing."""
        if self._ended:
            raise RunLogError(
                f"hr.finish has ended this join with how={self.how!r}: rows without a partner have left, and a row that comes now"
                " could be one; begin anew with another state directory and checkpoint"
            )
        if number not in self.sides:
            return batch, iter(())
        there = self.partitioning.read(number, batch).valid
        if self.bound is not None:
            there = there & (self.bound.times(number, batch) > NEVER)
        alone = batch.filter(pa.array(~there)) if not there.all() else batch.slice(0, 0)
        batch = batch if there.all() else batch.filter(pa.array(there))
        numbers = pa.array(self._matched[number].grow(batch.num_rows))
        batch = pa.RecordBatch.from_arrays([*batch.columns, numbers], schema=self.rows[number].schema)
        if not alone.num_rows or self.how == "semi":
            return batch, iter(())
        if number not in self._files:
            self._files[number] = draft.beside(_alone_kind(number), alone.schema)
        self._files[number].add(alone)
        return batch, iter([self._alone(number, alone)])

    def pairs(self, out: pa.RecordBatch) -> Batches:
        """Give the results of pairs: themselves, or the left rows that have found their first partner."""
        if self.results is None:
            yield out
            return
        first = None
        for side in self.sides:
            numbers = np.asarray(out.column(out.schema.get_field_index(number_column(side))))
            if self.how == "semi":
                numbers, first = np.unique(numbers, return_index=True)
                new = self._matched[side].missing(numbers)
                numbers, first = numbers[new], first[new]
            self._matched[side].add(numbers)
        made = self.results.of_pairs(out, first)
        self.stats.results += made.num_rows - out.num_rows
        if made.num_rows:
            yield made

    # -- rows that leave alone ---------------------------------------------------------------------------------------------

    def settle(self, checkpoint: Checkpoint, before: int) -> Batches:
        """Give rows without a partner of event times before this one: all their pairs are out."""
        if before > checkpoint.unmatched_before:
            checkpoint.unmatched_before = before
            yield from self._leave(before)

    def finish(self) -> Batches:
        """Give all rows without a partner."""
        yield from self._leave(None)

    def repeat(self) -> Batches:
        """Give the rows that could match nothing, and came in this micro-batch."""
        for side in self.sides:
            file = self.shard.find(_alone_kind(side), self.batch)
            for batch in file.batches() if file is not None else ():
                yield self._alone(side, batch)

    def _leave(self, before: int | None) -> Batches:
        for number, side in self._matched.items():
            first = side.count  # the lowest number of a row that stays
            for found in self.rows[number].read(self.batch):
                rows = found.rows
                numbers = np.asarray(rows.column(rows.num_columns - 1))
                go = np.ones(numbers.size, np.bool_)
                if before is not None:
                    assert self.bound is not None
                    go = self.bound.times(number, rows) < before
                first = min(first, int(numbers[~go].min(initial=first)))
                go &= side.missing(numbers)
                if go.any():
                    side.add(numbers[go])
                    if self.how != "semi":
                        yield self._alone(number, take(rows, np.flatnonzero(go)))
            side.forget(first)

    def _alone(self, number: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        assert self.results is not None
        self.stats.results += rows.num_rows
        return self.results.alone(number, rows)


def _alone_kind(side: int) -> str:
    return f"alone_{SIDES[side]}"
