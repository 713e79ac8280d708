"""R-MESHJOIN: MESHJOIN with a disk buffer that does not follow from the queue's partitions. [XHJ] §2"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.clock import Clock
from headrace.conditions import Condition
from headrace.errors import BadInput
from headrace.relation import Relation
from headrace.relation.columns import Longs
from headrace.semistream.base import How, On, Order
from headrace.semistream.mesh.meshjoin import MeshCost, MeshJoin, Tuning

PARTITIONS = 512  # of the queue


@dataclass(frozen=True)
class RMeshCost(MeshCost):
    """As MeshCost, with Q in so many partitions whatever b is: an iteration is N_R / partitions pages of the scan."""

    partitions: int = PARTITIONS

    @property
    def step(self) -> float:
        """Pages of the scan an iteration."""
        return self.pages / self.partitions

    def iterations(self, b: Any) -> Any:
        """Of one scan of R."""
        return self.partitions

    def loop(self, w: Any, b: Any) -> Any:
        """Seconds of an iteration: the buffer is filled every b / step iterations."""
        io = self.overhead + self.step * (self.seek / b + self.transfer)
        return io + w * (self.stream + self.matches * self.output) + self.step * self.rows_per_page * self.probe


class RMeshJoin(MeshJoin):
    """MESHJOIN that chooses the disk buffer for the disk, and the queue's partitions for the stream.

        R --b pages a read--> [disk buffer: b pages] --N_R / partitions pages an iteration--> H

    In MESHJOIN b sets both how much a read brings and how many packets Q has, N_R / b, so that a larger R means more packets or
    a larger buffer. Here the two are apart: the size of R changes neither b nor the number of packets.

    Parameters
    ----------
    relation, on, memory, how, columns, suffix, clock, order, condition, w, b, tuning
        See MeshJoin.
    partitions
        Packets of the queue; at most one a page.

    References
    ----------
    [XHJ] §2, which describes it in a few lines; its own paper is not among ours.

    Deviations: how an iteration takes its pages from the buffer is our reading of those lines.
    """

    def __init__(
        self,
        relation: Relation,
        on: On | None = None,
        memory: int | str = "64MiB",
        *,
        how: How = "inner",
        columns: Sequence[str] | None = None,
        suffix: str | None = "_right",
        clock: Clock | None = None,
        order: Order = "any",
        condition: Condition | None = None,
        w: int | None = None,
        b: int | None = None,
        tuning: Tuning = "optimal",
        partitions: int = PARTITIONS,
    ) -> None:
        if partitions < 1:
            raise BadInput(f"partitions={partitions} is not a number of packets; give 1 or more")
        self.partitions = partitions
        self._loaded: Longs = np.empty(0, np.int64)  # addresses of pages read and not yet joined
        self._ahead = 0  # the page after them
        super().__init__(
            relation,
            on,
            memory,
            how=how,
            columns=columns,
            suffix=suffix,
            clock=clock,
            order=order,
            condition=condition,
            w=w,
            b=b,
            tuning=tuning,
        )

    def cost(self, stream_bytes: float) -> RMeshCost:
        """The cost model for stream tuples of so many bytes."""
        base = super().cost(stream_bytes)
        names = MeshCost.__dataclass_fields__
        return RMeshCost(**{name: getattr(base, name) for name in names}, partitions=self._partitions)

    @property
    def _partitions(self) -> int:
        """Iterations of one round."""
        step = -(-self._places.size // min(self.partitions, max(1, self._places.size)))
        return max(1, -(-self._places.size // max(1, step)))

    def _next_pages(self, b: int) -> Iterator[Longs]:
        """The pages of the next iteration, from the buffer; it is filled when it is empty."""
        n = self._places.size
        wanted = min(-(-n // self._partitions), n - self._page)
        while wanted:
            if not self._loaded.size:
                places = self._places[self._ahead : self._ahead + b]
                (loaded,) = (addresses for _, _, addresses in self._disk_buffer.read(places, self.stats, bridge=False))
                self._loaded, self._ahead = loaded, (self._ahead + places.size) % n
            some, self._loaded = self._loaded[:wanted], self._loaded[wanted:]
            yield some
            wanted -= some.size
            self._page = (self._page + some.size) % n

    def _go_to(self, position: list[int]) -> None:
        super()._go_to(position)
        self._ahead, self._loaded = self._page, np.empty(0, np.int64)
