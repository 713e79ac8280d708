"""Histories of writers, readers, queries and clocks, in orders by seeds; and that the simulation finds what is planted in it."""

from __future__ import annotations

import pytest

from headrace.files.local import LocalFiles
from soak.simulation import Wrong, simulate


def test_a_seed_gives_the_same_history_again(ram_path):
    first, again = (simulate(7, ram_path, 6000) for _ in range(2))
    assert first.scheduler.trace == again.scheduler.trace
    assert first.history.rows == again.history.rows
    assert simulate(8, ram_path, 6000).scheduler.trace != first.scheduler.trace


@pytest.mark.slow
def test_contract_histories_keep_every_promise(ram_path):
    done = sum(
        (simulate(seed, ram_path).history.done for seed in range(100, 120)),
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
