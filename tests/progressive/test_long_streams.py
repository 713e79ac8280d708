"""Memory of a progressive join is bounded however long its streams are, and however often they pause."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.progressive import RRPJF, HashPartitioning, ProgressiveJoin

LISTS = ("left segments", "right segments")
LR: tuple[Any, ...] = ("left", "right")


def batch(side: str, keys: Any, first: int) -> pa.RecordBatch:
    return pa.record_batch({"k": keys, side: np.arange(first, first + len(keys))})


def pairs(out: list[pa.RecordBatch]) -> Counter[Any]:
    return Counter(pair for b in out for pair in zip(b["left"].to_pylist(), b["right"].to_pylist(), strict=True))


def brute(left: Any, right: Any) -> Counter[Any]:
    where: dict[int, list[int]] = {}
    for j, key in enumerate(right.tolist()):
        where.setdefault(key, []).append(j)
    return Counter((i, j) for i, key in enumerate(left.tolist()) for j in where.get(key, ()))


def lists(op: ProgressiveJoin) -> int:
    """Bytes of the lists of segments."""
    held = op.budget.held()
    return sum(held.get(name, 0) for name in LISTS)


def test_oracle_a_long_stream_of_uniform_keys_in_a_mebibyte() -> None:
    rng = np.random.default_rng(1)
    left, right = rng.integers(0, 1_000_000, 120_000), rng.integers(0, 1_000_000, 120_000)
    op = ProgressiveJoin(hr.equal("k"), "1MiB")
    out, sizes = [], []
    for at in range(0, 120_000, 10_000):
        out += op.insert("left", batch("left", left[at : at + 10_000], at))
        out += op.insert("right", batch("right", right[at : at + 10_000], at))
        sizes.append(lists(op))
    assert max(sizes) <= op.budget.limit // 8
    out += op.finish()
    assert pairs(out) == brute(left, right)
    op.stats.check()
    assert op.stats.memory_peak <= op.budget.limit


def test_oracle_many_pauses() -> None:
    rng = np.random.default_rng(2)
    left, right = rng.integers(0, 20_000, 2880), rng.integers(0, 20_000, 2880)
    op = ProgressiveJoin(hr.equal("k"), "512KiB", RRPJF(share=64), capacity=128)
    out, sizes = [], []
    for at in range(0, 2880, 64):
        out += op.insert("left", batch("left", left[at : at + 64], at))
        out += op.insert("right", batch("right", right[at : at + 64], at))
        out += op.idle()
        pages = op.stats.pages_read
        assert not list(op.idle()) and op.stats.pages_read == pages  # nothing is left to meet
        sizes.append(lists(op))
    out += op.finish()
    assert pairs(out) == brute(left, right)
    assert max(sizes) <= op.budget.limit // 8


def test_a_pause_reads_only_partitions_that_tuples_have_come_to() -> None:
    op = ProgressiveJoin(hr.equal("k"), "1MiB", "allflush", capacity=2000)
    keys = np.arange(2000)
    list(op.insert("left", batch("left", keys, 0)))
    list(op.insert("right", batch("right", keys, 0)))
    list(op.insert("left", batch("left", keys[:10], 2000)))  # a flush: all but these ten tuples are on disk
    list(op.idle())
    before = op.stats.pages_read
    list(op.insert("left", batch("left", keys[:1], 2010)))
    out = list(op.idle())
    assert pairs(out) == Counter([(2010, 0)])
    assert 0 < op.stats.pages_read - before <= 2


@pytest.mark.parametrize("skew", [False, True])
@pytest.mark.parametrize("partitions", [1, 3])
def test_oracle_partitions_larger_than_a_block_are_joined_in_pauses(partitions: int, skew: bool) -> None:
    # Blocks have 4 KiB: a partition is joined by ranges of cells, and a frequent key does not fit one block.
    rng = np.random.default_rng(partitions)
    condition = hr.equal("k")
    op = ProgressiveJoin(
        condition, "256KiB", "xjoin", partitioning=HashPartitioning(condition, partitions), capacity=500
    )
    came: dict[str, Any] = {side: np.where(rng.random(2500) < 0.1 * skew, 7, rng.integers(0, 900, 2500)) for side in LR}
    out: list[pa.RecordBatch] = []
    for at in range(0, 2500, 250):
        for side in LR:
            out += op.insert(side, batch(side, came[side][at : at + 250], at))
            for _, results in zip(range(int(rng.integers(4))), op.idle(), strict=False):
                out.append(results)
    out += op.finish()
    assert pairs(out) == brute(came["left"], came["right"])
    assert op.stats.disk_disk and op.stats.memory_disk


def test_oracle_a_pause_that_goes_on_after_tuples_have_come() -> None:
    rng = np.random.default_rng(4)
    op = ProgressiveJoin(hr.equal("k"), "1MiB", "rrpj", capacity=100)
    came: dict[str, Any] = {side: rng.integers(0, 50, 1000) for side in LR}
    out: list[pa.RecordBatch] = []
    pause = iter(())
    for at in range(0, 1000, 50):
        for side in LR:
            out += op.insert(side, batch(side, came[side][at : at + 50], at))
            if at % 200 == 0:
                pause = op.idle()
            out += [results for _, results in zip(range(2), pause, strict=False)]
    out += op.finish()
    assert pairs(out) == brute(came["left"], came["right"])


@pytest.mark.soak
def test_contract_fifty_million_tuples_through_a_mebibyte() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.programs.join_long_streams", "50000000", "1MiB"],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        timeout=2 * 3600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["wrong"] == 0 and facts["once"] == 25_000_000
    assert facts["peak"] <= 1 << 20
    # The process's own memory is not exact to less than a few MiB; each segment of old took 40 bytes, 100 MiB in all.
    assert facts["growth"] <= 4 << 20, f"{facts['growth'] / 2**20:.1f} MiB after memory was full"
