"""LoggedSample: an operator that samples, across micro-batches, with a snapshot of its state in the run log. (DESIGN D7)"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from headrace.errors import BadInput, DamagedLog, OtherLog, RunLogError
from headrace.progressive.grids.partitioning import SIDES
from headrace.runlog import Decision, DecisionDraft, ReplayDriver, ShardLog, Snapshot
from headrace.runlog.files import CURE, StateDraft, understood
from headrace.sampling.arrival_order import ArrivalOrder, SideBatch
from headrace.sampling.snapshot import SNAPSHOT, Parts

Batches = Iterator[pa.RecordBatch]


class ShardOperator(Protocol):
    """What a micro-batch of a shard is given to."""

    def insert(self, side: int, batch: pa.RecordBatch) -> Batches:
        """Take in rows of a side, and give the results that they have at once."""
        ...

    def end(self) -> Batches:
        """Give the results that there are once a micro-batch, after all its rows."""
        ...

    def snapshot(self) -> Parts:
        """The state, for `restore`."""
        ...

    def restore(self, snapshot: Iterable[pa.RecordBatch]) -> None:
        """Go on from a snapshot."""
        ...


@dataclass
class WarmOperator:
    """The operator of a shard as the last attempt in this process left it, and the snapshot that it is equal to."""

    operator: ShardOperator | None = None
    token: str | None = None
    """of the decision with that snapshot; None if it is not known to be equal to any"""


class LoggedSample:
    """Runs one micro-batch of one shard through an operator that samples.

        rows --> run log: the rows of this micro-batch --> in order --> operator --> results
        end of the micro-batch: a snapshot of the operator --> the decision

    Attempts. ReplayDriver (runlog/replay.py) calls the hooks. Draws follow from the seed, the shard and the number of a row in
    it, and rows are taken in an order of their own (`ArrivalOrder`). So an attempt that begins with the snapshot of the
    micro-batch before, and has the same rows of the same tasks, gives the same results and ends with the same state. An attempt
    at a micro-batch that is decided takes its rows from the log, however the source divides them now. Rows of earlier
    micro-batches are removed.

    Parameters
    ----------
    make
        Makes the operator, empty.
    shard
        The shard of the run log, held.
    warm
        The operator in this process.
    batch
        The micro-batch's number.
    order
        Puts rows in order.
    step
        Says which step of a query it is, such as its columns: two that keep their state in one log are refused.
    static
        Of each side, whether it is no stream, so that a replay does not read it again.
    """

    beside = SIDES
    decision_schema = SNAPSHOT

    def __init__(
        self,
        make: Callable[[], ShardOperator],
        shard: ShardLog,
        warm: WarmOperator,
        batch: int,
        *,
        order: ArrivalOrder,
        step: str = "",
        static: tuple[bool, ...] = (False, False),
    ) -> None:
        self.make, self.shard, self.warm, self.batch, self.order, self.static = make, shard, warm, batch, order, static
        self.step = step
        self.came = [0, 0]
        """rows of each side"""
        self._token: str | None = None
        self._came: list[list[int]] = []  # the side and the rows of each batch, in the order in which they came

    def run(self, rows: Iterable[SideBatch]) -> Batches:
        """Give the results of the micro-batch. Every attempt gives the same ones."""
        some = ((side, batch) for side, batch in rows if batch.num_rows)
        return ReplayDriver(self.shard, self.batch, self).run(some)

    # -- hooks of the driver ---------------------------------------------------------------------------------------------

    def restore(self, decision: Decision | None) -> None:
        """Take up the state after the last micro-batch: the operator of this process, if it is that, or else the snapshot."""
        if decision is not None:
            self._check(decision)
        token = None if decision is None else str(decision.facts["token"])
        if token is None or self.warm.token != token:
            self.warm.operator = None  # not two at a time
            self.warm.operator = self.make()
            if decision is not None:
                try:
                    self.warm.operator.restore(decision.file.batches())
                except BadInput as error:  # of another sampler, window or join: the snapshot says which
                    raise OtherLog(f"{decision.file.path}: {error}") from error
        self.warm.token, self._token = None, token
        if decision is not None:
            self.order.latest = int(decision.facts["latest"])

    def on_batch(self, rows: Iterator[SideBatch], draft: DecisionDraft) -> Batches:
        """Keep the rows in the log, and take them in."""
        for name in SIDES:
            self.shard.expire(name, before=self.batch)
        spool = _Spool(draft)
        for side, batch in self._counted(rows):
            spool.add(side, batch)
        yield from self._take_in(spool.read())
        self._came, self._token = spool.came, uuid.uuid4().hex
        for part in self._operator.snapshot():
            draft.add(part)

    def on_idle(self, draft: DecisionDraft) -> Batches:
        """Give the results of a micro-batch in which nothing came to this shard."""
        yield from self._operator.end()

    def snapshot(self) -> Snapshot | None:
        """Note what a replay must know; None if nothing has come."""
        if not sum(self.came):
            return None
        facts = {
            "token": self._token,
            "step": self.step,
            "came": self.came,
            "batches": self._came,
            "latest": self.order.latest,
        }
        return Snapshot(facts=facts, owed=0)

    def on_replay(self, decision: Decision, rows: Iterator[SideBatch]) -> Batches:
        """Take in the rows of the log."""
        self._check(decision)
        for _ in self._counted(rows):
            pass
        with understood(decision.file.path):
            came = [int(rows) for rows in decision.facts["came"]]
            batches = [(int(side), int(rows)) for side, rows in decision.facts["batches"]]
            token = str(decision.facts["token"])
            if len(came) != len(SIDES) or not {side for side, _ in batches} <= {*range(len(SIDES))}:
                raise ValueError("came")
        for side, (now, then) in enumerate(zip(self.came, came, strict=True)):
            if now != then and not self.static[side]:
                raise RunLogError(
                    f"{decision.file.path} says that batch {self.batch} had {then} rows of the {SIDES[side]} side in shard"
                    f" {self.shard.number}, and now it has {now}; does a source or a column change from one attempt to the next?"
                )
        with understood(decision.file.path):
            yield from self._take_in(self._logged(batches))
        self._token = token

    def on_decided(self) -> None:
        """Keep the operator for the next micro-batch."""
        self.warm.token = self._token

    def on_finish(self) -> Batches:
        """Nothing is owed."""
        return iter(())

    # -- helpers ---------------------------------------------------------------------------------------------------------

    def _check(self, decision: Decision) -> None:
        """Refuse the decision of another step."""
        if decision.facts["step"] != self.step:
            raise RunLogError(
                f"{decision.file.path} has the state of a step with {decision.facts['step']}, and this one has {self.step}. Two"
                " steps of a query that take rows by the same columns, with other operations of Spark between them, need a state="
                " directory each; a step whose columns have changed needs a new one, and a new checkpoint"
            )

    @property
    def _operator(self) -> ShardOperator:
        assert self.warm.operator is not None
        return self.warm.operator

    def _take_in(self, rows: Iterable[SideBatch]) -> Batches:
        for side, batch in self.order.in_order(list(rows)):
            yield from self._operator.insert(side, batch)
        yield from self._operator.end()

    def _counted(self, rows: Iterator[SideBatch]) -> Iterator[SideBatch]:
        for side, batch in rows:
            self.came[side] += batch.num_rows
            yield side, batch

    def _logged(self, came: list[tuple[int, int]]) -> Iterator[SideBatch]:
        """The rows of the log, in the order in which they came."""
        batches = {}
        for side in {side for side, _ in came}:
            file = self.shard.find(SIDES[side], self.batch)
            if file is None:
                raise RunLogError(
                    f"the rows of batch {self.batch} are not in {self.shard.path} any more, since a later one has begun; does"
                    " another process run the same query?"
                )
            batches[side] = file.batches()
        for side, rows in came:
            batch = next(batches[side], None) if side in batches else None
            if batch is None or batch.num_rows != rows:
                where = self.shard.path / f"{self.batch:010d}.{SIDES[side]}.arrow"
                raise DamagedLog(f"{where} is damaged: it has other rows than its decision says; {CURE}")
            yield side, batch


class _Spool:
    """The rows of a micro-batch in the log, a file of each side."""

    def __init__(self, draft: DecisionDraft) -> None:
        self.came: list[list[int]] = []
        self._draft = draft
        self._files: dict[int, StateDraft] = {}

    def add(self, side: int, batch: pa.RecordBatch) -> None:
        """Add rows."""
        if side not in self._files:
            self._files[side] = self._draft.beside(SIDES[side], batch.schema)
        self._files[side].add(batch)
        self.came.append([side, batch.num_rows])

    def read(self) -> Iterator[SideBatch]:
        """Give all rows in the order in which they came; they lie in the mapped files."""
        batches = {side: file.read() for side, file in self._files.items()}
        return ((side, next(batches[side])) for side, _ in self.came)
