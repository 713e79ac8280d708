"""The most results that a join with a buffer of w tuples can have when the whole stream is known. [MESH] §4.2"""

from __future__ import annotations

from headrace.kernels.jit import F64, f64, helper, i64, int64, kernel, void


@helper
def _sink(heap, size, value):
    """Replace the smallest value of a min-heap."""
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= value:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = value


@helper
def _rise(heap, size, value):
    """Add a value to a min-heap of this size."""
    at = size
    while at > 0:
        parent = (at - 1) // 2
        if heap[parent] <= value:
            break
        heap[at] = heap[parent]
        at = parent
    heap[at] = value


@kernel(void(F64, int64, int64, int64, f64, i64, f64))
def offline_gains(f, w, loop, first, gains, ends, heap):
    """Compute gains[t], the most results of tuples t, t + 1, ... if the buffer was handed over, and is empty, at time t.

    ends[t] is the time of the next hand-over, or the size of the stream if there is none. `heap` has room for w values; gains
    and ends have one element more than f. Two hand-overs are at least `loop` apart, and the first is at `first` or later;
    neither is below w. An interval that is `loop` longer than it must be need not be tried: cut in two, each part keeps w
    tuples of its own, which include the w of the whole.
    """
    n = f.size
    for t in range(n, -1, -1):
        least = loop if t > 0 else first
        size = 0
        total = 0.0
        best = -1.0
        end = n
        last = min(n, t + least + loop)
        for at in range(t, last):
            value = f[at]
            if size < w:
                _rise(heap, size, value)
                size += 1
                total += value
            elif value > heap[0]:
                total += value - heap[0]
                _sink(heap, size, value)
            if at + 1 - t >= least and at + 1 < n and total + gains[at + 1] > best:
                best = total + gains[at + 1]
                end = at + 1
        if last == n and total >= best:
            best = total
            end = n
        gains[t] = best
        ends[t] = end
