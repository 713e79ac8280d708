"""Groups: worker processes of one executor that join with the same relation share one budget and one hot set. (DESIGN D5)"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from headrace.relation.reader import PageReader, Version
from headrace.semistream.adaptive.group_memory import GroupMemory
from headrace.semistream.adaptive.memory import JoinMemory
from headrace.semistream.adaptive.shared_hot_set import SharedHotSet


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


class GroupMembership:
    """The part of one join in a group: the shared memory that it maps, and the slot that it holds between `enter` and `leave`.

    Parameters
    ----------
    group
        The group.
    memory
        The memory of the join, whose parts lie in shared memory while the join holds a slot.
    limit
        Bytes that the memory's plan divides. Only joins with the same limit, relation and columns find each other.
    """

    def __init__(self, group: Group, memory: JoinMemory, limit: int) -> None:
        self.group = group
        self._memory = memory
        names = [column.name for column in memory.payload]
        text = f"{memory.relation.path}:{limit}:{group.workers}:{names}"
        self._card = group.directory / hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        self.shared: GroupMemory | None = None  # from the first `enter` on
        self.slot: int | None = None
        self._version: Version | None = None  # with the index that lies in shared memory

    def enter(self) -> bool:
        """Take a slot until `leave`; False if as many workers as the group has room for hold one already."""
        memory = self._memory
        if self.shared is None:
            self.shared = GroupMemory(self._card, memory.relation, memory.payload, memory.plan)
        shared, before = self.shared, self.shared.memory
        slot = shared.open_slot(memory.split.hot_bytes)
        if slot is None:
            return False
        try:
            if memory.plan.index_memory.paged:
                self._version = memory.open_index()
            elif shared.memory is not before or self._version is None:
                self._version = memory.relation.opened.with_indexes(shared.sidecars("index"))
            hot = SharedHotSet(shared, slot, self._version.codec.integer, memory.horizon)
            buffer = shared.memory.piece(*shared.read_buffer_memory(slot))
            reader = PageReader(self._version, shared.read_bytes, buffer)
            memory.attach(hot, reader, self._version, has_young=hot.has_young)
        except BaseException:
            shared.close_slot(slot)
            raise
        self.slot = slot
        return True

    def leave(self) -> None:
        """Let another worker have the slot."""
        assert self.shared is not None and self.slot is not None
        self._memory.hot.end()
        self.shared.close_slot(self.slot)
        self.slot = None
        if self._memory.plan.index_memory.paged:
            self._version = None  # an idle worker holds nothing
        self._memory.detach()
