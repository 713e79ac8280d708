"""GroupMemory: what the workers of a group share for one relation, and where it lies in their shared memory. (DESIGN D5)

    header | index | filter | sketch | regions, a segment each | slots, one a worker: read buffer, young store

The header is one record (`_header_type`). An index that does not fit as a whole is not here: workers read it while they join. A
worker joins in a slot: its read buffer and young store lie there, so what a process fetched serves the next one that gets the
slot, and an idle process holds nothing. Segments lie in regions. A generation is a list of segments (a directory), written
beside the last one and then made current by storing its number. Readers never lock: they note in their slot the generation they
read (a pin), and a region that is out of the current generation is written again only when no living reader is pinned to a
generation that had it.

Every field that several processes use is an aligned 64-bit integer, stored and loaded at once. The order of the stores is part of
the protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from headrace.arrays import Int64s, UInt8s
from headrace.relation import Relation
from headrace.relation.columns import Column
from headrace.relation.sketch import Sketch
from headrace.relation.store import ArrayAllocator
from headrace.semistream.adaptive.hot_set import SEGMENTS
from headrace.semistream.adaptive.keyed_store import KeyedStore, Records
from headrace.semistream.adaptive.memory_plan import MemoryPlan
from headrace.semistream.adaptive.shared_content import FIRST_SLOT_LOCK, PAGE, SharedContent, up

Sidecar = Literal["index", "filter"]
REGIONS = SEGMENTS + 1  # one is spare: a new segment is written before an old one goes


def _header_type(columns: int, workers: int) -> np.dtype[Any]:
    """The record that the shared memory begins with.

    name, content
        See SharedContent.
    generation
        The number of the current generation of the hot set.
    hot_bytes, agreement
        The size of the hot set, and a number that changes with it.
    window
        Stream tuples that the sketch's counts stand for.
    published
        Generations that put a new segment in.
    filter_out
        One more than the first generation without the filter, while the filter's memory is still to be freed; else 0.
    directories
        The last two generations. Each: how many segments, whether the filter may be asked, and of each segment the region
        it lies in and its state.
    out_since, written
        Of each region: one more than the first generation without it, and how many of its bytes were written.
    slots
        Of each worker: one more than the generation that it reads (0: none), whether it is at work, the agreement that its
        young store was made for, and the state of that store.
    """
    state = KeyedStore.state_type(columns)
    entry = np.dtype([("region", np.int64), ("state", state)])
    directory = np.dtype([("count", np.int64), ("filtered", np.int64), ("segments", entry, (SEGMENTS,))])
    slot = np.dtype([("pin", np.int64), ("busy", np.int64), ("made_for", np.int64), ("young", state)])
    words = ("name", "content", "generation", "hot_bytes", "agreement", "window", "published", "filter_out")
    return np.dtype(
        [
            *((word, np.int64) for word in words),
            ("directories", directory, (2,)),
            ("out_since", np.int64, (REGIONS,)),
            ("written", np.int64, (REGIONS,)),
            ("slots", slot, (workers,)),
        ]
    )


class GroupMemory(SharedContent):
    """The shared memory of a group for one relation, set of columns and plan.

    Parameters
    ----------
    card
        Path of the file through which the processes find the memory.
    relation, payload, plan
        The relation, the columns that are kept, and how the budget is divided.
    restore
        Fills the hot set of a memory that is new from what an earlier run left; returns whether there was something.
    """

    def __init__(
        self,
        card: Path,
        relation: Relation,
        payload: Sequence[Column],
        plan: MemoryPlan,
        restore: Callable[[GroupMemory], bool] = lambda memory: False,
    ) -> None:
        self.columns = tuple(payload)
        self.header_type = _header_type(len(self.columns), plan.workers)
        self.first_hot = 0  # bytes of the hot set, where this process is the one that fills the memory
        self.restore = restore
        at = up(self.header_type.itemsize)
        self._sidecars: dict[Sidecar, list[tuple[int, int]]] = {"index": [], "filter": []}
        shards = relation.opened.manifest.shards
        there = {"index": not plan.index_memory.paged, "filter": plan.filter > 0}
        for part, places in self._sidecars.items():
            for facts in shards if there[part] else []:
                size = getattr(facts, part).bytes
                places.append((at, size))
                at += up(size)
        self._sketch = (at, Sketch.size(plan.sketch))
        at += up(self._sketch[1])
        slack = ArrayAllocator.slack(KeyedStore.arrays(self.columns))
        moving = plan.moving_bytes(filtered=False)
        self._region = (at, up(moving // REGIONS + slack))
        at += REGIONS * self._region[1]
        self.read_bytes = plan.read // plan.workers
        self._slot = (at, up(self.read_bytes) + up(moving // plan.workers + slack))
        size = shared_size(plan.limit, self.columns, relation.num_shards, plan.workers)
        assert at + plan.workers * self._slot[1] <= size
        layout = (self._sidecars, self._sketch, self._region, self._slot, self.read_bytes)
        super().__init__(card, size, plan.workers, relation, self.columns, str(layout))

    def _write(self) -> None:
        for part in self._sidecars:
            self.read_sidecars(part)
        self.header["agreement"][0] = 1
        self.directory(0)["filtered"][0] = 1
        if not self.restore(self):
            self.header["hot_bytes"][0] = self.first_hot

    # -- what lies where ---------------------------------------------------------------------------------------------------

    @property
    def header(self) -> Records:
        """The header, as an array of one record: header["generation"][0] is one 64-bit integer of the memory."""
        return self.memory.piece(0, self.header_type.itemsize).view(self.header_type)

    @property
    def hot_bytes(self) -> int:
        """The size of the hot set that the group agreed on."""
        return int(self.header["hot_bytes"][0])

    def sidecars(self, part: Sidecar) -> list[UInt8s]:
        """Where the indexes, or the filters, of the relation's shards lie."""
        return [self.memory.piece(at, size) for at, size in self._sidecars[part]]

    def read_sidecars(self, part: Sidecar) -> None:
        """Read the indexes, or the filters, from their files."""
        for shard, piece in enumerate(self.sidecars(part)):
            self.relation.opened.sidecar(shard, part, piece)

    def free_sidecars(self, part: Sidecar) -> None:
        """Return the memory of the indexes, or of the filters, to the system."""
        for at, size in self._sidecars[part]:
            self.memory.free(at, size)

    @property
    def sketch_memory(self) -> UInt8s:
        """Where the counts of all workers together lie."""
        return self.memory.piece(*self._sketch)

    def sketch(self, horizon: int) -> Sketch:
        """The counts of all workers together."""
        return Sketch(self._sketch[1], horizon, self.sketch_memory, self.header["window"])

    def region(self, number: int) -> tuple[int, int]:
        """Place and size of a region."""
        return self._region[0] + number * self._region[1], self._region[1]

    def room_of(self, segment: Records) -> int:
        """Bytes of a region that a segment takes at most, from its entry in a directory."""
        state = segment["state"]
        data = {c.name: int(state["columns"]["room"][i]) for i, c in enumerate(self.columns) if c.width == 0}
        entries, rows, integer = int(state["entries"]), int(state["rows"]), self.relation.codec.integer
        data[""] = int(state["key_room"])
        slack = ArrayAllocator.slack(KeyedStore.arrays(self.columns))
        return KeyedStore.size(self.columns, entries, rows, data, integer) + slack

    def read_buffer_memory(self, slot: int) -> tuple[int, int]:
        """Place and size of a worker's read buffer."""
        return self._slot[0] + slot * self._slot[1], self.read_bytes

    def young_memory(self, slot: int) -> tuple[int, int]:
        """Place and size of a worker's young store."""
        used = up(self.read_bytes)
        return self._slot[0] + slot * self._slot[1] + used, self._slot[1] - used

    def slot_header(self, slot: int) -> Records:
        """The header of a slot, as an array of one record."""
        header: Records = self.header["slots"][0][slot : slot + 1]
        return header

    def out_since(self) -> Int64s:
        """Of each region: the generation it went out with."""
        generations: Int64s = self.header["out_since"][0]
        return generations

    def written(self) -> Int64s:
        """Of each region: how many of its bytes were written."""
        nbytes: Int64s = self.header["written"][0]
        return nbytes

    def directory(self, generation: int) -> Records:
        """The list of segments of a generation, as an array of one record: the last two generations have their places."""
        place = generation & 1
        directory: Records = self.header["directories"][0][place : place + 1]
        return directory

    def pinned(self) -> list[int]:
        """Pins of living readers: one more than the generation that each reads."""
        pins = [(n, int(self.slot_header(n)["pin"][0])) for n in range(self.workers)]
        return [pin for n, pin in pins if pin and self.memory.held(FIRST_SLOT_LOCK + n)]


def shared_size(limit: int, columns: Sequence[Column], shards: int, workers: int) -> int:
    """Bytes of a group's shared memory.

    It is as large for every version, and whether the relation fits or not, so that an update goes on in the same memory.
    """
    slack = ArrayAllocator.slack(KeyedStore.arrays(columns))
    pieces = 2 * shards + 1 + REGIONS + 2 * workers
    return up(_header_type(len(columns), workers).itemsize) + up(3 * limit) + pieces * (PAGE + up(slack))
