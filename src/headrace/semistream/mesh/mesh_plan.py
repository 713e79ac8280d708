"""How the MESHJOIN family divides its memory: b pages of disk buffer, and w tuples for each of the packets of Q. [MESH] §3.2

| output | disk buffer: b pages | stream buffer: w tuples | H and Q: w tuples for each iteration of a scan |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headrace.semistream.hash_queue import POINTER_BYTES
from headrace.semistream.mesh.mesh_cost import MeshCost, candidate_buffers
from headrace.semistream.plan_facts import PlanFacts
from headrace.semistream.waiting_plan import OutputPlan, least_window_bytes, page_bytes

Tuning = Literal["optimal", "default"]
DEFAULT_BUFFER = 930_000  # bytes of the disk buffer that [DEF] recommends whatever the budget
_DEFAULT_SHARE = 0.125  # of a memory below [DEF]'s 20 MB: on its machine within 3% of the optimum from 2 MB on


@dataclass(frozen=True, kw_only=True)
class MeshPlan:
    """The sizes of MESHJOIN in a memory.

    Parameters
    ----------
    output
        ArrayAllocator for results.
    room
        Bytes for disk buffer, stream buffer, H and Q.
    cost
        The model that the sizes were chosen by.
    w, b
        Stream tuples and pages an iteration; w is 0 where not one tuple has room.
    """

    output: OutputPlan
    room: int
    cost: MeshCost
    w: int
    b: int

    @classmethod
    def of(
        cls,
        cost: MeshCost,
        facts: PlanFacts,
        limit: int,
        *,
        w: int | None = None,
        b: int | None = None,
        tuning: Tuning = "default",
    ) -> MeshPlan:
        """The given sizes; without b the default, or the one with the best service rate; without w what b leaves room for."""
        output = mesh_output(facts, limit)
        room = limit - output.nbytes
        if b is None:
            b = default_pages(facts, room) if tuning == "default" else cost.best_b(room)
        b = min(b, facts.pages)
        return cls(output=output, room=room, cost=cost, w=w or cost.w(room, b), b=b)

    @property
    def packets(self) -> int:
        """Packets of w tuples that Q holds: iterations of a scan of R."""
        return int(self.cost.iterations(self.b))

    @property
    def tuples(self) -> int:
        """Tuples that H has room for."""
        return self.w * self.packets

    @property
    def parts(self) -> dict[str, int]:
        """Bytes of each part."""
        return {
            "disk buffer": int(self.b * self.cost.page_bytes),
            "stream buffer": int(self.w * self.cost.stream_bytes),
            "hash table": int(self.tuples * self.cost.slot_bytes),
            "queue": self.tuples * POINTER_BYTES,
            "output": self.output.nbytes,
        }

    def least(self, b: int | None) -> float:
        """Bytes that would do where w is 0, with this b or any."""
        buffers = candidate_buffers(self.cost.pages, self.cost.pages) if b is None else [self.b]
        least = min(self.cost.memory(1, b) for b in buffers) + self.output.nbytes
        limit = self.room + self.output.nbytes
        return float(least + max(0.0, least - limit) / 8)  # the output takes its part of what is added


def mesh_output(facts: PlanFacts, limit: int) -> OutputPlan:
    """Room for results beside one page and the smallest window."""
    return OutputPlan.of(facts, limit, page_bytes(facts) + least_window_bytes(facts))


def default_pages(facts: PlanFacts, room: int) -> int:
    """Pages of a disk buffer of the default size. [DEF]"""
    return max(1, min(DEFAULT_BUFFER, int(room * _DEFAULT_SHARE)) // page_bytes(facts))
