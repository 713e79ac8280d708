"""Which version of the relation a micro-batch sees, without Spark: notes in the relation's directory."""

import dataclasses
import errno
import json
import multiprocessing
import os
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.files import LocalFiles
from headrace.files.checked_json import dump_checked
from headrace.relation import manifest, relation
from headrace.relation.batch_versions import versions_of_last_batches
from headrace.spark import worker
from headrace.spark.relation_join import RelationJoin
from headrace.spark.state import versions
from headrace.spark.state.versions import open_at, open_for_batch, open_noted
from headrace.spark.steps import SparkTask
from tests.support.flipped_bytes import flipped


def marked(version: int) -> pa.Table:
    return pa.table({"k": np.arange(50), "v": np.full(50, version)})


@pytest.fixture
def root(tmp_path):
    hr.Relation.create(tmp_path / "r", marked(1), key="k").close()
    return tmp_path / "r"


def update(root: Path) -> int:
    with hr.Relation.open(root) as rel:
        return rel.apply(upserts=marked(rel.version + 1))


def identity(root: Path) -> str:
    return manifest.Manifest.load(manifest.manifest_path(root, manifest.versions(root)[-1])).identity


def opened(root, batch, query="q", run="run 1", at=1, current=None, of=None) -> hr.Relation:
    """The relation for a task of a query that began with the relation `of`, by default with the one that is there."""
    return open_noted(root, of or identity(root), query, batch, run, "buffered", at, current)


def held(root: Path) -> list[int]:
    """What is there besides the latest version and the one before, which the writer had open."""
    return manifest.versions(root)[:-2]


def seen(rel: hr.Relation) -> int:
    return rel.lookup([7])["v"].to_pylist()[0]


def test_the_first_task_decides_for_its_micro_batch(root):
    first = opened(root, 0)
    update(root)
    update(root)
    second = opened(root, 0)
    assert (seen(first), seen(second)) == (1, 1)
    assert seen(opened(root, 1)) == 3
    noted = json.loads((root / "batches" / "q" / "0").read_text())
    del noted["checksum"]
    assert noted == {"batch": 0, "version": 1, "run": "run 1", "identity": first.identity, "file": "q/0"}


def test_each_query_has_notes_of_its_own(root):
    with opened(root, 0), opened(root, 1):
        update(root)
        assert seen(opened(root, 0)) == 1
        assert seen(opened(root, 0, query="another")) == 2


def test_a_replay_takes_the_version_of_the_first_run(root):
    with opened(root, 4) as first:
        update(root)
        assert first.version == 1
        assert seen(opened(root, 4, run="run 2")) == 1


def test_what_the_last_micro_batch_saw_stays_when_its_process_is_gone(root):
    """A task that is tried again after a kill, and a replay after a restart, find the version of the first attempt."""
    opened(root, 3).close()
    update(root)
    opened(root, 4).close()
    for _ in range(3):
        update(root)
    assert held(root) == [2]  # and not that of the micro-batch before
    assert seen(opened(root, 4)) == 2
    assert seen(opened(root, 4, run="run 2")) == 2
    assert seen(opened(root, 5, run="run 2")) == 5
    for _ in range(3):
        update(root)
    assert held(root) == [5]


def test_each_query_holds_what_its_last_micro_batch_saw(root):
    for query in ("one", "two", "three"):
        opened(root, 0, query=query).close()
        update(root)
    update(root)
    update(root)
    assert held(root) == [1, 2, 3]


def strange_note(path: Path, what: str) -> None:
    """Put something in the place of a note that is none."""
    if what == "directory":
        path.mkdir()
    elif what == "FIFO":
        os.mkfifo(path)
    elif what == "link":
        path.symlink_to("nowhere")
    elif what == "loop":
        path.symlink_to(path.name)
    elif what == "infinite":
        path.write_text('{"version": Infinity, "run": ""}')
    elif what == "of before":
        path.write_text('{"version": 1, "run": "run 1"}')
    elif what == "other types":
        number = int(path.name) if re.fullmatch("[0-9]{1,9}", path.name) else 0
        path.write_bytes(dump_checked({"batch": number, "version": [1], "run": 0, "identity": None}))
    elif what == "nested":
        path.write_text("[" * 100_000)
    elif what == "note of another":
        path.write_bytes((path.parent / "0").read_bytes())
    else:
        path.write_text(what)


STRANGE = [
    "",
    "{",
    "\x00" * 50,
    "directory",
    "FIFO",
    "link",
    "loop",
    "infinite",
    "of before",
    "nested",
    "other types",
    "note of another",
]


@pytest.mark.parametrize("name", ["x", ".1", "\u00b2", "\u0663", "1", "007", "9" * 30, "-1"])
@pytest.mark.parametrize("what", STRANGE)
def test_contract_what_is_no_note_stops_no_writer_and_hides_no_note(root, name, what):
    """Foreign names, foreign numbers and damage, beside the note of a query and beside its directory."""
    opened(root, 0).close()
    strange_note(root / "batches" / "q" / name, what)
    if what != "note of another":
        strange_note(root / "batches" / name, what)
    update(root)
    update(root)
    assert held(root) == [1]
    opened(root, 500).close()  # and no later note: old ones are removed
    assert opened(root, 500).version == 3


def forgotten(root: Path, batch: int) -> None:
    """A query's last micro-batch, two days ago, after which the relation changed."""
    opened(root, batch).close()
    note = root / "batches" / "q" / str(batch)
    os.utime(note, (note.stat().st_mtime - 2 * 86_400,) * 2)
    update(root)
    update(root)
    assert held(root) == []


def test_a_replay_takes_the_latest_when_that_version_is_gone(root):
    forgotten(root, 4)
    assert seen(opened(root, 4, run="run 2")) == 3
    update(root)
    # From now on that is the version of the batch, for the tasks of this run and of a third.
    with opened(root, 4, run="run 2") as again:
        assert seen(again) == 3


def test_the_same_run_is_told_when_the_version_is_gone(root):
    forgotten(root, 4)
    with pytest.raises(hr.VersionGone, match="no version 1"):
        opened(root, 4)
    assert seen(opened(root, 5)) == 3


def test_a_task_of_no_query_takes_the_version_it_was_given(root):
    with hr.Relation.open(root) as first:
        update(root)
        of = first.identity
        assert seen(open_for_batch(root, of, SparkTask(partition=0), "buffered", first.version, None)) == 1
    assert not (root / "batches").exists()


def test_what_is_open_is_used_again(root):
    first = opened(root, 0)
    assert opened(root, 0, current=first) is first
    assert opened(root, 1, current=first) is first
    assert open_at(root, first.identity, "direct", 1, first) is not first
    update(root)
    later = opened(root, 2, current=first)
    assert later is not first
    assert seen(later) == 2


def test_a_relation_made_anew_is_not_what_is_open(root):
    """Same path, same version; a worker that lives on must not go on with the old files."""
    first = opened(root, 0)
    hr.Relation.create(root, marked(9), key="k", overwrite=True).close()
    assert seen(first) == 1
    assert seen(open_at(root, identity(root), "buffered", 1, first)) == 9
    assert seen(opened(root, 1, current=first)) == 9


@pytest.mark.parametrize("what", [what for what in STRANGE if what != "note of another"])
@pytest.mark.parametrize("run", ["run 1", "run 2"])
def test_contract_a_damaged_note_never_gives_another_version(root, what, run):
    """A task that is tried again, and a query started again, are told what to do; the note stays as it is."""
    with opened(root, 0):
        update(root)
        note = root / "batches" / "q" / "0"
        note.unlink()
        strange_note(note, what)
        for _ in range(2):
            with pytest.raises(
                hr.DamagedRelation, match=r"stop the query, remove this file, and start the query again"
            ):
                opened(root, 0, run=run)
        assert seen(opened(root, 1, run=run)) == 2
        note.rmdir() if what == "directory" else note.unlink()
        assert seen(opened(root, 0, run=run)) == 2


def test_contract_one_wrong_byte_of_a_note_never_gives_another_version(root):
    with opened(root, 0):
        update(root)
        for at in flipped(root / "batches" / "q" / "0"):
            with pytest.raises(hr.DamagedRelation, match=r"batches/q/0: it.* stop the query"):
                opened(root, 0)
            if at % 10 == 0:
                versions_of_last_batches(root)  # what every writer asks
        assert seen(opened(root, 0)) == 1


def test_contract_a_note_is_on_disk_before_its_version_is_used(root, monkeypatch):
    """First its directories, then the text, then its name: a note that was lost would let a retried task see another version."""
    done, note = [], root / "batches" / "q" / "0"

    def synced(fd):
        done.append((Path(f"/proc/self/fd/{fd}").readlink(), note.exists()))
        fsync(fd)

    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", synced)
    opened(root, 0).close()
    directories = [(root, False), (root / "batches", False)]  # in which batches, and q, were made
    assert done == [*directories, (note.with_name(".0"), False), (note.parent, True)]


# -- another relation in its place -------------------------------------------------------------------------------------


def replace(root: Path, mark: int = 9) -> None:
    hr.Relation.create(root, marked(mark), key="k", overwrite=True).close()


@pytest.mark.parametrize("before", [1, 3], ids=["same version", "version that the new one has not"])
def test_contract_no_micro_batch_sees_two_relations(root, before):
    """A task has joined with one relation; whatever comes after it was replaced is refused, in every micro-batch."""
    for _ in range(before - 1):
        update(root)
    was = identity(root)
    with opened(root, 0) as first:
        replace(root)
        assert seen(first) == before  # what is open is read to its end
        for batch, current in ((0, None), (0, first), (1, None), (1, first)):
            for at in (1, before):
                with pytest.raises(hr.RelationReplaced, match=r"another was made in its place.*start the query anew"):
                    opened(root, batch, at=at, current=current, of=was)
        for query in (None, "q"):
            task = SparkTask(partition=0, query=query)
            with pytest.raises(hr.RelationReplaced):
                open_for_batch(root, was, task, "buffered", before, first)
    assert seen(opened(root, 0, run="run 2")) == 9


def test_a_note_of_another_relation_is_refused(root):
    """A directory that was copied with its notes: what the micro-batch was joined with is not known."""
    update(root)
    opened(root, 0).close()
    note = (root / "batches" / "q" / "0").read_bytes()
    replace(root)
    update(root)
    update(root)
    (root / "batches" / "q").mkdir(parents=True)
    (root / "batches" / "q" / "0").write_bytes(note)
    with pytest.raises(hr.DamagedRelation, match="batches/q/0: it is the note of another relation"):
        opened(root, 0, run="run 2")
    (root / "batches" / "q" / "0").unlink()
    assert opened(root, 0, run="run 2").version == 3


def joined_by_index(root: Path) -> RelationJoin:
    return RelationJoin(
        path=str(root),
        identity=identity(root),
        disk="buffered",
        on="k",
        how="inner",
        algorithm="inl",
        order="any",
        condition=None,
        memory=8 << 20,
        columns=None,
        suffix=None,
        workers=1,
    )


def test_a_worker_keeps_no_operator_of_a_task_that_was_left_in_the_middle(root):
    """Spark stops a task that it wants no more rows of; the worker's next task joins rows of its own alone."""
    join = joined_by_index(root)
    relation = worker.relation_at(join, 1, False, SparkTask(partition=0, query="q", batch=0, run="run 1"))
    kept = worker.operator_of("s", join, "inl", relation)

    def task(keys):
        with worker.in_use(worker.operator_of("s", join, "inl", relation), join) as opened:
            yield from opened.operator.run([pa.record_batch({"k": keys})])

    assert sum(out.num_rows for out in task([1, 2])) == 2
    assert worker.operator_of("s", join, "inl", relation) is kept
    left = task([1, 2])
    next(left)
    left.close()
    assert worker.operator_of("s", join, "inl", relation) is not kept
    assert [out["k"].to_pylist() for out in task([3])] == [[3]]


def test_a_worker_keeps_no_operator_of_another_relation(root):
    join = joined_by_index(root)
    task = SparkTask(partition=0, query="q", batch=0, run="run 1")
    first = worker.relation_at(join, 1, True, task)
    kept = worker.operator_of("s", join, "inl", first)
    assert worker.operator_of("s", join, "inl", worker.relation_at(join, 1, True, task)) is kept
    replace(root)
    for follow in (True, False):
        with pytest.raises(hr.RelationReplaced):
            worker.relation_at(join, 1, follow, task)
    anew = dataclasses.replace(join, identity=identity(root))  # the query was started again
    second = worker.relation_at(anew, 1, True, dataclasses.replace(task, run="run 2"))
    operator = worker.operator_of("s", anew, "inl", second).operator
    assert operator is not kept.operator
    (out,) = operator.run([pa.record_batch({"k": [7]})])
    assert out["v"].to_pylist() == [9]


def test_contract_a_relation_replaced_while_it_is_opened_is_one_of_the_two(root, monkeypatch):
    """Between the manifest and the files: neither a mixture, nor an error that speaks of damage."""
    pin = relation.pin
    pinned = []

    def slow(path, version):
        found = pin(path, version)
        if not pinned:
            pinned.append(found)
            monkeypatch.setattr(relation, "pin", pin)
            replace(root)
        return found

    monkeypatch.setattr(relation, "pin", slow)
    with hr.Relation.open(root) as rel:
        assert pinned and seen(rel) == 9 and rel.identity == identity(root)
        rel.verify()


def test_a_writer_of_a_relation_that_was_replaced_is_refused(root):
    with hr.Relation.open(root) as rel:
        replace(root)
        for change in (lambda: rel.apply(marked(5)), rel.compact, lambda: rel.revise(lambda latest: None)):
            with pytest.raises(hr.RelationReplaced, match="open it again"):
                change()
    with hr.Relation.open(root) as rel:
        assert (rel.version, seen(rel)) == (1, 9)


def test_the_latest_version_may_go_between_the_look_and_the_opening(root, monkeypatch):
    """A writer commits two versions just after a task has seen which is the latest."""
    look = versions.versions
    looked = []

    def slow(path):
        found = look(path)
        if not looked:
            looked.append(found)
            update(root)
            update(root)
        return found

    monkeypatch.setattr(versions, "versions", slow)
    rel = opened(root, 0)
    assert looked == [[1]]
    assert seen(rel) == rel.version == 3
    assert seen(opened(root, 0)) == 3


def test_old_notes_go(root):
    for batch in (*range(0, 400, 40), 390):
        opened(root, batch).close()
    kept = sorted(int(p.name) for p in (root / "batches" / "q").iterdir() if p.name != ".lock")
    assert kept == [320, 360, 390]


def test_a_directory_that_cannot_be_written_gives_the_version_it_was_given(root, monkeypatch):
    """As root nothing is read-only, so the system's answer is played."""
    with hr.Relation.open(root) as first:
        update(root)
        mkdir = LocalFiles.mkdir
        for number in (errno.EROFS, errno.EACCES, errno.EPERM):

            def refuse(self, path, *args, number=number, **options):
                if "batches" in path.parts:
                    raise OSError(number, os.strerror(number), str(path))
                mkdir(self, path, *args, **options)

            with monkeypatch.context() as patch:
                patch.setattr(LocalFiles, "mkdir", refuse)
                assert seen(opened(root, 0, at=first.version)) == 1
        assert not (root / "batches").exists()

        def full(self, *args, **options):
            raise OSError(errno.ENOSPC, "no space")

        with monkeypatch.context() as patch:
            patch.setattr(LocalFiles, "mkdir", full)
            with pytest.raises(OSError, match="no space"):  # tasks could differ: better to fail
                opened(root, 0)


def _task(root: Path, batch: int, run: str) -> int:
    with opened(root, batch, run=run) as rel:
        assert seen(rel) == rel.version
        return rel.version


def test_contract_tasks_in_many_processes_agree_while_a_writer_commits(root):
    """Each batch's tasks come at the same time, from processes that hold nothing else open."""
    context = multiprocessing.get_context("fork")
    with context.Pool(4) as pool:
        for batch in range(12):
            with hr.Relation.open(root):  # what the first task takes stays, as a worker would keep it
                tasks = [pool.apply_async(_task, (root, batch, "run")) for _ in range(6)]
                writer = pool.apply_async(update, (root,))
                got = {task.get(30) for task in tasks}
                writer.get(30)
            assert len(got) == 1, (batch, got)


def test_a_relation_that_was_removed_is_named(root):
    import shutil

    first = opened(root, 0)
    shutil.rmtree(root)
    with pytest.raises(hr.NotARelation, match=str(root)):
        open_at(root, first.identity, "buffered", 1, first)
