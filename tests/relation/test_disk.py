"""Three kinds of disk: the same bytes, and a clock that adds up."""

import ctypes
import errno
import os

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.files import LocalFiles, using
from headrace.metrics import JoinStats
from headrace.relation import Disk
from headrace.relation.reader import PageReader
from tests.support.relation_oracle import check_same, scanned

# Powers of two: sums of them are exact, so the clock can be compared for equality.
SEEK, TRANSFER = 2.0**-7, 2.0**-13


@pytest.fixture(scope="module")
def table() -> pa.Table:
    rng = np.random.default_rng(12)
    n = 8000
    return pa.table(
        {
            "k": rng.integers(0, 5000, n),
            "s": pa.array([None if i % 11 == 0 else "s" * (i % 100) for i in range(n)]),
        }
    )


@pytest.fixture(scope="module")
def root(table, tmp_path_factory):
    root = tmp_path_factory.mktemp("disk") / "r"
    hr.Relation.create(root, table, key="k", page_size=4096, shards=3).close()
    return root


def direct_or_skip(root):
    file = next(root.glob("*.pages"))
    try:
        os.close(os.open(file, os.O_RDONLY | os.O_DIRECT))
    except OSError as error:
        pytest.skip(f"the file system of {root} refuses O_DIRECT: {error.strerror}")


@pytest.mark.parametrize("plan", ["optimal", "greedy", "none"])
@pytest.mark.parametrize("kind", ["buffered", "direct", "simulated"])
def test_differential_every_disk_gives_the_same(kind, plan, root, table):
    if kind == "direct":
        direct_or_skip(root)
    for workers in (1, 32):
        with hr.Relation.open(root, disk=Disk(kind=kind, plan=plan, workers=workers)) as rel:
            check_same(rel, table)


def test_disks_by_name(root):
    for kind in ("buffered", "simulated"):
        assert hr.Relation.open(root, disk=kind).disk.kind == kind
    with pytest.raises(hr.BadInput, match="buffered, direct, simulated"):
        hr.Relation.open(root, disk="floppy")
    with pytest.raises(hr.BadInput, match="optimal, greedy, none"):
        Disk(plan="best")


def test_direct_io_where_it_is_refused(tmp_path):
    """A refusal names the file and what to do; /proc is a file system that refuses O_DIRECT."""
    with pytest.raises(hr.BadInput, match=r"/proc/self/status.*O_DIRECT.*buffered"):
        Disk(kind="direct").open("/proc/self/status")


@pytest.mark.parametrize("page_size", [4096, 8192, 16384])
@pytest.mark.parametrize("plan", ["optimal", "greedy", "none"])
def test_a_simulated_clock_is_runs_times_seek_and_pages_times_transfer(page_size, plan, table, tmp_path):
    disk = Disk(kind="simulated", seek=SEEK, transfer=TRANSFER, plan=plan)
    rel = hr.Relation.create(tmp_path / "r", table, key="k", page_size=page_size, disk=disk)
    transfer = TRANSFER * page_size / 8192
    rng = np.random.default_rng(1)
    assert disk.clock.now() == 0
    for share in (0.02, 0.3, 1.0):
        stats, before = JoinStats(), disk.clock.now()
        every = np.sort(np.concatenate([rel.opened.places(s) for s in range(rel.num_shards)]))
        places = np.sort(rng.choice(every, max(1, int(every.size * share)), replace=False))
        seen = 0
        for a, b, _ in PageReader(rel.opened, 16 * page_size).read(places, stats):
            assert a == seen
            seen = b
        assert seen == places.size == stats.pages_requested
        assert stats.bytes_read == stats.pages_read * page_size
        assert disk.clock.now() - before == stats.reads * SEEK + stats.pages_read * transfer
        if plan == "none":
            assert stats.reads == stats.pages_read == places.size


def test_a_simulated_disk_is_deterministic(root):
    clocks = []
    for _ in range(2):
        disk = Disk(kind="simulated", seek=SEEK, transfer=TRANSFER)
        with hr.Relation.open(root, disk=disk) as rel:
            rel.lookup(list(range(0, 5000, 7)))
            scanned(rel)
        clocks.append(disk.clock.now())
    assert clocks[0] == clocks[1] > 0


def test_better_plans_take_less_time(root):
    times = {}
    for plan in ("optimal", "greedy", "none"):
        disk = Disk(kind="simulated", seek=SEEK, transfer=TRANSFER, plan=plan, longest=5)
        with hr.Relation.open(root, disk=disk) as rel:
            rel.lookup(list(range(0, 5000, 40)))
        times[plan] = disk.clock.now()
    assert times["optimal"] <= times["greedy"] <= times["none"]
    assert times["optimal"] < times["none"]


@given(st.sets(st.integers(0, 200), min_size=1), st.integers(2, 40), st.integers(1, 4))
@settings(deadline=None, max_examples=50)
def test_oracle_reads_through_a_small_buffer(root, wanted, buffer_pages, workers):
    """Every page asked for arrives once, whole and checked, however little fits at a time."""
    with hr.Relation.open(root, disk=Disk(workers=workers)) as rel:
        every = rel.opened.places(0)
        places = every[sorted({w % every.size for w in wanted})]
        raw = (root / rel.opened.manifest.shards[0].files[0].name).read_bytes()
        reader = PageReader(rel.opened, buffer_pages * 4096)
        assert reader.nbytes <= buffer_pages * 4096
        got = []
        for a, b, addresses in reader.read(places, JoinStats()):
            for place, address in zip(places[a:b].tolist(), addresses.tolist(), strict=True):
                assert ctypes.string_at(address, 4096) == raw[place * 4096 :][:4096]
                got.append(place)
        assert got == places.tolist()


def going_on() -> Disk:
    """One request at a time: a seek of 8, or 0.5 where it goes on; a page of 4 KiB takes 1."""
    return Disk("simulated", seek=8.0, transfer=2.0, follow=0.5, workers=1)


@pytest.mark.parametrize(
    ("reads", "seconds", "pages"),
    [
        ([range(10)], 8 + 2 * 0.5 + 10, 10),  # a run longer than the buffer: requests of 4, 4 and 2, of which two go on
        ([[0, 2, 3]], 8 + 4, 4),  # a page is read through
        # The second read begins where the first ended: 2 pages are less than a seek
        ([range(3), [5, 6]], 8 + 3 + 0.5 + 4, 7),
        ([range(3), [9, 10]], 8 + 3 + (0.5 + 4) + (0.5 + 4), 11),  # 6 pages and a request: still less
        ([range(3), [10, 11]], 8 + 3 + 8 + 2, 5),  # 7 are not
        ([[5, 6], [0, 1]], 8 + 2 + 8 + 2, 4),  # back is a seek
        ([[5, 6], [6, 7]], 8 + 2 + 8 + 2, 4),  # also to a page that was read last
    ],
)
def test_reads_sweep_over_the_relation(root, reads, seconds, pages):
    disk = going_on()
    with hr.Relation.open(root, disk=disk) as rel:
        reader, stats = PageReader(rel.opened, 4 * 4096), JoinStats()
        for wanted in reads:
            places = rel.opened.places(0)[list(wanted)]
            found = [places[a:b] for a, b, _ in reader.read(places, stats)]
            assert np.concatenate(found).tolist() == places.tolist()
    assert (disk.clock.now(), stats.pages_read) == (seconds, pages)


@given(st.lists(st.sets(st.integers(0, 40), min_size=1), min_size=1, max_size=4), st.integers(2, 9))
@settings(deadline=None, max_examples=50)
def test_oracle_sweeps_bring_every_page_once_and_take_no_longer_than_seeks(root, wanted, buffer_pages):
    disk = going_on()
    with hr.Relation.open(root, disk=disk) as rel:
        every = rel.opened.places(0)
        raw = (root / rel.opened.manifest.shards[0].files[0].name).read_bytes()
        reader = PageReader(rel.opened, buffer_pages * 4096)
        least = 0.0
        for some in wanted:
            places, got, stats = every[sorted({w % every.size for w in some})], [], JoinStats()
            for a, b, addresses in reader.read(places, stats):
                for place, address in zip(places[a:b].tolist(), addresses.tolist(), strict=True):
                    assert ctypes.string_at(address, 4096) == raw[place * 4096 :][:4096]
                    got.append(place)
            assert got == places.tolist()
            assert stats.reads >= -(-stats.pages_read // (2 * (buffer_pages // 2)))
            least += 9.0 * places.size
        assert disk.clock.now() <= least


def test_a_buffer_below_two_pages_is_refused(root):
    with hr.Relation.open(root) as rel, pytest.raises(hr.MemoryRefused, match="two pages of 4KiB"):
        PageReader(rel.opened, 8191)


def test_leaving_a_read_early_is_safe(root, table):
    """Reads under way write to the buffer; closing waits for them."""
    with hr.Relation.open(root) as rel:
        for _ in range(20):
            batches = rel.scan()
            next(batches)
            batches.close()
        check_same(rel, table)


class Halves(LocalFiles):
    """Reads half of what is asked for, and fails from a call on."""

    def __init__(self, fails_at: float = float("inf")) -> None:
        self.reads, self.fails_at = 0, fails_at

    def read_into(self, fd, buffer, offset):
        self.reads += 1
        if self.reads >= self.fails_at:
            raise OSError(errno.EIO, "Input/output error")
        return super().read_into(fd, buffer[: -(-len(buffer) // 2)], offset)


@pytest.mark.parametrize("disk", ["buffered", "simulated"])
def test_another_form_of_files_reads_pages_too(root, table, disk):
    """Compiled code reads past it, so a form that fails on purpose would never reach a page."""
    with hr.Relation.open(root, disk=disk) as rel:
        with using(form := Halves()):
            check_same(rel, table)
        assert form.reads > rel.num_pages // 8
        with using(form := Halves()):
            assert sum(batch.num_rows for batch in rel.scan()) == table.num_rows
        with using(Halves(fails_at=form.reads)), pytest.raises(hr.DamagedRelation, match="read in full") as found:
            list(rel.scan())
        assert found.value.page is not None
        check_same(rel, table)
