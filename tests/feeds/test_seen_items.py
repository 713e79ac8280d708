"""SeenItems: a million keys in one MiB are those of a set; what lies on disk has no name, so that a kill leaves nothing."""

import numpy as np
import pyarrow as pa
import pytest

from headrace.errors import MemoryRefused
from headrace.feeds.sql.seen_items import SeenItems
from headrace.memory import MemoryBudget


def keys(numbers):
    """Keys that look like hashes; the same ones for the same numbers. Some end with zeros, which NumPy cuts off texts."""
    words = np.stack([numbers * np.int64(0x1E3779B97F4A7C15), numbers % 7], axis=1)
    return pa.Array.from_buffers(pa.binary(16), len(words), [None, pa.py_buffer(words)])


def test_oracle_a_million_keys_in_one_mebibyte(tmp_path):
    chance, budget = np.random.default_rng(5), MemoryBudget("1MiB")
    seen, known, many = SeenItems(budget, tmp_path), np.zeros(1_000_000, np.bool_), 1_000_000
    for at in range(0, many, 20_000):
        asked = np.concatenate([np.arange(at, at + 20_000), chance.integers(0, at + 20_000, 500)])
        chance.shuffle(asked)
        first = np.zeros(len(asked), np.bool_)
        first[np.unique(asked, return_index=True)[1]] = True
        wanted = np.flatnonzero(first & ~known[asked])
        assert seen.new(keys(asked)).to_pylist() == wanted.tolist()
        known[asked] = True
    assert known.all() and not len(seen.new(keys(chance.integers(0, many, 50_000))))
    assert seen.spilled > 900_000
    assert budget.peak <= 256 << 10  # the quarter that joins leave
    assert not list(tmp_path.iterdir())


def test_no_keys_and_too_little_memory():
    assert len(SeenItems(MemoryBudget("1KiB")).new(keys(np.empty(0, np.int64)))) == 0
    with pytest.raises(MemoryRefused, match="which items it has had"):
        SeenItems(MemoryBudget("1KiB")).new(keys(np.arange(100)))
