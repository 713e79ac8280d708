"""Pages from the page cache are checked once while nobody writes to their file; those of a disk at every read."""

import os

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.kernels.pages import BAD_CHECKSUM, SOUND, verify
from headrace.metrics import JoinStats
from headrace.relation import Disk
from headrace.relation.checked_pages import MOST_BYTES, CheckedPages
from headrace.relation.columns import address
from headrace.relation.reader import PageReader
from tests.support.kernel_arrays import longs

ROWS = pa.table({"k": range(2_000), "text": [f"{i:040}" for i in range(2_000)]})


def read_all(relation: hr.Relation) -> int:
    """Read every page; returns how many."""
    version = relation.opened
    places = np.concatenate([version.places(shard) for shard in range(relation.num_shards)])
    return sum(b - a for a, b, _ in PageReader(version, 64 << 12).read(np.sort(places), JoinStats()))


def page_file(relation: hr.Relation):
    return next(path for path in sorted(relation.path.iterdir()) if path.suffix == ".pages")


def damage(relation: hr.Relation, page: int, times: os.stat_result | None = None) -> None:
    """Change a byte of a page; with times, as a disk that goes bad would: nobody wrote."""
    path = page_file(relation)
    with path.open("r+b") as file:
        file.seek(page * relation.page_size + 300)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))
    if times is not None:
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


class PageCache(Disk):
    """A disk all of whose reads come from the page cache, whatever else the machine does."""

    cached = property(lambda self: True)


@pytest.fixture
def relation(tmp_path):
    return hr.Relation.create(tmp_path / "r", ROWS, key="k", page_size="4KiB", disk=PageCache())


def test_a_page_that_somebody_writes_to_is_checked_again(relation):
    assert read_all(relation) == relation.num_pages
    damage(relation, 2)
    with pytest.raises(hr.DamagedRelation, match="checksum"):
        read_all(relation)


def test_a_page_of_a_disk_is_checked_at_every_read(tmp_path):
    relation = hr.Relation.create(tmp_path / "r", ROWS, key="k", page_size="4KiB", disk=Disk("simulated"))
    times = page_file(relation).stat()
    read_all(relation)
    damage(relation, 2, times)
    with pytest.raises(hr.DamagedRelation, match="checksum"):
        read_all(relation)


def test_only_pages_that_were_found_sound_are_passed_over():
    page = np.zeros(4096, np.uint8)
    checked, verdict = np.zeros(2, np.uint8), np.zeros(1, np.int32)

    def check(number: int) -> int:
        args = longs([0]), longs([0]), longs([8]), longs([number])
        verify(longs([address(page)]), 4096, *args, checked, verdict)
        return int(verdict[0])

    assert check(9) == BAD_CHECKSUM
    assert not checked.any()
    checked[1] = 1 << 1
    assert check(9) == SOUND
    assert check(8) == BAD_CHECKSUM
    assert check(16) == BAD_CHECKSUM  # beyond the bits


def test_a_file_that_changed_loses_its_bits_and_the_others_keep_theirs(tmp_path):
    paths = [tmp_path / name for name in "abc"]
    for path in paths:
        path.write_bytes(b"x")
    fds = np.array([os.open(path, os.O_RDONLY) for path in paths], np.int32)
    checked, files = CheckedPages(longs([16, 16, 16])), np.arange(3)
    checked.bits(files, fds)[:] = 255
    assert checked.bits(files, fds).all()
    os.utime(paths[1], ns=(0, 0))
    assert checked.bits(files, fds).tolist() == [255, 255, 0, 0, 255, 255]
    assert checked.numbers(longs([0, 2]), longs([3, 5])).tolist() == [3, 37]
    assert CheckedPages.size(1 << 40) == MOST_BYTES
    for fd in fds:
        os.close(fd)
