"""Bottom-k samples of a sliding window: the live tuples with the k smallest random tags are the sample.

Candidates are tuples that are in the sample or may enter it when others expire. A tuple that k others dominate, which have
smaller tags and expire no earlier, will never enter, and is pruned. Candidates have slots: seq[s] is the number of the tuple
(0 if the slot is free), tag[s] its tag, until[s] the clock at which it expires, since[s] the clock from which on it is in the
sample (NEVER while it is not). Three heaps have them in order: `chosen` the sample by descending tags, `spare` the other
candidates by ascending tags, and `expiry` all of them by ascending expiry. at[s] is the index of a slot in the first or the
second. `free` is a stack of free slots.
"""

from __future__ import annotations

import numpy as np

from headrace.kernels.jit import I64, U64, helper, i32, i64, int64, kernel, u64, void
from headrace.kernels.samplers import NEVER

ARRIVED, CHOSEN, SPARE, EXPIRY, FREE, GONE = 0, 1, 2, 3, 4, 5  # the positions of these numbers in `numbers`
NUMBERS = 6


@helper
def up_chosen(heap, at, tag, i):
    s = heap[i]
    while i > 0:
        up = (i - 1) >> 1
        if tag[s] <= tag[heap[up]]:
            break
        heap[i] = heap[up]
        at[heap[i]] = i
        i = up
    heap[i] = s
    at[s] = i


@helper
def down_chosen(heap, at, tag, i, n):
    s = heap[i]
    while True:
        down = 2 * i + 1
        if down >= n:
            break
        if down + 1 < n and tag[heap[down + 1]] > tag[heap[down]]:
            down += 1
        if tag[heap[down]] <= tag[s]:
            break
        heap[i] = heap[down]
        at[heap[i]] = i
        i = down
    heap[i] = s
    at[s] = i


@helper
def up_spare(heap, at, tag, i):
    s = heap[i]
    while i > 0:
        up = (i - 1) >> 1
        if tag[s] >= tag[heap[up]]:
            break
        heap[i] = heap[up]
        at[heap[i]] = i
        i = up
    heap[i] = s
    at[s] = i


@helper
def down_spare(heap, at, tag, i, n):
    s = heap[i]
    while True:
        down = 2 * i + 1
        if down >= n:
            break
        if down + 1 < n and tag[heap[down + 1]] < tag[heap[down]]:
            down += 1
        if tag[heap[down]] >= tag[s]:
            break
        heap[i] = heap[down]
        at[heap[i]] = i
        i = down
    heap[i] = s
    at[s] = i


@helper
def up_expiry(heap, until, i):
    s = heap[i]
    while i > 0:
        up = (i - 1) >> 1
        if until[s] >= until[heap[up]]:
            break
        heap[i] = heap[up]
        i = up
    heap[i] = s


@helper
def down_expiry(heap, until, i, n):
    s = heap[i]
    while True:
        down = 2 * i + 1
        if down >= n:
            break
        if down + 1 < n and until[heap[down + 1]] < until[heap[down]]:
            down += 1
        if until[heap[down]] >= until[s]:
            break
        heap[i] = heap[down]
        i = down
    heap[i] = s


@helper
def choose(numbers, chosen, at, tag, since, s, clock):
    """Put a slot into the sample."""
    since[s] = clock
    chosen[numbers[CHOSEN]] = s
    numbers[CHOSEN] += 1
    up_chosen(chosen, at, tag, numbers[CHOSEN] - 1)


@helper
def put_aside(numbers, spare, at, tag, since, s):
    """Put a slot among the candidates that are not in the sample."""
    since[s] = NEVER
    spare[numbers[SPARE]] = s
    numbers[SPARE] += 1
    up_spare(spare, at, tag, numbers[SPARE] - 1)


@helper
def drop_chosen(numbers, chosen, at, tag, s):
    """Take a slot out of the sample."""
    i = at[s]
    numbers[CHOSEN] -= 1
    n = numbers[CHOSEN]
    if i < n:
        chosen[i] = chosen[n]
        at[chosen[i]] = i
        down_chosen(chosen, at, tag, i, n)
        up_chosen(chosen, at, tag, at[chosen[i]])


@helper
def drop_spare(numbers, spare, at, tag, s):
    """Take a slot out of the other candidates."""
    i = at[s]
    numbers[SPARE] -= 1
    n = numbers[SPARE]
    if i < n:
        spare[i] = spare[n]
        at[spare[i]] = i
        down_spare(spare, at, tag, i, n)
        up_spare(spare, at, tag, at[spare[i]])


@helper
def release(numbers, free, gone, seq, s):
    """Make a slot free; it is listed in `gone`. What it says of its tuple stays until another takes it."""
    seq[s] = 0
    free[numbers[FREE]] = s
    numbers[FREE] += 1
    gone[numbers[GONE]] = s
    numbers[GONE] += 1


@helper
def expire_until(numbers, chosen, spare, expiry, at, free, gone, seq, until, since, tag, clock):
    """Let tuples expire, one after the other; for one of the sample the candidate with the smallest tag enters at once."""
    while numbers[EXPIRY] > 0 and until[expiry[0]] <= clock:
        s = expiry[0]
        numbers[EXPIRY] -= 1
        if numbers[EXPIRY] > 0:
            expiry[0] = expiry[numbers[EXPIRY]]
            down_expiry(expiry, until, 0, numbers[EXPIRY])
        if since[s] == NEVER:
            drop_spare(numbers, spare, at, tag, s)
        else:
            drop_chosen(numbers, chosen, at, tag, s)
            if numbers[SPARE] > 0:
                best = spare[0]
                drop_spare(numbers, spare, at, tag, best)
                choose(numbers, chosen, at, tag, since, best, until[s])
        release(numbers, free, gone, seq, s)


@kernel(int64(i64, i32, i32, i32, i32, i32, i32, i64, i64, i64, u64, U64, I64, I64, int64, i64))
def insert(numbers, chosen, spare, expiry, at, free, gone, seq, until, since, tag, tags, clock, ends, start, taken):
    """Take in arrivals from number `start` on. Returns how many were taken in: it stops where no slot is free."""
    for i in range(start, tags.size):
        expire_until(numbers, chosen, spare, expiry, at, free, gone, seq, until, since, tag, clock[i])
        taken[i] = -1
        if ends[i] > clock[i]:
            if numbers[FREE] == 0:
                return i
            numbers[FREE] -= 1
            s = free[numbers[FREE]]
            taken[i] = s
            seq[s] = numbers[ARRIVED] + 1
            until[s] = ends[i]
            tag[s] = tags[i]
            expiry[numbers[EXPIRY]] = s
            numbers[EXPIRY] += 1
            up_expiry(expiry, until, numbers[EXPIRY] - 1)
            if numbers[CHOSEN] < chosen.size:
                choose(numbers, chosen, at, tag, since, s, clock[i])
            elif tag[s] < tag[chosen[0]]:
                worst = chosen[0]
                drop_chosen(numbers, chosen, at, tag, worst)
                put_aside(numbers, spare, at, tag, since, worst)
                choose(numbers, chosen, at, tag, since, s, clock[i])
            else:
                put_aside(numbers, spare, at, tag, since, s)
        numbers[ARRIVED] += 1
    return tags.size


@kernel(void(i64, i32, i32, i32, i32, i32, i32, i64, i64, i64, u64, int64))
def advance(numbers, chosen, spare, expiry, at, free, gone, seq, until, since, tag, clock):
    """Let all tuples expire that have expired by this time."""
    expire_until(numbers, chosen, spare, expiry, at, free, gone, seq, until, since, tag, clock)


@kernel(void(i64, i32, i32, i32, i32, i32, i32, i64, i64, i64, u64))
def prune(numbers, chosen, spare, expiry, at, free, gone, seq, until, since, tag):
    """Free the candidates that will never enter the sample: as many others as it has tuples dominate each of them.

    One scan from the last to expire to the first keeps the smallest tags so far in a heap; a candidate with a tag above all of
    them is dominated.
    """
    n = numbers[EXPIRY]
    k = chosen.size
    ends = np.empty(n, np.int64)
    for i in range(n):
        ends[i] = until[expiry[i]]
    order = np.argsort(ends)
    slots = expiry[:n].copy()
    smallest = np.empty(k, np.uint64)
    found = 0
    kept = n
    for i in range(n - 1, -1, -1):
        s = slots[order[i]]
        t = tag[s]
        if found < k:
            j = found
            found += 1
            while j > 0 and smallest[(j - 1) >> 1] < t:
                smallest[j] = smallest[(j - 1) >> 1]
                j = (j - 1) >> 1
            smallest[j] = t
        elif t < smallest[0]:
            j = 0
            while True:
                down = 2 * j + 1
                if down >= k:
                    break
                if down + 1 < k and smallest[down + 1] > smallest[down]:
                    down += 1
                if smallest[down] <= t:
                    break
                smallest[j] = smallest[down]
                j = down
            smallest[j] = t
        else:
            release(numbers, free, gone, seq, s)
            continue
        kept -= 1
        expiry[kept] = s  # from the back: what is kept ends up in ascending order, which is a heap
    numbers[EXPIRY] = n - kept
    for i in range(n - kept):
        expiry[i] = expiry[kept + i]
    left = 0  # no tuple of the sample is dominated, so that all that were freed were spare
    for i in range(numbers[SPARE]):
        if seq[spare[i]] != 0:
            spare[left] = spare[i]
            at[spare[left]] = left
            left += 1
    numbers[SPARE] = left
    for i in range(left // 2 - 1, -1, -1):
        down_spare(spare, at, tag, i, left)


@kernel(void(i64, i32, i32, i32, i64, u64, int64))
def shrink(numbers, chosen, spare, at, since, tag, size):
    """Put the tuples with the largest tags aside until the sample has `size`."""
    while numbers[CHOSEN] > size:
        worst = chosen[0]
        drop_chosen(numbers, chosen, at, tag, worst)
        put_aside(numbers, spare, at, tag, since, worst)
