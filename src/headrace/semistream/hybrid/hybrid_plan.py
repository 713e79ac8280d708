"""How the HYBRIDJOIN family divides its memory: pages that are swapped, pages that stay, and tuples that wait. [XHJ] §4.3

| output | index | disk buffer: k swappable and l non-swappable pages | H and Q: h_S tuples |
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.relation.index_memory import IndexMemory
from headrace.semistream.hash_queue import POINTER_BYTES
from headrace.semistream.hybrid.hybrid_cost import HybridCost
from headrace.semistream.mesh.mesh_plan import Tuning, default_pages
from headrace.semistream.plan_facts import PlanFacts
from headrace.semistream.waiting_plan import OutputPlan, least_window_bytes, page_bytes


@dataclass(frozen=True, kw_only=True)
class HybridPlan:
    """The sizes of HYBRIDJOIN or X-HYBRIDJOIN in a memory.

    Parameters
    ----------
    output, index
        Room for results; how the index is held, with the bytes that are counted.
    room
        Bytes for disk buffer, H and Q.
    cost
        The model that the sizes were chosen by.
    k, l
        Pages of the swappable and of the non-swappable part of the disk buffer.
    h_S
        Tuples that H has room for; 0 where not one has.
    """

    output: OutputPlan
    index: IndexMemory
    room: int
    cost: HybridCost
    k: int
    l: int
    h_S: int

    @classmethod
    def of(
        cls,
        facts: PlanFacts,
        limit: int,
        *,
        k: int | None,
        l: int | None,
        tuning: Tuning = "optimal",
        count_index: bool = True,
    ) -> HybridPlan:
        """The given sizes, and for those that are None the ones with the best service rate, or the default of equal parts."""
        index = hybrid_index(facts, limit, k=k, l=l, count_index=count_index)
        output = hybrid_output(facts, limit, k=k, l=l, count_index=count_index)
        room = limit - output.nbytes - index.nbytes
        cost = HybridCost.of(facts, index.reads)
        if tuning == "default":
            k = k or default_pages(facts, room)
            l = k if l is None else l
        elif k is None or l is None:
            k, l = cost.best(room, k, l)
        l = min(l, facts.pages)
        k = min(k, max(1, facts.pages - l))
        return cls(output=output, index=index, room=room, cost=cost, k=k, l=l, h_S=cost.h_S(room, k, l))

    @property
    def parts(self) -> dict[str, int]:
        """Bytes of each part."""
        return {
            "index": self.index.nbytes,
            "disk buffer": int((self.k + self.l) * self.cost.page_bytes),
            "hash table": int(self.h_S * self.cost.slot_bytes),
            "queue": self.h_S * POINTER_BYTES,
            "output": self.output.nbytes,
        }


def hybrid_output(
    facts: PlanFacts, limit: int, *, k: int | None, l: int | None, count_index: bool = True
) -> OutputPlan:
    """Room for results beside the index, the pages that were asked for, and the smallest window."""
    index = hybrid_index(facts, limit, k=k, l=l, count_index=count_index)
    return OutputPlan.of(facts, limit, index.nbytes + _pages_and_window(facts, k, l))


def hybrid_index(
    facts: PlanFacts, limit: int, *, k: int | None, l: int | None, count_index: bool = True
) -> IndexMemory:
    """How the index is held beside the same; one that is not counted is in memory as a whole."""
    if not count_index:
        return IndexMemory(nbytes=0)
    return facts.index_in(limit - OutputPlan.of(facts, limit, _pages_and_window(facts, k, l)).least, bitmap=True)


def _pages_and_window(facts: PlanFacts, k: int | None, l: int | None) -> int:
    """Bytes of the pages that were asked for, and of the smallest window."""
    pages = min(k or 1, facts.pages) + min(l or 0, facts.pages)
    return pages * page_bytes(facts) + least_window_bytes(facts)
