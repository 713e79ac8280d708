"""MESHJOIN and its family join on any columns of R, key or not, against a loop over all pairs. [MESH] §3.1"""

from __future__ import annotations

from decimal import Decimal
from random import Random

import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import BadInput, UnsupportedType
from headrace.semistream import (
    SSIJ,
    AdaptiveJoin,
    AMeshJoin,
    ConditionalJoin,
    HybridJoin,
    IndexNestedLoop,
    MeshJoin,
    RMeshJoin,
    XHybridJoin,
)
from tests.support.relation_joins import HOWS, checked, joined, relation_of


def values(random: Random, kind: str, count: int) -> pa.Array:
    """Values of a small domain, some null."""
    make, type_ = {
        "int": (lambda i: i - 3, pa.int64()),
        "small": (lambda i: i, pa.int16()),
        "text": (lambda i: "é" * (i % 3) + str(i), pa.string()),
        "decimal": (lambda i: Decimal(i) / 100, pa.decimal128(20, 2)),
    }[kind]
    return pa.array([None if random.random() < 0.15 else make(random.randrange(9)) for _ in range(count)], type_)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("kind", ["int", "small", "text", "decimal"])
def test_oracle_a_column_that_is_not_the_key(tmp_path, how, kind):
    """Repeats and nulls on both sides, an integer key or one of texts, and a condition besides."""
    random = Random(f"{how} {kind}")
    rows = pa.table(
        {
            "k": [f"row {i}" if how in ("left", "semi") else i for i in range(200)],
            "v": values(random, kind, 200),
            "w": range(200),
        }
    )
    stream = pa.table({"n": range(40), "x": values(random, kind, 40)})
    got = checked(tmp_path, random, stream, rows, None, how, on={"x": "v"})
    assert got and (how in ("semi", "anti") or sum(got.values()) > 200)
    checked(tmp_path, random, stream, rows, hr.compare("n", "<", "w"), how, on={"x": "v"})


@pytest.mark.parametrize("how", HOWS)
def test_oracle_several_columns_and_parts_of_the_key(tmp_path, how):
    random = Random(how)
    rows = pa.table(
        {
            "a": [i % 7 for i in range(200)],
            "b": [f"b{i % 5}" for i in range(200)],
            "v": values(random, "text", 200),
            "u": values(random, "int", 200),
        }
    )
    stream = pa.table(
        {
            "n": range(60),
            "a": [i % 9 for i in range(60)],
            "v": values(random, "text", 60),
            "u": values(random, "int", 60),
        }
    )
    for on in ("a", ["v", "u"], {"v": "v", "a": "a"}, {"v": "b"}, "u"):
        checked(tmp_path, random, stream, rows, None, how, on=on, key=["a", "b"])


def test_columns_and_schema(tmp_path):
    rows = pa.table({"id": [1, 2, 3], "city": ["a", "b", "a"], "size": [10, 20, 30]})
    relation = relation_of(tmp_path, rows, key="id")
    stream = pa.table({"size": [5], "city": ["a"]})
    for columns, names in (
        (None, ["id", "size_right"]),
        (["size"], ["size_right"]),
        (["id"], ["id"]),
        (["city"], []),
        ([], []),
    ):
        op = MeshJoin(relation, on="city", columns=columns)
        assert op.output_schema(stream.schema).names == ["size", "city", *names]
        assert sum(joined(op, stream, 9).values()) == 2


def test_results_in_stream_order_and_several_streams(tmp_path):
    rows = pa.table({"k": range(600), "g": [i % 60 for i in range(600)]})
    relation = relation_of(tmp_path, rows)
    op = AMeshJoin(relation, on={"x": "g"}, memory="4MiB", order="stream", tuner=lambda _: (10, 2))
    stream = pa.table({"n": range(150), "x": [i * 7 % 70 for i in range(150)]})
    for _ in range(2):
        out = pa.Table.from_batches(op.run(stream.to_batches(max_chunksize=30)))
        assert out["n"].to_pylist() == [n for n in range(150) for _ in range(10) if n * 7 % 70 < 60]


def test_joins_that_look_keys_up_refuse_other_columns_and_name_meshjoin(tmp_path):
    rows = pa.table({"id": [1, 2], "city": ["a", "b"], "real": [0.5, 1.5]})
    relation = relation_of(tmp_path, rows, key="id")
    popular = hr.Relation.create(
        tmp_path / "popular",
        rows,
        key="id",
        order="frequency",
        frequencies=pa.table({"id": [1, 2], "frequency": [2, 1]}),
    )
    for kind in (AdaptiveJoin, ConditionalJoin, HybridJoin, IndexNestedLoop, SSIJ, XHybridJoin):
        with pytest.raises(
            BadInput, match=rf"{kind.__name__.replace('ConditionalJoin', '.*')} looks keys up.* or use MeshJoin"
        ):
            kind(popular if kind is XHybridJoin else relation, on="city", memory="4MiB")
    for kind in (MeshJoin, AMeshJoin, RMeshJoin):
        with pytest.raises(
            UnsupportedType, match=r"on= cannot join on real: .*condition=hr.equal\(..., 'real'\) instead"
        ):
            kind(relation, on="real")
        with pytest.raises(
            BadInput, match="names 'town' of the relation, which has no such column; its columns are id, city"
        ):
            kind(relation, on={"city": "town"})
        with pytest.raises(BadInput, match="stream column 'city' has type int64, but the relation's column 'city'"):
            kind(relation, on="city").output_schema(pa.schema({"city": pa.int64()}))
    op = MeshJoin(relation, condition=hr.equal("real"), columns=["city"])  # what cannot be hashed can be compared
    assert sum(joined(op, pa.table({"real": [1.5, 2.5]}), 9).values()) == 1
