"""An LRU buffer of pages, as kernels see it: which pages are in memory, and what reads and writes that takes.

`lru` is one array: a few counters, and then four numbers for each frame, which form a list from the page used last to the one
used longest ago. `where[page]` is the page's frame, or -1. Nothing is copied: the buffer only counts.
"""

from __future__ import annotations

import numpy as np

from headrace.kernels.jit import helper, i64, int64, kernel, void

READS, WRITES, VISITS, FRAMES, USED, NEWEST, OLDEST = range(7)  # the counters
HEADER = 8
PAGE, NEWER, OLDER, DIRTY = range(4)  # of a frame
FRAME = 4


def empty_lru(frames: int) -> np.ndarray:
    """A buffer of so many frames without a page in it."""
    lru = np.full(HEADER + FRAME * frames, -1, np.int64)
    lru[:HEADER] = 0
    lru[FRAMES] = frames
    lru[NEWEST] = lru[OLDEST] = -1
    return lru


@helper
def _unlink(lru, frame):
    at = HEADER + FRAME * frame
    newer, older = lru[at + NEWER], lru[at + OLDER]
    if newer >= 0:
        lru[HEADER + FRAME * newer + OLDER] = older
    else:
        lru[NEWEST] = older
    if older >= 0:
        lru[HEADER + FRAME * older + NEWER] = newer
    else:
        lru[OLDEST] = newer


@helper
def touch(lru, where, page, dirty, fresh):
    """Use a page: read it if it is not there, and write the one that gives way if it was changed.

    `dirty`: it is changed. `fresh`: it is new, so that there is nothing to read.
    """
    lru[VISITS] += 1
    frame = where[page]
    if frame < 0:
        if lru[USED] < lru[FRAMES]:
            frame = lru[USED]
            lru[USED] += 1
        else:
            frame = lru[OLDEST]
            at = HEADER + FRAME * frame
            where[lru[at + PAGE]] = -1
            lru[WRITES] += lru[at + DIRTY]
            _unlink(lru, frame)
        if not fresh:
            lru[READS] += 1
        at = HEADER + FRAME * frame
        lru[at + PAGE] = page
        lru[at + DIRTY] = 0
        where[page] = frame
    elif frame == lru[NEWEST]:
        if dirty:
            lru[HEADER + FRAME * frame + DIRTY] = 1
        return
    else:
        _unlink(lru, frame)
    at = HEADER + FRAME * frame
    lru[at + NEWER] = -1
    lru[at + OLDER] = lru[NEWEST]
    if lru[NEWEST] >= 0:
        lru[HEADER + FRAME * lru[NEWEST] + NEWER] = frame
    else:
        lru[OLDEST] = frame
    lru[NEWEST] = frame
    if dirty:
        lru[at + DIRTY] = 1


@kernel(void(i64, i64, int64, int64, int64))
def touch_page(lru, where, page, dirty, fresh):
    """`touch` for one page, from outside."""
    touch(lru, where, page, dirty, fresh)
