"""Counted I/O: the same every time, and what one counts by hand."""

import numpy as np
import pytest

from headrace.errors import BadInput, MemoryRefused
from headrace.progressive.rtree import (
    ALGORITHMS,
    BlockDynamicJoin,
    Disk2008,
    FullyDynamicJoin,
    StaticJoin,
    SymmetricBlockNestedLoop,
    SymmetricIndexedBlockNestedLoop,
)
from reproduction.spatial_sets import clustered

PAGE = 80  # bytes: four boxes
SAME = [(0, 0, 10, 10)]
names = pytest.mark.parametrize("name", ALGORITHMS)


def at(x):
    """A page of boxes around x."""
    return [(x + i / 10, 0, x + i / 10, 1) for i in range(4)]


def feed(join, *batches):
    results = sum(batch.num_rows for side, boxes in batches for batch in join.insert(side, boxes))
    return results + sum(batch.num_rows for batch in join.finish())


def counts(join):
    stats = join.stats
    return stats.build_reads, stats.build_writes, stats.join_reads, stats.join_writes


def test_static_by_hand():
    """Two frames. Nodes: left 0, 1, 2, right 3.

    They hold 0 and 3 at first. The fifth box of left splits 0: 1 is new, and 3 is written; 2, the new root, too, and 0 is
    written. The box of right: 1 is written, 3 is read. The join: 2 and 3 are there. One child of 2: 2 is written, the child is
    read; the other: the first was not changed, the second is read.
    """
    join = StaticJoin(2 * PAGE, disk=Disk2008(page_size=PAGE))
    assert feed(join, ("left", SAME * 5), ("right", SAME)) == 5
    assert counts(join) == (1, 3, 2, 1)
    assert join.stats.pages_compared == 3  # the roots, and each child with right's


def test_fully_dynamic_by_hand():
    """As above; but each box of left also looks into 3, which after the split means to write 1 and to read 3.

    The box of right finds 3, looks into 2, and reads both children: 3 and 2 are written for them.
    """
    join = FullyDynamicJoin(2 * PAGE, disk=Disk2008(page_size=PAGE))
    assert feed(join, ("left", SAME * 5), ("right", SAME)) == 5
    assert counts(join) == (0, 2, 3, 3)


def test_block_dynamic_by_hand():
    """Four frames: a block of one page a side, and two for the trees. Nodes: left 0, right 1, there until one splits."""
    join = BlockDynamicJoin(4 * PAGE, disk=Disk2008(page_size=PAGE))
    assert feed(join, ("left", at(0)), ("right", at(0))) == 4
    assert counts(join) == (0, 0, 0, 0)
    join = BlockDynamicJoin(4 * PAGE, disk=Disk2008(page_size=PAGE))
    assert feed(join, ("left", at(0)), ("right", at(50)), ("left", at(0)[:1])) == 0
    # The fifth box of left, at the end, splits 0: 2 is new, and 1 is written; 3 is the new root, and 0 is written. To look into 1
    # it is read again, and 2 is written.
    assert counts(join) == (0, 2, 1, 1)


def test_symmetric_block_nested_loop_by_hand():
    """Five frames: blocks of two pages and a frame to read. Every page of a side is written once two more have come."""
    join = SymmetricBlockNestedLoop(5 * PAGE, disk=Disk2008(page_size=PAGE))
    pages = {"left": [at(0), at(10), at(20), at(30)], "right": [at(0), at(10), at(0), at(30)]}
    halves = [(side, pages[side][i] + pages[side][i + 1]) for i in (0, 2) for side in pages]
    assert feed(join, *halves) == 4 * 4  # pages 0, 1 and 3 with themselves, and right's 2 with left's 0
    # Blocks 0: nothing is written. Left's block 1 writes two pages, and finds right's block 0 in memory. Right's block 1 writes
    # two and reads two: of left's four pages two are in memory.
    assert counts(join) == (0, 4, 2, 0)
    assert join.stats.pages_compared == 4 * 4 and join.stats.tests == 16 * 16


def test_symmetric_indexed_block_nested_loop_by_hand():
    """The same pages, with seven frames more for trees and reading: only right's page 2 reads, namely left's page 0."""
    join = SymmetricIndexedBlockNestedLoop(11 * PAGE, disk=Disk2008(page_size=PAGE))
    assert join.blocks.pages == 2
    pages = {"left": [at(0), at(10), at(20), at(30)], "right": [at(0), at(10), at(0), at(30)]}
    halves = [(side, pages[side][i] + pages[side][i + 1]) for i in (0, 2) for side in pages]
    assert feed(join, *halves) == 4 * 4
    assert counts(join) == (0, 4, 1, 0)
    assert join.stats.pages_compared == 4


@names
def test_the_clock_has_what_was_counted(name):
    left, right = clustered(3_000, 5)
    join = ALGORITHMS[name](9 * 4096)
    feed(join, ("left", left), ("right", right))
    assert join.stats.io > 0 and join.stats.tests > 0
    assert join.clock.now() == pytest.approx(join.stats.io * 8e-3 + join.stats.tests * 10e-9)


@names
def test_the_same_counts_every_time_and_for_every_size_of_result_batches(name):
    left, right = clustered(3_000, 5, shuffled=True)
    seen = []
    for rows in (1, 7, 100_000, 100_000):
        disk = Disk2008(page_size=400)
        join = ALGORITHMS[name](10 * 400, disk=disk, rows=rows)
        batches = [(s, b[i : i + 64]) for i in range(0, 3_000, 64) for s, b in (("left", left), ("right", right))]
        feed(join, *batches)
        seen.append(join.stats.as_dict())
    assert seen[0]["io"] > 100
    assert seen.count(seen[0]) == len(seen)


@names
def test_more_memory_needs_no_more_pages(name):
    left, right = clustered(3_000, 5, shuffled=True)
    io = []
    for frames in (9, 20, 60, 4_000):
        join = ALGORITHMS[name](frames * 400, disk=Disk2008(page_size=400))
        feed(join, *((s, b[i : i + 20]) for i in range(0, 3_000, 20) for s, b in (("left", left), ("right", right))))
        io.append(join.stats.io)
    assert io == sorted(io, reverse=True) and io[0] > 1.5 * io[2] > 0, io
    if name != "sibnl":  # its trees have three frames each, whatever there is
        assert io[-1] == 0


@names
def test_too_little_memory_is_refused_with_what_would_do(name):
    cls = ALGORITHMS[name]
    with pytest.raises(
        MemoryRefused, match=rf"memory=4095 bytes are 0 pages.*needs {cls.least_frames}: give {4 * cls.least_frames}KiB"
    ):
        cls(4095)
    least = cls.least_frames * 4096
    feed(cls(least), ("left", SAME * 2_000), ("right", np.array(SAME) + 100))
    with pytest.raises(MemoryRefused, match=f"{cls.least_frames - 1} pages of 4096 bytes"):
        cls(least - 1)


def test_pages_too_small_and_blocks_too_large_are_refused():
    with pytest.raises(BadInput, match=r"page_size=79 has room for 3 records.*80 bytes or more"):
        Disk2008(page_size=79)
    with pytest.raises(BadInput, match=r"block=3 pages do not fit: 5 frames of memory allow 1 to 2"):
        SymmetricBlockNestedLoop(5 * 4096, block=3)
    assert BlockDynamicJoin(block=2).buffer.frames == 124
