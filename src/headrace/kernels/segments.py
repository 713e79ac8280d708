"""Which pairs of tuples on disk were not joined before. See headrace.progressive.join for the rule and its proof."""

from __future__ import annotations

from headrace.kernels.jit import I32, I64, int64, kernel, u8, void


@kernel(void(I32, I32, I32, I32, I64, I64, I64, I64, I64, I64, I64, I64, int64, u8))
def keep_unjoined(left, right, lseg, rseg, la, ra, ld, rd, lfirst, lmet, rfirst, rmet, done, keep):
    """keep[k] becomes 0 where pair k = (left[k], right[k]) was joined before.

    lseg and la are segment and arrival of a row; ld is when a segment departed, lmet[lfirst[g]:lfirst[g + 1]] when segment g met
    the memory of the other side. Pairs of segments that both departed by `done` were joined on disk.
    """
    for k in range(left.size):
        g, h = lseg[left[k]], rseg[right[k]]
        if ld[g] == rd[h] or (ld[g] <= done and rd[h] <= done):
            keep[k] = 0
            continue
        if ld[g] < rd[h]:
            gone, arrived, departed = ld[g], ra[right[k]], rd[h]
            first, last = lfirst[g], lfirst[g + 1]
        else:
            gone, arrived, departed = rd[h], la[left[k]], ld[g]
            first, last = rfirst[h], rfirst[h + 1]
        if arrived < gone:  # both were in memory
            keep[k] = 0
            continue
        for e in range(first, last):
            t = lmet[e] if ld[g] < rd[h] else rmet[e]
            if arrived < t and t < departed:
                keep[k] = 0
                break
