"""Conditions on texts, similar texts, and functions of the user, against a loop over all pairs and against DuckDB. [MESH] §3.4"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import headrace as hr
from headrace.errors import BadInput, OutsideFailure, UnsupportedType
from headrace.semistream import AMeshJoin, ConditionalJoin, MeshJoin, RMeshJoin
from tests.support.condition_cases import TEXT_PAIRS, pick
from tests.support.relation_joins import HOWS, checked, expected, joined, relation_of
from tests.support.similar_texts import random_texts


@pytest.mark.parametrize(("left", "right"), TEXT_PAIRS)
@pytest.mark.parametrize("op", ["<", "<=", ">", ">=", "!=", "="])
def test_oracle_texts_are_compared_by_their_bytes(tmp_path, left, right, op):
    random = Random(f"{left} {op} {right}")
    rows = pa.table({"k": pa.array(range(230), pa.int32()), "y": pick(random, right, 230)})
    stream = pa.table({"n": range(60), "x": pick(random, left, 60), "k": [random.randrange(240) for _ in range(60)]})
    assert checked(tmp_path, random, stream, rows, hr.compare("x", op, "y"), random.choice(HOWS))
    checked(tmp_path, random, stream, rows, hr.compare("x", op, "y"), random.choice(HOWS), on="k")


@pytest.mark.parametrize(("left", "right"), TEXT_PAIRS)
@pytest.mark.parametrize("inclusive", ["both", "low", "high", "neither"])
def test_oracle_texts_lie_between_texts(tmp_path, left, right, inclusive):
    random = Random(f"{left} {right} {inclusive}")
    rows = pa.table({"k": range(150), "y": pick(random, right, 150), "z": pick(random, right, 150)})
    stream = pa.table({"n": range(40), "x": pick(random, left, 40), "u": pick(random, left, 40), "k": range(40)})
    for condition in (
        hr.between("x", "y", "z", inclusive=inclusive),
        hr.between("x", "y", "z", inclusive=inclusive, open_ends=True),
        hr.between("y", "x", "u", of="right", inclusive=inclusive),
        hr.all_of(hr.equal("x", "y"), hr.compare("u", ">=", "z"), hr.compare("n", "<", "k")),
    ):
        checked(tmp_path, random, stream, rows, condition, random.choice(HOWS))
        checked(tmp_path, random, stream, rows, condition, random.choice(HOWS), on="k")


def test_differential_texts_are_ordered_as_duckdb_orders_them(tmp_path):
    """DuckDB compares UTF-8 byte by byte, as Spark does."""
    random = Random(4)
    sales = pa.table({"n": range(300), "x": random_texts(random, 300)})
    ranges = pa.table({"k": range(400), "y": random_texts(random, 400), "z": random_texts(random, 400)})
    op = MeshJoin(
        relation_of(tmp_path, ranges), memory="1MiB", condition=hr.between("x", "y", "z"), columns=["k"], w=50, b=1
    )
    wanted = duckdb.sql("SELECT n, x, k FROM sales, ranges WHERE x BETWEEN y AND z").fetchall()
    assert joined(op, sales, 70) == Counter(map(repr, wanted)) and len(wanted) > 1000


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("seed", range(3))
def test_oracle_similar_texts(tmp_path, how, seed):
    random = Random(f"{how} {seed}")
    texts = random_texts(random, 240)
    rows = pa.table({"k": [i % 30 for i in range(180)], "t": texts[:180]})
    stream = pa.table({"n": range(60), "s": texts[180:], "k": [random.randrange(35) for _ in range(60)]})
    for condition in (
        hr.edit_distance("s", "t", at_most=seed),
        hr.jaccard("s", "t", at_least=[0.3, 0.6, 1.0][seed], q=3 - seed),
        hr.all_of(
            hr.edit_distance("s", "t", at_most=3), hr.compare("s", "<", "t"), hr.jaccard("s", "t", at_least=0.2, q=1)
        ),
    ):
        assert checked(tmp_path, random, stream, rows, condition, how)
        checked(tmp_path, random, stream, rows, condition, how, on="k")


def test_differential_similar_texts_beside_duckdb(tmp_path):
    """DuckDB's levenshtein counts bytes, and its jaccard is of single characters and refuses empty texts: ASCII for both."""
    random = Random(8)
    texts = [(t and t.encode("ascii", "ignore").decode()) or None for t in random_texts(random, 900)]
    stream, rows = pa.table({"n": range(400), "s": texts[:400]}), pa.table({"k": range(500), "t": texts[400:]})
    relation = relation_of(tmp_path, rows)
    for condition, sql in (
        (hr.edit_distance("s", "t", at_most=2), "levenshtein(s, t) <= 2"),
        (hr.jaccard("s", "t", at_least=0.75, q=1), "jaccard(s, t) >= 0.75"),
    ):
        wanted = duckdb.sql(f"SELECT n, s, k, t FROM stream, rows WHERE {sql}").fetchall()
        op = MeshJoin(relation, memory="2MiB", condition=condition)
        assert joined(op, stream, 150) == Counter(map(repr, wanted)) and len(wanted) > 1000


def test_edits_are_of_code_points(tmp_path):
    relation = relation_of(tmp_path, pa.table({"k": [1, 2, 3], "t": ["naïve", "👍👍", ""]}))
    stream = pa.table({"s": ["naive", "👍", "", "x", None]})
    op = MeshJoin(relation, memory="1MiB", condition=hr.edit_distance("s", "t", at_most=1), columns=["k"])
    pairs = [("naive", 1), ("👍", 2), ("👍", 3), ("", 3), ("x", 3)]
    assert joined(op, stream, 2) == Counter(map(repr, pairs))


def test_few_pairs_are_compared_text_by_text(tmp_path):
    """Lengths and signatures pass over nearly all of a million pairs before a text is looked at."""
    rng = np.random.default_rng(1)
    names = ["".join(map(chr, rng.integers(97, 123, rng.integers(8, 25)))) for _ in range(1000)]
    stream = pa.table({"s": [name[:4] + "x" + name[5:] for name in names]})
    relation = relation_of(tmp_path, pa.table({"k": range(1000), "t": names}))
    seen: list[int] = []

    def noted(left: pa.RecordBatch, right: pa.RecordBatch) -> Any:
        seen.append(left.num_rows)
        return np.ones(left.num_rows, np.bool_)

    near = hr.all_of(hr.edit_distance("s", "t", at_most=1), hr.predicate(noted, "s", right="t"))
    op = MeshJoin(relation, memory="4MiB", condition=near, columns=["k"])
    tested = op._H.matching._tests[0]  # private: what is compared text by text is counted nowhere
    keep = tested.keep
    compared: list[int] = []
    tested.keep = lambda left, right: compared.append(left.num_rows) or keep(left, right)
    out = pa.Table.from_batches(op.run(stream.to_batches()))
    assert out.num_rows == sum(seen) >= 1000
    assert sum(compared) < 5_000


# -- a function of the user ------------------------------------------------------------------------------------------------


def rhymes(left: pa.RecordBatch, right: pa.RecordBatch) -> pa.Array:
    """The last code points are equal; unknown where one of them is null."""
    return pc.equal(pc.utf8_slice_codeunits(left["s"], -1), pc.utf8_slice_codeunits(right["t"], -1))


def same_parity(left: pa.RecordBatch, right: pa.RecordBatch) -> np.ndarray:
    return (np.asarray(left["n"]) + np.asarray(right["k"])) % 2 == 0


@pytest.mark.parametrize("how", HOWS)
def test_oracle_a_function_of_the_user(tmp_path, how):
    random = Random(how)
    rows = pa.table({"k": [i % 40 for i in range(150)], "t": random_texts(random, 150)})
    stream = pa.table({"n": range(50), "s": random_texts(random, 50)})
    own = hr.predicate(rhymes, "s", right="t")
    both = hr.all_of(own, hr.predicate(same_parity, ["n"], right=["k"]), hr.compare("s", "<=", "t"))
    for condition in (own, both):
        assert checked(tmp_path, random, stream, rows, condition, how)
        checked(tmp_path, random, stream, rows, condition, how, on={"n": "k"})


def test_a_function_sees_bounded_batches_of_the_pairs_that_others_leave(tmp_path):
    relation = relation_of(tmp_path, pa.table({"k": range(3000), "t": ["some text of a row"] * 3000}))
    stream = pa.table({"n": range(300), "s": ["a text of the stream"] * 300})
    seen: list[tuple[int, list[str], bool]] = []

    def first(left: pa.RecordBatch, right: pa.RecordBatch) -> pa.Array:
        near = pc.all(pc.less_equal(pc.abs(pc.subtract(left["n"], right["k"])), 500)).as_py()
        seen.append((left.num_rows, left.schema.names + right.schema.names, near))
        return pc.equal(left["n"], right["k"])

    condition = hr.all_of(hr.band("n", "k", below=500, above=500), hr.predicate(first, ["n", "s"], right=["k", "t"]))
    op = MeshJoin(relation, memory="512KiB", condition=condition)
    out = pa.Table.from_batches(op.run(stream.to_batches()))
    assert sorted(out["k"].to_pylist()) == list(range(300))
    assert all(names == ["n", "s", "k", "t"] and near for _, names, near in seen)
    assert max(rows for rows, _, _ in seen) * 50 < 512 * 1024 / 4 and op.budget.peak <= op.budget.limit


@pytest.mark.parametrize(
    ("fn", "says", "error"),
    [
        (
            lambda a, b: pa.array([True]),
            "returned 1 values; expected an Arrow or NumPy array of 6 booleans, one",
            BadInput,
        ),
        (lambda a, b: a["s"], "returned values of type string; expected", BadInput),
        (lambda a, b: np.zeros(a.num_rows), "returned values of type float64; expected", BadInput),
        (lambda a, b: True, "returned True of type bool; expected", BadInput),
        (lambda a, b: a["nope"], "failed on 6 pairs of s and t: KeyError: .*nope", OutsideFailure),
    ],
)
def test_what_a_function_must_not_answer(tmp_path, fn, says, error):
    relation = relation_of(tmp_path, pa.table({"k": [1, 2, 3], "t": ["a", "b", "c"]}))
    stream = pa.record_batch({"s": ["a", "b"]})
    op = MeshJoin(relation, memory="1MiB", condition=hr.predicate(fn, "s", right="t"))
    with pytest.raises(error, match=f"the predicate .*<lambda> {says}"):
        list(op.run([stream]))


# -- what is refused --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: hr.edit_distance("a", at_most=-1),
            "at_most=-1 is not a number of edits; give a whole number of 0 or more",
        ),
        (lambda: hr.edit_distance("a", at_most=1.5), "at_most=1.5 is not a number of edits"),
        (lambda: hr.jaccard("a", at_least=0), "at_least=0 is not a similarity above 0 and at most 1"),
        (lambda: hr.jaccard("a", at_least=1.1), "at_least=1.1 is not a similarity"),
        (lambda: hr.jaccard("a", at_least="much"), "at_least='much' is not a similarity"),
        (lambda: hr.jaccard("a", at_least=0.5, q=4), "q=4 is not a length of grams; give 1 to 3 code points"),
        (lambda: hr.predicate("fn", "a"), "fn='fn' is not a function of two record batches"),
        (lambda: hr.predicate(rhymes, []), "the left side names no column"),
    ],
)
def test_what_conditions_on_texts_cannot_be(make, says):
    with pytest.raises(BadInput, match=says):
        make()


def test_what_texts_cannot_be_compared_with_is_refused_by_name(tmp_path):
    relation = relation_of(tmp_path, pa.table({"k": [1], "t": ["a"], "b": pa.array([b"a"])}))

    def refuses(condition, says, error=BadInput, **stream):
        with pytest.raises(error, match=says):
            MeshJoin(relation, condition=condition).output_schema(pa.schema(stream))

    refuses(
        hr.compare("x", "<", "t"),
        "stream column 'x' of type int64 and relation column 't' of type string",
        x=pa.int64(),
    )
    refuses(
        hr.compare("x", "<", "k"),
        "stream column 'x' of type string and relation column 'k' of type int64",
        x=pa.string(),
    )
    refuses(hr.compare("x", "<", "t"), "'x' of type binary and relation column 't' of type string", x=pa.binary())
    refuses(
        hr.band("x", "t", below=0, above=0), "column 't' has type string, and a band is of numbers", UnsupportedType
    )
    near = hr.edit_distance("x", "k", at_most=1)
    refuses(
        near, "relation column 'k' has type int64, and EditDistance.* compares texts", UnsupportedType, x=pa.string()
    )
    refuses(hr.jaccard("x", "b", at_least=0.5), "relation column 'b' has type binary, and Jaccard", UnsupportedType)
    refuses(
        hr.jaccard("x", "t", at_least=0.5),
        "stream column 'x' has type int64, and Jaccard",
        UnsupportedType,
        x=pa.int64(),
    )
    refuses(hr.predicate(rhymes, "x", right="nope"), "names 'nope' of the relation, which has no such column")
    refuses(hr.predicate(rhymes, "s", right="t"), "names 's' of the stream, which has no such column", x=pa.int64())


@pytest.mark.parametrize("operator", [MeshJoin, AMeshJoin, RMeshJoin])
def test_budget_of_texts_that_lead(tmp_path, operator):
    """The sorted copy of long texts is counted, and pairs of long texts are tested a few at a time."""
    rows = pa.table({"k": range(400), "t": [f"{i:03} " + "x" * 300 for i in range(400)]})
    stream = pa.table({"n": range(500), "s": [f"{i:03} " + "x" * 300 for i in range(500)]})
    relation = relation_of(tmp_path, rows)
    for condition, count in (
        (hr.between("s", "t", "t2"), 400),
        (hr.edit_distance("s", "t", at_most=1), None),
    ):
        if isinstance(condition, hr.conditions.Between):
            relation = relation_of(tmp_path, rows.append_column("t2", rows["t"]))
        op = operator(relation, memory="1MiB", condition=condition, columns=["k"])
        got = joined(op, stream, 100)
        if count is not None:
            assert sum(got.values()) == count


@pytest.mark.parametrize("seed", range(12))
def test_oracle_conditional_join_of_texts(tmp_path, seed):
    random = Random(seed)
    rows = pa.table({"k": [i % 12 for i in range(200)], "t": random_texts(random, 200), "u": random_texts(random, 200)})
    stream = pa.table({"k": [random.randrange(14) for _ in range(60)], "s": random_texts(random, 60)})
    condition = [
        hr.edit_distance("s", "t", at_most=2),
        hr.jaccard("s", "t", at_least=0.4, q=2),
        hr.between("s", "t", "u", open_ends=True),
        hr.predicate(rhymes, "s", right="t"),
        hr.equal("s", "t"),
        hr.all_of(hr.compare("s", "!=", "t"), hr.compare("k", "<=", "k"), hr.predicate(rhymes, "s", right="t")),
    ][seed % 6]
    how, order = random.choice(HOWS), random.choice(["any", "stream"])
    op = ConditionalJoin(relation_of(tmp_path, rows), "k", "512KiB", how=how, condition=condition, order=order)
    assert joined(op, stream, random.choice([7, 100])) == expected(stream, rows, condition, how, ["t", "u"], "k")
