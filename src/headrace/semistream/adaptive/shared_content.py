"""SharedContent: what one process puts into shared memory once and all of a group use, each in a slot of its own. (DESIGN D5)

    name | content | ...

Two words come first: the memory's own name (see SharedMemory), and a hash of what the rest holds, 0 while it is being written.
A worker uses the memory between `open_slot` and `close_slot`. Who finds another content writes its own, when no slot is in use.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from headrace.relation import Relation
from headrace.relation.columns import Column
from headrace.semistream.adaptive.shared_memory import SharedMemory

PAGE = 4096  # bytes of a page of the system's memory, at whose borders the parts begin
FIRST_SLOT_LOCK = 1  # number of the first slot's lock
_PUBLISH_LOCK = 0  # number of the lock on the right to write what all see
_CONTENT = 1  # the word that holds the hash
_WORDS = 2  # name and content


class SharedContent(ABC):
    """Shared memory with one content at a time.

    Parameters
    ----------
    card
        Path of the file through which the processes find the memory.
    size
        Bytes of the memory. What is not written takes none.
    workers
        How many slots there are.
    relation, payload
        The relation and the columns that the content is made of.
    layout
        Text that differs where the same parts would lie elsewhere.
    """

    def __init__(
        self, card: Path, size: int, workers: int, relation: Relation, payload: Sequence[Column], layout: str
    ) -> None:
        self.card = card
        self.size = size
        self.workers = workers
        self.relation = relation
        # Another version of the relation, or a relation made anew, or another division, is another content.
        shards = relation.opened.manifest.shards
        tags = [file.tag for shard in shards for file in (*shard.files, shard.index, shard.filter)]
        which = f"{relation.path}:{relation.identity}:{relation.version}:{tags}"
        text = f"{which}:{[c.name for c in payload]}:{layout}"
        self.content = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1 | 1
        self.memory = SharedMemory.find(self.card, self.size)

    @abstractmethod
    def _write(self) -> None:
        """Write the content into memory that is all zeros behind name and content."""

    def open_slot(self) -> int | None:
        """Take a free slot of a memory that holds this content; None if there is none."""
        memory = self.memory = SharedMemory.find(self.card, self.size, self.memory)
        if not self._filled() and not self._fill():
            return None
        for number in range(self.workers):
            if memory.lock(FIRST_SLOT_LOCK + number):
                if self._filled():
                    return number
                memory.unlock(FIRST_SLOT_LOCK + number)
        return None

    def close_slot(self, number: int) -> None:
        """Leave a slot to another worker."""
        self.memory.unlock(FIRST_SLOT_LOCK + number)

    def _filled(self) -> bool:
        return int(self.memory.words(_CONTENT, 1)[0]) == self.content

    def _fill(self) -> bool:
        """Start over with this content; False if somebody is at work with another."""
        self.memory.wait(_PUBLISH_LOCK)  # another may be filling it with the same just now
        slots: list[int] = []
        try:
            if self._filled():
                return True
            for slot in range(FIRST_SLOT_LOCK, FIRST_SLOT_LOCK + self.workers):
                if not self.memory.lock(slot):
                    return False
                slots.append(slot)
            self.memory.words(_CONTENT, 1)[0] = 0
            self.memory.free(PAGE, self.size - PAGE)
            self.memory.piece(8 * _WORDS, PAGE - 8 * _WORDS)[:] = 0
            self._write()
            while slots:  # before the content is there: whoever sees that it is finds them free
                self.memory.unlock(slots.pop())
            self.memory.words(_CONTENT, 1)[0] = self.content
            return True
        finally:
            for number in (*slots, _PUBLISH_LOCK):
                self.memory.unlock(number)

    @contextmanager
    def publishing(self) -> Iterator[bool]:
        """Whether this process is the one that may change what all see."""
        mine = self.memory.lock(_PUBLISH_LOCK)
        try:
            yield mine
        finally:
            if mine:
                self.memory.unlock(_PUBLISH_LOCK)


def up(size: int) -> int:
    """Bytes up to the next border of a page."""
    return -(-size // PAGE) * PAGE
