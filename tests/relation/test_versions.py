"""Versions: a reader keeps the one it opened; writers take turns; what nobody reads is removed."""

import os
import shutil
import signal
import subprocess
import threading

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.files import Lease, LocalFiles, using
from headrace.relation.manifest import writing
from tests.support.killable_children import table
from tests.support.relation_oracle import check_same, files_of, named_files, rows, scanned

ROWS = 400


@pytest.fixture
def root(tmp_path):
    """Every row of version n is marked n."""
    hr.Relation.create(tmp_path / "r", table(ROWS, 1), key="k", page_size=4096, shards=2).close()
    return tmp_path / "r"


def tags_of(rel) -> set[int]:
    got = scanned(rel, ["k", "tag"])
    assert sorted(k for k, _ in got) == list(range(ROWS))
    found = rel.lookup(list(range(ROWS)))
    assert found.num_rows == ROWS
    return {tag for _, tag in got} | set(found["tag"].to_pylist())


def next_version(rel) -> int:
    return rel.apply(upserts=table(ROWS, rel.refresh().version + 1))


def on_disk(root) -> list[int]:
    return sorted(int(p.stem.split("-")[1]) for p in root.glob("manifest-*.json"))


# -- readers ---------------------------------------------------------------------------------------


def test_numbers_go_up_by_one(root):
    rel = hr.Relation.open(root)
    assert [rel.version, next_version(rel), next_version(rel), rel.compact()] == [1, 2, 3, 4]
    assert rel.version == 1
    assert rel.refresh().version == 4
    assert rel.refresh().describe()["version"] == 4


@pytest.mark.parametrize("touched", [False, True], ids=["not read before", "read before"])
def test_a_reader_reads_its_version_to_the_end(touched, root):
    """Also what it has not read yet when the others begin: index, filter, statistics, pages."""
    readers = []
    writer = hr.Relation.open(root)
    for n in range(1, 6):
        reader = hr.Relation.open(root)
        if touched:
            tags_of(reader)
        readers.append((n, reader))
        if n == 3:
            assert writer.compact() == n + 1
            continue
        assert next_version(writer) == n + 1
    for n, reader in readers:
        assert reader.version == n
        assert tags_of(reader) == {3 if n == 4 else n}  # version 4 is version 3, compacted
        reader.verify()
        reader.key_frequencies()
        for shard in range(2):
            assert reader.opened.filter(shard).any()


def test_a_scan_under_way_is_not_disturbed(tmp_path):
    rel = hr.Relation.create(tmp_path / "r", table(ROWS, 1), key="k", page_size=4096, shards=4)
    batches = rel.scan()
    first = next(batches)
    for _ in range(3):
        next_version(rel)
    rel.compact()
    got = [*rows(first), *(row for batch in batches for row in rows(batch))]
    assert len(got) == ROWS
    assert {row[1] for row in got} == {1}


@pytest.mark.parametrize("where", ["threads", "processes"])
def test_readers_see_one_version_while_a_writer_works(where, root, children, tmp_path):
    stop = tmp_path / "stop"
    writer = hr.Relation.open(root)

    def write():
        for _ in range(12):
            next_version(writer)
        stop.touch()

    if where == "processes":
        pids = [children.start("read_until", root, stop) for _ in range(3)]
        write()
        reports = [children.wait(pid) for pid in pids]
        assert [r["error"] for r in reports] == [None] * 3
        seen = [r["result"] for r in reports]
    else:
        from tests.support.killable_children import read_until

        seen, errors = [], []

        def read():
            try:
                seen.append(read_until(root, stop))
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=read) for _ in range(6)]
        for thread in threads:
            thread.start()
        write()
        for thread in threads:
            thread.join()
        assert errors == []
    assert all("13" in versions for versions in seen), "the last read is of the last version"
    writer.close()
    with hr.Relation.open(root) as rel:
        assert tags_of(rel) == {13}


def test_one_open_relation_serves_many_threads(root):
    rel = hr.Relation.open(root)
    errors = []

    def read(seed):
        rng = np.random.default_rng(seed)
        try:
            for _ in range(30):
                keys = rng.choice(ROWS, 50, replace=False).tolist()
                found = rel.lookup(keys)
                assert found["k"].to_pylist() == keys
                assert set(found["tag"].to_pylist()) == {1}
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=read, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        next_version(rel)
    for thread in threads:
        thread.join()
    assert errors == []


def test_a_relation_replaced_under_a_reader(tmp_path):
    """create(overwrite=True) gives the name to other files; a reader of the old ones goes on with them."""
    old = pa.table({"k": np.arange(2000), "v": np.arange(2000)})
    new = pa.table({"k": np.arange(2000) + 5_000_000, "v": np.arange(2000)})
    root = tmp_path / "r"
    untouched = hr.Relation.create(root, old, key="k", page_size=4096)
    touched = hr.Relation.open(root)
    check_same(touched, old)
    with hr.Relation.create(root, new, key="k", page_size=4096, overwrite=True) as rel:
        check_same(rel, new)
    for reader in (touched, untouched):
        check_same(reader, old)
        reader.key_frequencies()


# -- removal ---------------------------------------------------------------------------------------


def test_old_versions_stay_while_a_reader_holds_them(root):
    writer = hr.Relation.open(root)
    readers = {1: hr.Relation.open(root)}
    for n in (2, 3, 4):
        next_version(writer)
        readers[n] = writer.refresh()
    writer.close()
    assert on_disk(root) == [1, 2, 3, 4]
    assert files_of(root) == named_files(*readers.values())
    readers.pop(3).close()
    readers.pop(1).close()
    next_version(readers[4])
    readers[5] = readers[2].refresh()
    assert on_disk(root) == [2, 4, 5]
    assert files_of(root) == named_files(*readers.values())
    assert tags_of(readers[2]) == {2}
    for reader in readers.values():
        reader.close()
    with hr.Relation.open(root) as rel:
        rel.compact()
        latest = rel.refresh()
        assert files_of(root) == named_files(rel, latest)
    with latest:
        latest.compact()
    with hr.Relation.open(root) as rel:
        assert on_disk(root) == [6, 7]
        rel.verify()


def test_a_reader_that_was_only_dropped_holds_nothing(root):
    rel = hr.Relation.open(root)
    next_version(rel)
    del rel
    with hr.Relation.open(root) as rel:
        next_version(rel)
    assert on_disk(root) == [2, 3]


def test_a_reader_in_another_process_holds_its_version(root, children, tmp_path):
    """Stopped when it has chosen version 1 and not yet opened its files."""
    stop = tmp_path / "stop"
    reader = children.start("read_until", root, stop, name="open", text=".pages", kill=False)
    assert children.wait(reader)["stopped"]
    for _ in range(3):
        with hr.Relation.open(root) as rel:
            next_version(rel)
    assert on_disk(root) == [1, 3, 4]
    stop.touch()
    os.kill(reader, signal.SIGCONT)
    ended = children.wait(reader)
    assert ended["error"] is None
    assert ended["result"] == {"1": 1, "4": 1}
    with hr.Relation.open(root) as rel:
        next_version(rel)
    assert on_disk(root) == [4, 5]


def test_a_version_removed_while_a_reader_reaches_for_it(root, children, tmp_path):
    """Stopped between choosing version 1 and holding it: it must find out, and take the latest."""
    stop = tmp_path / "stop"
    stop.touch()
    reader = children.start("read_until", root, stop, name="open", text="locks/000001", kill=False)
    assert children.wait(reader)["stopped"]
    for _ in range(2):
        with hr.Relation.open(root) as rel:
            next_version(rel)
    assert on_disk(root) == [2, 3]
    os.kill(reader, signal.SIGCONT)
    ended = children.wait(reader)
    assert ended["error"] is None
    assert ended["result"] == {"3": 2}


def test_a_version_that_is_gone(root):
    with hr.Relation.open(root) as rel:
        next_version(rel)
    with hr.Relation.open(root) as rel:
        next_version(rel)
    with pytest.raises(hr.VersionGone) as caught:
        hr.Relation.open(root, version=1)
    assert str(root) in str(caught.value)
    assert "version 1" in str(caught.value)
    assert "2, 3" in str(caught.value)
    for never in (0, 4, -1):
        with pytest.raises(hr.VersionGone):
            hr.Relation.open(root, version=never)


def test_an_older_version_can_be_opened_while_it_is_there(root):
    held = hr.Relation.open(root)
    next_version(held)
    next_version(held)
    with hr.Relation.open(root, version=1) as rel:
        assert tags_of(rel) == {1}
    with hr.Relation.open(root) as rel:
        assert tags_of(rel) == {3}


def test_locks_of_versions_that_are_gone_do_not_pile_up(root):
    (root / "locks").mkdir(exist_ok=True)
    (root / "locks" / "000000").touch()  # as a writer leaves it that is killed between removing a version and its lock
    with hr.Relation.open(root) as rel:
        rel.apply(upserts=rel.head(1))
    with hr.Relation.open(root) as rel:
        rel.apply(upserts=rel.head(1))
        assert {path.name for path in (root / "locks").iterdir()} == {
            "writer",
            f"{rel.version:06d}",
            f"{rel.version + 1:06d}",
        }


def test_what_a_killed_writer_spilled_goes_with_the_next_change(root):
    with Lease(root, "scratch-") as lease:
        (lease.directory / "run").write_bytes(b"spilled")
        shutil.copytree(lease.directory, left := root / f"scratch-{lease.directory.name.split('-')[1]}-{'0' * 32}")
    assert left.exists()
    with hr.Relation.open(root) as rel:
        rel.apply(upserts=rel.head(1))
    assert not list(root.glob("scratch-*"))


def test_pages_that_no_index_names_do_not_pile_up(root):
    """Every apply rewrites every row: after some the files of the first are of no use to the latest."""
    with hr.Relation.open(root) as rel:
        once = rel.describe()["bytes"]
    for _ in range(10):
        with hr.Relation.open(root) as rel:
            next_version(rel)
    with hr.Relation.open(root) as rel:
        assert tags_of(rel) == {11}
        live = rel.num_pages * rel.page_size
        assert live <= 2 * once
        assert rel.describe()["bytes"] <= 4 * once


def test_many_updates_under_a_limit_of_open_files(root, children):
    """A shard has one file more after each apply; opening must not need a descriptor for every one."""
    done = children.run("apply_with_few_files", root, 40, 64)
    assert done["error"] is None
    with hr.Relation.open(root) as rel:
        assert rel.version == done["result"] == 41
        rel.verify()


# -- writers ---------------------------------------------------------------------------------------


def test_a_second_writer_is_refused(root):
    rel = hr.Relation.open(root)
    with writing(root):
        for change in (lambda: rel.apply(upserts=table(1, 2)), rel.compact):
            with pytest.raises(hr.VersionConflict, match=str(root)):
                change()
    assert on_disk(root) == [1]
    assert next_version(rel) == 2


def test_a_writer_in_another_process_is_refused_until_the_first_is_done(root, children):
    pid = children.start("apply", root, ROWS, 2, name="fsync", kill=False)
    assert children.wait(pid)["stopped"]
    with hr.Relation.open(root) as rel:
        with pytest.raises(hr.VersionConflict, match="another writer"):
            rel.apply(upserts=table(ROWS, 2))
        assert tags_of(rel) == {1}
        os.kill(pid, signal.SIGCONT)
        assert children.wait(pid)["result"] == 2
        assert next_version(rel.refresh()) == 3


def test_a_writer_that_tidies_up_leaves_the_next_ones_files(root, children):
    """One stops where it begins to remove old versions; the next has written pages, but no version yet."""
    with hr.Relation.open(root) as rel:
        next_version(rel)
    assert on_disk(root) == [1, 2]
    first = children.start("apply", root, ROWS, 3, name="unlink", text="manifest-000001.json", kill=False)
    assert children.wait(first)["stopped"]
    second = children.start("apply", root, ROWS, 4, name="fsync", kill=False)
    ended = children.wait(second)
    os.kill(first, signal.SIGCONT)
    assert children.wait(first)["error"] is None
    if ended["stopped"]:
        os.kill(second, signal.SIGCONT)
        ended = children.wait(second)
    assert ended["result"] == 4 or "VersionConflict" in ended["error"]
    with hr.Relation.open(root) as rel:
        rel.verify()
        assert tags_of(rel) == {rel.version}


def test_two_writers_at_once(root, children):
    """Each waits for its turn by trying again; no change of either is lost."""
    pids = [children.start("apply_often", root, first, 15) for first in (1000, 2000)]
    reports = [children.wait(pid) for pid in pids]
    with hr.Relation.open(root) as rel:
        rel.verify()
        got = {k for k, _ in scanned(rel, ["k", "tag"])}
    assert [r["error"] for r in reports] == [None, None]
    assert got == {*range(ROWS), *range(1000, 1015), *range(2000, 2015)}
    assert rel.version == 31


def test_a_relation_replaced_while_a_writer_reaches_for_its_lock(root, tmp_path):
    with hr.Relation.open(root) as rel:
        hr.Relation.create(tmp_path / "other", rel.to_arrow(), key="k").close()
        shutil.rmtree(tmp_path / "other" / "locks", ignore_errors=True)
        shutil.rmtree(root / "locks")

        class Replaced(LocalFiles):
            """Another relation takes the place as soon as the first has a directory of locks."""

            done = False

            def mkdir(self, path, mode=0o700):
                super().mkdir(path, mode)
                if not self.done and path == root / "locks":
                    self.done = True
                    super().exchange(root, tmp_path / "other")

        with using(Replaced()), pytest.raises(hr.RelationReplaced):
            rel.apply(upserts=rel.head(1))


def test_a_relation_that_was_moved_away(root):
    rel = hr.Relation.open(root)
    shutil.move(root, root.with_name("elsewhere"))
    with pytest.raises(hr.NotARelation, match=str(root)):
        rel.apply(upserts=table(1, 2))
    with pytest.raises(hr.NotARelation, match=str(root)):
        rel.refresh()
    assert not root.exists(), "a refused change made something"


def test_closing_twice_and_using_with(root):
    with hr.Relation.open(root) as rel:
        pass
    rel.close()
    rel.close()


@pytest.mark.parametrize("read", [lambda r: r.lookup([1]), lambda r: list(r.scan()), hr.Relation.verify])
def test_a_closed_relation_says_so(read, root):
    with hr.Relation.open(root) as rel:
        read(rel)
    with pytest.raises(hr.HeadraceError, match="closed"):
        read(rel)


def test_a_relation_on_a_file_system_mounted_read_only(root, tmp_path):
    view = tmp_path / "view"
    view.mkdir()
    try:
        subprocess.run(["mount", "--bind", root.parent, view], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"mounting is not allowed here: {error}")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", view], check=True, capture_output=True)
        with hr.Relation.open(view / root.name) as rel:
            rel.verify()
            with pytest.raises(OSError, match="Read-only"):
                rel.apply(deletes=[1])
    finally:
        subprocess.run(["umount", view], check=True)
