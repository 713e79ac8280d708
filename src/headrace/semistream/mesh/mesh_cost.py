"""What MESHJOIN and R-MESHJOIN cost: memory, the time of an iteration, and the best sizes. [MESH] §3.2, §3.3; [XHJ] §2"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Self

import numpy as np

from headrace.errors import BadInput
from headrace.metrics import Overhead
from headrace.semistream.hash_queue import POINTER_BYTES
from headrace.semistream.plan_facts import PlanFacts
from headrace.semistream.waiting_plan import page_bytes, slot_bytes


@dataclass(frozen=True, kw_only=True)
class MeshCost:
    """Memory and time of one iteration as functions of w and b. [MESH] §3.2, eq. 1-4; Table 1 names the symbols.

    c_H is one number, where Table 1 has it depend on the size of H, w * N_R / b. The buckets of our H grow with its slots, 1.5
    for each, so that chains are as long whatever the size; what grows is the share of probes that miss the processor's caches. A
    probe took 8 ns with 1,000 tuples in H, 13 with 100,000, 49 with a million and 167 with four million (one run, on a busy
    machine). `headrace calibrate` measures c_H with 65,536 tuples in H, so that the model is too fast where H has millions.

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
    def of(cls, facts: PlanFacts, **more: int) -> Self:
        """The model for these facts, with the overhead of its algorithm."""
        f = facts.factors
        cost = cls(
            pages=facts.pages,
            rows_per_page=facts.rows_per_page,
            page_bytes=page_bytes(facts),
            stream_bytes=facts.stream_bytes,
            slot_bytes=slot_bytes(facts),
            pointer_bytes=POINTER_BYTES,
            seek=facts.scan_seek,
            transfer=facts.transfer,
            stream=f.c_E + f.c_S + f.c_A,
            probe=f.c_H,
            output=f.c_O,
            matches=facts.matches,
            **more,
        )
        return cost.with_overhead(facts.overhead)

    def with_overhead(self, overhead: Overhead) -> Self:
        """The model of a machine where an iteration, a request and the steps take longer."""
        return replace(
            self,
            seek=self.seek + overhead.request,
            stream=overhead.steps * self.stream,
            probe=overhead.steps * self.probe,
            output=overhead.steps * self.output,
            overhead=overhead.iteration,
        )

    def iterations(self, b: Any) -> Any:
        """Iterations of one scan of R: packets that H holds."""
        return -(-self.pages // b)

    def pages_an_iteration(self, b: int) -> float:
        """Pages that an iteration joins with H."""
        return b

    def reads_an_iteration(self, b: int) -> float:
        """Read requests of an iteration."""
        return 1

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

    def IO_s(self, w: float, b: int) -> float:
        """IO_s, eq. 4: pages read for each stream tuple. The text and Table 1 name IO_s and IO_t the other way round."""
        return self.pages_an_iteration(b) / w

    def IO_t(self, w: float, b: int) -> float:
        """IO_t, eq. 4: pages read in a second. See IO_s."""
        return float(self.pages_an_iteration(b) / self.loop(w, b))

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


PARTITIONS = 512  # packets of R-MESHJOIN's queue, whatever the size of R


@dataclass(frozen=True, kw_only=True)
class RMeshCost(MeshCost):
    """The model of R-MESHJOIN: Q has so many partitions whatever b is, and an iteration joins N_R / partitions pages. [XHJ] §2"""

    partitions: int = PARTITIONS

    @classmethod
    def in_partitions(cls, facts: PlanFacts, partitions: int) -> RMeshCost:
        """The model for these facts, with a whole number of pages for each of at most so many partitions."""
        step = -(-facts.pages // min(partitions, facts.pages))
        return cls.of(facts, partitions=-(-facts.pages // step))

    @property
    def step(self) -> float:
        """Pages of the scan an iteration."""
        return self.pages / self.partitions

    def iterations(self, b: Any) -> Any:
        """Iterations of one scan of R."""
        return self.partitions

    def pages_an_iteration(self, b: int) -> float:
        """Pages that an iteration joins with H."""
        return self.step

    def reads_an_iteration(self, b: int) -> float:
        """Read requests of an iteration: the buffer is filled every b / step iterations."""
        return self.step / b

    def loop(self, w: Any, b: Any) -> Any:
        """Seconds of an iteration: the buffer is filled every b / step iterations."""
        io = self.overhead + self.step * (self.seek / b + self.transfer)
        return io + w * (self.stream + self.matches * self.output) + self.step * self.rows_per_page * self.probe


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
