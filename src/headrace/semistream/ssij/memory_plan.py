"""How SSIJ divides its memory: parts of a fixed size, and the rest, which SB, II and CR share. [SSIJ] §IV.A

    | output | index | read buffer | IB | SB: slots | CR -->                         <-- SB: columns, II |

What is right of IB is `left`. SB has as many slots as start a join phase; CR has what waiting tuples leave, and gives way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace.relation.index_memory import IndexMemory
from headrace.semistream.plan_facts import PlanFacts
from headrace.semistream.ssij.page_cache import FRAME_BYTES
from headrace.semistream.ssij.stream_buffer import (
    LIST_BYTES,
    NUMBER_BYTES,
    PAIR_BYTES,
    SLOT_BYTES,
    InvertedIndex,
    tuples_that_fit,
)
from headrace.semistream.waiting_plan import LEAST_WINDOW, OutputPlan

_WORK_BYTES = 160  # bytes of a tuple in an online phase: its key, its order, its pages, where they are
_PLAN_BYTES = 64  # bytes of a page in a read plan
_IB_SHARE, _SCAN_SHARE = (
    0.04,
    0.35,
)  # of the memory beside output and index: for IB (and a read plan), and for the read buffer
_LEAST_IB, _MOST_IB = 16, 1 << 13  # tuples of an online phase
_LEAST_CHUNK = 64  # pairs of a tuple and a page that are looked at together
_RUNS, _MOST_PLANNED = (
    16,
    1 << 14,
)  # a read plan has so many longest runs, and so many pages: a run may be cut where it ends
_LEAST_PAGES = 3  # a page in each half of the read buffer, and one in CR
_ASSUMED_COLUMNS = (
    64  # bytes of a stream tuple's columns, assumed to refuse too small a memory before the first tuple is seen
)


@dataclass(frozen=True, kw_only=True)
class SSIJPlan:
    """The sizes of SSIJ in a memory.

    Parameters
    ----------
    facts, limit, output, index
        What the plan was made from, the memory, the room for results, and how the index is held.
    scan, halves, planned
        Pages of one read request at most; how many such requests the read buffer holds; pages of one read plan.
    IB, chunk
        Tuples of an online phase, and pairs of a tuple and a page that are looked at together.
    """

    facts: PlanFacts
    limit: int
    output: OutputPlan
    index: IndexMemory
    scan: int
    halves: int
    planned: int
    IB: int
    chunk: int

    @classmethod
    def of(cls, facts: PlanFacts, limit: int, *, IB_thresh: int | None = None) -> SSIJPlan:
        """Shares of the memory beside output and index, and what the relation and the disk can use of them."""
        output, index = ssij_output(facts, limit), ssij_index(facts, limit)
        left = limit - output.nbytes - index.nbytes
        # A disk that serves one request at a time has nothing to overlap with.
        halves = 1 if facts.serial else 2
        scan = max(1, min(facts.longest, facts.pages, int(_SCAN_SHARE * left) // facts.page_size // halves))
        share = int(_IB_SHARE * left / (facts.stream_bytes + _WORK_BYTES))
        IB = IB_thresh or int(np.clip(share, _LEAST_IB, _MOST_IB))
        planned = int(np.clip(min(_IB_SHARE * left / _PLAN_BYTES, _RUNS * scan), _LEAST_CHUNK, _MOST_PLANNED))
        return cls(
            facts=facts,
            limit=limit,
            output=output,
            index=index,
            scan=scan,
            halves=halves,
            planned=planned,
            IB=IB,
            chunk=max(_LEAST_CHUNK, IB),
        )

    @property
    def parts(self) -> dict[str, int]:
        """Bytes of each part of a fixed size."""
        facts = self.facts
        plan_bytes = min(self.planned, facts.pages) * _PLAN_BYTES
        return {
            "output": self.output.nbytes,
            "index": self.index.nbytes,
            "read buffer": self.scan * self.halves * facts.page_size + plan_bytes,
            "IB": int(self.IB * facts.stream_bytes) + self.chunk * _WORK_BYTES,
        }

    @property
    def left(self) -> int:
        """Bytes that SB, II and CR share, slots of SB included."""
        return self.limit - sum(self.parts.values())

    @property
    def IB_slot_bytes(self) -> int:
        """Bytes of SB's slots for the tuples of an online phase."""
        return self.IB * SLOT_BYTES

    # -- SB, II and CR ---------------------------------------------------------------------------------------------------

    @property
    def column_bytes(self) -> float:
        """Bytes of a waiting tuple's columns, and of finding them."""
        return self.facts.stream_bytes + NUMBER_BYTES

    @property
    def own_bytes(self) -> float:
        """Bytes of a tuple in SB, without its entries in II."""
        return self.column_bytes + SLOT_BYTES + self.facts.column_extra_bytes

    def tuples(self, room: float) -> float:
        """Tuples of SB and II, slots included, that so many bytes have room for."""
        return tuples_that_fit(room, self.own_bytes, self.facts.pages_per_key, self.facts.pages)

    def SB(self, share: float) -> int:
        """Tuples that start a join phase, if SB and II have a share of the memory that an online phase's slots leave."""
        return max(1, int(self.tuples(share * (self.left - self.IB_slot_bytes))))

    def tuple_bytes(self, SB: int) -> float:
        """Bytes of one tuple more in SB and II, which may bring new lists where some pages have none."""
        new = LIST_BYTES if SB * self.facts.pages_per_key < self.facts.pages else 0
        return self.own_bytes + self.facts.pages_per_key * (PAIR_BYTES + new)

    def waiting_bytes(self, SB: int) -> int:
        """Bytes of SB and II with so many tuples."""
        pairs = self.facts.pages_per_key * SB
        return int(SB * self.own_bytes + InvertedIndex.size(pairs, self.facts.pages))

    def CR(self, SB: int) -> int:
        """Pages that CR has beside so many tuples and an online phase."""
        moving = max(0, self.left - self.IB_slot_bytes)
        return max(0, (moving - self.waiting_bytes(SB)) // self.frame_bytes)

    @property
    def frame_bytes(self) -> int:
        """Bytes of a page in CR."""
        return self.facts.page_size + FRAME_BYTES


def ssij_output(facts: PlanFacts, limit: int) -> OutputPlan:
    """Room for results beside the index, three pages, the smallest SB with II and the smallest online phase."""
    return OutputPlan.of(facts, limit, ssij_index(facts, limit).nbytes + _least_parts(facts))


def ssij_index(facts: PlanFacts, limit: int) -> IndexMemory:
    """How the index is held beside the same."""
    return facts.index_in(limit - OutputPlan.of(facts, limit, _least_parts(facts)).least)


def _least_parts(facts: PlanFacts) -> int:
    """Bytes of three pages, of the smallest SB with II, and of the smallest online phase."""
    waiting = LEAST_WINDOW * (_ASSUMED_COLUMNS + SLOT_BYTES + NUMBER_BYTES + PAIR_BYTES + LIST_BYTES)
    online = (_LEAST_IB + _LEAST_CHUNK) * (_ASSUMED_COLUMNS + _WORK_BYTES)
    pages = _LEAST_PAGES * (facts.page_size + FRAME_BYTES)
    return pages + waiting + online
