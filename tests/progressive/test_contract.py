"""contract_: what every progressive join keeps, whatever its condition and its policy."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.conditions import Condition
from headrace.errors import BadInput, MemoryRefused
from headrace.progressive import POLICIES, ProgressiveJoin

BOX = ("xmin", "ymin", "xmax", "ymax")
CONDITIONS: dict[str, Condition] = {
    "key": hr.equal("k"),
    "text": hr.equal("word"),
    "keys": hr.all_of(hr.equal("k"), hr.equal("word")),
    "residual": hr.all_of(hr.equal("k"), hr.band("t", below=1, above=3)),
    "boxes": hr.intersects(BOX),
    "vectors": hr.within(("x", "y", "z"), eps=0.1),
    "chebyshev": hr.within("v", eps=0.05, metric="chebyshev"),
    "both": hr.all_of(hr.intersects(BOX), hr.compare("k", "<", "k")),
}


def table(side: str, rows: int, seed: int) -> pa.Table:
    """Tuples that every condition can join; some with nulls and NaN."""
    rng = np.random.default_rng(seed)
    xyz = rng.random((rows, 3))
    xyz[::97] = np.nan
    low = rng.random((rows, 2))
    high = low + rng.random((rows, 2)) ** 4 / 5
    missing = rng.random(rows) < 0.05
    keys = rng.integers(0, rows // 2, rows)
    words = pa.array([None if k % 11 == 0 else f"w{k % 50}" for k in keys])
    return pa.table(
        {
            f"{side}_id": np.arange(rows),
            "k": pa.array(keys, mask=missing),
            "word": words,
            "t": rng.integers(0, 30, rows),
            "xmin": low[:, 0],
            "ymin": low[:, 1],
            "xmax": high[:, 0],
            "ymax": pa.array(high[:, 1], mask=missing),
            "x": xyz[:, 0],
            "y": xyz[:, 1],
            "z": xyz[:, 2],
            "v": pa.FixedSizeListArray.from_arrays(xyz[:, :2].reshape(-1), 2),
        }
    )


def brute(condition: str, left: pa.Table, right: pa.Table) -> Counter[Any]:
    """All pairs that match, by NumPy over the whole product."""
    a, b = ({name: t[name].to_numpy() for name in t.column_names if name != "v"} for t in (left, right))

    def same(name: str) -> Any:
        nulls = left[name].is_null().to_numpy()[:, None] | right[name].is_null().to_numpy()[None, :]
        return (a[name][:, None] == b[name][None, :]) & ~nulls

    boxes = np.ones((left.num_rows, right.num_rows), bool)
    for lo, hi in (("xmin", "xmax"), ("ymin", "ymax")):
        boxes &= (a[lo][:, None] <= b[hi][None, :]) & (b[lo][None, :] <= a[hi][:, None])
    far = [np.abs(a[c][:, None] - b[c][None, :]) for c in "xyz"]
    with np.errstate(invalid="ignore"):
        wanted = {
            "key": lambda: same("k"),
            "text": lambda: same("word"),
            "keys": lambda: same("k") & same("word"),
            "residual": lambda: (
                same("k") & (a["t"][:, None] >= b["t"][None, :] - 1) & (a["t"][:, None] <= b["t"][None, :] + 3)
            ),
            "boxes": lambda: boxes,
            "vectors": lambda: np.sqrt(far[0] ** 2 + far[1] ** 2 + far[2] ** 2) <= 0.1,
            "chebyshev": lambda: np.maximum(far[0], far[1]) <= 0.05,
            "both": lambda: boxes & (a["k"][:, None] < b["k"][None, :]),
        }[condition]()
    return Counter(zip(*(found.tolist() for found in np.nonzero(wanted)), strict=True))


def run(op: ProgressiveJoin, left: pa.Table, right: pa.Table, seed: int) -> list[pa.RecordBatch]:
    """Batches of both in a random order, with pauses."""
    rng, out = np.random.default_rng(seed), []
    come = [("left", batch) for batch in left.to_batches(170)] + [("right", batch) for batch in right.to_batches(130)]
    for i in rng.permutation(len(come)):
        out += op.insert(*come[i])
        if rng.random() < 0.15:
            for _, results in zip(range(3), op.idle(), strict=False):
                out.append(results)
    return [*out, *op.finish()]


def pairs(out: list[pa.RecordBatch]) -> Counter[Any]:
    return Counter(
        (i, j) for b in out for i, j in zip(b["left_id"].to_pylist(), b["right_id"].to_pylist(), strict=True)
    )


@pytest.fixture(scope="module")
def sides() -> tuple[pa.Table, pa.Table]:
    return table("left", 800, 1), table("right", 700, 2)


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("flush", ["rrpj", "rrpj-f", "hmj"])
def test_oracle_every_condition(condition: str, flush: str, sides: tuple[pa.Table, pa.Table]) -> None:
    op = ProgressiveJoin(CONDITIONS[condition], memory="1MiB", flush=flush, capacity=300)
    before = [side.to_pydict() for side in sides] if flush == "rrpj" else []
    got = pairs(run(op, *sides, seed=3))
    want = brute(condition, *sides)
    assert sum(want.values()) > 100
    assert got == want
    op.stats.check()
    assert op.stats.flushes and op.stats.disk_disk and op.stats.memory_disk
    assert op.stats.memory_peak <= op.budget.limit
    for side, was in zip(sides, before, strict=False):
        assert str(side.to_pydict()) == str(was)  # by text: NaN equals nothing


@pytest.mark.parametrize("flush", POLICIES)
def test_contract_every_policy_is_deterministic(flush: str, sides: tuple[pa.Table, pa.Table]) -> None:
    runs = [
        run(ProgressiveJoin(CONDITIONS["key"], memory="1MiB", flush=flush, capacity=300), *sides, seed=4)
        for _ in range(2)
    ]
    ids = [[(b["left_id"].to_pylist(), b["right_id"].to_pylist()) for b in out] for out in runs]
    assert ids[0] == ids[1]  # the same batches in the same order
    assert pairs(runs[0]) == brute("key", *sides)


def test_contract_an_equality_key_appears_once_and_other_names_get_a_suffix() -> None:
    left = pa.record_batch({"k": [1], "n": [2], "extra": [3]})
    op = ProgressiveJoin(hr.equal("k"), memory="1MiB")
    list(op.insert("left", left))
    [out] = op.insert("right", left)
    assert out.schema.names == ["k", "n", "extra", "n_right", "extra_right"]
    op = ProgressiveJoin(hr.equal("k"), memory="1MiB", suffix=None)
    list(op.insert("left", left))
    with pytest.raises(BadInput, match=r"'n' is on both sides"):
        op.insert("right", left)


def test_refusals() -> None:
    with pytest.raises(MemoryRefused, match=r"'1KiB' is too small .* at least 256KiB"):
        ProgressiveJoin(hr.equal("k"), memory="1KiB")
    with pytest.raises(BadInput, match=r"flush='best' is not supported; choose one of .*rrpj"):
        ProgressiveJoin(hr.equal("k"), flush="best")
    with pytest.raises(BadInput, match="cannot divide two streams"):
        ProgressiveJoin(hr.compare("a", "<", "b"))
    with pytest.raises(BadInput, match="capacity=0"):
        ProgressiveJoin(hr.equal("k"), capacity=0)
    op = ProgressiveJoin(hr.equal("k"), memory="1MiB")
    with pytest.raises(BadInput, match="side='up'"):
        op.insert("up", pa.record_batch({"k": [1]}))  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=r"left side has no column 'k'; its columns are x"):
        op.insert("left", pa.record_batch({"x": [1]}))


def test_refusals_of_the_second_batch() -> None:
    op = ProgressiveJoin(hr.equal("k"), memory="1MiB")
    list(op.insert("left", pa.record_batch({"k": [1], "a": [1]})))
    with pytest.raises(BadInput, match=r"column 'k' of the right side has type string, and 'k' of the other has int64"):
        op.insert("right", pa.record_batch({"k": ["1"]}))
    with pytest.raises(BadInput, match=r"'a' of the left side has type double in a batch, where the first had int64"):
        op.insert("left", pa.record_batch({"k": [1], "a": [0.5]}))
    with pytest.raises(BadInput, match=r"has columns k, where the first had k, a"):
        op.insert("left", pa.record_batch({"k": [1]}))
    list(op.insert("right", pa.record_batch({"k": [1, 1], "b": [1, 2]})))  # what was refused left no trace
    results = op.insert("left", pa.record_batch({"k": [1], "a": [2]}))
    with pytest.raises(BadInput, match="results of the last insert were not read to the end"):
        op.insert("left", pa.record_batch({"k": [1], "a": [3]}))
    assert sum(b.num_rows for b in results) == 2
    list(op.finish())
    with pytest.raises(BadInput, match="has been finished"):
        op.insert("left", pa.record_batch({"k": [1], "a": [3]}))
