"""Tells pairs of tuples on disk that were joined before. The docstring of ProgressiveJoin has the rule and its proof."""

from __future__ import annotations

from headrace.kernels.jit import I32, I64, int64, kernel, u8, void


@kernel(void(I32, I32, I32, I32, I64, I64, I64, I64, I64, I64, I64, I64, int64, u8))
def keep_unjoined(left, right, lseg, rseg, la, ra, ld, rd, lfirst, lmet, rfirst, rmet, done, keep):
    """Set keep[k] to 0 where the pair of rows left[k], right[k] was joined before.

    Of left rows, lseg is the segment and la the stamp of arrival. Of left segments, ld is the stamp of departure, and segment g
    met the memory of the other side at the stamps lmet[lfirst[g]:lfirst[g + 1]]. The names with r are those of the right side.
    Segments that both departed up to the stamp `done` were joined with each other on disk.
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
        if arrived < gone:  # both were in memory together, and were joined there
            keep[k] = 0
            continue
        for e in range(first, last):
            t = lmet[e] if ld[g] < rd[h] else rmet[e]
            if arrived < t and t < departed:
                keep[k] = 0
                break
