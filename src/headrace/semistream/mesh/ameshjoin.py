"""AMESHJOIN: MESHJOIN whose w and b change while it runs. [MESH] §3.3, Fig. 6"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from headrace.clock import Clock
from headrace.conditions import Condition
from headrace.errors import BadInput
from headrace.relation import Relation
from headrace.relation.columns import Longs
from headrace.relation.reader import PageReader
from headrace.semistream.base import How, On, Order
from headrace.semistream.hash_queue import POINTER_BYTES
from headrace.semistream.mesh.meshjoin import MeshCost
from headrace.semistream.waiting_join import LEAST_WINDOW, WaitingJoin

_EMA = 0.3  # weight of the newest arrivals in the rate, and of the newest iteration in how slow they are
_HEADROOM = 1.1  # the rate to keep up with, over the one observed

Tuner = Callable[["AMeshJoin"], tuple[int, int]]


class RateTuner:
    """Watches the arrival rate and chooses the least memory that keeps up with it. [MESH] §3.3, online tuning

    The rate is that of the tuples offered between two iterations, by the operator's clock. A backlog counts as rate too: it is to
    be worked off within one scan of R. What the maximum of memory cannot keep up with gets all of it.

    Where iterations take longer than the cost model says, the rate to keep up with counts for as much more. Without that a stream
    that is always there was lost: what the join took in was the rate it saw, which the model thought less memory would do
    for, with which it took in less.
    """

    def __init__(self) -> None:
        self.rate = 0.0
        self.slow = 1.0
        self._seen: tuple[float, int] | None = None

    def __call__(self, op: AMeshJoin) -> tuple[int, int]:
        """w and b for the next iteration."""
        now, offered = op.clock.now(), op.stats.tuples_in
        if self._seen is not None and now > self._seen[0]:
            observed = (offered - self._seen[1]) / (now - self._seen[0])
            self.rate += _EMA * (observed - self.rate) if self.rate else observed
        if self._seen is None or now > self._seen[0]:
            self._seen = now, offered
        cost = op.cost()
        if op.last is not None:
            w, b, seconds = op.last
            self.slow = max(1.0, self.slow + _EMA * (seconds / cost.loop(w, b) - self.slow))
        most = cost.best_b(op.most_memory)
        rate = self.rate + op.backlog / (cost.loop(0, most) * -(-cost.pages // most))
        if not self.rate:
            return max(1, cost.w(op.most_memory, most)), most
        try:
            w, b, memory = cost.least(_HEADROOM * self.slow * rate)
        except BadInput:  # no memory would do
            memory = op.most_memory + 1.0
        if memory > op.most_memory:
            return max(1, cost.w(op.most_memory, most)), most
        return max(1, w), b


class AMeshJoin(WaitingJoin):
    """MESHJOIN for a stream whose rate changes: each iteration has its own w and b.

        Q  (packet, start page) (packet, start page) ...      a packet leaves after the page before its start page

    Choose it over MeshJoin when memory is wanted elsewhere while the stream is slow: `budget` is its maximum, and it holds the
    least that keeps up.

    Parameters
    ----------
    relation, on, memory, how, columns, suffix, clock, order
        See WaitingJoin. `memory` is the most it may take.
    condition
        See MeshJoin.
    tuner
        Called before each iteration with the operator, gives (w, b). RateTuner by default.

    Example
    -------
    >>> import pyarrow as pa, tempfile, headrace as hr
    >>> from headrace.semistream import AMeshJoin
    >>> lookup = pa.table({"id": [1, 2, 3], "skey": [100, 110, 120]})
    >>> rel = hr.Relation.create(tempfile.mkdtemp() + "/lookup", lookup, key="id")
    >>> op = AMeshJoin(rel, on="id", memory="1MiB", tuner=lambda op: (2, 1))
    >>> pa.Table.from_batches(op.run([pa.record_batch({"id": [2, 1, 2]})])).sort_by("skey").to_pydict()
    {'id': [1, 2, 2], 'skey': [100, 110, 110]}

    References
    ----------
    [MESH] §3.3, Fig. 6, Example 3.1.

    Deviations: Theorem 3.2 asks for a service rate of at most the arrival rate; keeping up needs at least that, which is what the
    tuner aims at. Pages between two departures are joined together and not one by one: no packet comes or goes between them. An
    iteration that goes past the last page reads in two requests.
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
        tuner: Tuner | None = None,
    ) -> None:
        self.tuner: Tuner = tuner or RateTuner()
        self.condition = condition
        super().__init__(relation, on, memory, how=how, columns=columns, suffix=suffix, clock=clock, order=order)
        self._page = 0  # currPage
        self._Q: deque[tuple[int, int]] = deque()  # packets: tuples, start page
        self._next = (0, 0)
        self.last: tuple[int, int, float] | None = None
        """tuples and pages of the last iteration, and the seconds it took"""

    def _least(self) -> int:
        return self._page_bytes + LEAST_WINDOW * int(self._slot_bytes + POINTER_BYTES + 80)

    @property
    def most_memory(self) -> int:
        """Bytes for disk buffer, stream buffer, H and Q at most."""
        return self._room - self._output_bytes

    @property
    def backlog(self) -> int:
        """Stream tuples offered that are not in H yet."""
        return self._buffered

    @property
    def packets(self) -> list[tuple[int, int]]:
        """Q: tuples and start page of each packet, oldest first."""
        return list(self._Q)

    @property
    def page(self) -> int:
        """currPage: the next page to be read."""
        return self._page

    def cost(self) -> MeshCost:
        """The cost model for the stream at hand. [MESH] §3.2"""
        return MeshCost.of(self.relation, self._stream_bytes, self._slot_bytes, self._page_bytes, "ameshjoin")

    def _begin(self) -> None:
        self._disk_buffer = PageReader(self._version, self.relation.page_size, whole=True)
        self._make_window(LEAST_WINDOW)

    def _wanted_now(self) -> int:
        if not self._next[0]:
            self._next = self._fitted(*self.tuner(self))
        return self._next[0]

    def _room_now(self) -> int:
        self._wanted_now()
        return self._fitted(self._buffered or 1, self._next[1])[0]

    def _fitted(self, w: int, b: int) -> tuple[int, int]:
        """As much of (w, b) as the maximum of memory has room for beside the tuples that wait."""
        if w < 1 or b < 1:
            raise BadInput(f"the tuner gave w={w}, b={b}; both must be 1 or more")
        each = self._slot_bytes + POINTER_BYTES
        spare = self.most_memory - (self._H.used + 1) * each - self._stream_bytes
        b = max(1, min(b, self._places.size, int(spare / self._page_bytes)))
        fits = int((spare - b * self._page_bytes) / (each + self._stream_bytes))
        return max(1, min(w, fits)), b

    def _iterate(self, w: int) -> Iterator[pa.RecordBatch]:
        self._wanted_now()
        b, self._next = self._next[1], (0, 0)
        begun, taken = self.clock.now(), self._buffered
        self._resize(w, b)
        before = self._H.used
        yield from self._take_in(w)
        if self._H.used > before:
            self._Q.append((self._H.used - before, self._page))
        if not self._places.size:
            yield from self._leave(self._H.oldest(self._H.used))
            self._Q.clear()
            return
        start, n = self._page, self._places.size
        wrapped = max(0, start + b - n)
        for places in (self._places[start : start + b], self._places[:wrapped]):
            for _, _, addresses in self._disk_buffer.read(places, self.stats, bridge=False):
                yield from self._join_pages(addresses)
        self.last = taken - self._buffered, b, self.clock.now() - begun

    def _join_pages(self, addresses: Longs) -> Iterator[pa.RecordBatch]:
        """Join pages from currPage on; a packet leaves before its start page comes again."""
        n, done = self._places.size, 0
        while self._Q:
            left = (self._Q[0][1] - self._page - 1) % n + 1  # pages the oldest packet has still to meet
            if left > addresses.size - done:
                break
            yield from self._probe(addresses[done : done + left])
            yield from self._leave(self._H.oldest(self._Q.popleft()[0]))
            done += left
            self._page = (self._page + left) % n
        yield from self._probe(addresses[done:])
        self._page = (self._page + addresses.size - done) % n

    def _resize(self, w: int, b: int) -> None:
        """Hold what this iteration needs, and no more."""
        capacity = max(LEAST_WINDOW, self._H.used + w)
        room = self.most_memory - b * self._page_bytes - int(w * self._stream_bytes)
        fits = self._H.capacity * (self._slot_bytes + POINTER_BYTES) <= room
        if not (fits and 0.65 * self._H.capacity <= capacity <= self._H.capacity):
            # Some more than now, so that a window that grows is not copied in every iteration.
            most = max(capacity, min(capacity + capacity // 4, int(room / (self._slot_bytes + POINTER_BYTES))))
            for part in ("disk buffer", "stream buffer"):
                self._reserve(part, 0)
            self._make_window(most)
        if self._disk_buffer.pages != b:
            self._disk_buffer = PageReader(self._version, b * self.relation.page_size, whole=True)
        self._reserve("stream buffer", 0)
        self._reserve("disk buffer", b * self._page_bytes)
        self._reserve("stream buffer", int(w * self._stream_bytes))

    def _position(self) -> list[int]:
        return [self._page]

    def _go_to(self, position: list[int]) -> None:
        self._page = position[0]
