"""Hash chains, as multimap and cells lay them out: heads[bucket] is the first slot, after[slot] the next one, -1 the end.

Kernels of other files call these helpers, and LLVM inlines them. Numba notices a change of the file that a kernel is in, and not
of a helper in another file: after a change here run `find src -name '*.nb?' -delete` (CONTRIBUTING, "Kernels").
"""

from __future__ import annotations

import numpy as np

from headrace.kernels.jit import helper


@helper
def bucket(code: np.uint64, buckets: int) -> np.int64:
    """The bucket of a code: its upper bits after a multiplication, scaled to the number of buckets."""
    return np.int64((((code * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)) * np.uint64(buckets)) >> np.uint64(32))


@helper
def slot_from(codes, after, code, s):
    """The first slot with this code from slot s on along its chain; -1 if there is none."""
    while s >= 0 and codes[s] != code:
        s = np.int64(after[s])
    return s
