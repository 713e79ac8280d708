"""The memory of SSIJ: the parts that are set aside, and the rest that CR, SB and II move between each other. [SSIJ] §IV.A

    | output | index | read buffer | IB | SB: slots | CR -->                         <-- SB: columns, II |

What is right of SB's slots moves: CR has what waiting tuples leave, and gives way.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.errors import MemoryRefused
from headrace.relation import Relation
from headrace.relation.disk import PlanKind
from headrace.relation.keys import Ints
from headrace.relation.reader import PageReader, key_column
from headrace.relation.store import TupleStore
from headrace.semistream.base import On
from headrace.semistream.deadlines import Deadlines, JoinTime
from headrace.semistream.hash_queue import StreamWindow
from headrace.semistream.sizes import tuple_bytes
from headrace.semistream.snapshot import Snapshot
from headrace.semistream.ssij.balance import Balance, sharing
from headrace.semistream.ssij.page_cache import FRAME_BYTES, PageCache, Policy
from headrace.semistream.ssij.stream_buffer import (
    LIST_BYTES,
    NUMBER_BYTES,
    PAIR_BYTES,
    SLOT_BYTES,
    InvertedIndex,
    StreamBuffer,
    tuples_that_fit,
)
from headrace.semistream.waiting_join import LEAST_WINDOW, WaitingJoin
from headrace.units import format_size

_WORK_BYTES = 160  # of a tuple in an online phase: its key, its order, its pages, where they are
_PLAN_BYTES = 64  # of a page in a read plan
_IB_SHARE, _SCAN_SHARE = 0.04, 0.35  # of the memory that is left, by default
_LEAST_IB, _MOST_IB = 16, 1 << 13
_LEAST_CHUNK = 64  # pairs of a tuple and a page looked at together
# Of the longest, and pages: where one plan ends and the next begins, a run may be cut
_RUNS, _MOST_PLANNED = 16, 1 << 14


def planned_together(left: float, scan: int) -> int:
    """Pages of one read plan, out of so many bytes, with reads of `scan` pages at most."""
    return int(np.clip(min(_IB_SHARE * left / _PLAN_BYTES, _RUNS * scan), _LEAST_CHUNK, _MOST_PLANNED))


class SSIJMemory(WaitingJoin):
    """What SSIJ holds, how large it is, and the books of it. SSIJ sets the parameters below before this class is initialised."""

    IB_thresh: int | None
    SB_thresh: int | None
    max_scan: int
    plan: PlanKind
    cache: Policy
    split: float | None
    _range: tuple[str, str] | None
    _window: StreamWindow

    def __init__(self, relation: Relation, on: On | None, memory: int | str, **options: Any) -> None:
        super().__init__(relation, on, memory, **options)
        self._SB = StreamBuffer(0, relation.codec)
        self._H = self._SB  # type: ignore[assignment]  # it stands where other joins have H and Q
        self._II = InvertedIndex(self._places)
        self._CR = PageCache(relation.page_size, 0)
        self._IB = Deadlines()
        self._time = JoinTime(relation.disk.costs(relation.page_size), relation.disk.factors)
        self._balance = Balance()
        self._ending = self._lent = False
        self._IB_now = self._SB_now = self._moving = 0
        self._reserve("index", relation.index_bytes)

    def _new_window(self, schema: pa.Schema) -> StreamWindow:
        return StreamWindow()  # slots for columns would be memory that does not move

    def _least(self) -> int:
        each = 64 + SLOT_BYTES + NUMBER_BYTES + PAIR_BYTES + LIST_BYTES
        tuples = LEAST_WINDOW * each + (_LEAST_IB + _LEAST_CHUNK) * (64 + _WORK_BYTES)
        return self.relation.index_bytes + 3 * (self.relation.page_size + FRAME_BYTES) + tuples

    def _begin(self) -> None:
        relation, v_S = self.relation, self._stream_bytes
        left = self._room - self._output_bytes - relation.index_bytes
        page = relation.page_size
        self._scan = max(1, min(self.max_scan, self._places.size, int(_SCAN_SHARE * left) // page // self._halves))
        seek, transfer = relation.disk.costs(page)
        self._time.scan = self._places.size * (seek / self._scan + transfer)
        share = int(_IB_SHARE * left / (v_S + _WORK_BYTES))
        self._IB_now = self.IB_thresh or int(np.clip(share, _LEAST_IB, _MOST_IB))
        self._chunk = max(_LEAST_CHUNK, self._IB_now)
        self._planned = planned_together(left, self._scan)
        self._reserve(
            "read buffer", self._scan * self._halves * page + min(self._planned, self._places.size) * _PLAN_BYTES
        )
        self._reserve("IB", int(self._IB_now * v_S) + self._chunk * _WORK_BYTES)
        self._CR = PageCache(page, min(self._left_to_move() // (page + FRAME_BYTES), self._places.size), self.cache)
        self._disk_buffer = self._new_reader()
        self._size_buffer()

    def _size_buffer(self) -> None:
        """SB, which is empty, with room for as many tuples as start a join phase, and an online phase."""
        self._reserve("SB", 0)
        share = self._balance.share if self.split is None else 1 - self.split
        room = share * (self._left_to_move() - self._IB_now * SLOT_BYTES)
        if self.order == "stream":  # results of all tuples in SB are held until the last of them has met its page
            matches = max(1.0, self.relation.num_rows / max(1, self.relation.distinct_keys))
            width = self._stream_bytes + tuple_bytes(self.relation, [c for c in self._payload if c.name]) + 8
            room = min(room, self._tuple_bytes * (self.budget.limit - self._room) / 2 / matches / width)
        self._SB_now = self.SB_thresh or max(1, int(self._fits(room)))
        slots = self._SB_now + self._IB_now
        most = int(self._fits(self._left_to_move())) - self._IB_now
        if self.SB_thresh and self._SB_now > max(1, most):
            raise MemoryRefused(
                f"SB_thresh={self._SB_now} does not fit memory={format_size(self.budget.limit)}: a waiting tuple takes"
                f" {self._tuple_bytes:.0f} bytes; give {max(1, most)} or fewer, more memory, or leave it out"
            )
        self._SB = StreamBuffer(slots, self._version.codec, ranges=self._range is not None)
        self._H = self._SB  # type: ignore[assignment]
        self._moving = max(0, self._left_to_move() - slots * SLOT_BYTES)
        self._II = InvertedIndex(self._places, self._moving // PAIR_BYTES)
        self._book()
        self._reserve("SB", slots * SLOT_BYTES)

    def _resize(self) -> None:
        """Let SB have the size that the balance has come to, where nothing is in it."""
        if not self._SB.used and self._SB_now != self.SB_thresh and self.split is None:
            self._size_buffer()

    @property
    def _held_much(self) -> bool:
        """Whether results that wait for earlier tuples take half of their room: a join phase lets all of them go."""
        held = self._reservations.get("ordered results")
        return held is not None and 2 * held.nbytes > self.budget.limit - self._room

    def _follow(self, new: Relation) -> None:
        """Hold what another version of the relation needs, between two join phases."""
        old, version = self._version, new.opened
        shards = range(new.num_shards)
        self._places = np.sort(np.concatenate([np.empty(0, np.int64), *(version.places(s) for s in shards)]))
        self._CR.follow(old, version, self._places)
        self.relation, self._version = new, version
        payload = new.payload(self.columns)
        if self.how in ("inner", "left"):
            self._payload = (key_column(version.codec), *payload) if self._key_out else payload
        self._results = TupleStore(self._payload, self._output_rows, self._data_room(self._output_rows))
        self._reserve("output", self._output_bytes)
        self._reserve("index", new.index_bytes)
        if self._stream_bytes:
            self._disk_buffer = self._new_reader()
            self._size_buffer()

    def _fits(self, room: float) -> float:
        """Tuples of SB and II, slots and all, that so many bytes have room for."""
        return tuples_that_fit(room, self._own_bytes, self._pages_each, self._places.size)

    @property
    def _column_bytes(self) -> float:
        """Of a waiting tuple's columns, and of finding them."""
        return self._stream_bytes + NUMBER_BYTES

    @property
    def _own_bytes(self) -> float:
        """Of a tuple in SB, without its entries in II."""
        return self._column_bytes + SLOT_BYTES + (0 if self._version.codec.integer else 16)

    @property
    def _pages_each(self) -> float:
        """Pages that the tuples of a key are in, in the mean."""
        matches = self.relation.num_rows / max(1, self.relation.distinct_keys)
        return 1 + max(0.0, matches - 1) * self.relation.num_pages / max(1, self.relation.num_rows)

    @property
    def _tuple_bytes(self) -> float:
        """Of one tuple more in SB and II, which may bring new lists where some pages have none."""
        new = LIST_BYTES if self._SB_now * self._pages_each < self._places.size else 0
        return self._own_bytes + self._pages_each * (PAIR_BYTES + new)

    @property
    def _halves(self) -> int:
        """A disk that serves one request at a time has nothing to overlap."""
        return 1 if self.relation.disk.workers == 1 else 2

    def _new_reader(self) -> PageReader:
        size = self._scan * self._halves * self.relation.page_size
        return PageReader(self._version, size, whole=self._halves == 1, plan=self.plan, longest=self._scan)

    @property
    def backlog_room(self) -> int:
        """Stream tuples that IB may have, with the memory that CR would give up for them. [SSIJ] §IV.A"""
        return self._IB_now + int(max(0, self._waiting_room - self._waiting_bytes) / max(1.0, self._stream_bytes))

    def _left_to_move(self) -> int:
        """Bytes that CR, SB and II share."""
        fixed = ("output", "index", "read buffer", "IB", "SB")
        return self._room - sum(self._reservations[p].nbytes for p in fixed if p in self._reservations)

    @property
    def _waiting_bytes(self) -> int:
        """Bytes of SB and II as they are."""
        return int(self._window.rows * self._column_bytes) + self._SB.key_bytes + self._II.nbytes

    def _more_bytes_for(self, count: int) -> int:
        """Bytes that so many tuples more take in SB and II, with one page each."""
        return (
            int(count * self._column_bytes) + self._II.size(self._II.pairs + count, self._places.size) - self._II.nbytes
        )

    @property
    def _beside(self) -> int:
        """The same with what IB holds beyond its own room, as far as it may."""
        more = 0 if self._lent else int(max(0, self._buffered - self._IB_now) * self._stream_bytes)
        return min(self._waiting_bytes + more, self._waiting_room)

    @property
    def _waiting_room(self) -> int:
        """Bytes that SB and II may have: all that moves, or what a fixed split leaves."""
        return self._moving if self.split is None else int((1 - self.split) * self._moving)

    def _capacity(self, waiting: int) -> int:
        """Pages that CR may have beside so many bytes of SB, II and more of IB."""
        free = self._moving - waiting if self.split is None else int(self.split * self._moving)
        return max(0, min(free // (self._CR.page_size + FRAME_BYTES), self._places.size))

    def _book(self, pages: int | None = None) -> None:
        """Set aside what the parts hold now; CR gives way. `pages`: CR is about to have so many."""
        waiting = self._beside
        capacity = self._capacity(waiting)
        if self._CR.frames > capacity:
            self._CR.shrink(capacity)
        frames = max(self._CR.frames, pages or 0)
        parts = {"CR": frames * (self._CR.page_size + FRAME_BYTES), "SB and II": waiting}
        held = self._reservations
        for part in sorted(parts, key=lambda p: parts[p] - (held[p].nbytes if p in held else 0)):
            self._reserve(part, parts[part])  # what shrinks comes first

    def _weigh(self, ranks: Ints, starts: Ints, slots: Ints) -> None:
        """Let the last pass tell whether SB or CR should have more memory."""
        if self.SB_thresh is None and self.split is None:
            disk, page = self.relation.disk, self.relation.page_size
            shared = sharing(disk, page, self._scan, self.plan, self._places, ranks, starts, slots, self._planned)
            # Where nothing is cached, the page that most tuples wait for tells what one would serve.
            tail = self._CR.tail if self._CR.used else float((starts[1:] - starts[:-1]).max())
            self._balance.move(tail, page + FRAME_BYTES, slots.size, self._tuple_bytes, self._SB.used, shared)

    # -- snapshots -------------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Sizes and the pages of CR, between two batches that were joined to their end."""
        assert not self.waiting, "take a snapshot when nothing waits"
        sizes = np.array([self._stream_bytes, self._balance.share])
        return self._named({"sizes": sizes} | self._CR.dump())

    def restore(self, snapshot: Snapshot) -> None:
        """Go on as the operator did that the snapshot was taken of; the pages of CR are read again."""
        snapshot.check(self._named({}))
        arrays = snapshot.arrays
        self._stream_bytes, self._balance.share = (float(x) for x in arrays["sizes"])
        if not self._stream_bytes:
            return
        self._begin()
        places = arrays["places"]
        self._book(places.size)
        with closing(self._disk_buffer.read(places, self.stats)) as rounds:
            for a, b, addresses in rounds:
                self._CR.put(places[a:b], addresses, np.zeros(b - a, np.int64))
        self._CR.load(arrays)
