"""LocalHotSet: the hot set of one process, in memory of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.arrays import UInt32s
from headrace.relation.columns import Column
from headrace.relation.sketch import Sketch
from headrace.semistream.adaptive.hot_set import HotSet
from headrace.semistream.adaptive.keyed_store import KeyedStore
from headrace.semistream.adaptive.structure_sizes import YoungSize


class LocalHotSet(HotSet):
    """A hot set that no other process sees: it agrees with everything at once, and nothing has to be pinned.

    Parameters
    ----------
    columns, integer, sketch
        See HotSet.
    young
        ArrayAllocator of the young store.
    load_filter
        Reads the filters of the relation's shards; they are kept on the heap.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        integer: bool,
        young: YoungSize,
        sketch: Sketch,
        load_filter: Callable[[], list[UInt32s]],
    ) -> None:
        super().__init__(columns, integer, 0, self._store(columns, integer, young), sketch)
        self._load_filter = load_filter

    @staticmethod
    def _store(columns: Sequence[Column], integer: bool, size: YoungSize) -> KeyedStore:
        return KeyedStore(columns, size.entries, size.rows, size.data, integer)

    def begin(self) -> None:
        """Nothing to do: only this process changes the segments, between two slices."""

    def end(self) -> None:
        """Nothing to do, see `begin`."""

    @property
    def filtered(self) -> bool:
        return bool(self.filters)

    def keep_filter(self, wanted: bool) -> bool:
        self.filters = self._load_filter() if wanted else []
        return True

    def make_room(self, nbytes: int) -> None:
        self.resize(max(0, self.memory - nbytes))

    @property
    def agreed_bytes(self) -> int | None:
        return None

    @property
    def agreement(self) -> int:
        return 0

    def agree(self, memory: int) -> bool:
        return True

    def save(self) -> None:
        """Nothing to do: a join of one process has snapshots."""

    def renew_young(self, size: YoungSize) -> None:
        self.young = self._store(self.columns, self.integer, size)
        self._places = None

    def _new_segment(self, entries: int, rows: int, data: dict[str, int]) -> KeyedStore:
        return KeyedStore(self.columns, entries, rows, data, self.integer)
