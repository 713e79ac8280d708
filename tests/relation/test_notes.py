"""What writers note with a version, and changes that are decided on the latest one."""

import json
import threading

import pyarrow as pa
import pytest

import headrace as hr
from headrace.relation.manifest import writing
from headrace.relation.update import Change


@pytest.fixture
def rel(tmp_path):
    with hr.Relation.create(tmp_path / "r", pa.table({"k": [1, 2], "n": [10, 20]}), key="k") as rel:
        yield rel


def form(rel: hr.Relation) -> int:
    manifests = sorted(rel.path.glob("manifest-*.json"))
    return json.loads(manifests[-1].read_text())["format"]


def test_notes_are_of_a_version_and_of_all_later_ones(rel):
    assert rel.notes == {}
    assert form(rel) == 1  # what an earlier release reads too
    rel.revise(lambda latest: Change(notes={"a": 1, "b": {"c": [2]}}))
    rel.revise(lambda latest: Change(pa.table({"k": [3], "n": [30]}), notes={"a": 5}))
    rel.compact()
    with rel.refresh() as latest:
        assert latest.notes == {"a": 5, "b": {"c": [2]}}
        latest.notes["b"]["c"].append(3)
        assert latest.notes == {"a": 5, "b": {"c": [2]}}  # a copy
        assert latest.num_rows == 3
    assert rel.notes == {}
    assert form(rel) == 3  # an earlier release would lose them, and refuses


def test_the_highest_number_of_a_column_is_kept_by_every_change(rel):
    rel.revise(lambda latest: Change(notes={"highest": {"n": 20}}))
    for rows, highest in (([(5, 7)], 20), ([(6, 90), (7, None)], 90), ([], 90)):
        rel.apply(
            pa.table({"k": pa.array([k for k, _ in rows], pa.int64()), "n": pa.array([n for _, n in rows], pa.int64())})
        )
        assert rel.refresh().notes == {"highest": {"n": highest}}
    rel.apply(deletes=[6])
    assert rel.refresh().notes == {"highest": {"n": 90}}


def test_nothing_to_do_makes_no_version(rel):
    assert rel.revise(lambda latest: None) == 1
    assert rel.refresh().version == 1


def test_a_change_is_decided_on_the_latest_version(rel):
    rel.apply(pa.table({"k": [9], "n": [90]}))
    seen = []
    assert rel.revise(lambda latest: seen.append((latest.version, latest.num_rows))) == 2
    assert seen == [(2, 3)]


def test_a_change_for_another_version_is_refused(rel):
    with pytest.raises(hr.VersionConflict, match=r"made for version 7 of .*, whose latest version is 1"):
        rel.apply(Change(pa.table({"k": [9], "n": [90]}), base=7))
    assert rel.apply(Change(pa.table({"k": [9], "n": [90]}), base=1)) == 2


def test_revise_waits_for_another_writer_where_apply_refuses(rel):
    begun, may_end = threading.Event(), threading.Event()

    def hold():
        with writing(rel.path):
            begun.set()
            may_end.wait(300)

    other = threading.Thread(target=hold)
    other.start()
    assert begun.wait(300)
    with pytest.raises(hr.VersionConflict, match="another writer is at work"):
        rel.apply(deletes=[1])
    waiting = threading.Thread(target=lambda: rel.revise(lambda latest: Change(deletes=[1])))
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()
    assert rel.refresh().version == 1
    may_end.set()
    waiting.join(300)
    other.join(300)
    assert rel.refresh().num_rows == 1
