"""A join with a relation, as it travels to the executors, and the operator that a worker makes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.conditions import Condition, On
from headrace.relation import Relation
from headrace.relation.disk import DiskKind
from headrace.semistream import ALGORITHMS, AdaptiveJoin, ConditionalJoin
from headrace.semistream.adaptive.conditional import needed_columns
from headrace.semistream.adaptive.group import Group
from headrace.semistream.base import How, Order
from headrace.semistream.protocols import BatchOperator, GroupMember, QueueingOperator
from headrace.semistream.waiting_join import WaitingJoin
from headrace.spark.steps import Batches

ADAPTIVE = "adaptive"


@dataclass(frozen=True, kw_only=True)
class RelationJoin:
    """What to join with, and how: the parameters of `enrich` that an operator is made of."""

    path: str
    identity: str
    """of the relation at the path: one that is made in its place is not joined with"""
    disk: DiskKind
    on: On | None
    how: How
    algorithm: str
    """the user's word: "auto" stands for what is chosen when the query runs"""
    order: Order
    condition: Condition | None
    memory: int
    """bytes of an executor"""
    columns: tuple[str, ...] | None
    suffix: str | None
    workers: int
    """tasks that an executor runs at the same time"""
    flag: str | None = None
    """a last column that says whether the row has a match, for the user"""
    mark: str | None = None
    """a last column that says so to the run log"""
    whole: bool = True
    """whether AdaptiveJoin may hold the relation whole; not where rows are to wait, and share reads"""

    @property
    def conditional(self) -> bool:
        """Whether AdaptiveJoin needs a condition or a flag around it."""
        return self.condition is not None or self.flag is not None

    @property
    def worker_memory(self) -> int:
        """Bytes of a worker that shares no memory with the others."""
        return self.memory // self.workers

    @property
    def shown(self) -> Sequence[str] | None:
        """Payload columns of the result; None for all."""
        return self.columns if self.how in ("inner", "left") else ()


@dataclass(frozen=True)
class OpenJoin:
    """An operator of this worker.

    Parameters
    ----------
    operator
        The operator.
    member
        The same operator, where it shares its memory with those of the executor's other workers.
    """

    operator: BatchOperator
    member: GroupMember | None = None


def open_join(join: RelationJoin, algorithm: str, relation: Relation, directory: Path) -> OpenJoin:
    """Make the operator. AdaptiveJoin shares memory with the workers that meet in a directory; others have a part each."""
    if algorithm in ("auto", ADAPTIVE):  # auto: before an algorithm is chosen
        member = _adaptive(join, relation, join.memory, Group(directory, join.workers))
        return OpenJoin(member, member)
    options: dict[str, Any] = {} if join.condition is None else {"condition": join.condition}
    if join.order != "any" and not ALGORITHMS[algorithm].in_order:
        options["order"] = join.order
    operator: BatchOperator = ALGORITHMS[algorithm](
        relation,
        join.on,
        join.worker_memory,
        how=join.how,
        columns=join.columns,
        suffix=join.suffix,
        **options,
    )
    return OpenJoin(operator)


def queue_of(opened: OpenJoin) -> QueueingOperator:
    """The operator of a published join, whose queue can be kept: `Defer.check_join` has refused all others."""
    operator = opened.operator
    assert isinstance(operator, WaitingJoin)
    return operator


def open_alone(join: RelationJoin, relation: Relation) -> OpenJoin:
    """An AdaptiveJoin with the least memory that it can work with, which it shares with no other worker."""
    if join.conditional:
        least = ConditionalJoin.least_memory(relation, needed_columns(relation, join.shown, join.condition))
    else:
        least = AdaptiveJoin.least_memory(relation, join.shown)
    member = _adaptive(join, relation, least, None)
    return OpenJoin(member, member)


def _adaptive(join: RelationJoin, relation: Relation, memory: int, group: Group | None) -> GroupMember:
    assert join.on is not None  # a condition alone is joined by another algorithm
    options: dict[str, Any] = {"how": join.how, "columns": join.columns, "suffix": join.suffix, "order": join.order}
    options["whole"] = join.whole
    if not join.conditional:
        return AdaptiveJoin(relation, join.on, memory, group=group, mark=join.mark, **options)
    flag = join.flag or join.mark
    return ConditionalJoin(relation, join.on, memory, condition=join.condition, flag=flag, group=group, **options)


def joined(opened: OpenJoin, join: RelationJoin, batches: Batches) -> Batches:
    """The rows of a task joined to their end."""
    member = opened.member
    if member is not None and (join.order == "stream" or join.conditional):
        # These join batch by batch, so larger batches share more reads.
        for batch in gathered(batches, lambda: (member.wanted_rows, member.wanted_bytes)):
            yield from member.join(batch)
    else:
        yield from opened.operator.run(batches)


def gathered(batches: Batches, wanted: Callable[[], tuple[int, int]]) -> Batches:
    """Batches put together, up to as many rows and bytes as are wanted."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        most_rows, most_bytes = wanted()
        if held and (rows + batch.num_rows > most_rows or size + batch.nbytes > most_bytes):
            yield held[0] if len(held) == 1 else pa.concat_batches(held)
            held, rows, size = [], 0, 0
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
    if held:
        yield held[0] if len(held) == 1 else pa.concat_batches(held)
