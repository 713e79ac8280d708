"""kill -9 at every step of a create, an apply and a compact: what is there afterwards is whole."""

import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

import headrace as hr
from tests.support.killable_children import table
from tests.support.relation_oracle import files_of, leftovers, named_files, scanned

ROWS = 300


def tags_of(rel: hr.Relation, rows: int = ROWS) -> set[int]:
    """The versions that rows are marked with, after a check that all rows are there and sound."""
    rel.verify()
    got = scanned(rel, ["k", "tag"])
    assert len(got) == rel.num_rows == rows
    assert sorted(k for k, _ in got) == list(range(rows))
    found = rel.lookup(list(range(rows)))
    assert found["k"].to_pylist() == list(range(rows))
    return {tag for _, tag in got} | set(found["tag"].to_pylist())


def steps(children, task, *args) -> list[str]:
    """The calls of an undisturbed run."""
    done = children.run(task, *args)
    assert done["error"] is None
    assert done["signal"] is None
    return done["calls"]


# -- create ----------------------------------------------------------------------------------------


def check_after_killed_create(root: Path, where: str, old: int | None = None) -> None:
    """Nothing, the old relation or the new one, each by its name; and the next create tidies up."""
    try:
        rel = hr.Relation.open(root)
    except (hr.NotARelation, hr.UnfinishedRelation) as error:
        assert str(root) in str(error)
        assert old is None, f"neither the old relation nor the new one, killed {where}"
    else:
        with rel:
            tags = tags_of(rel)
        assert tags in ({9}, {old}), f"killed {where}"
    with hr.Relation.create(root, table(ROWS, 5), key="k", overwrite=root.exists()) as rel:
        assert tags_of(rel) == {5}
    assert leftovers(root) == [], f"killed {where}"


def test_create_killed_at_every_step(children, ram_path):
    calls = steps(children, "create", ram_path / "whole" / "r", ROWS, 9, False)
    assert len(calls) > 20
    for at in range(len(calls)):
        root = ram_path / str(at) / "r"
        ended = children.run("create", root, ROWS, 9, False, at=at)
        assert ended["signal"] == signal.SIGKILL
        check_after_killed_create(root, f"before step {at}, {calls[at]}")


def test_create_over_another_killed_at_every_step(children, ram_path):
    hr.Relation.create(ram_path / "old" / "r", table(ROWS, 4), key="k").close()
    shutil.copytree(ram_path / "old", ram_path / "whole")
    calls = steps(children, "create", ram_path / "whole" / "r", ROWS, 9, True)
    neither = []
    for at in range(len(calls)):
        root = ram_path / str(at) / "r"
        shutil.copytree(ram_path / "old", root.parent)
        ended = children.run("create", root, ROWS, 9, True, at=at)
        assert ended["signal"] == signal.SIGKILL
        if not root.exists():
            neither.append(calls[at])
        check_after_killed_create(root, f"before step {at}, {calls[at]}", 4 if root.exists() else None)
    assert neither == [], "killed before one of these, there is neither the old relation nor the new"


@pytest.mark.slow
def test_create_killed_at_any_moment(children, tmp_path):
    """Moments between the steps: in the middle of a write, a sort, a spill."""
    rows, memory = 400_000, "2MiB"
    seed = int(np.random.default_rng().integers(1 << 30))
    rng = np.random.default_rng(seed)
    killed = 0
    for n in range(10):
        root = tmp_path / str(n) / "r"
        pid = children.start("create", root, rows, 9, False, memory)
        ended = children.wait(pid, timeout=float(rng.uniform(0.02, 0.9)))
        killed += ended["signal"] == signal.SIGKILL
        try:
            rel = hr.Relation.open(root)
        except (hr.NotARelation, hr.UnfinishedRelation) as error:
            assert str(root) in str(error)
            assert ended["signal"] == signal.SIGKILL
        else:
            with rel:
                rel.verify()
                assert rel.num_rows == rows, f"seed={seed} n={n}"
        small = table(ROWS, 5)
        with hr.Relation.create(root, small, key="k", overwrite=root.exists()) as rel:
            assert tags_of(rel) == {5}
        assert leftovers(root) == [], f"seed={seed} n={n}"
        shutil.rmtree(root.parent)
    assert killed > 0, f"every create was quicker than its kill: seed={seed}"


def test_a_create_at_work_is_left_alone(children, tmp_path):
    """The next create removes what the dead left, not what the living are writing."""
    root = tmp_path / "r"
    slow = children.start("create", root, ROWS, 9, False, name="link", kill=False)
    assert children.wait(slow)["stopped"]
    draft = leftovers(root)
    assert len(draft) == 2  # a directory and its lease
    with pytest.raises(hr.UnfinishedRelation, match=str(root)):
        hr.Relation.open(root)
    hr.Relation.create(root, table(ROWS, 5), key="k").close()
    assert leftovers(root) == draft
    os.kill(slow, signal.SIGCONT)
    # Two creates of one name: one of them wins, whole. The other is told, or replaces it.
    assert children.wait(slow)["signal"] is None
    with hr.Relation.open(root) as rel:
        assert tags_of(rel) in ({5}, {9})
    assert leftovers(root) == []


def test_a_create_that_loses_the_name_does_not_replace_the_winner(children, tmp_path):
    """Neither was asked to overwrite: the second to finish is refused, and says so."""
    root = tmp_path / "r"
    slow = children.start("create", root, ROWS, 9, False, name="link", kill=False)
    assert children.wait(slow)["stopped"]
    hr.Relation.create(root, table(ROWS, 5), key="k").close()
    os.kill(slow, signal.SIGCONT)
    ended = children.wait(slow)
    assert ended["result"] is None
    assert "BadInput" in ended["error"]
    assert str(root) in ended["error"]
    with hr.Relation.open(root) as rel:
        assert tags_of(rel) == {5}


# -- apply and compact -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    """Version 2 of a relation: pages in two files a shard."""
    root = tmp_path_factory.mktemp("base") / "r"
    with hr.Relation.create(root, table(ROWS, 1), key="k", page_size=4096, shards=2) as rel:
        rel.apply(upserts=table(ROWS, 2))
    return root


CHANGES = {"apply": ((ROWS, 3), {3}), "compact": ((), {2})}


@pytest.mark.parametrize("task", CHANGES)
def test_a_change_killed_at_every_step(task, base, children, ram_path):
    args, after = CHANGES[task]
    shutil.copytree(base, ram_path / "whole")
    calls = steps(children, task, ram_path / "whole", *args)
    assert len(calls) > 20
    outcomes, orphans = set(), set()
    for at in range(len(calls)):
        where = f"killed before step {at}, {calls[at]}"
        root = ram_path / str(at)
        shutil.copytree(base, root)
        ended = children.run(task, root, *args, at=at)
        assert ended["signal"] == signal.SIGKILL
        with hr.Relation.open(root) as rel:
            assert rel.version in (2, 3), where
            assert tags_of(rel) == ({2} if rel.version == 2 else after), where
            outcomes.add(rel.version)
            following = rel.version + 1
            assert rel.apply(upserts=table(ROWS, following)) == following, where
        with hr.Relation.open(root) as rel:
            assert rel.version == following
            assert tags_of(rel) == {following}, where
            rel.compact()
        with hr.Relation.open(root) as rel:
            # the one before is there as long as `rel` of that version was open during compact
            assert rel.compact() == following + 2
        with hr.Relation.open(root) as rel:
            rel.apply(upserts=table(ROWS, 7))
        with hr.Relation.open(root) as rel:
            rel.apply(upserts=table(ROWS, 8))
            latest = rel.refresh()
            assert tags_of(latest) == {8}
            assert named_files(rel, latest) <= files_of(root), where
            orphans |= files_of(root) - named_files(rel, latest)
    assert outcomes == {2, 3}
    assert orphans == set(), "left by a killed writer, and by the four after it"


@pytest.mark.slow
def test_an_apply_killed_at_any_moment(children, tmp_path):
    rows = 60_000
    hr.Relation.create(tmp_path / "base", table(rows, 1), key="k", page_size=4096).close()
    seed = int(np.random.default_rng().integers(1 << 30))
    rng = np.random.default_rng(seed)
    for n in range(8):
        root = tmp_path / str(n)
        shutil.copytree(tmp_path / "base", root)
        pid = children.start("apply", root, rows, 2)
        children.wait(pid, timeout=float(rng.uniform(0.005, 0.25)))
        with hr.Relation.open(root) as rel:
            assert tags_of(rel, rows) == {rel.version}, f"seed={seed} n={n}"
        shutil.rmtree(root)
