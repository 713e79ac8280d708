"""Conditions beyond equality against a loop over all pairs, in exact arithmetic. [MESH] §3.4"""

import math
from datetime import date, timedelta
from decimal import Decimal
from random import Random

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import BadInput, UnsupportedType
from headrace.semistream import AdaptiveJoin, AMeshJoin, ConditionalJoin, MeshJoin
from tests.support.condition_cases import PAIRS, pick
from tests.support.relation_joins import HOWS, checked, expected, joined, relation_of


@pytest.mark.parametrize(("left", "right"), PAIRS)
@pytest.mark.parametrize("op", ["<", "<=", ">", ">=", "!=", "="])
def test_oracle_compare(tmp_path, left, right, op):
    random = Random(f"{left} {op} {right}")
    rows = pa.table({"k": pa.array(range(230), pa.int32()), "y": pick(random, right, 230)})
    stream = pa.table({"n": range(40), "x": pick(random, left, 40)})
    assert checked(tmp_path, random, stream, rows, hr.compare("x", op, "y"), random.choice(HOWS))


@pytest.mark.parametrize(("left", "right"), PAIRS)
@pytest.mark.parametrize("how", HOWS)
def test_oracle_between_on_either_side(tmp_path, left, right, how):
    random = Random(f"{left} {right} {how}")
    rows = pa.table({"k": range(150), "y": pick(random, right, 150), "z": pick(random, right, 150)})
    stream = pa.table({"n": range(40), "x": pick(random, left, 40), "u": pick(random, left, 40)})
    checked(tmp_path, random, stream, rows, hr.between("x", "y", "z"), how)
    checked(tmp_path, random, stream, rows, hr.between("y", "x", "u", of="right"), how)


@pytest.mark.parametrize(("left", "right"), PAIRS)
@pytest.mark.parametrize("inclusive", ["low", "high", "neither", "both"])
def test_oracle_between_with_bounds_left_out_and_open_ends(tmp_path, left, right, inclusive):
    random = Random(f"{left} {right} {inclusive}")
    rows = pa.table({"k": range(150), "y": pick(random, right, 150), "z": pick(random, right, 150)})
    stream = pa.table({"n": range(40), "x": pick(random, left, 40), "u": pick(random, left, 40)})
    half_open = hr.between("x", "y", "z", inclusive=inclusive, open_ends=True)
    checked(tmp_path, random, stream, rows, half_open, random.choice(HOWS))
    checked(
        tmp_path, random, stream, rows, hr.between("y", "x", "u", of="right", inclusive=inclusive), random.choice(HOWS)
    )


def test_open_ends_are_for_bounds_of_the_relation():
    with pytest.raises(BadInput, match="'low' and 'high' are of the left"):
        hr.between("k", "low", "high", of="right", open_ends=True)
    with pytest.raises(BadInput, match="choose one of both, low, high, neither"):
        hr.between("k", "low", "high", inclusive="left")


@pytest.mark.parametrize(("left", "right"), PAIRS)
def test_oracle_band(tmp_path, left, right):
    random = Random(f"{left} {right}")
    rows = pa.table({"k": range(150), "y": pick(random, right, 150)})
    stream = pa.table({"n": range(40), "x": pick(random, left, 40)})
    if left in ("date", "ms", "us", "utc"):
        amounts = [timedelta(0), timedelta(days=1), timedelta(milliseconds=1), timedelta(microseconds=1)]
        amounts = amounts[:2] if left == right == "date" else amounts
    else:
        amounts = [0, 1, 0.5, 2**60, 2**64] + ([Decimal("0.01")] if left == "cents" else [])
    for below in amounts:
        checked(tmp_path, random, stream, rows, hr.band("x", "y", below=below, above=random.choice(amounts)), "inner")


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "chebyshev"])
@pytest.mark.parametrize("how", HOWS)
def test_oracle_within(tmp_path, metric, how):
    random = Random(f"{metric} {how}")
    pool = [0.0, -0.0, 0.1, 0.3, 0.4, 0.5, 1.0, -1.0, 7.5, math.nan, None]

    def vectors(count):
        return [[random.choice(pool) for _ in range(2)] for _ in range(count)]

    sides = vectors(40), vectors(200)
    rows = pa.table({"k": range(200), "a": [v[0] for v in sides[1]], "b": [v[1] for v in sides[1]]})
    columns = pa.table({"n": range(40), "a": [v[0] for v in sides[0]], "b": [v[1] for v in sides[0]]})
    lists = pa.array([None if random.random() < 0.1 else v for v in sides[0]], pa.list_(pa.float64(), 2))
    listed = pa.table({"n": range(40), "v": lists}).slice(3)
    for eps in (0.5, 1, 0.1):
        condition = hr.within(("a", "b"), eps=eps, metric=metric)
        checked(tmp_path, random, columns, rows, condition, how)
        checked(tmp_path, random, listed, rows, hr.within("v", eps=eps, metric=metric, right=("a", "b")), how)


def test_oracle_within_of_random_points_in_three_dimensions(tmp_path):
    random, rng = Random(3), np.random.default_rng(3)
    rows = pa.table({"k": range(300), **{c: rng.random(300) for c in "abc"}})
    stream = pa.table({"n": range(60), **{c: rng.random(60).astype(np.float32) for c in "xyz"}})
    got = checked(tmp_path, random, stream, rows, hr.within(("x", "y", "z"), eps=0.3, right=("a", "b", "c")), "inner")
    assert 100 < sum(got.values()) < 18_000 / 4


@pytest.mark.parametrize("how", HOWS)
def test_oracle_boxes_and_several_conditions(tmp_path, how):
    random = Random(how)
    names = ("x0", "y0", "x1", "y1")

    def boxes(count):
        corners = [(random.randrange(9), random.randrange(9)) for _ in range(count)]
        return [(x, y, x + random.randrange(4), y + random.randrange(4)) for x, y in corners]

    rows = pa.table({"k": range(150), **dict(zip(names, zip(*boxes(150), strict=True), strict=True))})
    mine = ("a", "b", "c", "d")
    stream = pa.table({"n": range(40), **dict(zip(mine, zip(*boxes(40), strict=True), strict=True))})
    checked(tmp_path, random, stream, rows, hr.intersects(mine, names), how)
    both = hr.all_of(hr.compare("a", "!=", "x0"), hr.band("b", "y0", below=2, above=1), hr.compare("c", "<", "x1"))
    checked(tmp_path, random, stream, rows, both, how)
    checked(tmp_path, random, stream, rows, hr.all_of(hr.equal("a", "x0"), hr.compare("n", "<=", "k")), how)


@pytest.mark.parametrize("how", HOWS)
def test_oracle_beside_an_equality_only_pairs_that_pass_count(tmp_path, how):
    """left, semi and anti: a tuple whose key is there and whose condition fails has no match."""
    random = Random(how)
    for key, type_ in ((lambda i: i, pa.int64()), (lambda i: f"key {i}", pa.string())):
        rows = pa.table(
            {
                "k": pa.array([key(random.randrange(30)) for _ in range(300)], type_),
                "from": pick(random, "date", 300),
                "to": pick(random, "date", 300),
            }
        )
        keys = [None if random.random() < 0.1 else key(random.randrange(40)) for _ in range(80)]
        stream = pa.table({"n": range(80), "k": pa.array(keys, type_), "day": pick(random, "date", 80)})
        got = checked(tmp_path, random, stream, rows, hr.between("day", "from", "to"), how, on="k")
        assert 0 < sum(got.values()) < (80 if how in ("semi", "anti") else 10**9)


@pytest.mark.parametrize("seed", range(40))
def test_oracle_adaptive_with_a_condition_beside_the_key(tmp_path, seed):
    """Tiny domains, nulls, empty sides, a giant key; in stream order and in any; several batches on one operator."""
    random = Random(seed)
    keys = (lambda i: i, pa.int64()) if random.random() < 0.5 else (lambda i: f"key {i}", pa.string())
    many, domain = random.choice([0, 1, 40, 2000]), random.choice([1, 7, 60])
    left, right = random.choice(PAIRS)
    rows = pa.table(
        {
            "k": pa.array([keys[0](random.randrange(domain)) for _ in range(many)], keys[1]),
            "x": pick(random, right, many),
            "z": pick(random, right, many),
            "name": pa.array([f"row {i}" * (i % 3) or None for i in range(many)], pa.string()),
        }
    )
    count = random.choice([0, 1, 60])
    ids = [None if random.random() < 0.1 else keys[0](random.randrange(domain + 3)) for _ in range(count)]
    stream = pa.table(
        {"k": pa.array(ids, keys[1]), "n": pa.array(range(count), pa.int64()), "x": pick(random, left, count)}
    )
    condition = random.choice(
        [
            hr.between("x", "x", "z"),
            hr.between("x", "x", "z", inclusive="low", open_ends=True),
            hr.compare("x", "<", "z"),
            hr.all_of(hr.compare("x", "!=", "x"), hr.compare("x", ">=", "z")),
        ]
    )
    how, order = random.choice(HOWS), random.choice(["any", "stream"])
    columns = random.choice([None, ["name"], ["z", "x"], []])
    relation = relation_of(tmp_path, rows, shards=random.choice([1, 2]))
    op = ConditionalJoin(
        relation, "k", random.choice(["512KiB", "4MiB"]), how=how, columns=columns, condition=condition, order=order
    )
    op._most = random.choice([7, op._most])  # private: small pieces, which take large batches otherwise
    names = columns if columns is not None else ["x", "z", "name"]
    for _ in range(2):
        got = joined(op, stream, random.choice([3, 40, 1000]))
        assert got == expected(stream, rows, condition, how, names, "k"), (seed, how, condition)
    if order == "stream" and count:
        out = pa.Table.from_batches(op.run(stream.to_batches()))["n"].to_pylist()
        assert out == sorted(out)


def test_a_flag_tells_a_match_of_nulls_from_none(tmp_path):
    rows = pa.table({"k": [1, 2], "v": pa.array([None, None], pa.int64())})
    relation = relation_of(tmp_path, rows)
    stream = pa.table({"k": [1, 3, None, 2]})
    op = ConditionalJoin(relation, "k", "1MiB", how="left", flag="known")
    out = pa.Table.from_batches(op.run(stream.to_batches())).to_pydict()
    assert out == {"k": [1, 3, None, 2], "v": [None] * 4, "known": [True, False, False, True]}
    with pytest.raises(BadInput, match="flag='known' says which rows of a left join"):
        ConditionalJoin(relation, "k", "1MiB", flag="known")


def test_oracle_the_key_of_the_relation_may_be_part_of_the_condition(tmp_path):
    random = Random(5)
    rows = pa.table(
        {"day": pick(random, "date", 200).fill_null(date(2024, 2, 1)), "s": [f"row {i}" for i in range(200)]}
    )
    stream = pa.table({"n": range(30), "x": pick(random, "us", 30)})
    relation = relation_of(tmp_path, rows, key="day")
    condition = hr.band("x", "day", below=timedelta(0), above=timedelta(days=1))
    op = MeshJoin(relation, memory="1MiB", condition=condition, w=3, b=1)
    assert joined(op, stream, 7) == expected(stream, rows, condition, "inner", ["day", "s"])


def test_oracle_keys_that_are_text_or_composite_are_in_the_result(tmp_path):
    random = Random(6)
    rows = pa.table(
        {
            "name": ["é" * (i % 5) + str(i) for i in range(300)],
            "part": pa.array([i % 7 for i in range(300)], pa.int16()),
            "y": pick(random, "int16", 300),
        }
    )
    stream = pa.table({"y": pick(random, "int16", 30)})
    relation = relation_of(tmp_path, rows, key=["name", "part"])
    condition = hr.compare("y", "<", "y")
    for columns in (None, ["y"], ["part"], []):
        op = AMeshJoin(
            relation, memory="1MiB", condition=condition, how="left", columns=columns, tuner=lambda _: (5, 2)
        )
        names = rows.schema.names if columns is None else columns
        assert joined(op, stream, 9) == expected(stream, rows, condition, "left", names)
    schema = MeshJoin(relation, memory="1MiB", condition=condition).output_schema(stream.schema)
    assert schema.names == ["y", "name", "part", "y_right"]
    assert schema.types == [pa.int16(), pa.string(), pa.int16(), pa.int16()]


def test_columns_of_the_condition_need_not_be_in_the_result(tmp_path):
    rows = pa.table({"k": [1, 2, 3], "low": [0, 10, 20], "high": [9, 19, 29], "name": ["a", "b", "c"]})
    op = MeshJoin(relation_of(tmp_path, rows), condition=hr.between("t", "low", "high"), columns=["name"])
    out = pa.Table.from_batches(op.run(pa.table({"t": [25, 3, 40]}).to_batches()))
    assert sorted(out.to_pylist(), key=repr) == [{"t": 25, "name": "c"}, {"t": 3, "name": "a"}]


def test_a_decimal_meets_doubles_as_a_double(tmp_path):
    rows = pa.table({"k": [1, 2, 3], "y": [0.1, 0.2, 0.3]})
    stream = pa.table({"x": pa.array([Decimal("0.20"), Decimal("0.25")], pa.decimal128(5, 2))})
    op = MeshJoin(relation_of(tmp_path, rows), condition=hr.compare("x", "=", "y"))
    assert pa.Table.from_batches(op.run(stream.to_batches()))["k"].to_pylist() == [2]


def test_results_in_stream_order(tmp_path):
    rows = pa.table({"k": range(500), "y": [i % 50 for i in range(500)]})
    stream = pa.table({"n": range(200), "x": [i * 7 % 50 for i in range(200)]})
    relation = relation_of(tmp_path, rows)
    op = MeshJoin(relation, memory="4MiB", condition=hr.compare("x", "=", "y"), order="stream", w=10, b=1)
    out = pa.Table.from_batches(op.run(stream.to_batches(max_chunksize=30)))
    assert out["n"].to_pylist() == [n for n in range(200) for _ in range(10)]


def test_a_condition_that_everything_satisfies_stays_within_the_budget(tmp_path):
    """400,000 results from 400 KiB: pairs come in bounded steps."""
    rows = pa.table({"k": range(2000), "y": range(2000)})
    stream = pa.table({"x": pa.array([-1] * 200)})
    op = MeshJoin(relation_of(tmp_path, rows), memory="400KiB", condition=hr.compare("x", "<", "y"))
    total = 0
    for batch in op.run(stream.to_batches()):
        total += batch.num_rows
        assert batch.num_rows <= op._results.rows  # private: the bound of a batch of results is no one's to set
    assert total == 400_000
    assert op.budget.peak <= op.budget.limit


def test_the_sorted_copy_is_counted(tmp_path):
    rows = pa.table({"k": range(2000), "y": range(2000)})
    relation = relation_of(tmp_path, rows)
    plain_join = MeshJoin(relation, on={"x": "k"}, memory="1MiB", w=100, b=4)
    ranged = MeshJoin(relation, memory="1MiB", condition=hr.compare("x", "<", "y"), w=100, b=4)
    stream = pa.record_batch({"x": [5000]})
    for op in (plain_join, ranged):
        list(op.run([stream]))
    more = ranged.budget.held()["hash table"] - plain_join.budget.held()["hash table"]
    matching = ranged._H.matching  # private: the budget counts these arrays as one with the hash table
    arrays = (matching._predicates[0].values, *matching._in_order(ranged._H))
    assert more >= arrays[0].nbytes + ranged.capacity * (arrays[1].itemsize + arrays[2].itemsize)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: hr.compare("x", "<>", "y"), r"op='<>' is not supported; choose one of <, <=, >, >=, !=, ="),
        (lambda: hr.compare("", "<", "y"), "'' on the left side is not a column name"),
        (lambda: hr.between("t", "a", "b", of="stream"), "of='stream' is not supported; choose one of left, right"),
        (lambda: hr.between("t", "a", "a"), "a is named twice on the right side"),
        (lambda: hr.band("x", below=-1, above=0), "below=-1 is negative; give 0 or more"),
        (lambda: hr.band("x", below=0, above=timedelta(days=-1)), "above=.* is negative"),
        (lambda: hr.band("x", below="1", above=0), "below='1' is not a number or a timedelta"),
        (lambda: hr.band("x", below=0, above=math.inf), "above=inf is not a number"),
        (lambda: hr.band("x", below=0, above=timedelta(1)), "are of two kinds"),
        (lambda: hr.within("v", eps=0), "eps=0 is not a distance above 0"),
        (lambda: hr.within("v", eps=-0.5), "eps=-0.5 is not a distance above 0"),
        (lambda: hr.within("v", eps=math.nan), "eps=nan is not a distance above 0"),
        (lambda: hr.within("v", eps=1, metric="hamming"), "metric='hamming' is not supported; choose one of euclidean"),
        (lambda: hr.within(("a", "b"), eps=1, right=("a", "b", "c")), "vectors of 2 and of 3 coordinates"),
        (lambda: hr.intersects(("x", "y", "z")), "the left box has 3 columns"),
        (lambda: hr.intersects(("x", "y"), ("a", "b", "c", "d")), "boxes of 1 and of 2 dimensions"),
        (lambda: hr.all_of(), r"all_of\(\) of no conditions"),
        (lambda: hr.all_of(hr.equal("a"), "b < c"), "'b < c' is not a condition; make one with equal, compare"),
    ],
)
def test_what_conditions_cannot_be(make, says):
    with pytest.raises(BadInput, match=says):
        make()


def test_what_cannot_be_joined_is_refused_by_name(tmp_path):
    rows = pa.table({"k": [1], "y": [1.0], "s": ["a"], "d": [date(2024, 1, 1)], "u": pa.array([1], pa.uint64())})
    relation = relation_of(tmp_path, rows)

    def refuses(condition, says, stream=None, error=BadInput):
        with pytest.raises(error, match=says):
            MeshJoin(relation, condition=condition).output_schema(stream or pa.schema({"x": pa.int64()}))

    refuses("x < y", "'x < y' is not a condition")
    refuses(
        hr.compare("x", "<", "nope"), "names 'nope' of the relation, which has no such column; its columns are k, y"
    )
    refuses(hr.compare("nope", "<", "y"), "names 'nope' of the stream, which has no such column; its columns are x")
    refuses(
        hr.compare("x", "<", "s"),
        "stream column 'x' of type int64 and relation column 's' of type string cannot be compared",
    )
    refuses(hr.compare("x", "<", "u"), "relation column 'u' has type uint64", error=UnsupportedType)
    refuses(hr.compare("x", "<", "d"), "'x' of type int64 and relation column 'd' of type date32.* cannot be compared")
    dated = pa.schema({"x": pa.date32()})
    refuses(hr.band("x", "d", below=1, above=1), "column 'd' needs a timedelta", dated)
    refuses(hr.band("x", "y", below=timedelta(1), above=timedelta(1)), "column 'y' needs a number")
    refuses(hr.compare("x", "<", "d"), "zone|cannot be compared", pa.schema({"x": pa.timestamp("us", "UTC")}))
    refuses(
        hr.within("x", eps=1, right=("y", "k")),
        "the stream vector x has 1 coordinates, and the relation vector y, k has 2",
    )
    with pytest.raises(BadInput, match="MeshJoin has nothing to join on; give on="):
        MeshJoin(relation)
    with pytest.raises(BadInput, match="AMeshJoin has nothing to join on"):
        AMeshJoin(relation)
    with pytest.raises(TypeError, match="condition"):
        AdaptiveJoin(relation, on="k", condition=hr.compare("x", "<", "y"))
