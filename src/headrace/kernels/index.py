"""Search in the fence index, which has one key per page, for a sorted batch of keys. [SSIJ] §III

fence[p] is the first key of page p; continues[p] is 1 where the last key of page p - 1 is the same. The rows of a key lie in
pages low to high; a key below every fence has low = high = -1, as no page can hold it.
"""

from __future__ import annotations

from headrace.kernels.jit import I32, I64, U8, compare_bytes, helper, i32, int64, kernel, u8, void


@kernel(void(I64, U8, I64, i32, i32))
def locate_ints(fence, continues, keys, low, high):
    """Find the pages of sorted integers; each search starts where the last one ended."""
    pages = fence.size
    at = 0
    for i in range(keys.size):
        key = keys[i]
        # An exponential search for the first page whose fence is not below the key.
        step = 1
        a = at
        while a + step < pages and fence[a + step] < key:
            a += step
            step <<= 1
        b = min(a + step, pages)
        while a < b:
            middle = (a + b) >> 1
            if fence[middle] < key:
                a = middle + 1
            else:
                b = middle
        at = a
        low[i] = a - 1
        high[i] = a - 1
        if a < pages and fence[a] == key:
            if continues[a] == 0:
                low[i] = a
            while a < pages and fence[a] == key:
                a += 1
            high[i] = a - 1


@helper
def _order(a_data, a_offsets, i, b_data, b_offsets, j):
    return compare_bytes(
        a_data + a_offsets[i], a_offsets[i + 1] - a_offsets[i], b_data + b_offsets[j], b_offsets[j + 1] - b_offsets[j]
    )


@kernel(void(int64, I64, U8, int64, I64, i32, i32))
def locate_strings(fence, fence_offsets, continues, keys, key_offsets, low, high):
    """Find the pages of sorted byte strings, as `locate_ints` does for integers; `fence` and `keys` are addresses."""
    pages = fence_offsets.size - 1
    at = 0
    for i in range(key_offsets.size - 1):
        step = 1
        a = at
        while a + step < pages and _order(fence, fence_offsets, a + step, keys, key_offsets, i) < 0:
            a += step
            step <<= 1
        b = min(a + step, pages)
        while a < b:
            middle = (a + b) >> 1
            if _order(fence, fence_offsets, middle, keys, key_offsets, i) < 0:
                a = middle + 1
            else:
                b = middle
        at = a
        low[i] = a - 1
        high[i] = a - 1
        if a < pages and _order(fence, fence_offsets, a, keys, key_offsets, i) == 0:
            if continues[a] == 0:
                low[i] = a
            while a < pages and _order(fence, fence_offsets, a, keys, key_offsets, i) == 0:
                a += 1
            high[i] = a - 1


@kernel(void(int64, I64, u8))
def same_as_before(data, offsets, out):
    """Set out[i] to 1 where byte string i equals byte string i - 1, else to 0; out[0] is 0."""
    for i in range(out.size):
        out[i] = 1 if i > 0 and _order(data, offsets, i, data, offsets, i - 1) == 0 else 0


@kernel(void(int64, I64, int64, I64, I32, u8))
def equal_strings(data, offsets, others, other_offsets, at, out):
    """Set out[i] to 1 where string i equals string at[i] of the others, else to 0, also where at[i] is negative."""
    for i in range(out.size):
        out[i] = 1 if at[i] >= 0 and _order(data, offsets, i, others, other_offsets, at[i]) == 0 else 0
