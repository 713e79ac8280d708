"""SharedHotSet: the hot set of a group, seen by one worker in its slot. GroupMemory says what lies where. (DESIGN D5)"""

from __future__ import annotations

from headrace.relation.sidecar import arrays_in
from headrace.relation.store import ArrayAllocator, StoreFull
from headrace.semistream.adaptive.group_memory import REGIONS, GroupMemory
from headrace.semistream.adaptive.hot_set import HotSet
from headrace.semistream.adaptive.keyed_store import KeyedStore, Records
from headrace.semistream.adaptive.saved_hot_set import SavedHotSet
from headrace.semistream.adaptive.structure_sizes import YoungSize


class SharedHotSet(HotSet):
    """A hot set whose segments, sketch and filter other processes use at the same time. See HotSet.

    It is made pinned, since to open a segment is to read it: the caller calls `end` when it has looked at it.

    Parameters
    ----------
    shared, slot
        The group's memory, and the slot that this worker holds.
    integer
        Whether keys are 64-bit integers.
    horizon
        Stream tuples after which the sketch halves its counts.
    saved
        The file that it is saved to.
    """

    def __init__(self, shared: GroupMemory, slot: int, integer: bool, horizon: int, saved: SavedHotSet) -> None:
        left = self._left_young(shared, slot, integer)
        no_data = dict.fromkeys(["", *(c.name for c in shared.columns)], 0)
        young = left or KeyedStore(shared.columns, 0, 0, no_data, integer)  # until there is one
        super().__init__(shared.columns, integer, shared.hot_bytes, young, shared.sketch(horizon))
        self.shared = shared
        self.slot = slot
        self._saved = saved
        self.has_young = left is not None  # whether the slot's last worker left a young store to go on with
        self._header = shared.slot_header(slot)
        self._seen = -1  # the generation in `segments`
        self._filtered = True
        self._regions: list[int] = []  # that the segments lie in
        self._spare = -1  # the region of the segment that is being written
        self._pin()

    @staticmethod
    def _left_young(shared: GroupMemory, slot: int, integer: bool) -> KeyedStore | None:
        """What the slot's last worker fetched; None if it died at work, or was at work with another size of the hot set."""
        header = shared.slot_header(slot)
        header["pin"][0] = 0
        if header["busy"][0] or header["made_for"][0] != shared.header["agreement"][0]:
            return None
        memory = shared.memory.piece(*shared.young_memory(slot))
        return KeyedStore.attach(shared.columns, integer, memory, header["young"])

    # -- pins --------------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        self._header["busy"][0] = 1
        self._pin()

    def end(self) -> None:
        self._header["pin"][0] = 0
        self._header["young"] = self.young.state()
        self._header["busy"][0] = 0

    def _pin(self) -> None:
        """Note the current generation in the slot, so that its regions stay as they are, and take it over."""
        current = self.shared.header["generation"]
        generation = -1
        while generation != int(current[0]):
            generation = int(current[0])
            self._header["pin"][0] = generation + 1  # 0 is no pin
        self._sync()

    def _sync(self) -> None:
        """Take over the current generation."""
        shared = self.shared
        current = shared.header["generation"]
        self.memory = shared.hot_bytes
        while self._seen != (generation := int(current[0])):
            directory = shared.directory(generation).copy()
            if generation != int(current[0]):
                continue  # it was written over while it was copied
            segments = directory["segments"][0][: int(directory["count"][0])]
            self._filtered = bool(directory["filtered"][0])
            self._regions = segments["region"].tolist()
            self.segments = [self._attach(segments[i : i + 1]) for i in range(segments.size)]
            self._seen = generation
            self._places = None
        self._use_filters()
        self.generations = int(shared.header["published"][0])

    def _attach(self, segment: Records) -> KeyedStore:
        at, size = self.shared.region(int(segment["region"][0]))
        return KeyedStore.attach(self.columns, self.integer, self.shared.memory.piece(at, size), segment["state"])

    # -- what the group agrees on --------------------------------------------------------------------------------------------

    @property
    def agreed_bytes(self) -> int | None:
        return self.shared.hot_bytes

    @property
    def agreement(self) -> int:
        return int(self.shared.header["agreement"][0])

    def agree(self, memory: int) -> bool:
        """See HotSet. Nothing changes if another worker publishes just now."""
        with self.shared.publishing() as mine:
            if mine:
                self.shared.header["hot_bytes"][0] = memory
                self.shared.header["agreement"][0] += 1
        return False

    def renew_young(self, size: YoungSize) -> None:
        self._header["busy"][0] = 1
        memory = self.shared.memory
        at, room = self.shared.young_memory(self.slot)
        piece = ArrayAllocator(memory.piece(at, room))
        self.young = KeyedStore(self.columns, size.entries, size.rows, size.data, self.integer, piece)
        used = self.young.nbytes + ArrayAllocator.slack(KeyedStore.arrays(self.columns))
        memory.free(at + used, room - used)
        self._header["made_for"][0] = self.agreement
        self._places = None

    # -- generations -------------------------------------------------------------------------------------------------------

    def publish(self, worth: float, effort: float) -> bool:
        """See HotSet. Young is emptied for nothing where another worker publishes just now."""
        pinned = int(self._header["pin"][0])
        self._header["pin"][0] = 0
        published = False
        with self.shared.publishing() as mine:
            if mine:
                self._sync()
                published = super().publish(worth, effort)
        self.young.clear()
        if pinned:
            self._pin()
        return published

    def save(self) -> None:
        """See HotSet. Nothing is written where another worker publishes just now."""
        with self.shared.publishing() as mine:
            if mine:
                self._saved.save(self.shared)

    def resize(self, memory: int) -> None:
        """See HotSet. It changes what others see only where this worker may publish."""
        with self.shared.publishing() as mine:
            if mine:
                self._sync()
                super().resize(memory)
        self.memory = memory

    def _new_segment(self, entries: int, rows: int, data: dict[str, int]) -> KeyedStore:
        number = self._free_region()
        at, size = self.shared.region(number)
        room = ArrayAllocator(self.shared.memory.piece(at, size))
        segment = KeyedStore(self.columns, entries, rows, data, self.integer, room)
        written = self.shared.written()
        if written[number] > segment.nbytes:
            used = segment.nbytes + ArrayAllocator.slack(KeyedStore.arrays(self.columns))
            self.shared.memory.free(at + used, size - used)
        written[number] = segment.nbytes
        self._spare = number
        return segment

    def _free_region(self) -> int:
        """A region that no living reader looks at."""
        self._reclaim_filter()
        out_since, written = self.shared.out_since(), self.shared.written()
        pins = self.shared.pinned()
        free = [r for r in range(REGIONS) if r not in self._regions and all(p >= out_since[r] for p in pins)]
        if not free:
            raise StoreFull
        # The memory of the other free regions goes back to the system, as long as all together is more than was agreed.
        number, *others = sorted(free, key=lambda r: -int(written[r]))
        for r in others:
            if int(written.sum()) > self.memory:
                self.shared.memory.free(*self.shared.region(r))
                written[r] = 0
        return number

    def _put(self, number: int, *segments: KeyedStore) -> None:
        """Write the next generation's list and make it current."""
        shared = self.shared
        out = self._regions[number : number + 1]
        self._regions[number : number + 1] = [self._spare] if segments else []
        super()._put(number, *segments)
        # Before the generation is current: if this process dies in between, the region is still in the list that is.
        shared.out_since()[out] = self._seen + 2
        shared.header["published"][0] += bool(segments)
        self._next_generation()

    def _next_generation(self) -> None:
        shared, generation = self.shared, self._seen + 1
        directory = shared.directory(generation)
        directory["count"][0] = len(self.segments)
        directory["filtered"][0] = self._filtered
        entries = directory["segments"][0]
        for i, (region, segment) in enumerate(zip(self._regions, self.segments, strict=True)):
            entries["region"][i] = region
            entries["state"][i : i + 1] = segment.state()
        shared.header["generation"][0] = generation
        self._seen = generation

    # -- the filter --------------------------------------------------------------------------------------------------------

    @property
    def filtered(self) -> bool:
        return self._filtered

    def keep_filter(self, wanted: bool) -> bool:
        """See HotSet. Not done where another worker publishes just now."""
        shared = self.shared
        with shared.publishing() as mine:
            if not mine:
                return False
            self._sync()
            if wanted:
                shared.read_sidecars("filter")
            else:
                shared.header["filter_out"][0] = self._seen + 2
            self._filtered = wanted
            self._use_filters()
            self._next_generation()
        return True

    def make_room(self, nbytes: int) -> None:
        """Nothing to do: the filter has its place in the shared memory."""

    def _use_filters(self) -> None:
        """Have the filters of the generation that was taken over, or none."""
        if bool(self.filters) != self._filtered:
            pieces = self.shared.sidecars("filter") if self._filtered else []
            self.filters = [arrays_in(whole)["words"] for whole in pieces]

    def _reclaim_filter(self) -> None:
        """Return the filter's memory to the system once no reader can have it in use."""
        out = int(self.shared.header["filter_out"][0])
        if out and not self._filtered and all(pin >= out for pin in self.shared.pinned()):
            self.shared.free_sidecars("filter")
            self.shared.header["filter_out"][0] = 0
