"""Samplers of a stream by slots: each kernel decides a whole batch as if its tuples came one by one. [PQP] §9.3

A sampler has `size` positions, and place[p] is the slot of position p. numbers[HELD] of the slots hold a tuple; the others
are on the stack `free`, whose top is the last of them. Slot s holds the tuple with the number seq[s] (the first tuple of a
stream is 1, a free slot has 0), which is live while the window's clock is below until[s]. The clock of a window by sequence
counts tuples; the clock of a window by time is the latest time. Arrival i gets slot taken[i], or -1 if it is dropped; a later
arrival of the batch may get the same slot.

A heap has the taken slots in the order of their expiry, at[s] is the index of slot s in it. Tuples that expire together are
ordered by their number, so that the order does not depend on the layout of the heap, which a snapshot need not preserve.
"""

from __future__ import annotations

import numpy as np

from headrace.kernels.jit import I64, U64, helper, i32, i64, int64, kernel, void

ARRIVED, HELD, OLDEST, GONE = 0, 1, 2, 3  # the positions of these numbers in `numbers`
NUMBERS = 4
FIRST, TOTAL = 0, 1  # the same in `steps`
NEVER = np.iinfo(np.int64).max  # the expiry of a tuple that does not expire


@helper
def below(word: np.uint64, bound: int) -> np.int64:
    """Map a random word to 0, 1, ..., bound - 1: the upper 64 bits of word * bound."""
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    b = np.uint64(bound)
    middle = (word >> half) * (b & low)
    other = (word & low) * (b >> half)
    carry = (middle & low) + (other & low) + (((word & low) * (b & low)) >> half)
    return np.int64((word >> half) * (b >> half) + (middle >> half) + (other >> half) + (carry >> half))


@helper
def sink(heap, key, i, n):
    """Move the item at index i of a heap of n items, which has the smallest key on top, to where it belongs below."""
    s = heap[i]
    while True:
        down = 2 * i + 1
        if down >= n:
            break
        if down + 1 < n and key[heap[down + 1]] < key[heap[down]]:
            down += 1
        if key[heap[down]] >= key[s]:
            break
        heap[i] = heap[down]
        i = down
    heap[i] = s


@helper
def earlier(until, seq, a, b):
    """Whether slot a expires before slot b."""
    return until[a] < until[b] or (until[a] == until[b] and seq[a] < seq[b])


@helper
def sift_up(heap, at, until, seq, i):
    """Move the slot at index i of the heap towards the top, to where it belongs."""
    s = heap[i]
    while i > 0:
        up = (i - 1) >> 1
        if not earlier(until, seq, s, heap[up]):
            break
        heap[i] = heap[up]
        at[heap[i]] = i
        i = up
    heap[i] = s
    at[s] = i


@helper
def sift_down(heap, at, until, seq, i, n):
    """Move the slot at index i of a heap of n slots away from the top, to where it belongs."""
    s = heap[i]
    while True:
        down = 2 * i + 1
        if down >= n:
            break
        if down + 1 < n and earlier(until, seq, heap[down + 1], heap[down]):
            down += 1
        if not earlier(until, seq, heap[down], s):
            break
        heap[i] = heap[down]
        at[heap[i]] = i
        i = down
    heap[i] = s
    at[s] = i


@helper
def free_expired(numbers, place, free, heap, at, seq, until, gone, clock):
    """Free the slots of all tuples that have expired; they are listed in `gone`."""
    held = numbers[HELD]
    while held > 0 and until[heap[0]] <= clock:
        s = heap[0]
        held -= 1
        heap[0] = heap[held]
        if held > 0:
            sift_down(heap, at, until, seq, 0, held)
        free[place.size - held - 1] = s
        seq[s] = 0
        gone[numbers[GONE]] = s
        numbers[GONE] += 1
    numbers[HELD] = held


@helper
def hold(numbers, place, free, heap, at, seq, until, n, end):
    """Let a free slot hold tuple number n. Returns the slot."""
    held = numbers[HELD]
    s = free[place.size - held - 1]
    seq[s] = n
    until[s] = end
    heap[held] = s
    sift_up(heap, at, until, seq, held)
    numbers[HELD] = held + 1
    return s


@helper
def exchange(numbers, heap, at, seq, until, s, n, end):
    """Let a slot hold tuple number n in the place of the tuple that it holds."""
    seq[s] = n
    until[s] = end
    sift_down(heap, at, until, seq, at[s], numbers[HELD])
    sift_up(heap, at, until, seq, at[s])


@kernel(void(i64, I64, i64, i64, U64, I64, i64))
def reservoir(numbers, place, seq, until, words, ends, taken):
    """Alg. 10: tuple n takes a random position of 1..n, or is dropped if there is no such position."""
    n = numbers[ARRIVED]
    held = numbers[HELD]
    for i in range(words.size):
        n += 1
        s = np.int64(-1)
        if held < place.size:
            s = place[held]
            held += 1
        else:
            p = below(words[i], n)
            if p < place.size:
                s = place[p]
        taken[i] = s
        if s >= 0:
            seq[s] = n
            until[s] = ends[i]
    numbers[ARRIVED] = n
    numbers[HELD] = held


@kernel(void(i64, I64, i64, i64, U64, I64, i64))
def fifo(numbers, place, seq, until, words, ends, taken):
    """Alg. 11: tuple n takes the place of the oldest with probability size / n. The oldest is at position numbers[OLDEST]."""
    n = numbers[ARRIVED]
    held = numbers[HELD]
    oldest = numbers[OLDEST]
    for i in range(words.size):
        n += 1
        s = np.int64(-1)
        if held < place.size:
            s = place[held]
            held += 1
        elif below(words[i], n) < place.size:
            s = place[oldest]
            oldest = oldest + 1 if oldest + 1 < place.size else 0
        taken[i] = s
        if s >= 0:
            seq[s] = n
            until[s] = ends[i]
    numbers[ARRIVED] = n
    numbers[HELD] = held
    numbers[OLDEST] = oldest


@kernel(void(i64, i64, i64, i64, i64, i64, i64, i32, U64, I64, I64, I64, i64))
def expire(numbers, place, free, heap, at, seq, until, gone, words, clock, ends, refill, taken):
    """Alg. 12: reservoir sampling until the first tuple of the stream expires; then only freed positions are taken.

    A free position is taken with probability size / refill[i], so with certainty where refill[i] is at most size.
    numbers[OLDEST] is the earliest expiry of any tuple so far.
    """
    for i in range(words.size):
        free_expired(numbers, place, free, heap, at, seq, until, gone, clock[i])
        numbers[ARRIVED] += 1
        n = numbers[ARRIVED]
        taken[i] = -1
        if ends[i] <= clock[i]:
            continue
        numbers[OLDEST] = min(numbers[OLDEST], ends[i])
        filling = clock[i] < numbers[OLDEST]
        if numbers[HELD] < place.size:
            if filling or below(words[i], refill[i]) < place.size:
                taken[i] = hold(numbers, place, free, heap, at, seq, until, n, ends[i])
        elif filling:
            p = below(words[i], n)
            if p < place.size:
                taken[i] = place[p]
                exchange(numbers, heap, at, seq, until, taken[i], n, ends[i])


@kernel(void(i64, i64, i64, i64, i64, i64, i64, i32, U64, I64, I64, I64, i64))
def winres(numbers, place, free, heap, at, seq, until, gone, words, clock, ends, bounds, taken):
    """Alg. 13: a tuple takes a free position if there is one, otherwise a random one of 1..bounds[i], or is dropped."""
    for i in range(words.size):
        free_expired(numbers, place, free, heap, at, seq, until, gone, clock[i])
        numbers[ARRIVED] += 1
        n = numbers[ARRIVED]
        taken[i] = -1
        if ends[i] <= clock[i]:
            continue
        if numbers[HELD] < place.size:
            taken[i] = hold(numbers, place, free, heap, at, seq, until, n, ends[i])
        else:
            p = below(words[i], bounds[i])
            if p < place.size:
                taken[i] = place[p]
                exchange(numbers, heap, at, seq, until, taken[i], n, ends[i])


@kernel(void(i64, i64, i64, i64, i64, i64, i64, i32, int64))
def advance(numbers, place, free, heap, at, seq, until, gone, clock):
    """Free the slots of all tuples that have expired by this time."""
    free_expired(numbers, place, free, heap, at, seq, until, gone, clock)


@kernel(void(i64, i64, int64, int64, I64, I64, i64))
def live_counts(counts, steps, width, length, times, clock, live):
    """Count the live tuples of a window by time when each arrival has come, itself included, at least 1.

    Tuples are counted by steps of `width` time units, counts[step % counts.size]; of the step in which the window begins the
    share that is still live is taken. steps[FIRST] is that step, and steps[TOTAL] the sum of all.
    """
    for i in range(times.size):
        begin = clock[i] - length + 1
        first = begin // width
        passed = min(first - steps[FIRST], np.int64(counts.size))
        for k in range(passed):
            at = (steps[FIRST] + k) % counts.size
            steps[TOTAL] -= counts[at]
            counts[at] = 0
        steps[FIRST] = max(first, steps[FIRST])
        if times[i] >= begin:
            counts[(times[i] // width) % counts.size] += 1
            steps[TOTAL] += 1
        part = counts[first % counts.size]
        over = part * (begin - first * width) // width
        live[i] = max(np.int64(1), steps[TOTAL] - over)
