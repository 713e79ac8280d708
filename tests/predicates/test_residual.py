"""A condition asked of aligned rows, against Python's own comparisons."""

from __future__ import annotations

import math
from datetime import date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.conditions import METRICS, Between, Equal
from headrace.errors import BadInput, UnsupportedType
from headrace.predicates import Residual
from tests.support.condition_cases import PAIRS, TEXT_PAIRS, holds, pick
from tests.support.similar_texts import random_texts


def batch(random: Random, pool: str, names: str, n: int) -> pa.RecordBatch:
    return pa.record_batch({name: pick(random, pool, n) for name in names})


@pytest.mark.parametrize(("left", "right"), PAIRS)
def test_oracle_every_condition_on_every_pair_of_types(left: str, right: str) -> None:
    random, n = Random(f"{left} {right}"), 120
    a, b = batch(random, left, "pqr", n), batch(random, right, "xyz", n)
    timed = left in ("date", "ms", "us", "utc")
    amounts = [timedelta(0), timedelta(seconds=1), timedelta(days=1)] if timed else [0, 1, 2]
    conditions = [
        *(hr.compare("p", op, "x") for op in ("<", "<=", ">", ">=", "!=", "=")),
        Between("p", "x", "y", inclusive=random.choice(["both", "low", "high", "neither"]), open_ends=True),
        Between("x", "p", "q", of="right"),
        hr.band("p", "x", below=random.choice(amounts), above=random.choice(amounts)),
        Equal(("p", "q"), ("x", "y")),
        hr.intersects(("p", "q"), ("x", "y")),
        hr.all_of(hr.compare("p", "<=", "x"), hr.compare("q", ">", "y"), hr.equal("r", "z")),
    ]
    rows = list(zip(a.to_pylist(), b.to_pylist(), strict=True))
    for condition in conditions:
        kept = Residual(condition, a.schema, b.schema).keep(a, b)
        assert kept.dtype == np.bool_ and kept.tolist() == [holds(condition, x, y) for x, y in rows], condition


@pytest.mark.parametrize(("left", "right"), TEXT_PAIRS)
def test_oracle_texts(left: str, right: str) -> None:
    random, n = Random(f"{left} {right}"), 300
    a, b = batch(random, left, "pq", n), batch(random, right, "xy", n)
    rows = list(zip(a.to_pylist(), b.to_pylist(), strict=True))
    for condition in (
        *(hr.compare("p", op, "x") for op in ("<", "<=", ">", ">=", "!=", "=")),
        Between("p", "x", "y", inclusive=random.choice(["both", "low", "high", "neither"]), open_ends=True),
        Between("x", "p", "q", of="right"),
        Equal(("p", "q"), ("x", "y")),
        hr.intersects(("p", "q"), ("x", "y")),
    ):
        kept = Residual(condition, a.schema, b.schema).keep(a, b)
        assert kept.tolist() == [holds(condition, x, y) for x, y in rows], condition


def test_oracle_similar_texts_and_a_function() -> None:
    random, n = Random(2), 500
    texts = random_texts(random, 2 * n)
    a = pa.record_batch({"s": pa.array(texts[:n]).dictionary_encode(), "i": range(n)})
    b = pa.record_batch({"t": pa.array(texts[n:], pa.large_string()), "j": range(n)})
    odd = hr.predicate(lambda left, right: pa.array([i.as_py() % 2 == 1 for i in left["i"]]), "i", right="j")
    rows = list(zip(a.to_pylist(), b.to_pylist(), strict=True))
    for condition in (
        *(hr.edit_distance("s", "t", at_most=most) for most in (0, 2, 5)),
        *(hr.jaccard("s", "t", at_least=least, q=q) for least, q in ((0.2, 1), (0.3, 2), (1, 3))),
        hr.all_of(odd, hr.edit_distance("s", "t", at_most=6), hr.compare("i", "<=", "j")),
    ):
        kept = Residual(condition, a.schema, b.schema).keep(a, b)
        assert kept.tolist() == [holds(condition, x, y) for x, y in rows], condition
        assert 0 < kept.sum() < n
    nulls = pa.record_batch({"s": pa.nulls(3, pa.string())}), pa.record_batch({"t": pa.nulls(3, pa.string())})
    for condition in (hr.edit_distance("s", "t", at_most=9), hr.jaccard("s", "t", at_least=0.1)):
        assert not Residual(condition, nulls[0].schema, nulls[1].schema).keep(*nulls).any()


@pytest.mark.parametrize("metric", METRICS)
def test_oracle_distances_of_lists_and_columns(metric: Any) -> None:
    rng = np.random.default_rng(3)
    some, others = rng.integers(0, 6, (2, 200, 2)).astype(float)
    vectors: list[Any] = some.tolist()
    vectors[3], vectors[4], vectors[5] = None, [None, 1.0], [math.nan, 1.0]
    type_ = pa.list_(pa.float64(), 2)
    left = pa.record_batch({"v": pa.array([[9.0, 9.0], *vectors], type_)}).slice(1)
    plain = pa.record_batch({"a": others[:, 0], "b": others[:, 1]})
    listed = pa.record_batch({"v": pa.array(others.tolist(), type_)})
    eps = 0.125 if metric == "cosine" else 2
    near = hr.within("v", eps=eps, metric=metric, right=("a", "b"))
    kept = Residual(near, left.schema, plain.schema).keep(left, plain)
    if metric == "cosine":
        with np.errstate(invalid="ignore"):  # a vector of zeros is near nothing
            length = np.sqrt((some**2).sum(axis=1)) * np.sqrt((others**2).sum(axis=1))
            wanted = 1 - (some * others).sum(axis=1) / length <= eps
    else:
        order = {"euclidean": 2, "manhattan": 1, "chebyshev": np.inf}[metric]
        wanted = np.linalg.norm(some - others, order, axis=1) <= eps
    wanted[[3, 4, 5]] = False
    assert (kept == wanted).all() and 0 < kept.sum() < 200
    assert (
        Residual(hr.within("v", eps=eps, metric=metric), left.schema, listed.schema).keep(left, listed) == kept
    ).all()
    ragged = [rows.cast(pa.schema({"v": pa.list_(pa.float64())})) for rows in (left, listed)]
    near = hr.within("v", eps=eps, metric=metric, dims=2)
    assert (Residual(near, ragged[0].schema, ragged[1].schema).keep(*ragged) == kept).all()


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pa.array(["a", "b", None, "d", ""]), pa.array(["a", "c", None, "d", ""], pa.large_string())),
        (pa.array(["a", "b", None, "d", ""]).dictionary_encode(), pa.array(["a", "c", None, "d", ""])),
        (pa.array([b"a", b"b", None, b"d", b""]), pa.array([b"a", b"c", None, b"d", b""])),
        (pa.array([True, True, None, False, True]), pa.array([True, False, None, False, True])),
        (pa.array([2**64 - 1, 1, None, 0, 3], pa.uint64()), pa.array([2**64 - 1, 2, None, 0, 3], pa.uint64())),
        (
            pa.array([Decimal(10**30), Decimal(1), None, Decimal(0), Decimal(3)], pa.decimal128(38, 0)),
            pa.array([Decimal(10**30), Decimal(2), None, Decimal(0), Decimal(3)], pa.decimal128(38, 0)),
        ),
    ],
    ids=lambda a: str(a.type),
)
def test_equality_of_what_is_no_number(left: pa.Array, right: pa.Array) -> None:
    a, b = pa.record_batch({"k": left, "n": range(5)}), pa.record_batch({"j": right, "n": range(5)})
    asked = Residual(hr.all_of(hr.equal("k", "j"), hr.equal("n")), a.schema, b.schema)
    assert asked.keep(a, b).tolist() == [True, False, False, True, True]
    assert (asked.columns(0), asked.columns(1)) == (("k", "n"), ("j", "n"))
    assert asked.keep(a.slice(0, 0), b.slice(0, 0)).tolist() == []


def test_what_is_refused_by_name() -> None:
    left = pa.schema({"s": pa.string(), "x": pa.int64(), "v": pa.list_(pa.float64(), 3), "d": pa.date32()})
    right = pa.schema([("s", pa.string()), ("y", pa.int64()), ("y", pa.int64()), ("d", pa.date32()), ("x", pa.int64())])

    def refuses(condition: Any, says: str, error: Any = BadInput) -> None:
        with pytest.raises(error, match=says):
            Residual(condition, left, right)

    refuses("s = s", "'s = s' is not a condition")
    refuses(
        hr.equal("nope", "s"), "names 'nope' of the left side, which has no such column; its columns are s, x, v, d"
    )
    refuses(hr.equal("x", "y"), "names 'y' of the right side, which has more than one such column")
    refuses(
        hr.equal("s", "x"),
        "left column 's' of type string and right column 'x' of type int64 cannot be compared; cast one",
    )
    refuses(hr.equal("v", "s"), "left column 'v' of type fixed_size_list.* cannot be compared")
    refuses(
        hr.compare("s", "<", "x"),
        "left column 's' of type string and right column 'x' of type int64 cannot be compared",
    )
    refuses(
        hr.compare("x", "<", "s"),
        "left column 'x' of type int64 and right column 's' of type string cannot be compared",
    )
    refuses(hr.edit_distance("s", "x", at_most=1), "right column 'x' has type int64, and EditDistance", UnsupportedType)
    refuses(
        hr.compare("x", "<", "d"),
        "left column 'x' of type int64 and right column 'd' of type date32.* cannot be compared",
    )
    refuses(hr.within("v", eps=1, right=("x", "d")), "right column 'd' of type date32.* is no coordinate")
    refuses(hr.within("v", eps=1, right="x"), "the left vector v has 3 coordinates, and the right vector x has 1")


def test_days_meet_timestamps() -> None:
    a = pa.record_batch({"d": pa.array([date(2024, 1, 2)] * 2)})
    b = pa.record_batch({"t": pa.array([datetime(2024, 1, 2), datetime(2024, 1, 2, 0, 0, 1)], pa.timestamp("us"))})
    assert Residual(hr.equal("d", "t"), a.schema, b.schema).keep(a, b).tolist() == [True, False]
