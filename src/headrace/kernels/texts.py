"""q-grams of texts: what similarity conditions compare, and filters that pass over pairs of texts that cannot be similar.

A text is UTF-8 at an address. A gram is a run of q code points, each of 21 bits, in one word; so equal words are equal grams.
"""

from __future__ import annotations

import numpy as np

from headrace.kernels.hashing import mix
from headrace.kernels.jit import (
    I32,
    I64,
    U64,
    boolean,
    f64,
    float64,
    helper,
    i32,
    i64,
    int64,
    kernel,
    load_u8,
    u8,
    u64,
    void,
)

FACTS = (
    3  # words that are noted of a text: its size, and a signature of two words, in which each gram sets one of 128 bits
)
EDIT_GRAM = 2  # code points of the grams in the signature of a text for edit distances
_NOT_UTF8 = 0x110000  # bytes that are not UTF-8 count as code points above all others
_SLACK = 1e-9  # widens bounds that are computed in doubles, so that rounding loses no pair


@helper
def _code_point(at, end):
    """Return the code point at an address, and the address of the next one."""
    first = np.int64(load_u8(at))
    size = 1
    code = first
    if 0xC0 <= first < 0xE0:
        size, code = 2, first & 0x1F
    elif 0xE0 <= first < 0xF0:
        size, code = 3, first & 0x0F
    elif 0xF0 <= first < 0xF8:
        size, code = 4, first & 0x07
    if at + size > end:
        size = 1
    if size == 1:
        return (first if first < 0x80 else _NOT_UTF8 + first), at + 1
    for k in range(1, size):
        code = (code << 6) | (np.int64(load_u8(at + k)) & 0x3F)
    return code, at + size


@helper
def _grams_of(at, end, q, out, begin):
    """Write the grams of a text to out[begin:]; returns how many code points and how many grams it has.

    A text shorter than q is one gram. No code point counts as 0, so that this gram equals no longer one.
    """
    mask = np.uint64((np.int64(1) << (21 * q)) - 1)
    gram = np.uint64(0)
    codes = 0
    n = 0
    while at < end:
        code, at = _code_point(at, end)
        gram = ((gram << np.uint64(21)) | np.uint64(code + 1)) & mask
        codes += 1
        if codes >= q:
            out[begin + n] = gram
            n += 1
    if 0 < codes < q:
        out[begin] = gram
        n = 1
    return codes, n


@helper
def _sorted_set(out, begin, n):
    """Sort out[begin : begin + n] and drop repeats; returns how many are left."""
    out[begin : begin + n].sort()
    kept = 0
    for i in range(begin, begin + n):
        if kept == 0 or out[i] != out[begin + kept - 1]:
            out[begin + kept] = out[i]
            kept += 1
    return kept


@kernel(void(int64, I64, int64, boolean, u64, i64))
def text_facts(data, offsets, q, as_set, scratch, facts):
    """Note the facts of texts: how many code points there are (`as_set`: how many grams) and the signature of the grams.

    Each edit changes at most 2 q grams of a text, and each gram one bit; so do two sets that differ in few grams in few bits.
    The scratch space has a word for every byte of the longest text.
    """
    for i in range(offsets.size - 1):
        size, n = _grams_of(data + offsets[i], data + offsets[i + 1], q, scratch, 0)
        if as_set:
            n = _sorted_set(scratch, 0, n)
            size = n
        low = np.uint64(0)
        high = np.uint64(0)
        for k in range(n):
            bit = mix(scratch[k]) >> np.uint64(57)
            if bit < np.uint64(64):
                low |= np.uint64(1) << bit
            else:
                high |= np.uint64(1) << (bit - np.uint64(64))
        facts[FACTS * i] = size
        facts[FACTS * i + 1] = np.int64(low)
        facts[FACTS * i + 2] = np.int64(high)


@helper
def _bits(x):
    """Count the bits that are set in a word."""
    x = x - ((x >> np.uint64(1)) & np.uint64(0x5555555555555555))
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((x * np.uint64(0x0101010101010101)) >> np.uint64(56))


@helper
def _apart(one, a, other, b):
    """Count the bits in which two signatures differ: two sets of grams differ in as many grams at least."""
    low = np.uint64(one[a + 1]) ^ np.uint64(other[b + 1])
    high = np.uint64(one[a + 2]) ^ np.uint64(other[b + 2])
    return _bits(low) + _bits(high)


@helper
def _may_match(left, a, right, b, edits, at_least):
    """Tell whether the facts left[a:] and right[b:] of two texts leave it open that they are similar.

    They are at most `edits` edits apart, or, where that is negative, share at least this part of their grams. Of similar sets of
    grams, (1 - at_least) / (1 + at_least) of both sizes together is the most that only one of the two has.
    """
    few = min(left[a], right[b])
    many = max(left[a], right[b])
    if edits >= 0:
        return many - few <= edits and _apart(left, a, right, b) <= 2 * EDIT_GRAM * edits
    if few < at_least * many - _SLACK * many:
        return False
    rest = (1.0 - at_least) / (1.0 + at_least)
    return _apart(left, a, right, b) <= (rest + _SLACK) * (few + many)


@kernel(void(I64, I64, int64, float64, I32, I32, u8))
def may_match(left, right, edits, at_least, number, slots, keep):
    """Set keep[k] to 0 where the facts of texts slots[k] and number[k] prove that they are not similar; see _may_match."""
    for k in range(number.size):
        if not _may_match(left, FACTS * np.int64(slots[k]), right, FACTS * np.int64(number[k]), edits, at_least):
            keep[k] = 0


@kernel(int64(I64, I64, I32, I64, I64, int64, float64, i64, i32, i32))
def expand_similar(begin, end, order, left, right, edits, at_least, stop, number, slots):
    """Enumerate pairs (i, order[p]) with begin[i] <= p < end[i] whose texts may be similar, until the output is full.

    Nearly all pairs are passed over here, where one costs a nanosecond or two. Starts at stop = (i, p) and leaves there where it
    stopped; stop[0] is begin.size at the end. Returns how many were written.
    """
    n = 0
    i = stop[0]
    p = stop[1]
    while i < begin.size:
        p = max(p, begin[i])
        b = FACTS * i
        while p < end[i]:
            if _may_match(left, FACTS * np.int64(order[p]), right, b, edits, at_least):
                if n == number.size:
                    stop[0] = i
                    stop[1] = p
                    return n
                number[n] = i
                slots[n] = order[p]
                n += 1
            p += 1
        i += 1
        p = np.int64(0)
    stop[0] = i
    stop[1] = 0
    return n


@kernel(void(int64, I64, int64, u64, i64))
def gram_sets(data, offsets, q, out, ends):
    """Write the sorted set of grams of each text, one after the other; that of text i is out[ends[i] : ends[i + 1]].

    `out` has a word for every byte of the texts.
    """
    at = 0
    ends[0] = 0
    for i in range(offsets.size - 1):
        _, n = _grams_of(data + offsets[i], data + offsets[i + 1], q, out, at)
        at += _sorted_set(out, at, n)
        ends[i + 1] = at


@helper
def _in_common(grams, a, a_end, others, b, b_end):
    """How many grams are in both of two sorted sets."""
    common = 0
    while a < a_end and b < b_end:
        if grams[a] == others[b]:
            common += 1
            a += 1
            b += 1
        elif grams[a] < others[b]:
            a += 1
        else:
            b += 1
    return common


@kernel(void(U64, I64, U64, I64, I32, I32, float64, u8))
def similar(grams, ends, others, other_ends, left, right, at_least, keep):
    """Set keep[k] to 0 unless sets left[k] and right[k] have at least this part of their grams in common."""
    for k in range(left.size):
        a, a_end = ends[left[k]], ends[left[k] + 1]
        b, b_end = other_ends[right[k]], other_ends[right[k] + 1]
        common = _in_common(grams, a, a_end, others, b, b_end)
        union = (a_end - a) + (b_end - b) - common
        if union > 0 and common / union < at_least:
            keep[k] = 0


@kernel(void(U64, I64, U64, I64, f64))
def jaccard_of(grams, ends, others, other_ends, out):
    """Write the part of all grams of text k and of the other text k that both have; 1 for two texts without grams."""
    for k in range(out.size):
        a, a_end = ends[k], ends[k + 1]
        b, b_end = other_ends[k], other_ends[k + 1]
        common = _in_common(grams, a, a_end, others, b, b_end)
        total = (a_end - a) + (b_end - b)
        out[k] = common / (total - common) if total > 0 else 1.0
