"""Groups: worker processes of one executor that join with the same relation share one budget and one hot set. (DESIGN D5)"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.relation import Relation
from headrace.relation.columns import Column
from headrace.relation.reader import PageReader, Version
from headrace.semistream.adaptive.group_memory import GroupMemory
from headrace.semistream.adaptive.memory import JoinMemory
from headrace.semistream.adaptive.saved_hot_set import SavedHotSet
from headrace.semistream.adaptive.shared_content import SharedContent
from headrace.semistream.adaptive.shared_hot_set import SharedHotSet

#: The directory, in that of a relation, of hot sets that groups have saved.
HOT_SETS = "hot-sets"


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


class GroupMembership(ABC):
    """The part of one join in a group: the shared memory that it maps, and the slot that it holds between `enter` and `leave`.

    Parameters
    ----------
    group
        The group.
    relation, payload, limit
        The relation, the columns that are kept, and the bytes of the budget: only joins with the same ones find each other.
    """

    shared: SharedContent | None

    def __init__(self, group: Group, relation: Relation, payload: Sequence[Column], limit: int) -> None:
        text = f"{relation.path}:{limit}:{group.workers}:{[column.name for column in payload]}"
        self._card = group.directory / hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        self.shared = None  # from the first `enter` on
        self.slot: int | None = None

    @abstractmethod
    def _open(self, card: Path) -> Any:
        """Open the shared memory, a SharedContent."""

    @abstractmethod
    def _attach(self, slot: int, *, moved: bool) -> None:
        """Have the join work with what lies in shared memory: with `moved`, in another than before."""

    @abstractmethod
    def _detach(self) -> None:
        """Leave what lies in shared memory to another process; what this one holds beside it goes back to the system."""

    def enter(self) -> bool:
        """Take a slot until `leave`; False if as many workers as the group has room for hold one already."""
        if self.shared is None:
            self.shared = self._open(self._card)
        shared, before = self.shared, self.shared.memory
        slot = shared.open_slot()
        if slot is None:
            return False
        try:
            self._attach(slot, moved=shared.memory is not before)
        except BaseException:
            shared.close_slot(slot)
            raise
        self.slot = slot
        return True

    def leave(self) -> None:
        """Let another worker have the slot."""
        assert self.shared is not None and self.slot is not None
        self._detach()
        self.shared.close_slot(self.slot)
        self.slot = None


class HotSetMembership(GroupMembership):
    """The part of a join in a group that shares a hot set.

    Parameters
    ----------
    group, limit
        See GroupMembership.
    memory
        The memory of the join, whose parts lie in shared memory while the join holds a slot.
    """

    shared: GroupMemory | None

    def __init__(self, group: Group, memory: JoinMemory, limit: int) -> None:
        super().__init__(group, memory.relation, memory.payload, limit)
        self._memory = memory
        self._version: Version | None = None  # with the index that lies in shared memory
        # Beside the relation: the group's own directory goes with the executor.
        self._saved = SavedHotSet(memory.relation.path / HOT_SETS / self._card.name)

    def enter(self) -> bool:
        """See GroupMembership. Who fills the memory makes the hot set as large as this join would have it now."""
        if self.shared is None:
            self.shared = self._open(self._card)
        self.shared.first_hot = self._memory.split.hot_bytes
        return super().enter()

    def _open(self, card: Path) -> GroupMemory:
        memory = self._memory
        return GroupMemory(card, memory.relation, memory.payload, memory.plan, self._saved.restore)

    def _attach(self, slot: int, *, moved: bool) -> None:
        memory, shared = self._memory, self.shared
        assert shared is not None
        if memory.plan.index_memory.paged:
            self._version = memory.open_index()
        elif moved or self._version is None:
            self._version = memory.relation.opened.with_indexes(shared.sidecars("index"))
        hot = SharedHotSet(shared, slot, self._version.codec.integer, memory.horizon, self._saved)
        buffer = shared.memory.piece(*shared.read_buffer_memory(slot))
        reader = PageReader(self._version, shared.read_bytes, buffer)
        memory.attach(hot, reader, self._version, has_young=hot.has_young)

    def _detach(self) -> None:
        self._memory.hot.end()
        if self._memory.plan.index_memory.paged:
            self._version = None  # an idle worker holds nothing
        self._memory.detach()
