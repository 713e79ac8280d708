"""Counts how often a stream repeats a value after some number of arrivals: the statistics of reference locality."""

from __future__ import annotations

from headrace.kernels.jit import U64, i64, int64, kernel, void


@kernel(void(U64, int64, i64, i64))
def count_repeats(values, first, repeats, chances):
    """Add to repeats[k - 1] how many of the values from number `first` on are equal to the value k places before them.

    chances[k - 1] grows by how many of them have a value k places before them.
    """
    for n in range(first, values.size):
        for k in range(1, min(n, repeats.size) + 1):
            chances[k - 1] += 1
            if values[n] == values[n - k]:
                repeats[k - 1] += 1
