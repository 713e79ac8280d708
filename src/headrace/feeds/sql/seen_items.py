"""SeenItems: which items have come before, unchanged."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.feeds.seen import Hashes, contained
from headrace.memory import MemoryBudget

_RECENT = (
    4096  # keys that are kept apart before they are sorted into the others: sorting costs as much as there are keys
)


class SeenItems:
    """Keys of items, 16 bytes each, sorted; those of the latest items in an array of their own.

    A feed may say something, then something else, then the first again. The item is the first one again, and so are its results.

    Args:
        budget: where the memory is reserved.

    Example:
        >>> seen = SeenItems(MemoryBudget("1MiB"))
        >>> keys = pa.array([b"a" * 16, b"b" * 16, b"a" * 16], pa.binary(16))
        >>> seen.new(keys).to_pylist(), seen.new(keys).to_pylist()
        ([0, 1], [])
    """

    def __init__(self, budget: MemoryBudget) -> None:
        self._sorted: Hashes = np.empty(0, "S16")
        self._recent: Hashes = np.empty(0, "S16")
        self._held = budget.reserve("keys of items", 0)

    def new(self, keys: pa.Array) -> pa.Array:
        """The rows of keys that have not come before, each once, in their order; they have come from now on."""
        asked = np.frombuffer(keys.buffers()[1] or b"", "S16", len(keys), 16 * keys.offset)
        values, first = np.unique(asked, return_index=True)
        there = contained(values, self._sorted) | contained(values, self._recent)
        recent = np.concatenate([self._recent, values[~there]])
        many = recent.size > _RECENT
        # Of the array that grows there are two for a moment.
        grown = recent.nbytes + (self._sorted.nbytes if many else 0)
        self._held.resize(self._sorted.nbytes + self._recent.nbytes + grown)
        if many:
            self._sorted, recent = np.concatenate([self._sorted, recent]), recent[:0].copy()
            self._sorted.sort()
        recent.sort()
        self._recent = recent
        self._held.resize(self._sorted.nbytes + self._recent.nbytes)
        return pa.array(np.sort(first[~there]), pa.int64())
