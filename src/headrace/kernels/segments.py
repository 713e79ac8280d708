"""Tells pairs of tuples on disk that were joined before. The docstring of ProgressiveJoin has the rule and its proof."""

from __future__ import annotations

from headrace.kernels.jit import I32, I64, int64, kernel, u8, void


@kernel(void(I32, I32, I64, I64, I64, I64, I32, I32, I32, I32, int64, u8))
def keep_unjoined(left, right, la, ra, ld, rd, lswept, rswept, lpart, rpart, done, keep):
    """Set keep[k] to 0 where the pair of rows left[k], right[k] was joined before.

    Of left rows, la is the stamp of arrival, ld that of departure, and lpart the partition; in memory they met the right
    partitions on disk before number lswept. The names with r are those of the right side. Tuples that both departed up to the
    stamp `done` were joined with each other on disk.
    """
    for k in range(left.size):
        a, b = left[k], right[k]
        if ld[a] == rd[b] or (ld[a] <= done and rd[b] <= done):
            keep[k] = 0
        elif ld[a] < rd[b]:  # together in memory, or the right one met the left one's partition on disk
            if ra[b] < ld[a] or lpart[a] < rswept[b]:
                keep[k] = 0
        elif la[a] < rd[b] or rpart[b] < lswept[a]:
            keep[k] = 0
