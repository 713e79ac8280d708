"""SeenItems: which items have come before, unchanged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from headrace.arrays import Int64s
from headrace.errors import MemoryRefused
from headrace.feeds.seen import Hashes, contained
from headrace.feeds.sql.key_runs import KEY_BYTES, MERGE_BYTES, KeyRuns
from headrace.memory import MemoryBudget

_RECENT = (
    4096  # keys that are kept apart before they are sorted into the others: sorting costs as much as there are keys
)
_PART = 4  # one part in 4 of the memory is for keys at most
_IN_MEMORY = (
    16  # of that, one part in 16 is for keys that are not on disk: while they grow there are two arrays of them
)
_LEAST = 256  # keys in memory, however little there is


class SeenItems:
    """Keys of items, 16 bytes each: the latest in memory, the others in sorted runs on disk.

        keys --> recent --(4,096)--> sorted --(a part of the memory)--> runs on disk

    A feed may say something, then something else, then the first again. The item is the first one again, and so are its results.
    What lies on disk is made anew after a restart, of the logged pulls, as the rest of a query's state is.

    Args:
        budget: where the memory is reserved.
        directory: where runs lie; the system's for temporary files if None.

    Example:
        >>> seen = SeenItems(MemoryBudget("1MiB"))
        >>> keys = pa.array([b"a" * 16, b"b" * 16, b"a" * 16], pa.binary(16))
        >>> seen.new(keys).to_pylist(), seen.new(keys).to_pylist()
        ([0, 1], [])
    """

    def __init__(self, budget: MemoryBudget, directory: Path | None = None) -> None:
        self._sorted: Hashes = np.empty(0, "S16")
        self._recent: Hashes = np.empty(0, "S16")
        self._runs = KeyRuns(directory)
        self._most = max(_LEAST, budget.limit // _PART // _IN_MEMORY // KEY_BYTES)
        self._held = budget.reserve("keys of items", 0)

    @property
    def spilled(self) -> int:
        """Keys that lie on disk."""
        return len(self._runs)

    def new(self, keys: pa.Array) -> pa.Array:
        """The rows of keys that have not come before, each once, in their order; they have come from now on."""
        asked = np.frombuffer(keys.buffers()[1] or b"", "S16", len(keys), 16 * keys.offset)
        found = [at + self._new(asked[at : at + self._most]) for at in range(0, len(asked), self._most)]
        return pa.array(np.concatenate(found) if found else [], pa.int64())

    def _new(self, asked: Hashes) -> Int64s:
        values, first = np.unique(asked, return_index=True)
        there = contained(values, self._sorted) | contained(values, self._recent)
        there[~there] = self._runs.contains(values[~there])
        recent = np.concatenate([self._recent, values[~there]])
        many = recent.size > min(_RECENT, self._most // 2)
        # Of the array that grows there are two for a moment.
        self._reserve(recent.nbytes + (self._sorted.nbytes if many else 0))
        if many:
            self._sorted, recent = np.concatenate([self._sorted, recent]), recent[:0].copy()
            self._sorted.sort()
        recent.sort()
        self._recent = recent
        if self._sorted.size > self._most:
            self._reserve(MERGE_BYTES + self._runs.fences_for(self._sorted.size))
            self._runs.add(self._sorted)
            self._sorted = self._sorted[:0].copy()
        self._reserve(0)
        return np.sort(first[~there])

    def _reserve(self, more: int) -> None:
        """Reserve what is held, and so many bytes beside it."""
        held = self._sorted.nbytes + self._recent.nbytes + self._runs.nbytes
        try:
            self._held.resize(held + more)
        except MemoryRefused as error:
            raise MemoryRefused(
                f"{error}; a query remembers which items it has had, give more memory, or a bound on time (WITHIN)"
            ) from error
