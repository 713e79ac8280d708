"""The entries of an index that belong to a slot of a sample: first[s] is the first of slot s, sibling[e] the next after e."""

from __future__ import annotations

from headrace.kernels.jit import F64, I32, I64, f64, i32, int64, kernel, void


@kernel(void(i32, i32, I32, I32))
def link(first, sibling, entries, owners):
    """Let entries belong to their owners."""
    for i in range(entries.size):
        sibling[entries[i]] = first[owners[i]]
        first[owners[i]] = entries[i]


@kernel(int64(i32, I32, I32, i32))
def unlink(first, sibling, owners, entries):
    """List the entries of owners, which have none any more. Returns how many there are."""
    n = 0
    for i in range(owners.size):
        e = first[owners[i]]
        first[owners[i]] = -1
        while e >= 0:
            entries[n] = e
            n += 1
            e = sibling[e]
    return n


@kernel(void(f64, I64, F64, int64))
def add_amounts(sums, cells, amounts, width):
    """Add `width` amounts to those of each cell; a cell may come several times."""
    for i in range(cells.size):
        for j in range(width):
            sums[cells[i] * width + j] += amounts[i * width + j]
