"""SeenItems: which items have come before, unchanged."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.arrays import Bools
from headrace.memory import MemoryBudget

_RECENT = (
    4096  # keys that are kept apart before they are sorted into the others: sorting costs as much as there are keys
)
_RECENT_BYTES = 120  # of a key in a Python set


class SeenItems:
    """Keys of items, 16 bytes each, sorted; those of the latest items in a set.

    A feed may say something, then something else, then the first again. The item is the first one again, and so are its results.

    Args:
        budget: where the memory is reserved.
    """

    def __init__(self, budget: MemoryBudget) -> None:
        self._sorted = np.empty(0, "S16")
        self._recent: set[bytes] = set()
        self._held = budget.reserve("keys of items", 0)

    def new(self, keys: pa.Array) -> pa.Array:
        """The rows of keys that have not come before, each once; they have come from now on."""
        values = keys.to_pylist()
        known = self._known(keys)
        rows = []
        for row, (value, old) in enumerate(zip(values, known, strict=True)):
            if not old and value not in self._recent:
                self._recent.add(value)
                rows.append(row)
        if len(self._recent) > _RECENT:
            merged = np.concatenate([self._sorted, np.array(list(self._recent), "S16")])
            self._held.resize(2 * merged.nbytes)
            merged.sort()
            self._sorted, self._recent = merged, set()
        self._held.resize(self._sorted.nbytes + _RECENT_BYTES * len(self._recent))
        return pa.array(rows, pa.int64())

    def _known(self, keys: pa.Array) -> Bools:
        asked = np.frombuffer(keys.buffers()[1], "S16", len(keys), 16 * keys.offset)
        if not self._sorted.size:
            return np.zeros(len(keys), np.bool_)
        at = np.minimum(np.searchsorted(self._sorted, asked), self._sorted.size - 1)
        known: Bools = self._sorted[at] == asked
        return known
