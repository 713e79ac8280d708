"""A hot set that the workers of one executor share, in an arena. (DESIGN D5)

    head | directories | regions' notes | slots' heads | index | filter | sketch | regions ... | slots ...

A worker joins in a slot: its read buffer and young lie there, so what one process fetched serves the next one that gets the slot,
and an idle process holds nothing. Segments lie in regions. A generation is a list of segments (a directory), written beside the
last one and then made current by storing its number. Readers never lock: they note in their slot the generation they read (a
pin), and a region that is out of the current generation is written again only when no living reader is pinned to one that had it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headrace.relation import Relation
from headrace.relation.columns import Bytes, Column, Longs
from headrace.relation.store import ArrayAllocator, StoreFull
from headrace.semistream.adaptive.hot_set import SEGMENTS, HotSet, KeyedStore, Sketch
from headrace.semistream.adaptive.memory_plan import Parts
from headrace.semistream.adaptive.shared_memory import Arena

Sidecar = Literal["index", "filter"]
_PAGE = 4096
# words of the head; word 0 is the arena's own name
_READY, _GENERATION, _HOT_BYTES, _AGREED, _WINDOW, _PUBLISHED, _FILTER_OUT, _HEAD = 1, 2, 3, 4, 5, 6, 7, 8
# words of a slot's head, before the state of its young
_PIN, _BUSY, _MADE_FOR, _SLOT_HEAD = 0, 1, 2, 3
_REGIONS = SEGMENTS + 1
_PUBLISH, _FIRST_SLOT = 0, 1  # locks


@dataclass(frozen=True)
class Group:
    """The workers of one executor that share a budget.

    Parameters
    ----------
    directory
        Where they find each other: any directory that they, and no other executor, use.
    workers
        How many join at the same time, at most. One more still works, with the least memory, of its own.
    """

    directory: Path
    workers: int


class Shared:
    """What a group shares for one relation, and where it lies in the arena.

    Parameters
    ----------
    group, card
        The group, and the name of its card for this relation, columns and budget.
    relation, payload, parts
        What is joined, and how the budget is divided.
    """

    def __init__(self, group: Group, card: str, relation: Relation, payload: Sequence[Column], parts: Parts) -> None:
        self.card = group.directory / card
        self.relation = relation
        self.columns = tuple(payload)
        self.workers = group.workers
        version = relation.opened
        self._state = 6 + 2 * len(self.columns)
        self._entry = 1 + self._state
        self._directory = 2 + SEGMENTS * self._entry  # how many segments, whether with the filter, the segments
        words = _HEAD + 2 * self._directory + 2 * _REGIONS + self.workers * (_SLOT_HEAD + self._state)
        self._regions_at = _HEAD + 2 * self._directory
        self._slots_at = self._regions_at + 2 * _REGIONS
        at = _up(8 * words)
        self._sidecars: dict[Sidecar, list[tuple[int, int]]] = {"index": [], "filter": []}
        for part, places in self._sidecars.items():
            for facts in version.manifest.shards if part == "index" or parts.filter else []:
                size = getattr(facts, part).bytes
                places.append((at, size))
                at += _up(size)
        self._sketch = (at, Sketch.size(parts.sketch))
        at += _up(self._sketch[1])
        slack = ArrayAllocator.slack(KeyedStore.arrays(self.columns))
        moving = parts.moving + parts.filter  # which may be given up for hot tuples
        self._region = (at, _up(moving // _REGIONS + slack))
        at += _REGIONS * self._region[1]
        self.read_bytes = parts.read // self.workers
        self._slot = (at, _up(self.read_bytes) + _up(moving // self.workers + slack))
        # The same for every version, so that an update goes on in the same memory. What is not written takes none.
        limit = parts.index + parts.filter + parts.sketch + parts.read + parts.output + parts.input + parts.process
        limit += parts.moving
        pieces = 2 * relation.num_shards + 1 + _REGIONS + 2 * self.workers
        self.size = _up(8 * words) + _up(3 * limit) + pieces * (_PAGE + _up(slack))
        assert at + self.workers * self._slot[1] <= self.size
        # Another version of the relation, or a relation made anew, or another division, is another content.
        shards = version.manifest.shards
        tags = [file.tag for shard in shards for file in (*shard.files, shard.index, shard.filter)]
        layout = (self._sidecars, self._sketch, self._region, self._slot, self.read_bytes)
        text = f"{relation.path}:{relation.version}:{tags}:{[c.name for c in payload]}:{layout}"
        self._content = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1 | 1
        self.arena = Arena.find(self.card, self.size)

    def open_slot(self, first_hot: int) -> int | None:
        """Take a free slot of an arena that holds this content; None if there is none."""
        arena = self.arena = Arena.find(self.card, self.size, self.arena)
        if int(self.head[_READY]) != self._content and not self._fill(first_hot):
            return None
        for number in range(self.workers):
            if arena.lock(_FIRST_SLOT + number):
                if int(self.head[_READY]) == self._content:
                    return number
                arena.unlock(_FIRST_SLOT + number)
        return None

    def close_slot(self, number: int) -> None:
        self.arena.unlock(_FIRST_SLOT + number)

    def _fill(self, first_hot: int) -> bool:
        """Start over with this content, if nobody is at work with another."""
        self.arena.wait(_PUBLISH)  # another may be filling it with the same just now
        slots: list[int] = []
        try:
            if int(self.head[_READY]) == self._content:
                return True
            for slot in range(_FIRST_SLOT, _FIRST_SLOT + self.workers):
                if not self.arena.lock(slot):
                    return False
                slots.append(slot)
            self.head[_READY] = 0
            self.arena.free(_PAGE, self.size - _PAGE)
            self.arena.piece(8 * (_READY + 1), _PAGE - 8 * (_READY + 1))[:] = 0
            for part in self._sidecars:
                self.read_sidecars(part)
            self.head[[_HOT_BYTES, _AGREED]] = first_hot, 1
            self.directory(0)[1] = 1
            while slots:  # before it is ready: whoever sees that it is finds them free
                self.arena.unlock(slots.pop())
            self.head[_READY] = self._content
            return True
        finally:
            for number in (*slots, _PUBLISH):
                self.arena.unlock(number)

    # -- what lies where -----------------------------------------------------------------------------------------------

    @property
    def head(self) -> Longs:
        return self.arena.words(0, _HEAD)

    @property
    def hot_bytes(self) -> int:
        """What the group agreed on for the hot set."""
        return int(self.head[_HOT_BYTES])

    def sidecars(self, part: Sidecar) -> list[Bytes]:
        return [self.arena.piece(at, size) for at, size in self._sidecars[part]]

    def read_sidecars(self, part: Sidecar) -> None:
        for shard, piece in enumerate(self.sidecars(part)):
            self.relation.opened.sidecar(shard, part, piece)

    def free_sidecars(self, part: Sidecar) -> None:
        for at, size in self._sidecars[part]:
            self.arena.free(at, size)

    def sketch(self, horizon: int) -> Sketch:
        at, size = self._sketch
        return Sketch(size, horizon, self.arena.piece(at, size), self.arena.words(_WINDOW, 1))

    def region(self, number: int) -> tuple[int, int]:
        return self._region[0] + number * self._region[1], self._region[1]

    def read_buffer(self, slot: int) -> Bytes:
        return self.arena.piece(self._slot[0] + slot * self._slot[1], self.read_bytes)

    def young_memory(self, slot: int) -> tuple[int, int]:
        used = _up(self.read_bytes)
        return self._slot[0] + slot * self._slot[1] + used, self._slot[1] - used

    def slot_head(self, slot: int) -> Longs:
        size = _SLOT_HEAD + self._state
        return self.arena.words(self._slots_at + slot * size, size)

    def notes(self) -> tuple[Longs, Longs]:
        """Of each region: the generation it went out with, and how many of its bytes were written."""
        words = self.arena.words(self._regions_at, 2 * _REGIONS)
        return words[:_REGIONS], words[_REGIONS:]

    def directory(self, generation: int) -> Longs:
        """The list of segments of a generation: the last two have their places."""
        return self.arena.words(_HEAD + (generation & 1) * self._directory, self._directory)

    def pinned(self) -> list[int]:
        """Generations that living readers are reading."""
        pins = [(n, int(self.slot_head(n)[_PIN])) for n in range(self.workers)]
        return [pin for n, pin in pins if pin and self.arena.held(_FIRST_SLOT + n)]

    @contextmanager
    def publishing(self) -> Iterator[bool]:
        """Whether this process is the one that may change generation and agreement."""
        mine = self.arena.lock(_PUBLISH)
        try:
            yield mine
        finally:
            if mine:
                self.arena.unlock(_PUBLISH)


class SharedHotSet(HotSet):
    """The hot set of a group, seen by one worker in a slot. See HotSet.

    Parameters
    ----------
    shared, slot
        What the group shares, and the slot that this worker holds.
    sketch
        The group's counts.
    """

    def __init__(self, shared: Shared, slot: int, integer: bool, young: KeyedStore | None, sketch: Sketch) -> None:
        if young is None:  # until there is one
            young = KeyedStore(shared.columns, 0, 0, dict.fromkeys(["", *(c.name for c in shared.columns)], 0), integer)
        super().__init__(shared.columns, integer, shared.hot_bytes, young, sketch)
        self.shared = shared
        self.slot = slot
        self._head = shared.slot_head(slot)
        self._seen = -1  # the generation in `segments`
        self.filtered = True  # whether the group has a filter in memory
        self._regions: list[int] = []
        self._spare = -1
        self._pin()  # to attach a segment is to touch it; `end` lets go

    @property
    def agreed(self) -> int:
        """A number that changes when the group agrees on another size of the hot set."""
        return int(self.shared.head[_AGREED])

    def agree(self, memory: int) -> None:
        """Have every worker use another size of the hot set, unless another publishes just now."""
        with self.shared.publishing() as mine:
            if mine:
                self.shared.head[_HOT_BYTES] = memory
                self.shared.head[_AGREED] += 1

    def begin(self) -> None:
        """Pin the current generation, so that its regions stay as they are."""
        self._head[_BUSY] = 1
        self._pin()

    def end(self) -> None:
        self._head[_PIN] = 0
        self._head[_SLOT_HEAD:] = self.young.state()
        self._head[_BUSY] = 0

    @classmethod
    def left_young(cls, shared: Shared, slot: int, integer: bool) -> KeyedStore | None:
        """What the last worker in this slot had fetched, unless it died at work or for another size of the hot set."""
        head = shared.slot_head(slot)
        head[_PIN] = 0
        if head[_BUSY] or head[_MADE_FOR] != shared.head[_AGREED]:
            return None
        memory = shared.arena.piece(*shared.young_memory(slot))
        return KeyedStore.attach(shared.columns, integer, memory, head[_SLOT_HEAD:])

    def new_young(self, entries: int, rows: int, data: dict[str, int]) -> KeyedStore:
        """An empty store in the slot."""
        self._head[_BUSY] = 1
        at, size = self.shared.young_memory(self.slot)
        young = KeyedStore(
            self.columns, entries, rows, data, self.integer, ArrayAllocator(self.shared.arena.piece(at, size))
        )
        used = young.nbytes + ArrayAllocator.slack(KeyedStore.arrays(self.columns))
        self.shared.arena.free(at + used, size - used)
        self._head[_MADE_FOR] = self.agreed
        return young

    def _pin(self) -> None:
        generation = -1
        while generation != int(self.shared.head[_GENERATION]):
            generation = int(self.shared.head[_GENERATION])
            self._head[_PIN] = generation + 1  # 0 is no pin
        self._sync()

    def _sync(self) -> None:
        """Take over the current generation."""
        shared = self.shared
        self.memory = shared.hot_bytes
        while self._seen != (generation := int(shared.head[_GENERATION])):
            words = shared.directory(generation).copy()
            if generation != int(shared.head[_GENERATION]):
                continue  # it was written over while it was copied
            entries = words[2:].reshape(SEGMENTS, -1)[: int(words[0])]
            self.filtered = bool(words[1])
            self._regions = [int(entry[0]) for entry in entries]
            self.segments = [self._attach(entry) for entry in entries]
            self._seen = generation
            self._sources = None
        self.generations = int(shared.head[_PUBLISHED])

    def _attach(self, entry: Longs) -> KeyedStore:
        at, size = self.shared.region(int(entry[0]))
        return KeyedStore.attach(self.columns, self.integer, self.shared.arena.piece(at, size), entry[1:])

    def publish(self, worth: float, effort: float) -> bool:
        """See HotSet; young is let go where another worker publishes just now."""
        pinned = int(self._head[_PIN])
        self._head[_PIN] = 0
        published = False
        with self.shared.publishing() as mine:
            if mine:
                self._sync()
                published = super().publish(worth, effort)
        self.young.clear()
        if pinned:
            self._pin()
        return published

    def resize(self, memory: int) -> None:
        """See HotSet. Only where this worker may publish does it change what others see."""
        with self.shared.publishing() as mine:
            if mine:
                self._sync()
                super().resize(memory)
        self.memory = memory

    def _new_segment(self, entries: int, rows: int, data: dict[str, int]) -> KeyedStore:
        number = self._free_region()
        at, size = self.shared.region(number)
        room = ArrayAllocator(self.shared.arena.piece(at, size))
        segment = KeyedStore(self.columns, entries, rows, data, self.integer, room)
        written = self.shared.notes()[1]
        if written[number] > segment.nbytes:
            used = segment.nbytes + ArrayAllocator.slack(KeyedStore.arrays(self.columns))
            self.shared.arena.free(at + used, size - used)
        written[number] = segment.nbytes
        self._spare = number
        return segment

    def _free_region(self) -> int:
        self._reclaim_filter()
        out_since, written = self.shared.notes()
        pins = self.shared.pinned()
        free = [r for r in range(_REGIONS) if r not in self._regions and all(p >= out_since[r] for p in pins)]
        if not free:
            raise StoreFull
        # The rest of what went out goes back to the system, as long as all together is more than was agreed.
        number, *others = sorted(free, key=lambda r: -int(written[r]))
        for r in others:
            if int(written.sum()) > self.memory:
                self.shared.arena.free(*self.shared.region(r))
                written[r] = 0
        return number

    def _put(self, number: int, *segments: KeyedStore) -> None:
        """Write the next generation's list and make it current."""
        shared = self.shared
        out = self._regions[number : number + 1]
        self._regions[number : number + 1] = [self._spare] if segments else []
        super()._put(number, *segments)
        # Before the generation is current: if this process dies in between, the region is still in the list that is.
        shared.notes()[0][out] = self._seen + 2
        shared.head[_PUBLISHED] += bool(segments)
        self._next_generation()

    def _next_generation(self) -> None:
        shared, generation = self.shared, self._seen + 1
        words = shared.directory(generation)
        words[:2] = len(self.segments), self.filtered
        entries = words[2:].reshape(SEGMENTS, -1)
        for i, (region, segment) in enumerate(zip(self._regions, self.segments, strict=True)):
            entries[i] = [region, *segment.state()]
        shared.head[_GENERATION] = generation
        self._seen = generation

    def keep_filter(self, wanted: bool) -> bool:
        """Give the filter's memory up, or read it again; whether that was done. Not while a slice is joined."""
        shared = self.shared
        with shared.publishing() as mine:
            if not mine:
                return False
            self._sync()
            if wanted:
                shared.read_sidecars("filter")
            else:
                shared.head[_FILTER_OUT] = self._seen + 2
            self.filtered = wanted
            self._next_generation()
        return True

    def _reclaim_filter(self) -> None:
        """Once no reader can have it in use, the filter's memory goes back to the system."""
        out = int(self.shared.head[_FILTER_OUT])
        if out and not self.filtered and all(pin >= out for pin in self.shared.pinned()):
            self.shared.free_sidecars("filter")
            self.shared.head[_FILTER_OUT] = 0


def _up(size: int) -> int:
    return -(-size // _PAGE) * _PAGE
