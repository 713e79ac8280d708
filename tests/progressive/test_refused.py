"""A refused batch leaves a progressive join as it was, and an error in the middle loses no results, or says that it does."""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import BadInput, MemoryRefused, SpillError
from headrace.progressive import RRPJ, BoxGrid, FlushPolicy, HashPartitioning, ProgressiveJoin

BOX = ("x0", "y0", "x1", "y1")
CONDITIONS: dict[str, Any] = {
    "key": hr.equal("k"),
    "text": hr.equal("word"),
    "boxes": hr.intersects(BOX),
    "vectors": hr.within(("x0", "y0"), eps=0.05),
}
ROWS = 400  # of a side


@cache
def rows(side: str) -> pa.RecordBatch:
    rng = np.random.default_rng(("left", "right").index(side))
    low = rng.random((ROWS, 2))
    high = low + rng.random((ROWS, 2)) / 20
    low[::50] = np.nan  # matches nothing, and is no mistake
    keys = rng.integers(0, 200, ROWS)
    return pa.record_batch(
        {
            side: np.arange(ROWS),
            "k": keys,
            "word": pa.array([f"w{k}" for k in keys.tolist()]),
            **{name: pa.array(values) for name, values in zip(BOX, np.hstack([low, high]).T.copy(), strict=True)},
        }
    )


def with_column(batch: pa.RecordBatch, name: str, values: Any) -> pa.RecordBatch:
    return batch.set_column(batch.schema.names.index(name), name, pa.array(values))


def inverted(batch: pa.RecordBatch) -> pa.RecordBatch:
    x1 = batch["x1"].to_pylist()
    x1[-1] = -1.0
    return with_column(batch, "x1", x1)


WRONG: dict[str, Any] = {
    "of another type": lambda batch: with_column(batch, "k", ["a"] * batch.num_rows),
    "without a column": lambda batch: batch.drop_columns(["word"]),
    "a table": lambda batch: pa.Table.from_batches([batch]),
    "a dict": lambda batch: batch.to_pydict(),
    "a huge tuple": lambda batch: with_column(batch, "word", [*batch["word"].to_pylist()[:-1], "x" * (1 << 19)]),
}


def some(batch: pa.RecordBatch, at: int, n: int = 100) -> pa.RecordBatch:
    return batch.slice(at, n)


def pairs(out: list[pa.RecordBatch]) -> Counter[Any]:
    return Counter(pair for b in out for pair in zip(b["left"].to_pylist(), b["right"].to_pylist(), strict=True))


def join(kind: str, flush: Any = None) -> ProgressiveJoin:
    return ProgressiveJoin(CONDITIONS[kind], "1MiB", flush or RRPJ(share=40), capacity=120)


def play(op: ProgressiveJoin, wrong: dict[str, Any]) -> Counter[Any]:
    """Both streams in turns, with a pause; between batches wrong ones are refused."""
    out: list[pa.RecordBatch] = []
    for at in range(0, ROWS, 100):
        for side in ("left", "right"):
            batch = some(rows(side), at)
            out += op.insert(side, batch)
            before = deepcopy((op.stats, op.partition_stats, op.budget.held()))
            for name, made in wrong.items():
                with pytest.raises((BadInput, MemoryRefused)):
                    op.insert(side, made(batch))
                assert str((op.stats, op.partition_stats, op.budget.held())) == str(before), name
        if at == 200:
            out += [results for _, results in zip(range(2), op.idle(), strict=False)]
    return pairs([*out, *op.finish()])


@cache
def wanted(kind: str) -> Counter[Any]:
    """The pairs of a join that nothing happens to."""
    found = play(join(kind), {})
    assert len(found) > 100
    return found


@pytest.mark.parametrize("kind", CONDITIONS)
def test_contract_a_refused_batch_leaves_the_join_as_it_was(kind: str) -> None:
    wrong = {**WRONG, **({"inverted": inverted} if kind == "boxes" else {})}
    assert play(join(kind), wrong) == wanted(kind)


@pytest.mark.parametrize("kind", CONDITIONS)
def test_a_side_whose_first_batch_was_refused_begins_with_the_next(kind: str) -> None:
    op = join(kind)
    name = {"key": "k", "text": "word"}.get(kind, "x0")
    for side in ("left", "right"):
        refused = [with_column(rows(side), name, [[1]] * ROWS)]
        if kind == "boxes":  # the grid is not made from them
            refused += [inverted(rows(side)), with_column(inverted(rows(side)), "y1", [1000.0] * ROWS)]
        # The types of these would be kept, if what is refused for the size of a tuple had been looked at too late.
        refused.append(with_column(with_column(rows(side), "k", ["text"] * ROWS), "word", ["x" * (1 << 19)] * ROWS))
        for batch in refused:
            with pytest.raises((BadInput, MemoryRefused)):
                op.insert(side, batch)
    assert op.budget.held().keys() == {"work"}
    assert play(op, {}) == wanted(kind)


@contextmanager
def full_disk(room: int) -> Iterator[None]:
    """No file can grow beyond so many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("then", ["insert", "idle"])
@pytest.mark.parametrize("room", [0, 12_000])
@pytest.mark.parametrize("kind", CONDITIONS)
def test_contract_a_full_disk_loses_no_results(kind: str, room: int, then: str) -> None:
    op, out = join(kind), list[pa.RecordBatch]()
    out += op.insert("left", some(rows("left"), 0, 200))
    out += op.insert("right", some(rows("right"), 0, 200))
    with full_disk(room):
        for call in (lambda: op.insert("left", some(rows("left"), 200, 200)), op.idle):
            with pytest.raises(SpillError, match=r"bytes of a flush could not be written in .* call again"):
                out.extend(call())  # the second call goes on where the first one stopped, and fails again
    assert op.stats.tuples_in == [200, 200]
    if then == "idle":
        out += op.idle()
        assert op.stats.tuples_in == [400, 200]
    out += op.insert("right", some(rows("right"), 200, 200))
    out += op.finish()
    assert op.stats.tuples_in == [400, 400]
    assert pairs(out) == wanted(kind)
    op.stats.check()


def test_a_full_disk_while_segments_are_merged_loses_no_results() -> None:
    op = ProgressiveJoin(hr.equal("k"), "256KiB", partitioning=HashPartitioning(hr.equal("k"), 1), capacity=60)
    out: list[pa.RecordBatch] = []
    for at in range(0, ROWS, 50):
        for side in ("left", "right"):
            out += op.insert(side, some(rows(side), at, 50))
    with full_disk(0), pytest.raises(SpillError):
        out.extend(op.finish())
    out += op.finish()
    assert pairs(out) == wanted("key")


@pytest.mark.parametrize("read", [0, 1, 3])
@pytest.mark.parametrize("kind", CONDITIONS)
def test_results_of_an_iterator_that_was_dropped_come_with_the_next_call(kind: str, read: int) -> None:
    op, out = ProgressiveJoin(CONDITIONS[kind], "256KiB", RRPJ(share=40), capacity=120), list[pa.RecordBatch]()
    for at in range(0, ROWS, 100):
        for side in ("left", "right"):
            results = op.insert(side, some(rows(side), at))
            out += [one for _, one in zip(range(read), results, strict=False)]
            del results  # as it is when what is done with a result raises
    out += [one for _, one in zip(range(read), op.finish(), strict=False)]
    out += op.finish()
    assert pairs(out) == wanted(kind)
    with pytest.raises(BadInput, match="has been finished"):
        op.finish()


def test_a_policy_that_fails_once_loses_no_results() -> None:
    class Moody(FlushPolicy):
        failed = False

        def scores(self, stats: Any) -> Any:
            if not self.failed:
                self.failed = True
                raise ZeroDivisionError
            return stats.held

    op, out = join("key", Moody()), list[pa.RecordBatch]()
    out += op.insert("left", some(rows("left"), 0))
    with pytest.raises(ZeroDivisionError):
        out.extend(op.insert("right", rows("right")))
    out += op.insert("left", some(rows("left"), 100, 300))
    out += op.finish()
    assert pairs(out) == wanted("key")


def test_an_error_in_the_middle_of_results_is_said_by_every_later_call() -> None:
    class Failing(HashPartitioning):
        calls = 0

        def match(self, *arguments: Any) -> int:  # type: ignore[override]
            self.calls += 1
            if self.calls > 1:
                raise FloatingPointError("the kernel failed")
            return HashPartitioning.match(*arguments)

    condition = hr.equal("k")
    op = ProgressiveJoin(condition, "1MiB", partitioning=Failing(condition))
    batch = pa.record_batch({"k": [1] * 3})
    list(op.insert("left", batch))
    assert sum(out.num_rows for out in op.insert("right", batch)) == 9
    with pytest.raises(FloatingPointError):
        list(op.insert("right", batch))
    for call in (lambda: op.insert("left", batch), lambda: list(op.idle()), op.finish):
        with pytest.raises(BadInput, match=r"stopped this join in the middle .*the kernel failed.* make another"):
            call()


def test_a_directory_for_segments_that_is_not_there(tmp_path: Path) -> None:
    op = ProgressiveJoin(hr.equal("k"), "1MiB", spill=tmp_path / "later")
    with pytest.raises(FileNotFoundError):
        op.insert("left", pa.record_batch({"k": [1]}))
    (tmp_path / "later").mkdir()
    list(op.insert("left", pa.record_batch({"k": ["1"], "a": [5]})))  # with other columns: the first left no trace
    assert sum(out.num_rows for out in op.insert("right", pa.record_batch({"k": ["1"]}))) == 1


# -- tuples that are much larger than others ---------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", ["256KiB", "1MiB"])
@pytest.mark.parametrize(
    "grid", [{}, {"cells": 100}, {"space": (0, 0, 1, 1), "cells": 300, "tiles": 4}, {"partitions": 7}]
)
def test_oracle_large_boxes_in_a_small_join(memory: str, grid: dict[str, Any]) -> None:
    rng = np.random.default_rng(8)
    touch = hr.intersects(BOX)
    op = ProgressiveJoin(touch, memory, partitioning=BoxGrid(touch, **grid))
    sides = {}
    out: list[pa.RecordBatch] = []
    for side in ("left", "right"):
        low = rng.random((600, 2))
        high = low + rng.random((600, 2)) / 50
        low[::100], high[::100] = 0.0, 1.0  # one in a hundred covers all of the space
        low[50], high[50] = -np.inf, np.inf
        sides[side] = np.hstack([low, high])
    for at in range(0, 600, 100):
        for side in ("left", "right"):
            columns = dict(zip(BOX, sides[side][at : at + 100].T.copy(), strict=True))
            out += op.insert(side, pa.record_batch({side: np.arange(at, at + 100), **columns}))
    out += op.finish()
    a, b = sides["left"][:, None], sides["right"][None]
    meet = ((a[..., :2] <= b[..., 2:]) & (b[..., :2] <= a[..., 2:])).all(axis=2)
    assert pairs(out) == Counter(zip(*(found.tolist() for found in np.nonzero(meet)), strict=True))
    assert op.stats.memory_peak <= op.budget.limit


def test_a_few_long_tuples_among_short_ones() -> None:
    words = ["x" * (50_000 if i % 100 == 7 else 3) for i in range(400)]
    batch = pa.record_batch({"k": np.arange(400), "word": words})
    op = ProgressiveJoin(hr.equal("k"), "256KiB")
    assert not list(op.insert("left", batch))
    out = [*op.insert("right", batch), *op.finish()]
    assert sorted(k for b in out for k in b["k"].to_pylist()) == list(range(400))
    with pytest.raises(MemoryRefused, match=r"a tuple of the left side is larger than 64KiB, .* of 256KiB; give more"):
        ProgressiveJoin(hr.equal("k"), "256KiB").insert("left", pa.record_batch({"k": [1], "word": ["x" * 70_000]}))
