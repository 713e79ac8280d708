"""Calls to the file system that fail: a sample of every job's calls and every kind of fault; all of them in the long form."""

from __future__ import annotations

import errno

import pytest

from headrace import files
from headrace.errors import FileFault
from headrace.files.faulty import FAULTS, FaultyFiles, Killed
from soak.faults import Broken, Undisturbed, cases, run_case, sample
from soak.storage_jobs import JOBS, Apply

CODES = {"full": "ENOSPC", "eio": "EIO", "eintr": "EINTR", "killed": "killed"}


def write(path, data=b"0123456789"):
    with files.open_new(path) as file:
        file.write(data)
        file.sync()


def calls_of(root, doing):
    form = FaultyFiles(root)
    with files.using(form):
        doing()
    return form.calls


def test_every_call_is_counted_and_fails_once(ram_path):
    (ram_path / "w").mkdir()
    assert calls_of(ram_path / "w", lambda: write(ram_path / "w" / "f")) == 4  # open, write, fsync, close
    outcomes = {}
    for fault in FAULTS:
        for at in range(1, 5):
            files.remove(ram_path / "w" / "f")
            form = FaultyFiles(ram_path / "w", at, fault)
            with files.using(form):
                try:
                    write(ram_path / "w" / "f")
                    outcome = "done"
                except Killed:
                    outcome = "killed"
                except FileFault as error:
                    outcome = errno.errorcode[error.errno]
            outcomes[fault, at] = (form.struck.name if form.struck else None, outcome)
    done = (None, "done")
    failing = {fault: [(name, code) for name in ("open", "write", "fsync")] for fault, code in CODES.items()}
    assert outcomes == {
        (fault, at): struck
        for fault, expected in {
            **failing,
            "short": [done, ("write", "ENOSPC"), done],
            "torn": [done, ("write", "killed"), done],
        }.items()
        for at, struck in enumerate([*expected, done], start=1)
    }


def test_the_locks_of_what_was_killed_are_free(ram_path):
    form = FaultyFiles(ram_path, 3, "killed")
    with files.using(form), pytest.raises(Killed), files.locked(ram_path / "lock"):
        write(ram_path / "f")
    with files.locked(ram_path / "lock") as mine:
        assert mine


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_contract_a_call_that_fails_leaves_the_old_state_or_the_new(job, ram_path):
    struck = 0
    for case, known in sample([job], 8, 3, ram_path):
        try:
            struck += run_case(case, known, ram_path / "case")
        except Exception as error:
            raise AssertionError(f"python -m soak faults {case}") from error
    assert struck >= 7  # a call may come at another place when names are random


@pytest.mark.soak
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_contract_every_call_that_fails(job, ram_path):
    known = Undisturbed.of(job, ram_path / "known")
    struck = sum(run_case(case, known, ram_path / "case") for case in cases(job, known))
    assert struck > len(known.calls)


def test_a_change_in_two_steps_is_found(ram_path):
    class InTwoSteps(Apply):
        steps = 1

        def step(self, root, number):
            super().step(root, 0)
            super().step(root, 1)

    known = Undisturbed.of(InTwoSteps(), ram_path / "known")
    with pytest.raises(Broken, match="a reader sees"):
        for case in cases(InTwoSteps(), known):
            if case.fault == "killed":
                run_case(case, known, ram_path / "case")
