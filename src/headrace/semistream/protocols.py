"""Protocols of semi-stream joins: what a caller may ask of an operator, from the least to the most."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

import pyarrow as pa

from headrace.arrays import Bools, Float64s, Int32s
from headrace.clock import Clock
from headrace.conditions import Condition
from headrace.memory import MemoryBudget
from headrace.metrics import JoinStats
from headrace.relation import Relation, Sketch
from headrace.semistream.base import How, Order
from headrace.semistream.driver import PolledSource
from headrace.semistream.kept_tuples import KeptTuples


class StreamShedder(Protocol):
    """Chooses what a join takes of a stream that is too fast for it, and keeps the rest. `headrace.shedding.Shedder` is one."""

    @property
    def nbytes(self) -> int:
        """Bytes of what it chooses by."""
        ...

    def keep(self, interval: pa.RecordBatch, w: int) -> Bools:
        """Tell which w tuples of an interval are kept."""
        ...

    def put_aside(self, rest: pa.RecordBatch) -> None:
        """Store tuples that were not kept, to be joined later."""
        ...


class BatchOperator(Protocol):
    """A join that takes batches of stream tuples and gives batches of results."""

    relation: Relation
    budget: MemoryBudget
    stats: JoinStats

    @property
    def stream_key(self) -> tuple[str, ...]:
        """The columns of the stream that are joined on; none where a condition alone decides."""
        ...

    def output_schema(self, stream: pa.Schema) -> pa.Schema:
        """The schema of results for a stream of this schema; refuses what cannot be joined, by name."""
        ...

    def join(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Join one batch to its end: afterwards none of its tuples is in the operator."""
        ...

    def run(
        self,
        batches: Iterable[pa.RecordBatch] | PolledSource,
        *,
        idle: str | float | None = None,
        deadline: str | float | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Join a stream to its end. Tuples may wait for those of later batches, as long as `idle` and `deadline` let them."""
        ...

    def reset_stats(self) -> None:
        """Count from zero; what is held stays as it is."""
        ...


class WaitingOperator(BatchOperator, Protocol):
    """A join in which stream tuples wait: the caller offers tuples, and says when the join works."""

    @property
    def wanted(self) -> int:
        """Tuples that it takes in at a time."""
        ...

    @property
    def capacity(self) -> int:
        """Tuples that may wait at the same time."""
        ...

    @property
    def buffered(self) -> int:
        """Tuples offered that the join has not looked at."""
        ...

    @property
    def backlog_room(self) -> int:
        """Tuples that may come meanwhile and wait in its own memory; 0 where it sets none aside for that."""
        ...

    @property
    def waiting(self) -> int:
        """Tuples offered that have not left."""
        ...

    def offer(self, batch: pa.RecordBatch) -> None:
        """Hand over stream tuples. Nothing is joined before `advance`."""
        ...

    def advance(self) -> Iterator[pa.RecordBatch]:
        """Do one bounded step of work."""
        ...

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Have every tuple leave."""
        ...


class DrivenOperator(WaitingOperator, Protocol):
    """A join with waiting tuples that says when its next step should come, so that a driver can run it. See `driver.drive`."""

    clock: Clock
    deadline: float | None
    """seconds after they were offered in which tuples should have left; None if they may wait"""
    shed: StreamShedder | None
    """what chooses among tuples under overload; None if all are joined"""

    @property
    def ready(self) -> bool:
        """Whether the next step should be done now, with no more tuples than there are."""
        ...

    @property
    def due(self) -> float:
        """When, by its clock, the next step must come so that no deadline passes; inf when there is none."""
        ...

    def take_in(self) -> Iterator[pa.RecordBatch]:
        """Let tuples that were offered wait where they have memory, if no step has to come first for that."""
        ...

    def has_waited(self, seconds: float) -> None:
        """Take note that the stream let it wait for so long."""
        ...

    def advance(self, *, quiet: bool = False) -> Iterator[pa.RecordBatch]:
        """Do one bounded step of work. `quiet`: no more tuples are awaited, and those that are there are to leave."""
        ...


class QueueingOperator(WaitingOperator, Protocol):
    """A join whose queue can be taken out, kept elsewhere, and put back into it or another one. See `semistream.deferred`.

    It says when its next step should come, as a DrivenOperator does.
    """

    how: How
    clock: Clock
    deadline: float | None
    """seconds after they were offered in which tuples should have left; None if they may wait"""

    @property
    def ready(self) -> bool:
        """Whether the next step should be done now, with no more tuples than there are."""
        ...

    @property
    def due(self) -> float:
        """When, by its clock, the next step must come so that no deadline passes; inf when there is none."""
        ...

    def take_in(self) -> Iterator[pa.RecordBatch]:
        """Let tuples that were offered wait where they have memory, if no step has to come first for that."""
        ...

    def advance(self, *, quiet: bool = False) -> Iterator[pa.RecordBatch]:
        """Do one bounded step of work. `quiet`: no more tuples are awaited, and those that are there are to leave."""
        ...

    @property
    def scan_pages(self) -> int | None:
        """Pages of the scan that every tuple stays for; None where tuples wait for pages of their own."""
        ...

    @property
    def position(self) -> int:
        """The page that the scan comes to next."""
        ...

    def go_to(self, position: int) -> None:
        """Have the scan go on at a page. Nothing waits."""
        ...

    @property
    def seconds_left(self) -> float:
        """Seconds until all that waits has left, at most, if it works from now on."""
        ...

    def settle(self) -> Iterator[pa.RecordBatch]:
        """Let tuples leave that need no step; those that stay can be taken out."""
        ...

    def take_out(self) -> Iterator[KeptTuples]:
        """Give all tuples out that wait, after `settle`, in the order in which they leave. They are not counted here."""
        ...

    def put_back(self, kept: KeptTuples, came: Float64s) -> int:
        """Take tuples in again that came at these times; returns how many there was room for, the first ones."""
        ...

    def scan(self, pages: int) -> Iterator[pa.RecordBatch]:
        """Go on by so many pages exactly, and take no tuples in: for a join that scans."""
        ...


class DeferrableOperator(WaitingOperator, Protocol):
    """A join whose waiting tuples can be taken back, to be kept elsewhere and offered again. See `semistream.deferred`."""

    @property
    def condition(self) -> Condition | None:
        """What pairs must satisfy beside the key; None for nothing more."""
        ...

    def let_wait(self) -> pa.RecordBatch | None:
        """Give the tuples that wait back: the caller keeps them. They count as `deferred` alone."""
        ...

    def by_page(self, batch: pa.RecordBatch) -> Int32s:
        """The rows of a batch in an order in which those of a page are neighbours, as an array of row numbers."""
        ...


class GroupMember(WaitingOperator, Protocol):
    """A join that shares its memory with joins of the same relation in other processes, between `enter` and `leave`.

    It has everything that a DeferrableOperator has, and can be used as one.
    """

    @property
    def condition(self) -> Condition | None:
        """What pairs must satisfy beside the key; None for nothing more."""
        ...

    @property
    def order(self) -> Order:
        """The order of results: "any" or "stream"."""
        ...

    def let_wait(self) -> pa.RecordBatch | None:
        """Give the tuples that wait back: the caller keeps them. They count as `deferred` alone."""
        ...

    def by_page(self, batch: pa.RecordBatch) -> Int32s:
        """The rows of a batch in an order in which those of a page are neighbours, as an array of row numbers."""
        ...

    @property
    def wanted_rows(self) -> int:
        """How many rows it would join at once, given them."""
        ...

    @property
    def wanted_bytes(self) -> int:
        """Bytes of stream tuples that a worker may gather to be joined at once."""
        ...

    @property
    def popularity(self) -> Sketch:
        """How often the stream asked for each key lately, of all members together."""
        ...

    def enter(self) -> bool:
        """Take part in the group; False if as many processes as it has room for do so already."""
        ...

    def leave(self) -> None:
        """Let another process have the place."""
        ...
