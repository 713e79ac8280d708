"""MESHJOIN: join a stream with a relation by one shared cyclic scan. [MESH] §3.1-3.3"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, Self

import numpy as np
import pyarrow as pa

from headrace.clock import Clock
from headrace.conditions import Condition
from headrace.errors import BadInput, MemoryRefused, choice
from headrace.metrics import Overhead
from headrace.relation import Relation
from headrace.relation.columns import Longs
from headrace.relation.reader import PageReader
from headrace.semistream.base import How, On, Order
from headrace.semistream.hash_queue import POINTER_BYTES
from headrace.semistream.waiting_join import LEAST_WINDOW, WaitingJoin
from headrace.units import format_size

Tuning = Literal["optimal", "default"]
DEFAULT_BUFFER = 930_000  # bytes of the disk buffer that [DEF] recommends whatever the budget
_DEFAULT_SHARE = 0.25  # of the budget, where that is more


@dataclass(frozen=True)
class MeshCost:
    """Memory and time of one iteration as functions of w and b. [MESH] §3.2, eq. 1-3; Table 1 names the symbols.

    Parameters
    ----------
    pages, rows_per_page, page_bytes
        N_R, v_P / v_R, v_P (with what is noted of a page's tuples).
    stream_bytes, slot_bytes, pointer_bytes
        v_S, f * v_S, sizeof(ptr).
    seek, transfer
        c_I/O(b) = seek + b * transfer.
    stream, probe, output
        c_E + c_S + c_A; c_H; c_O.
    matches
        Results a stream tuple gives: sigma, seen from the other side.
    overhead
        Seconds of an iteration whatever w and b are. The text has none; without it the least memory for a slow stream is one page
        and a few tuples, at thousands of iterations a second.
    """

    pages: int
    rows_per_page: float
    page_bytes: float
    stream_bytes: float
    slot_bytes: float
    pointer_bytes: float
    seek: float
    transfer: float
    stream: float
    probe: float
    output: float
    matches: float = 1.0
    overhead: float = 0.0

    @classmethod
    def of(
        cls, relation: Relation, stream_bytes: float, slot_bytes: float, page_bytes: float, algorithm: str
    ) -> MeshCost:
        """For a relation on its disk; the steps of a join cost what the disk's factors say."""
        seek, transfer = relation.disk.scan_costs(relation.page_size)
        factors = relation.disk.factors
        cost = cls(
            max(1, relation.num_pages),
            relation.num_rows / max(1, relation.num_pages),
            page_bytes,
            stream_bytes,
            slot_bytes,
            POINTER_BYTES,
            seek,
            transfer,
            factors.c_E + factors.c_S + factors.c_A,
            factors.c_H,
            factors.c_O,
        )
        return cost.with_overhead(relation.disk.overhead(algorithm))

    def with_overhead(self, overhead: Overhead) -> Self:
        """On a machine where an iteration, a request and the steps take longer."""
        return replace(
            self,
            seek=self.seek + overhead.request,
            stream=overhead.steps * self.stream,
            probe=overhead.steps * self.probe,
            output=overhead.steps * self.output,
            overhead=overhead.iteration,
        )

    def iterations(self, b: Any) -> Any:
        """Of one scan of R: packets that H holds."""
        return -(-self.pages // b)

    def memory(self, w: Any, b: Any) -> Any:
        """M(w, b), eq. 1."""
        return b * self.page_bytes + w * self._each(b)

    def _each(self, b: Any) -> Any:
        """Bytes that one more tuple an iteration takes."""
        return self.stream_bytes + self.iterations(b) * (self.pointer_bytes + self.slot_bytes)

    def w(self, memory: float, b: float) -> int:
        """The largest w within a memory: eq. 1 solved, [DEF] eq. 3."""
        return int(self._w(memory, b))

    def _w(self, memory: float, b: Any) -> Any:
        return np.maximum(0, np.trunc((memory - b * self.page_bytes) / self._each(b)))

    def loop(self, w: Any, b: Any) -> Any:
        """c_loop, eq. 2: seconds of an iteration."""
        io, probes = self.seek + b * self.transfer, b * self.rows_per_page * self.probe
        return self.overhead + io + w * self.stream + probes + w * self.matches * self.output

    def rate(self, memory: float, b: float) -> float:
        """mu, eq. 3: stream tuples a second with all of a memory in use."""
        w = self.w(memory, b)
        return float(w / self.loop(w, b))

    def best_b(self, memory: float) -> int:
        """The disk buffer that makes mu largest. [MESH] §3.3"""
        b = np.array(candidate_buffers(self.pages, int(memory / self.page_bytes)))
        w = self._w(memory, b)
        return int(b[np.argmax(w / self.loop(w, b))])

    def least(self, rate: float) -> tuple[int, int, float]:
        """w, b and M of the least memory that keeps up with a rate. [MESH] §3.3"""
        # w = rate * c_loop, and c_loop grows with w: solved for w.
        alone = self.stream + self.matches * self.output
        if rate * alone >= 1:
            raise BadInput(
                f"{rate:,.0f} tuples a second cannot be kept up with by MESHJOIN in any memory: a tuple alone takes"
                f" {1e6 * alone:.1f} µs"
            )
        b = np.array(candidate_buffers(self.pages, self.pages))
        w = np.ceil(rate * self.loop(0, b) / (1 - rate * alone))
        memory = self.memory(w, b)
        best = int(np.argmin(memory))
        return int(w[best]), int(b[best]), float(memory[best])


def candidate_buffers(pages: int, most: int) -> list[int]:
    """Sizes of a disk buffer to compare: every small one, then in steps of an eighth."""
    last = max(1, min(pages, most))
    return [b for b in _sizes(last.bit_length()) if b <= last]


@lru_cache
def _sizes(bits: int) -> tuple[int, ...]:
    sizes, b = [], 1
    while b < 1 << bits:
        sizes.append(b)
        b = max(b + 1, b + b // 8)
    return tuple(sizes)


class MeshJoin(WaitingJoin):
    """Scan the relation round and round; every stream tuple stays for one round and so meets every page.

        R  p0 p1 p2 ... --b pages a time--> [disk buffer] --probe--> [H: the last N_R/b packets of w tuples] <--w-- S
                                                                     [Q: packets, oldest first          ]

    Choose it for a relation without an index on the join column, or for streams so fast and scattered that most pages are
    wanted anyway. It is exact for many-to-many joins, and blind to skew.

    Parameters
    ----------
    relation, on, memory, how, columns, suffix, clock, order
        See WaitingJoin.
    condition
        What pairs must satisfy besides `on`, or instead of it where `on` is None: compare, between, band, within, intersects or
        all_of ([MESH] §3.4). Alone it leaves no use for the key, whose columns then are in the result like any other.
    w, b
        Stream tuples and pages an iteration. Without them b is tuned and w is what the memory allows.
    tuning
        "optimal": the b with the best service rate by the cost model. "default": a fixed buffer of 0.93 MB ([DEF]), a quarter
        of the memory at most.

    Example
    -------
    >>> import pyarrow as pa, tempfile, headrace as hr
    >>> from headrace.semistream import MeshJoin
    >>> lookup = pa.table({"id": [1, 2, 3], "skey": [100, 110, 120]})
    >>> rel = hr.Relation.create(tempfile.mkdtemp() + "/lookup", lookup, key="id")
    >>> op = MeshJoin(rel, on="id", memory="1MiB")
    >>> pa.Table.from_batches(op.run([pa.record_batch({"id": [2, 1, 2]})])).sort_by("skey").to_pydict()
    {'id': [1, 2, 2], 'skey': [100, 110, 110]}

    References
    ----------
    [MESH] §3.1 (Fig. 4), §3.2, §3.3, §3.4.

    Deviations: when the stream ends, or a batch is joined to its end, what is left enters H at once, as far as there is room,
    instead of w tuples an iteration; without it a last packet would wait for scans that no new tuple shares.
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
    ) -> None:
        self.tuning: Tuning = choice("tuning", tuning, ("optimal", "default"))  # type: ignore[assignment]
        for name, value in (("w", w), ("b", b)):
            if value is not None and value < 1:
                raise BadInput(
                    f"{name}={value} is not a number of {'tuples' if name == 'w' else 'pages'}; give 1 or more"
                )
        self.w, self.b, self.condition = w, b, condition
        super().__init__(relation, on, memory, how=how, columns=columns, suffix=suffix, clock=clock, order=order)
        self._page = 0  # where the scan is
        self._Q: deque[tuple[int, int]] = deque()  # packets: tuples, and the iteration at whose start they leave
        self._iteration = 0
        self._w = self._b = 0

    def _least(self) -> int:
        return self._page_bytes + LEAST_WINDOW * int(self._slot_bytes + POINTER_BYTES + 80)

    def cost(self, stream_bytes: float) -> MeshCost:
        """The cost model for stream tuples of so many bytes. [MESH] §3.2"""
        slot = self._slot_bytes - self._stream_bytes + stream_bytes
        return MeshCost.of(self.relation, stream_bytes, slot, self._page_bytes, type(self).__name__.lower())

    def _begin(self) -> None:
        memory = self._room - self._output_bytes
        cost = self.cost(self._stream_bytes)
        self._b = min(self.b or self._tuned(cost, memory), max(1, self._places.size))
        self._w = self.w or cost.w(memory, self._b)
        if not self._w:
            self._refuse(cost)
        self._reserve("disk buffer", self._b * self._page_bytes)
        self._reserve("stream buffer", int(self._w * self._stream_bytes))
        self._make_window(self._w * max(1, self._partitions))
        self._disk_buffer = PageReader(self._version, self._b * self.relation.page_size, whole=True)

    def _refuse(self, cost: MeshCost) -> None:
        """Not even one stream tuple an iteration has room."""
        buffers = [self._b] if self.b else candidate_buffers(cost.pages, cost.pages)
        least = min(cost.memory(1, b) for b in buffers) + self._output_bytes
        least += max(0.0, least - self._room) / 8  # the output takes its part of what is added
        whole = format_size(int(least * self.budget.limit / self._room) + 1)
        raise MemoryRefused(
            f"memory={format_size(self.budget.limit)} is too small for {type(self).__name__} with {self.relation.path}: a stream"
            f" tuple for each iteration of a scan and the disk buffer need {whole}; give {whole} or more"
        )

    def _tuned(self, cost: MeshCost, memory: int) -> int:
        if self.tuning == "default":
            return max(1, min(DEFAULT_BUFFER, int(memory * _DEFAULT_SHARE)) // self._page_bytes)
        return cost.best_b(memory)

    @property
    def _partitions(self) -> int:
        """Iterations of one round: packets that Q holds."""
        return -(-self._places.size // self._b)

    def _wanted_now(self) -> int:
        return self._w

    def _iterate(self, w: int) -> Iterator[pa.RecordBatch]:
        while self._Q and self._Q[0][1] <= self._iteration:
            yield from self._leave(self._H.oldest(self._Q.popleft()[0]))
        before = self._H.used
        yield from self._take_in(w)
        if self._H.used > before:
            self._Q.append((self._H.used - before, self._iteration + self._partitions))
        for addresses in self._next_pages(self._b):
            yield from self._probe(addresses)
        self._iteration += 1

    def _next_pages(self, b: int) -> Iterator[Longs]:
        """Read the next b pages of the scan, fewer before its end; yields their addresses."""
        places = self._places[self._page : self._page + b]
        for _, _, addresses in self._disk_buffer.read(places, self.stats, bridge=False):
            yield addresses
        self._page = (self._page + places.size) % max(1, self._places.size)

    def _position(self) -> list[int]:
        return [self._page]

    def _go_to(self, position: list[int]) -> None:
        self._page = position[0]
