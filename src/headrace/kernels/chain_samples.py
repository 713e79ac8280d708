"""Many independent samples of one tuple, each with a chain of tuples that will follow it when it expires.

Chain j is a linked list of slots from head[j] to tail[j] by after[s] and before[s], -1 is none; its head is the sample.
seq[s] is the number of a slot's tuple (0 if the slot is free), until[s] the clock at which it expires. `free` is a stack of
free slots. Draw number c of a stream that begins at `start` is the one of `headrace.splitmix.draw`.

Reference: Babcock, Datar, Motwani, "Sampling from a moving window over streaming data", SODA 2002.
"""

from __future__ import annotations

import numpy as np

from headrace.kernels.hashing import mix
from headrace.kernels.jit import I64, helper, i32, i64, int64, kernel, u64, uint64
from headrace.kernels.samplers import below, sink

ARRIVED, FREE = 0, 1  # the positions of these numbers in `numbers`
NUMBERS = 2
STRIDE = 1 << 20  # draws that are numbered together: one for each chain, so that there can be no more chains


@helper
def word(start: np.uint64, counter: int) -> np.uint64:
    """Draw a random word."""
    return mix((np.uint64(counter) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) + start)


@helper
def take_free(numbers, free, seq, until, n, end):
    """A free slot, for tuple number n."""
    numbers[FREE] -= 1
    s = free[numbers[FREE]]
    seq[s] = n
    until[s] = end
    return s


@helper
def release(numbers, free, seq, s):
    """Make a slot free."""
    seq[s] = 0
    free[numbers[FREE]] = s
    numbers[FREE] += 1


@helper
def link(head, tail, before, after, j, left, s):
    """Put slot s into chain j behind slot `left`, or at its head if that is -1."""
    right = head[j] if left < 0 else after[left]
    before[s] = left
    after[s] = right
    if left < 0:
        head[j] = s
    else:
        after[left] = s
    if right < 0:
        tail[j] = s
    else:
        before[right] = s


@helper
def unlink(head, tail, before, after, j, s):
    """Take slot s out of chain j."""
    if before[s] < 0:
        head[j] = after[s]
    else:
        after[before[s]] = after[s]
    if after[s] < 0:
        tail[j] = before[s]
    else:
        before[after[s]] = before[s]


@helper
def part(word: np.uint64) -> float:
    """Map a random word to a number above 0, at most 1."""
    return (np.float64(word >> np.uint64(11)) + 1.0) * 2.0**-53


@helper
def next_fresh(start, j, drawn, n, window):
    """The number of the next tuple after n that becomes the sample of chain j, where tuple m does with 1 / min(m, window).

    None of n + 1..m does with probability n / m up to the window's size, and beyond it the wait is geometric.
    """
    if n < window:
        u = part(word(start, drawn[j] * STRIDE + j))
        drawn[j] += 1
        if n < u * window:
            return np.int64(n / u) + 1
        n = window
    u = part(word(start, drawn[j] * STRIDE + j))
    drawn[j] += 1
    if window == 1:
        return n + 1
    return n + 1 + np.int64(np.log(u) / np.log1p(-1.0 / window))


@kernel(int64(i64, i32, i32, i64, i64, i64, i64, i32, i32, i32, i32, i64, i64, uint64, uint64, int64, int64, int64))
def by_sequence(
    numbers,
    head,
    tail,
    awaited,
    fresh,
    event,
    drawn,
    heap,
    before,
    after,
    free,
    seq,
    until,
    start,
    then,
    window,
    begin,
    stop,
):
    """Take in arrivals begin..stop - 1 of a window by sequence. Returns where it stopped: there, no slot is free.

    Tuple n becomes the sample of a chain with probability 1 / min(n, window). When a tuple is put into a chain, the number of
    its successor is drawn from the `window` next: that tuple is put behind it when it comes.

    Chains to which nothing happens are not looked at: fresh[j] is the number of the next tuple that becomes the sample of chain
    j, event[j] that of the next tuple at which anything happens to it, drawn[j] the draws that it has had of stream `start`,
    and `heap` has the chains with the earliest event on top.
    """
    for i in range(begin, stop):
        n = numbers[ARRIVED] + 1
        while event[heap[0]] == n:
            if numbers[FREE] == 0:
                return i
            j = heap[0]
            now = fresh[j] == n
            if now:
                while head[j] >= 0:
                    s = head[j]
                    unlink(head, tail, before, after, j, s)
                    release(numbers, free, seq, s)
                fresh[j] = next_fresh(start, j, drawn, n, window)
            if now or awaited[j] == n:
                s = take_free(numbers, free, seq, until, n, n + window)
                link(head, tail, before, after, j, tail[j], s)
                awaited[j] = n + 1 + below(word(then, n * STRIDE + j), window)
            s = head[j]
            if until[s] <= n:
                unlink(head, tail, before, after, j, s)
                release(numbers, free, seq, s)
                s = head[j]
            event[j] = min(fresh[j], awaited[j], until[s])
            sink(heap, event, 0, heap.size)
        numbers[ARRIVED] = n
    return stop


@kernel(int64(i64, i32, i32, u64, i32, i32, i32, i64, i64, uint64, I64, I64, int64))
def by_time(numbers, head, tail, tag, before, after, free, seq, until, start, clock, ends, begin):
    """Take in arrivals from `begin` on, of a window by time. Returns where it stopped: there, too few slots are free.

    A tuple has a random tag in each chain, and the live tuple with the smallest is the sample. A chain has the tuples that may
    become it: both expiry and tags ascend from head to tail.
    """
    k = head.size
    for i in range(begin, clock.size):
        if numbers[FREE] < k:
            return i
        numbers[ARRIVED] += 1
        n = numbers[ARRIVED]
        for j in range(k):
            while head[j] >= 0 and until[head[j]] <= clock[i]:
                s = head[j]
                unlink(head, tail, before, after, j, s)
                release(numbers, free, seq, s)
            if ends[i] <= clock[i]:
                continue
            t = word(start, n * STRIDE + j)
            left = tail[j]
            while left >= 0 and until[left] > ends[i]:
                left = before[left]
            right = head[j] if left < 0 else after[left]
            if right >= 0 and tag[right] < t:
                continue
            while left >= 0 and tag[left] > t:
                s = left
                left = before[s]
                unlink(head, tail, before, after, j, s)
                release(numbers, free, seq, s)
            s = take_free(numbers, free, seq, until, n, ends[i])
            tag[s] = t
            link(head, tail, before, after, j, left, s)
    return clock.size
