"""What HYBRIDJOIN and X-HYBRIDJOIN cost: memory, an iteration, the stream tuples it serves, and the best sizes. [XHJ] §4.3, §6"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from headrace.arrays import Float64s
from headrace.metrics import Overhead
from headrace.semistream.hash_queue import POINTER_BYTES
from headrace.semistream.mesh.mesh_cost import candidate_buffers
from headrace.semistream.plan_facts import PlanFacts
from headrace.semistream.waiting_plan import page_bytes, slot_bytes

_EXACT = 4096  # terms of a sum that are added one by one; the rest is computed by its integral
_ROUNDS = 3  # times that k is tuned for an l, and l for that k
_HALVINGS = 32  # of an interval, until T is known to ten digits


@lru_cache(maxsize=64)
def _first_sums(exponent: float) -> Float64s:
    """Sums of the first 0, 1, 2, ... terms."""
    return np.append(0.0, np.cumsum(np.arange(1.0, _EXACT + 1) ** -exponent))


def zipf_sum(x: Any, exponent: float) -> Float64s:
    """Sum of i ** -exponent for i = 1 .. x, for every x: exact up to 4096, then by Euler and Maclaurin to 9 digits or more."""
    x = np.asarray(x, np.float64)
    near = _first_sums(exponent)
    tail = np.maximum(x, _EXACT)
    if exponent == 1:
        area = np.log(tail / _EXACT)
    else:
        area = (tail ** (1 - exponent) - _EXACT ** (1 - exponent)) / (1 - exponent)
    beyond = area + (tail**-exponent - _EXACT**-exponent) / 2
    sums: Float64s = np.interp(np.minimum(x, _EXACT), np.arange(near.size), near) + beyond
    return sums


@dataclass(frozen=True, kw_only=True)
class HybridCost:
    """Memory, time and tuples of one iteration as functions of k and l. [XHJ] eq. 1-9; Table 1 names the symbols.

    w, the stream tuples an iteration serves, comes in three forms. `w_printed` is eq. 9: it takes p(1 - p), a variance, where a
    mean is meant. `w_mean` puts the mean p in its place. Both give every partition the same share of what waits, but the one
    that is loaded belongs to the oldest tuple and has collected for longest: at exponent 0 it has twice the share. `w` follows
    from what the algorithm does. A partition is loaded when the first tuple that came for it since its last load has become the
    oldest, T stream tuples later; so it is loaded every 1/p + T tuples and serves 1 + p*T, and T is such that H is full.

    Against simulated runs (60,000 tuples in R, exponents 0, 0.5 and 1, k from 8 to 57, l from 0 to 30) w_printed was 26% to 78%
    too low and w_mean 22% to 50%; `w` was within 7%, and in most runs within 1%, and so was the rate. At exponent 1.2, beyond
    the text's range, it was up to 21% off where one partition had most of the stream.

    Parameters
    ----------
    pages, rows_per_page, page_bytes
        Of R; v_P / v_R; v_P (with what is noted of a page's tuples).
    slot_bytes, pointer_bytes
        Bytes of a waiting tuple in H, and in Q.
    seek, transfer
        c_I/O(k * v_P) = seek + k * transfer.
    stream, probe, output
        c_E + c_S + c_A; c_H; c_O.
    skew
        The exponent of the stream's Zipf distribution.
    popular
        Whether R is stored by popularity; else popular keys lie anywhere.
    overhead
        Seconds of an iteration that no tuple or page causes; see MeshCost.
    index
        Seconds to read the index pages that lead to a partition, where the index is not in memory as a whole.
    """

    pages: int
    rows_per_page: float
    page_bytes: float
    slot_bytes: float
    pointer_bytes: float
    seek: float
    transfer: float
    stream: float
    probe: float
    output: float
    skew: float = 1.0
    popular: bool = True
    overhead: float = 0.0
    index: float = 0.0

    @classmethod
    def of(cls, facts: PlanFacts, index_reads: float = 0.0) -> HybridCost:
        """The model for these facts, with the overhead of its algorithm. A tuple without a match makes no result.

        `index_reads`: index pages that are read for the tuple that has waited longest.
        """
        f = facts.factors
        cost = cls(
            pages=facts.pages,
            rows_per_page=facts.rows_per_page,
            page_bytes=page_bytes(facts),
            slot_bytes=slot_bytes(facts),
            pointer_bytes=POINTER_BYTES,
            seek=facts.seek,
            transfer=facts.transfer,
            stream=f.c_E + f.c_S + f.c_A,
            probe=f.c_H,
            output=facts.matches * f.c_O,
            skew=facts.skew,
            popular=facts.popular,
            index=index_reads * (facts.seek + facts.transfer),
        )
        return cost.with_overhead(facts.overhead)

    def with_overhead(self, overhead: Overhead) -> HybridCost:
        """The model of a machine where an iteration, a request and the steps take longer."""
        return replace(
            self,
            seek=self.seek + overhead.request,
            stream=overhead.steps * self.stream,
            probe=overhead.steps * self.probe,
            output=overhead.steps * self.output,
            overhead=overhead.iteration,
        )

    # -- memory and time -------------------------------------------------------------------------------------------------

    def memory(self, h_S: float, k: float, l: float = 0) -> float:
        """M, eq. 4 (eq. 1 where k = l): both parts of the disk buffer, H and Q."""
        return (k + l) * self.page_bytes + h_S * (self.slot_bytes + self.pointer_bytes)

    def h_S(self, memory: float, k: float, l: float = 0) -> int:
        """Stream tuples that H holds in what the disk buffer leaves of a memory."""
        return max(0, int((memory - (k + l) * self.page_bytes) / (self.slot_bytes + self.pointer_bytes)))

    def loop(self, w: float, k: float, l: float = 0) -> float:
        """c_loop, eq. 5 (eq. 2 where k = l): seconds of an iteration."""
        probes = (k + l) * self.rows_per_page
        cpu = self.overhead + probes * self.probe + w * (self.stream + self.output)
        return self.index + self.seek + k * self.transfer + cpu

    def rate(self, memory: float, k: float, l: float = 0) -> float:
        """mu, eq. 6: stream tuples a second with all of a memory in use."""
        w = self.w(self.h_S(memory, k, l), k, l)
        return w / self.loop(w, k, l)

    # -- the tuples that an iteration serves -----------------------------------------------------------------------------

    def p_N(self, l: float) -> float:
        """The chance that a stream tuple matches the non-swappable part."""
        rows = self.pages * self.rows_per_page
        return float(zipf_sum(min(l * self.rows_per_page, rows), self.skew) / zipf_sum(rows, self.skew)) if l else 0.0

    def w_printed(self, h_S: float, k: float, l: float = 0) -> float:
        """Eq. 9 as it is printed."""
        old, new = self._p_old_new(k, l)
        return h_S * old * (1 - old) / (1 + old * (1 - old) - new * (1 - new))

    def w_mean(self, h_S: float, k: float, l: float = 0) -> float:
        """Eq. 9 with means: w = (h_S - w) * p_old + w * p_new."""
        old, new = self._p_old_new(k, l)
        return h_S * old / (1 + old - new)

    def w(self, h_S: float, k: float, l: float = 0) -> float:
        """Stream tuples an iteration serves, in the mean, when H is full of what a stream of this skew leaves in wait."""
        if h_S <= 1 or l >= self.pages:
            return float(h_S)
        p, many = self._partitions(k, l)
        p_N = self.p_N(l)
        share = p / (1 - p_N)  # of the tuples that have to wait

        def served(T: float) -> float:
            return 1 / float((many * share / (1 + share * T)).sum())

        def held(T: float) -> float:
            waiting = float((many * share * T * (1 + share * T / 2) / (1 + share * T)).sum())
            # H is full before the non-swappable part lets its own go; then comes the load. In the mean over the stream fewer
            # wait: h go at once, S by the load, and of those that come in their place half are still to come; S of the stream's
            # tuples see a load of S.
            mean = served(T)
            h = mean * p_N / (1 - p_N)
            square = float((many * share * (1 + share * T)).sum())
            return waiting + (1 - p_N**2) / 2 * (square + 2 * h + h * h / mean)

        low, high = 0.0, 2.0 * h_S  # at least half of T tuples wait
        for _ in range(_HALVINGS):
            T = (low + high) / 2
            low, high = (T, high) if held(T) < h_S else (low, T)
        return min(h_S, served(low) / (1 - p_N))

    def _p_old_new(self, k: float, l: float) -> tuple[float, float]:
        """Eq. 7 and 8."""
        n = max(1.0, (self.pages - l) / k)
        p_N = self.p_N(l)
        return 1 / n, p_N + (1 - p_N) / n

    def _partitions(self, k: float, l: float) -> tuple[Float64s, Float64s]:
        """The chance of a stream tuple to need a partition, for groups of like partitions, and how many each group has."""
        n = -(-(self.pages - l) // k)
        edges = np.array([0.0, *(b for b in candidate_buffers(int(n), int(n)) if b < n), n])
        many = np.diff(edges)
        rows = self.pages * self.rows_per_page
        total = zipf_sum(rows, self.skew)
        if self.popular:
            tuples = np.minimum((l + edges * k) * self.rows_per_page, rows)
            return np.diff(zipf_sum(tuples, self.skew)) / total / many, many
        # Dealt like cards: each of the n most popular keys to another partition, all others evenly.
        dealt = np.minimum(edges, rows)
        rest = total - zipf_sum(dealt[-1], self.skew)
        return (np.diff(zipf_sum(dealt, self.skew)) / many + rest / n) / total, many

    # -- tuning ----------------------------------------------------------------------------------------------------------

    def best(self, memory: float, k: int | None = None, l: int | None = None) -> tuple[int, int]:
        """The k and l that make mu largest, or the one that is not given. [XHJ] §6.3

        One is tuned for the other in turn: the surface has one top (Fig. 4).
        """
        most = int(memory / self.page_bytes)
        best_k, best_l = k or 1, l or 0
        for _ in range(_ROUNDS):
            before = best_k, best_l
            if l is None:
                sizes = [0, *candidate_buffers(self.pages, most - best_k)]
                best_l = max(sizes, key=lambda size: self.rate(memory, best_k, size))
            if k is None:
                sizes = candidate_buffers(max(1, self.pages - best_l), most - best_l)
                best_k = max(sizes, key=lambda size: self.rate(memory, size, best_l))
            if before == (best_k, best_l):
                break
        return best_k, best_l
