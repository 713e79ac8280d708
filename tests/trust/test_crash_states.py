"""The states that a power cut may leave, made from recorded calls: by hand for a few calls, and for every job that writes."""

from __future__ import annotations

import pytest

from headrace import files
from headrace.errors import DamagedLog, DamagedRelation
from headrace.files.names import create_exclusively
from headrace.files.open_files import NewFile
from soak.crash_states import RecordingFiles, crash_states
from soak.crashes import Recording, check_lying_disk, check_state, lying_states
from soak.faults import Broken, Undisturbed
from soak.storage_jobs import JOBS, Apply, Job, LogCompaction

DURABLE = [job for job in JOBS if job.durable]


def states_of(root, change, **options):
    """The states of a change, each as the names and bytes that are left."""
    form = RecordingFiles(root)
    with files.using(form):
        change()
    form.mark("done")
    return [(state.tree.reachable(), state.acknowledged) for state in crash_states(form.base, form.steps, **options)]


def commit(root, *, sync=True):
    with files.open_new(root / "draft") as file:
        file.write(b"whole")
        if sync:
            file.sync()
    create_exclusively(root / "draft", root / "name")
    files.remove(root / "draft")


def test_a_file_that_is_synced_before_it_has_its_name_is_whole_or_not_there(ram_path):
    found = states_of(ram_path, lambda: commit(ram_path))
    assert {there.get("name") for there, _ in found} == {None, b"whole"}
    assert {there.get("name") for there, marks in found if marks} == {b"whole"}
    assert {there.get("draft") for there, _ in found} >= {None, b"", b"wh", b"whole", bytes(5)}


def test_without_the_sync_it_may_be_cut_or_empty(ram_path):
    found = states_of(ram_path, lambda: commit(ram_path, sync=False))
    assert {there.get("name") for there, marks in found if marks} == {b"whole", b"wh", b"", bytes(5)}


def test_a_disk_that_left_out_the_sync_is_a_choice(ram_path):
    form = RecordingFiles(ram_path)
    with files.using(form):
        commit(ram_path)
    number = next(number for number, step in enumerate(form.steps) if step.kind == "fsync")
    lying = crash_states(form.base, form.steps, ignored_sync=number)
    assert b"wh" in {state.tree.reachable().get("name") for state in lying}


def test_names_in_a_directory_that_is_lost_are_lost_with_it(ram_path):
    def change():
        files.files().mkdir(ram_path / "d")
        with files.open_new(ram_path / "d" / "f") as file:
            file.write(b"x")
            file.sync()
        files.sync_directory(ram_path / "d")

    found = states_of(ram_path, change)
    assert ({}, ("done",)) in found  # the directory's own name was never synced
    assert ({"d": None, "d/f": b"x"}, ("done",)) in found


def test_renames_and_exchanges_are_there_or_not(ram_path):
    for name in ("a", "b"):
        (ram_path / name).mkdir()
        (ram_path / name / name).write_bytes(name.encode())

    found = states_of(ram_path, lambda: files.files().exchange(ram_path / "a", ram_path / "b"))
    either = [{"a": None, "b": None, "a/a": b"a", "b/b": b"b"}, {"a": None, "b": None, "a/b": b"b", "b/a": b"a"}]
    assert [there for there, marks in found if marks] == either or [there for there, marks in found if marks] == either[
        ::-1
    ]


# -- every job ---------------------------------------------------------------------------------------------------------


def tried(job: Job, place, *, bound, most, lies):
    known = Undisturbed.of(job, place / "known")
    recording = Recording.of(job, known, place / "recorded")
    states = list(crash_states(recording.base, recording.steps, bound=bound, seed=1))
    every = max(1, len(states) // most)
    for state in states[:: every if every == 1 else every | 1]:  # an odd distance, so that all kinds of states come
        check_state(job, state, known, place / "state")
    for state in list(lying_states(recording, 2, 1, lies))[: 2 * most : 2]:
        check_lying_disk(job, state, known, place / "state")


@pytest.mark.parametrize("job", DURABLE, ids=lambda job: job.name)
def test_contract_every_state_after_a_power_cut_opens_and_holds_what_was_acknowledged(job, ram_path):
    tried(job, ram_path, bound=2, most=20, lies=2)


@pytest.mark.soak
@pytest.mark.parametrize("job", DURABLE, ids=lambda job: job.name)
def test_contract_every_state_after_a_power_cut_long(job, ram_path):
    tried(job, ram_path, bound=64, most=1 << 30, lies=5)


@pytest.mark.parametrize("job", [Apply(), LogCompaction()], ids=lambda job: job.name)
def test_a_sync_that_is_forgotten_is_found(job, ram_path, monkeypatch):
    monkeypatch.setattr(NewFile, "sync", NewFile.flush)
    with pytest.raises((Broken, DamagedRelation, DamagedLog)):
        tried(job, ram_path, bound=2, most=1 << 30, lies=0)


@pytest.mark.parametrize("job", [Apply(), LogCompaction()], ids=lambda job: job.name)
def test_a_directory_that_is_not_synced_is_found(job, ram_path, monkeypatch):
    monkeypatch.setattr(files.LocalFiles, "sync_directory", lambda self, path: None)
    monkeypatch.setattr(RecordingFiles, "sync_directory", lambda self, path: None)
    with pytest.raises((Broken, DamagedRelation, DamagedLog)):
        tried(job, ram_path, bound=2, most=1 << 30, lies=0)
