"""An LRU buffer of pages that only counts: it knows which pages would be in memory, and counts reads and writes.

`lru` is one array: counters, and then four numbers for each frame. The frames are a doubly linked list from the page used last
to the one used longest ago. `where[page]` is the page's frame, or -1. No page is copied.
"""

from __future__ import annotations

import numpy as np

from headrace.kernels.jit import helper, i64, int64, kernel, void

READS, WRITES, VISITS, FRAMES, USED, NEWEST, OLDEST = range(7)  # the positions of the counters
HEADER = 8  # numbers before the first frame
PAGE, NEWER, OLDER, DIRTY = range(4)  # the positions in a frame
FRAME = 4  # numbers of a frame


def empty_lru(frames: int) -> np.ndarray:
    """Return the array of an empty buffer with this many frames."""
    lru = np.full(HEADER + FRAME * frames, -1, np.int64)
    lru[:HEADER] = 0
    lru[FRAMES] = frames
    lru[NEWEST] = lru[OLDEST] = -1
    return lru


@helper
def _unlink(lru, frame):
    """Take a frame out of the list."""
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
    """Use a page: count a read if it is not in the buffer, and a write if the page that it replaces was changed.

    `dirty` says that the page is changed, `fresh` that it is new, so that there is nothing to read.
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
    """Use one page: `touch`, to be called from Python."""
    touch(lru, where, page, dirty, fresh)
