"""Writes that the system cuts short, and files that do not have the size that was written: nothing of it is committed."""

import errno
import json
import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import headrace as hr
from headrace.files import LocalFiles, using
from headrace.relation import update
from headrace.relation.update import Change
from tests.support.killable_children import table
from tests.support.relation_oracle import files_of, leftovers, named_files, scanned

ROWS = 5000


def tags_of(root) -> set[int]:
    """The versions that rows are marked with, after a check that all rows are there and sound."""
    with hr.Relation.open(root) as rel:
        rel.verify()
        got = scanned(rel, ["k", "tag"])
    assert sorted(k for k, _ in got) == list(range(ROWS))
    return {tag for _, tag in got}


WRITERS = {"apply": ("apply", ROWS, 2), "create": ("create", ROWS, 2, True), "compact": ("compact",)}


@pytest.mark.parametrize("share", [0.01, 0.5, 1])
@pytest.mark.parametrize("what", WRITERS)
def test_contract_a_write_cut_short_leaves_the_relation_as_it_was(children, tmp_path, what, share):
    """A limit on the size of files, as a full disk: the write at the limit is cut short, and only the next one fails.

    At a share of 1 the last write is the one that is cut short, and there is none after it.
    """
    root = tmp_path / "r"
    hr.Relation.create(root, table(ROWS, 1), key="k", page_size=4096).close()
    largest = max(path.stat().st_size for path in root.glob("*.pages"))
    task, *args = WRITERS[what]
    ended = children.run("under_file_limit", max(100, int(share * largest) // 4096 * 4096 - 100), task, root, *args)
    assert ended["error"].startswith(f"FileFault: {root}")
    assert ended["error"].endswith(": File too large; raise the limit on the size of files (ulimit -f) and try again")
    assert tags_of(root) == {1}
    with hr.Relation.open(root) as rel:
        assert rel.version == 1
        assert rel.apply(upserts=table(ROWS, 2)) == 2
        assert tags_of(root) == {2}
        latest = rel.refresh()
    with latest:
        assert latest.apply(upserts=table(ROWS, 3)) == 3  # and nothing of the writer that failed stays
    assert leftovers(root) == []
    with hr.Relation.open(root) as rel, hr.Relation.open(root, version=2) as before:
        assert files_of(root) == named_files(rel, before)


def test_contract_a_file_of_another_size_is_not_committed(tmp_path, monkeypatch):
    """A file system that says that all is written, and cuts the file short all the same."""
    root = tmp_path / "r"
    rel = hr.Relation.create(root, table(ROWS, 1), key="k", shards=1)
    write = update.write_sidecars

    def cut(root_, stem, *args, **options):
        path = root_ / f"{stem}.pages"
        with path.open("rb+") as file:
            file.truncate(path.stat().st_size // 2)
        return write(root_, stem, *args, **options)

    monkeypatch.setattr(update, "write_sidecars", cut)
    with pytest.raises(hr.DamagedRelation, match=r"were written; nothing was committed"):
        rel.apply(upserts=table(10, 2))
    monkeypatch.undo()
    assert tags_of(root) == {1}


@pytest.mark.parametrize("call", ["link", "fsync", "sync_directory"])
def test_contract_a_commit_that_fails_leaves_nothing(tmp_path, call):
    """The next version is there or not; no draft and no file that no version names."""
    root = tmp_path / "r"
    rel = hr.Relation.create(root, table(ROWS, 1), key="k", shards=1)

    class Fails(LocalFiles):
        pass

    def fail(*_args):
        raise OSError(errno.EIO, "Input/output error")

    setattr(Fails, call, fail)
    with using(Fails()), pytest.raises(hr.HeadraceError, match="Input/output error; its disk may be failing"):
        rel.apply(upserts=table(10, 2))
    with hr.Relation.open(root) as now:
        now.verify()
        assert now.version == 1  # names of its files are synced before the manifest has its own
        assert files_of(root) == named_files(rel)
    assert leftovers(root) == []
    with using(Fails()), pytest.raises(hr.HeadraceError, match="Input/output error"):
        hr.Relation.create(tmp_path / "new" / "r", table(10, 1), key="k")
    assert not (tmp_path / "new" / "r").exists()
    assert leftovers(tmp_path / "new" / "r") == []


# -- writers that come second ------------------------------------------------------------------------


def test_a_stale_writer_is_refused_unless_it_asks_for_a_rebase(tmp_path):
    root = tmp_path / "r"
    first = hr.Relation.create(root, table(3, 1), key="k")
    second = hr.Relation.open(root)
    assert first.apply(upserts=table(1, 2)) == 2
    with pytest.raises(
        hr.VersionConflict, match=r"made for version 1 of .*, whose latest version is 2; open the relation again"
    ):
        second.apply(upserts=table(2, 3))
    with pytest.raises(hr.VersionConflict):
        second.apply(deletes=[0])
    assert sorted(scanned(first.refresh(), ["k", "tag"])) == [(0, 2), (1, 1), (2, 1)]
    assert second.apply(upserts=table(2, 3), on_conflict="rebase") == 3
    assert sorted(scanned(first.refresh(), ["k", "tag"])) == [(0, 3), (1, 3), (2, 1)]
    with pytest.raises(hr.BadInput, match="on_conflict='merge' is not supported; choose one of refuse, rebase"):
        second.apply(deletes=[0], on_conflict="merge")


def test_a_writer_knows_its_own_versions(tmp_path):
    rel = hr.Relation.create(tmp_path / "r", table(3, 1), key="k")
    assert [rel.apply(upserts=table(3, tag)) for tag in (2, 3)] == [2, 3]
    assert rel.compact() == 4
    assert rel.apply(deletes=[0]) == 5


def test_a_stale_writer_stays_stale_when_it_compacts(tmp_path):
    stale = hr.Relation.create(tmp_path / "r", table(3, 1), key="k")
    hr.Relation.open(tmp_path / "r").apply(upserts=table(1, 2))
    assert stale.compact() == 3
    with pytest.raises(hr.VersionConflict, match=r"made for version 1 of .*, whose latest version is 3"):
        stale.apply(upserts=table(1, 4))


def waits_for(path: Path) -> bool:
    """Whether anybody waits for the lock of a file."""
    inode = f":{path.stat().st_ino} "
    return any("->" in line and inode in line for line in Path("/proc/locks").read_text().splitlines())


def test_contract_a_relation_is_not_replaced_under_a_writer(tmp_path):
    """The writer's files, which have names below the path, would become part of the new relation."""
    root = tmp_path / "r"
    rel = hr.Relation.create(root, table(1000, 1), key="k")
    create = threading.Thread(
        target=lambda: hr.Relation.create(root, table(1000, 9), key="k", overwrite=True).close(), daemon=True
    )

    def decide(latest):
        create.start()
        while create.is_alive() and not waits_for(root / "locks" / "writer"):
            time.sleep(0.01)
        return Change(table(10, 2))

    assert rel.revise(decide) == 2
    create.join(300)
    with hr.Relation.open(root) as new:
        new.verify()
        assert (new.version, set(scanned(new, ["tag"]))) == (1, {(9,)})


def test_a_difference_is_rebased_only_if_asked(tmp_path):
    rel = hr.Relation.create(tmp_path / "r", table(3, 1), key="k")
    diff = hr.snapshot_diff(table(3, 2), rel)
    rel.apply(deletes=[0])
    with pytest.raises(hr.VersionConflict, match="made for version 1"):
        rel.apply(diff)
    assert rel.apply(diff, on_conflict="rebase") == 3


# -- room that the fill factor leaves ----------------------------------------------------------------


def test_room_in_a_page_is_used_before_it_is_split(tmp_path):
    rows = table(4000, 1)
    rows = rows.set_column(0, "k", pc.multiply(rows["k"], 2))
    rel = hr.Relation.create(tmp_path / "r", rows, key="k", shards=1, fill=0.5, page_size=4096)
    pages = rel.num_pages
    assert pages > 20
    for i in range(10):
        rel.apply(upserts=table(1, 2).set_column(0, "k", pa.array([801 + 2 * i])))  # all of them between neighbours
    with rel.refresh() as now:
        assert now.num_pages == pages
        assert now.num_rows == 4010
        now.verify()


def test_pages_that_are_split_have_room_again(tmp_path):
    """Each page of twice its rows becomes two, and not one full page and a small one."""
    rel = hr.Relation.create(tmp_path / "r", table(4000, 1), key="k", shards=1, fill=0.8, page_size=4096)
    rel.apply(upserts=table(8000, 2))
    with rel.refresh() as now:
        now.verify()
        facts = json.loads((now.path / "manifest-000002.json").read_text())["shards"][0]
        assert now.describe()["fill"] < 0.85
        assert facts["pages"] < 2.5 * rel.num_pages
