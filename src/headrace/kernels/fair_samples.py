"""Bottom-k samples of a sliding window: the live tuples with the k smallest random tags are the sample.

Candidates are tuples that are in the sample or may enter it when others expire. A tuple that k others dominate, which have
smaller tags and expire no earlier, will never enter, and is pruned. Candidates have slots: seq[s] is the number of the tuple
(0 if the slot is free), tag[s] its tag, until[s] the clock at which it expires, since[s] the clock from which on it is in the
sample (NEVER while it is not). Two heaps have them by their tags: `chosen` the sample, the largest first, and `spare` the other
candidates, the smallest first; at[s] is the index of a slot in one of them. Most candidates have tags far above those of the
sample: beyond numbers[LIMIT] they are in no heap, and at[s] is FAR. By expiry, `expiry` is a queue in a ring, from
numbers[HEAD] on, of those that came in that order, and `late` is a heap of the others; numbers[EXPIRY] counts both. `free` is a
stack of free slots.
"""

from __future__ import annotations

import numpy as np

from headrace.kernels.jit import I64, U64, helper, i32, i64, int64, kernel, u64, void
from headrace.kernels.samplers import NEVER, sink

ARRIVED, CHOSEN, SPARE, EXPIRY, FREE, GONE, HEAD, LATE, LIMIT = range(9)  # the positions of these numbers in `numbers`
NUMBERS = 9
FAR = -1
SMALLEST, LARGEST = np.uint64(0), np.uint64(2**64 - 1)  # which tags are at the top of a heap: bits that are flipped
HIGHEST = np.iinfo(np.int64).max  # a limit that no tag is above


@helper
def move_up(heap, at, tag, flip, i):
    """Move the slot at index i of a heap by tags, all bits of which are flipped by `flip`, towards the top."""
    s = heap[i]
    mine = tag[s] ^ flip
    while i > 0:
        up = (i - 1) >> 1
        if mine >= tag[heap[up]] ^ flip:
            break
        heap[i] = heap[up]
        at[heap[i]] = i
        i = up
    heap[i] = s
    at[s] = i


@helper
def move_down(heap, at, tag, flip, i, n):
    """Move the slot at index i of a heap of n slots away from the top."""
    s = heap[i]
    mine = tag[s] ^ flip
    while True:
        down = 2 * i + 1
        if down >= n:
            break
        if down + 1 < n and tag[heap[down + 1]] ^ flip < tag[heap[down]] ^ flip:
            down += 1
        if tag[heap[down]] ^ flip >= mine:
            break
        heap[i] = heap[down]
        at[heap[i]] = i
        i = down
    heap[i] = s
    at[s] = i


@helper
def move_out(heap, at, tag, flip, s, n):
    """Take a slot out of a heap, which has n others."""
    i = at[s]
    if i < n:
        heap[i] = heap[n]
        at[heap[i]] = i
        move_down(heap, at, tag, flip, i, n)
        move_up(heap, at, tag, flip, at[heap[i]])


@helper
def up_late(heap, until, i):
    s = heap[i]
    while i > 0:
        up = (i - 1) >> 1
        if until[s] >= until[heap[up]]:
            break
        heap[i] = heap[up]
        i = up
    heap[i] = s


@helper
def choose(numbers, chosen, at, tag, since, s, clock):
    """Put a slot into the sample."""
    since[s] = clock
    chosen[numbers[CHOSEN]] = s
    numbers[CHOSEN] += 1
    move_up(chosen, at, tag, LARGEST, numbers[CHOSEN] - 1)


@helper
def is_far(numbers, tag, s):
    """Whether a tag is above the limit, which has the upper 63 bits of one."""
    return np.int64(tag[s] >> np.uint64(1)) > numbers[LIMIT]


@helper
def twice(limit):
    """A limit that is twice as high."""
    return HIGHEST if limit > HIGHEST // 2 else 2 * limit + 1


@helper
def put_aside(numbers, spare, at, tag, since, s):
    """Put a slot among the candidates that are not in the sample."""
    since[s] = NEVER
    if is_far(numbers, tag, s):
        at[s] = FAR
        return
    spare[numbers[SPARE]] = s
    numbers[SPARE] += 1
    move_up(spare, at, tag, SMALLEST, numbers[SPARE] - 1)


@helper
def drop_chosen(numbers, chosen, at, tag, s):
    """Take a slot out of the sample."""
    numbers[CHOSEN] -= 1
    move_out(chosen, at, tag, LARGEST, s, numbers[CHOSEN])


@helper
def drop_spare(numbers, spare, at, tag, s):
    """Take a slot out of the other candidates."""
    numbers[SPARE] -= 1
    move_out(spare, at, tag, SMALLEST, s, numbers[SPARE])


@helper
def release(numbers, free, gone, seq, s):
    """Make a slot free; it is listed in `gone`. What it says of its tuple stays until another takes it."""
    seq[s] = 0
    free[numbers[FREE]] = s
    numbers[FREE] += 1
    gone[numbers[GONE]] = s
    numbers[GONE] += 1


@helper
def queue_up(numbers, expiry, late, until, s):
    """Put a slot among those that will expire."""
    queued = numbers[EXPIRY] - numbers[LATE]
    numbers[EXPIRY] += 1
    if queued == 0 or until[s] >= until[expiry[around(numbers[HEAD] + queued - 1, expiry.size)]]:
        expiry[around(numbers[HEAD] + queued, expiry.size)] = s
    else:
        late[numbers[LATE]] = s
        numbers[LATE] += 1
        up_late(late, until, numbers[LATE] - 1)


@helper
def around(i, size):
    """An index in a ring."""
    return i - size if i >= size else i


@helper
def take_expired(numbers, expiry, late, until, clock):
    """Take out the slot that expires first, if it has expired; -1 if none has."""
    if numbers[EXPIRY] == 0:
        return np.int32(-1)
    queued = numbers[EXPIRY] - numbers[LATE]
    first = expiry[numbers[HEAD]]
    if numbers[LATE] > 0 and (queued == 0 or until[late[0]] < until[first]):
        first = late[0]
        if until[first] > clock:
            return np.int32(-1)
        numbers[LATE] -= 1
        if numbers[LATE] > 0:
            late[0] = late[numbers[LATE]]
            sink(late, until, 0, numbers[LATE])
    else:
        if until[first] > clock:
            return np.int32(-1)
        numbers[HEAD] = around(numbers[HEAD] + 1, expiry.size)
    numbers[EXPIRY] -= 1
    return first


@helper
def raise_limit(numbers, spare, expiry, late, at, tag, since):
    """Raise the limit until a candidate is below it; all that are then go into the heap."""
    queued = numbers[EXPIRY] - numbers[LATE]
    while numbers[SPARE] == 0:
        numbers[LIMIT] = twice(numbers[LIMIT])
        for i in range(numbers[EXPIRY]):
            s = expiry[around(numbers[HEAD] + i, expiry.size)] if i < queued else late[i - queued]
            if since[s] == NEVER and not is_far(numbers, tag, s):
                put_aside(numbers, spare, at, tag, since, s)


@helper
def expire_until(numbers, chosen, spare, expiry, late, at, free, gone, seq, until, since, tag, clock):
    """Let tuples expire, one after the other; for one of the sample the candidate with the smallest tag enters at once."""
    while True:
        s = take_expired(numbers, expiry, late, until, clock)
        if s < 0:
            return
        if since[s] == NEVER:
            if at[s] != FAR:
                drop_spare(numbers, spare, at, tag, s)
        else:
            drop_chosen(numbers, chosen, at, tag, s)
            if numbers[SPARE] == 0 and numbers[EXPIRY] > numbers[CHOSEN]:
                raise_limit(numbers, spare, expiry, late, at, tag, since)
            if numbers[SPARE] > 0:
                best = spare[0]
                drop_spare(numbers, spare, at, tag, best)
                choose(numbers, chosen, at, tag, since, best, until[s])
        release(numbers, free, gone, seq, s)


@kernel(int64(i64, i32, i32, i32, i32, i32, i32, i32, i64, i64, i64, u64, U64, I64, I64, int64, i64))
def insert(
    numbers, chosen, spare, expiry, late, at, free, gone, seq, until, since, tag, tags, clock, ends, start, taken
):
    """Take in arrivals from number `start` on. Returns how many were taken in: it stops where no slot is free."""
    for i in range(start, tags.size):
        expire_until(numbers, chosen, spare, expiry, late, at, free, gone, seq, until, since, tag, clock[i])
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
            queue_up(numbers, expiry, late, until, s)
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


@kernel(void(i64, i32, i32, i32, i32, i32, i32, i32, i64, i64, i64, u64, int64))
def advance(numbers, chosen, spare, expiry, late, at, free, gone, seq, until, since, tag, clock):
    """Let all tuples expire that have expired by this time."""
    expire_until(numbers, chosen, spare, expiry, late, at, free, gone, seq, until, since, tag, clock)


@kernel(void(i64, i32, i32, i32, i32, i32, i32, i32, i64, i64, i64, u64))
def prune(numbers, chosen, spare, expiry, late, at, free, gone, seq, until, since, tag):
    """Free the candidates that will never enter the sample: as many others as it has tuples dominate each of them.

    One scan from the last to expire to the first keeps the smallest tags so far in a heap; a candidate with a tag above all of
    them is dominated.
    """
    n = numbers[EXPIRY]
    k = chosen.size
    queued = n - numbers[LATE]
    slots = np.empty(n, np.int32)
    for i in range(queued):
        slots[i] = expiry[around(numbers[HEAD] + i, expiry.size)]
    if queued < n:
        slots[queued:] = late[: n - queued]
        slots = slots[np.argsort(until[slots], kind="mergesort")]
    smallest = np.empty(k, np.uint64)
    found = 0
    kept = n
    for i in range(n - 1, -1, -1):
        s = slots[i]
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
        expiry[kept] = s  # from the back: what is kept ends up in ascending order
    numbers[EXPIRY] = n - kept
    numbers[HEAD] = 0
    numbers[LATE] = 0
    for i in range(n - kept):
        expiry[i] = expiry[kept + i]
    numbers[LIMIT] = HIGHEST
    if numbers[CHOSEN] == k:
        numbers[LIMIT] = twice(np.int64(tag[chosen[0]] >> np.uint64(1)))
    left = 0  # no tuple of the sample is dominated, so that all that were freed were spare
    for i in range(numbers[EXPIRY]):
        s = expiry[i]
        if since[s] == NEVER:
            at[s] = FAR
            if not is_far(numbers, tag, s):
                spare[left] = s
                at[s] = left
                left += 1
    numbers[SPARE] = left
    for i in range(left // 2 - 1, -1, -1):
        move_down(spare, at, tag, SMALLEST, i, left)


@kernel(void(i64, i32, i32, i32, i64, u64, int64))
def shrink(numbers, chosen, spare, at, since, tag, size):
    """Put the tuples with the largest tags aside until the sample has `size`."""
    while numbers[CHOSEN] > size:
        worst = chosen[0]
        drop_chosen(numbers, chosen, at, tag, worst)
        put_aside(numbers, spare, at, tag, since, worst)
