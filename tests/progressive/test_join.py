"""oracle_: a progressive join gives the multiset that brute force gives, whatever the interleaving."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.progressive import ProgressiveJoin, XJoin
from headrace.progressive.policies import POLICIES

_keys = st.one_of(st.none(), st.integers(0, 5))
_action = st.one_of(
    st.tuples(st.sampled_from(["left", "right"]), st.lists(_keys, max_size=12)),
    st.tuples(st.just("idle"), st.integers(0, 3)),
)


def batch(side: str, keys: list[int | None], first: int) -> pa.RecordBatch:
    n = len(keys)
    return pa.record_batch(
        {
            "k": pa.array(keys, pa.int64()),
            side: pa.array(range(first, first + n), pa.int64()),
            "note": pa.array(["x" * (i % 5) for i in range(n)], pa.string()),
        }
    )


def play(op: ProgressiveJoin, actions: list[Any]) -> tuple[Counter[Any], Counter[Any]]:
    """Results, and what brute force gives."""
    came: dict[str, list[tuple[int | None, int]]] = {"left": [], "right": []}
    out: list[pa.RecordBatch] = []
    for what, arg in actions:
        if what == "idle":
            for steps, results in enumerate(op.idle()):
                out.append(results)
                if steps >= arg:
                    break
        else:
            rows = batch(what, arg, len(came[what]))
            came[what] += list(zip(arg, range(len(came[what]), len(came[what]) + len(arg)), strict=True))
            out += op.insert(what, rows)
    out += op.finish()
    got = Counter((r["k"], r["left"], r["right"]) for b in out for r in b.to_pylist())
    want = Counter((k, i, j) for k, i in came["left"] for q, j in came["right"] if k is not None and k == q)
    return got, want


@pytest.mark.parametrize("flush", sorted(POLICIES))
@given(actions=st.lists(_action, max_size=30), capacity=st.integers(1, 20), partitions=st.integers(1, 4))
def test_oracle_any_interleaving(flush: str, actions: list[Any], capacity: int, partitions: int) -> None:
    from headrace.progressive import HashPartitioning

    op = ProgressiveJoin(
        hr.equal("k"),
        memory="1MiB",
        flush=flush,
        capacity=capacity,
        partitioning=HashPartitioning(hr.equal("k"), partitions),
    )
    got, want = play(op, actions)
    assert got == want
    op.stats.check()
    assert op.stats.results == sum(want.values())


def test_oracle_many_tuples_in_little_memory() -> None:
    rng = np.random.default_rng(3)
    op = ProgressiveJoin(hr.equal("k"), memory="512KiB", flush=XJoin())
    actions: list[Any] = []
    for _ in range(30):
        actions.append((("left", "right")[rng.integers(2)], rng.integers(0, 3000, rng.integers(1, 2500)).tolist()))
        if rng.random() < 0.2:
            actions.append(("idle", int(rng.integers(5))))
    got, want = play(op, actions)
    assert got == want
    assert op.stats.flushes > 3 and op.stats.memory_disk and op.stats.disk_disk
    assert op.stats.memory_peak <= op.budget.limit


def test_oracle_a_step_that_is_left_comes_to_its_end_before_memory_changes() -> None:
    # One key: every step of `idle` has more results than fit one batch.
    for stop in range(6):
        op = ProgressiveJoin(hr.equal("k"), memory="256KiB", flush="allflush", capacity=60)
        actions: list[Any] = [("left", [1] * 40), ("right", [1] * 30), ("left", [1] * 20), ("idle", stop)]
        actions += [("right", [1] * 35), ("idle", stop), ("left", [1] * 40), ("idle", stop)]
        got, want = play(op, actions)
        assert got == want
        assert op.stats.flushes > 1
