"""Working directories: those of the living stay, wherever they live; those of the dead go."""

from __future__ import annotations

import os
import time

import pytest

from headrace.clock import ManualClock, WallClock
from headrace.files import Lease, lease, leased_directory, remove_abandoned


def names(place):
    return sorted(path.name for path in place.iterdir())


def in_a_child_that_dies(make) -> None:
    """Run something in a process that ends as a kill ends it: nothing is tidied up."""
    pid = os.fork()
    if pid == 0:
        try:
            make()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


@pytest.fixture
def elsewhere(monkeypatch):
    """Call something as another host would."""

    def run(make):
        with monkeypatch.context() as patch:
            patch.setattr(lease, "host_identity", lambda: "another host")
            return make()

    return run


def test_a_working_directory_is_private_and_gone_in_the_end(tmp_path):
    with leased_directory(tmp_path, "scratch-") as path:
        assert path.stat().st_mode & 0o777 == 0o700
        (path / "run").write_bytes(b"x")
        assert len(names(tmp_path)) == 2
    assert names(tmp_path) == []


def test_a_live_local_directory_stays(tmp_path):
    with Lease(tmp_path, "draft-") as held:
        in_a_child_that_dies(lambda: remove_abandoned(tmp_path, "draft-", ManualClock(WallClock().now() + 1e6)))
        assert held.directory.is_dir()
        assert len(names(tmp_path)) == 2


def test_a_dead_local_directory_goes_at_once(tmp_path):
    in_a_child_that_dies(lambda: (Lease(tmp_path, "draft-").directory / "half").write_bytes(b"x"))
    (left, its_lease) = names(tmp_path)
    assert its_lease == f"{left}.lease"
    assert remove_abandoned(tmp_path, "other-") == []
    assert remove_abandoned(tmp_path, "draft-") == [tmp_path / left]
    assert names(tmp_path) == []


@pytest.mark.parametrize("what", ["directory", "lease"])
def test_half_of_a_dead_local_directory_goes_too(tmp_path, what):
    """A process may be killed before the directory is made, or while another removes what it left."""
    in_a_child_that_dies(lambda: Lease(tmp_path, "draft-"))
    left, its_lease = names(tmp_path)
    if what == "directory":
        (tmp_path / its_lease).unlink()
    else:
        (tmp_path / left).rmdir()
        (tmp_path / its_lease).write_bytes(b"")
    assert remove_abandoned(tmp_path, "draft-") == [tmp_path / left]
    assert names(tmp_path) == []


def test_a_foreign_directory_stays_until_its_heartbeat_is_old(tmp_path, elsewhere):
    """Its lock may not reach here, so that it can be taken although its process lives."""
    begun = WallClock().now()
    clock = ManualClock(begun)

    def work() -> None:
        held = Lease(tmp_path, "draft-", clock)
        clock.advance(3000)
        held.renew()

    elsewhere(lambda: in_a_child_that_dies(work))
    (left, _) = names(tmp_path)
    assert remove_abandoned(tmp_path, "draft-", ManualClock(begun + 3000 + lease.EXPIRES_AFTER - 5)) == []
    assert len(names(tmp_path)) == 2
    assert remove_abandoned(tmp_path, "draft-", ManualClock(begun + 3000 + lease.EXPIRES_AFTER + 5)) == [
        tmp_path / left
    ]
    assert names(tmp_path) == []


def test_a_foreign_directory_is_not_removed_while_its_lock_is_seen(tmp_path, elsewhere):
    held = elsewhere(lambda: Lease(tmp_path, "draft-"))
    in_a_child_that_dies(lambda: remove_abandoned(tmp_path, "draft-", ManualClock(WallClock().now() + 1e6)))
    assert held.directory.is_dir()
    held.release()
    assert names(tmp_path) == []


@pytest.mark.parametrize("text", [b"", b"{", b"[1]"])
def test_a_foreign_lease_that_was_cut_short_counts_from_its_last_change(tmp_path, elsewhere, text):
    elsewhere(lambda: in_a_child_that_dies(lambda: Lease(tmp_path, "draft-")))
    (left, its_lease) = names(tmp_path)
    (tmp_path / its_lease).write_bytes(text)
    changed = (tmp_path / its_lease).stat().st_mtime
    assert remove_abandoned(tmp_path, "draft-", ManualClock(changed + lease.EXPIRES_AFTER - 5)) == []
    assert remove_abandoned(tmp_path, "draft-", ManualClock(changed + lease.EXPIRES_AFTER + 5)) == [tmp_path / left]


def test_a_heartbeat_is_renewed_while_the_process_is_busy(tmp_path, monkeypatch):
    monkeypatch.setattr(lease, "_RENEWED_EVERY", 0.001)  # of the thread, which has no other clock
    with Lease(tmp_path, "draft-", clock := ManualClock(5e8)) as held:
        clock.advance(7)
        file = held.directory.with_name(f"{held.directory.name}.lease")
        while b"500000007" not in file.read_bytes():
            time.sleep(0.001)
