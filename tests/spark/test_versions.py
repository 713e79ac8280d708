"""Which version of the relation a micro-batch sees, without Spark: notes in the relation's directory."""

import errno
import json
import multiprocessing
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.relation import manifest
from headrace.spark.state import versions
from headrace.spark.state.versions import open_at, open_for_batch, open_noted
from headrace.spark.steps import SparkTask


def marked(version: int) -> pa.Table:
    return pa.table({"k": np.arange(50), "v": np.full(50, version)})


@pytest.fixture
def root(tmp_path):
    hr.Relation.create(tmp_path / "r", marked(1), key="k").close()
    return tmp_path / "r"


def update(root: Path) -> int:
    with hr.Relation.open(root) as rel:
        return rel.apply(upserts=marked(rel.version + 1))


def opened(root, batch, query="q", run="run 1", at=1, current=None) -> hr.Relation:
    return open_noted(root, query, batch, run, "buffered", at, current)


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
    assert json.loads((root / "batches" / "q" / "0").read_text()) == {"version": 1, "run": "run 1"}


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


@pytest.mark.parametrize("stray", ["a file", "a directory", "a draft", "damage"])
def test_what_is_no_note_holds_nothing(root, stray):
    opened(root, 0).close()
    notes = root / "batches"
    if stray == "a file":
        (notes / "x").write_text("?")
    elif stray == "a directory":
        (notes / "x").mkdir()
    elif stray == "a draft":
        (notes / "q" / ".1").write_text("{")
    else:
        (notes / "q" / "1").write_text("{")
    update(root)
    update(root)
    assert held(root) == ([] if stray == "damage" else [1])


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
        assert seen(open_for_batch(root, SparkTask(partition=0), "buffered", first.version, None)) == 1
    assert not (root / "batches").exists()


def test_what_is_open_is_used_again(root):
    first = opened(root, 0)
    assert opened(root, 0, current=first) is first
    assert opened(root, 1, current=first) is first
    assert open_at(root, "direct", 1, first) is not first
    update(root)
    later = opened(root, 2, current=first)
    assert later is not first
    assert seen(later) == 2


def test_a_relation_made_anew_is_not_what_is_open(root):
    """Same path, same version; a worker that lives on must not go on with the old files."""
    first = opened(root, 0)
    hr.Relation.create(root, marked(9), key="k", overwrite=True).close()
    assert seen(first) == 1
    assert seen(open_at(root, "buffered", 1, first)) == 9
    assert seen(opened(root, 1, current=first)) == 9


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"version": 1}', '{"version": "x", "run": ""}', "\x00" * 50, '"text"']
)
def test_a_damaged_note_is_written_again(root, text):
    with opened(root, 0):
        update(root)
        (root / "batches" / "q" / "0").write_text(text)
        assert seen(opened(root, 0)) == 2
        assert seen(opened(root, 0)) == 2
        assert json.loads((root / "batches" / "q" / "0").read_text())["version"] == 2


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
    kept = sorted(int(p.name) for p in (root / "batches" / "q").iterdir())
    assert kept == [320, 360, 390]


def test_a_directory_that_cannot_be_written_gives_the_version_it_was_given(root, monkeypatch):
    """As root nothing is read-only, so the system's answer is played."""
    with hr.Relation.open(root) as first:
        update(root)
        mkdir = Path.mkdir
        for number in (errno.EROFS, errno.EACCES, errno.EPERM):

            def refuse(self, *args, number=number, **options):
                if "batches" in self.parts:
                    raise OSError(number, os.strerror(number), str(self))
                mkdir(self, *args, **options)

            with monkeypatch.context() as patch:
                patch.setattr(Path, "mkdir", refuse)
                assert seen(opened(root, 0, at=first.version)) == 1
        assert not (root / "batches").exists()

        def full(self, *args, **options):
            raise OSError(errno.ENOSPC, "no space")

        with monkeypatch.context() as patch:
            patch.setattr(Path, "mkdir", full)
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
        open_at(root, "buffered", 1, first)
