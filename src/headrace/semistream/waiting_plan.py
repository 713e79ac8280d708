"""The parts of memory that every join with waiting tuples has: output, disk buffer, and H with Q. [MESH] §3.2

    | output | disk buffer: pages, and notes of their tuples | H and Q: slots, and the columns of waiting tuples |

Each operator's `plan(facts, limit)` divides the rest in its own way. Cost models call the same functions with estimated facts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from headrace.relation import Relation
from headrace.relation.columns import Column
from headrace.relation.reader import key_column
from headrace.semistream.hash_queue import POINTER_BYTES, SLOT_BYTES
from headrace.semistream.plan_facts import PlanFacts
from headrace.semistream.sizes import tuple_bytes

PROBE_BYTES = 64  # bytes noted of each tuple of R in the disk buffer while it is probed: its address, row, key and hash
LEAST_WINDOW = 64  # tuples that must have room to wait: with fewer, an iteration costs more than its tuples
_ASSUMED_COLUMNS = (
    80  # bytes of a stream tuple's columns, assumed to refuse too small a memory before the first tuple is seen
)
_LEAST_OUTPUT, _MOST_OUTPUT = 16, 1 << 13  # rows of a batch of results
_OUTPUT_PARTS = 12  # the output has one part in so many of the memory that the least sizes leave
_RESULT_BYTES = 40  # bytes of a result besides its payload while it is made: number, slot, page address, row
_RESULT_COLUMNS = 24  # bytes of a result's stream columns, about, for choosing how many results are made together
_TEXT_SLACK = 1.05  # texts of one batch of results may be longer than the mean


@dataclass(frozen=True, kw_only=True)
class OutputPlan:
    """Room for results that are made together.

    Parameters
    ----------
    rows, nbytes
        Results of a batch at most, and the bytes that they take.
    least
        Bytes that the whole operator needs, whatever the stream.
    """

    rows: int
    nbytes: int
    least: int

    @classmethod
    def of(cls, facts: PlanFacts, limit: int, needed: float) -> OutputPlan:
        """For an operator that needs so many bytes besides the output."""
        least = int(needed) + cls._bytes(facts, _LEAST_OUTPUT)
        spare = (limit - least) // _OUTPUT_PARTS
        width = facts.tuple_bytes + _RESULT_BYTES + _RESULT_COLUMNS + facts.condition_pair_bytes
        rows = int(np.clip(spare // width, _LEAST_OUTPUT, _MOST_OUTPUT))
        return cls(rows=rows, nbytes=cls._bytes(facts, rows), least=least)

    def of_version(self, facts: PlanFacts) -> OutputPlan:
        """Room for as many results with another version of the relation."""
        return replace(self, nbytes=self._bytes(facts, self.rows))

    @staticmethod
    def _bytes(facts: PlanFacts, rows: int) -> int:
        """Bytes of so many results while they are made, and of as many pairs while a condition tests them."""
        return facts.result_bytes(rows) + int((_RESULT_BYTES + facts.condition_pair_bytes) * rows)


def page_bytes(facts: PlanFacts) -> int:
    """Bytes of a page in the disk buffer, with what is noted of its tuples while they are probed."""
    return facts.page_size + int((PROBE_BYTES + facts.condition_row_bytes) * facts.rows_per_page)


def slot_bytes(facts: PlanFacts) -> float:
    """Bytes of a waiting tuple in H, its columns included and the queue left out: f * v_S of [MESH] eq. 1."""
    return SLOT_BYTES - POINTER_BYTES + facts.condition_slot_bytes + facts.stream_bytes + facts.column_extra_bytes


def least_window_bytes(facts: PlanFacts) -> int:
    """Bytes of the smallest H with Q, by an assumed size of stream tuples: no stream tuple has been seen yet."""
    return LEAST_WINDOW * int(SLOT_BYTES + facts.condition_slot_bytes + _ASSUMED_COLUMNS)


def facts_of(
    relation: Relation,
    payload: Sequence[Column],
    *,
    algorithm: str,
    stream_bytes: float,
    condition_row_bytes: float = 0.0,
    condition_slot_bytes: float = 0.0,
    condition_pair_bytes: float = 0.0,
    column_extra_bytes: float = 0.0,
) -> PlanFacts:
    """The facts of an open relation, for the payload that is in the result. A column without a name is the stored key."""
    disk, page = relation.disk, relation.page_size
    seek, transfer = disk.costs(page, alone=True)
    keys = [c for c in payload if not c.name]
    texts = [c for c in payload if c.width == 0]
    width = tuple_bytes(relation, [c for c in payload if c.name])
    width += sum(int(_TEXT_SLACK * mean_text_bytes(relation, c)) + 12 for c in keys)
    row = sum((c.width or 4 + _TEXT_SLACK * mean_text_bytes(relation, c)) + c.nullable for c in payload)
    return PlanFacts(
        rows=max(1, relation.num_rows),
        pages=max(1, relation.num_pages),
        page_size=page,
        distinct_keys=max(1, relation.distinct_keys),
        tuple_bytes=width,
        texts=len(texts),
        index_bytes=relation.index_bytes,
        levels=relation.index_levels,
        filter_bytes=relation.filter_bytes,
        stream_bytes=stream_bytes,
        seek=seek,
        transfer=transfer,
        scan_seek=disk.scan_costs(page)[0],
        serial=disk.workers == 1,
        longest=disk.longest,
        factors=disk.factors,
        overhead=disk.overhead(algorithm),
        popular=relation.order == "frequency",
        condition_row_bytes=condition_row_bytes,
        condition_slot_bytes=condition_slot_bytes,
        condition_pair_bytes=condition_pair_bytes,
        column_extra_bytes=column_extra_bytes,
        store_bytes=(row, len(texts) * (page + 4)),
    )


def text_room(relation: Relation, payload: Sequence[Column], rows: int) -> dict[str, int]:
    """Bytes for the variable columns of so many tuples of mean size, and one page of them more."""
    return {
        c.name: int(_TEXT_SLACK * rows * mean_text_bytes(relation, c)) + relation.page_size
        for c in payload
        if c.width == 0
    }


def mean_text_bytes(relation: Relation, column: Column) -> float:
    """Mean bytes of a variable column; of a key that is text, what it would take if pages held nothing else."""
    if not column.name:
        return relation.page_size / max(1.0, relation.num_rows / max(1, relation.num_pages))
    return relation.variable_bytes[column.name] / max(1, relation.num_rows)


def mean_bytes(relation: Relation, names: Sequence[str]) -> float:
    """Mean bytes of some columns of a tuple of R."""
    columns = {column.name: column for column in relation.payload(None)}
    total = 0.0
    for name in names:
        column = columns.get(name)
        if column is None:  # of the key, whose text takes at most what pages would have room for
            total += 8 if relation.codec.integer else mean_text_bytes(relation, key_column(relation.codec))
        else:
            total += column.width or 4 + mean_text_bytes(relation, column)
    return total
