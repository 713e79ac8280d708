"""Bytes of the data structures that AdaptiveJoin holds a row, a key or a tuple in."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.semistream.adaptive.keyed_store import ENTRY_BYTES, KeyedStore
from headrace.semistream.plan_facts import PlanFacts

# Bytes of the arrays of a batch, measured with tracemalloc. While distinct keys are found, a row takes its hash, its number and
# a share of the table; after that only its number, while each distinct key takes its hash, its count and the place of its
# matches, and each missing key its place in the read plan.
_FINDING_BYTES = 64
_ROW_BYTES = 6
_KEY_BYTES = 34
_MISS_BYTES = 62
_TEXT_BYTES = 32  # more for each copy of a key that is a byte string: keys of more than 32 bytes are rare
_WAITING_BYTES = 20  # of a row that waits, besides its columns: its key and its place in the order of the pages
_SPREAD = 1.05  # texts may be so much longer than the mean


def row_bytes(facts: PlanFacts, distinct: float, missed: float) -> int:
    """Bytes of the arrays of a batch a stream row, with so many distinct and missing keys a row."""
    text = 0 if facts.integer_key else _TEXT_BYTES
    structures = _ROW_BYTES + text + distinct * (_KEY_BYTES + text) + missed * (_MISS_BYTES + text)
    return int(max(_FINDING_BYTES + text, structures))


def waiting_bytes(stream_bytes: float, copies: float) -> float:
    """Bytes of a row that waits for a join phase, whose columns are there so many times while rows are put together."""
    return copies * stream_bytes + _WAITING_BYTES


def entry_bytes(facts: PlanFacts) -> int:
    """Bytes of one key in the hot set, with its tuples."""
    return int(facts.tuple_bytes * facts.rows_per_key) + ENTRY_BYTES + (8 if facts.integer_key else _TEXT_BYTES)


@dataclass(frozen=True)
class YoungSize:
    """Room of the store for tuples that were fetched lately.

    Parameters
    ----------
    entries, rows
        Keys and tuples that it has room for.
    data
        Bytes of each column with values of any length by name, and of keys that are byte strings under "".
    nbytes
        Bytes of the whole store.
    """

    entries: int
    rows: int
    data: dict[str, int]
    nbytes: int

    @classmethod
    def of(cls, facts: PlanFacts, entries: int, tuples: int) -> YoungSize:
        """Room for so many tuples of the relation's mean size.

        There is room for one full page of tuples at least: a key with more matches than fit is joined page by page.
        """
        data = {
            c.name: int(_SPREAD * tuples * facts.variable_bytes[c.name] / facts.rows) + facts.page_size
            for c in facts.payload
            if c.width == 0
        }
        if not facts.integer_key:
            data[""] = _TEXT_BYTES * entries + facts.page_size
        rows = max(tuples, facts.page_rows) + 1
        return cls(entries, rows, data, KeyedStore.size(facts.payload, entries, rows, data, facts.integer_key))
