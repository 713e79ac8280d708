"""Histories of writers, readers, queries and clocks, in orders by seeds; and that the simulation finds what is planted in it."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from headrace.files.local import LocalFiles
from soak.simulation import Wrong, simulate


def test_a_seed_gives_the_same_history_again(ram_path):
    """Also where garbage would be collected at other moments, and no file of a killed actor stays open."""
    before, thresholds = open_files(), gc.get_threshold()
    first = simulate(7, ram_path, 6000)
    gc.set_threshold(20)
    try:
        again = simulate(7, ram_path, 6000)
    finally:
        gc.set_threshold(*thresholds)
    assert first.scheduler.trace == again.scheduler.trace
    assert first.history.rows == again.history.rows
    other = simulate(101, ram_path, 6000)
    assert other.scheduler.trace != first.scheduler.trace
    assert other.scheduler.kills > 0
    assert open_files() == before


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.slow
def test_contract_histories_keep_every_promise(ram_path):
    done = sum(
        (simulate(seed, ram_path).history.done for seed in range(100, 140)),
        start=type(simulate(1, ram_path, 10).history.done)(),
    )
    assert all(done[role] for role in ("writer", "reader", "compactor", "batch", "two", "shed", "late")), done


def test_writers_without_a_lock_are_found(ram_path, monkeypatch):
    monkeypatch.setattr(LocalFiles, "lock", lambda self, fd, *, shared=False: True)
    with pytest.raises(Exception) as raised:
        for seed in range(20):
            simulate(seed, ram_path, 8000)
    assert "committed by another writer" in str(raised.value) or isinstance(
        raised.value, Wrong | AssertionError | FileNotFoundError
    )
