"""Surrogate keys without Spark: given out once, without gaps, whoever is killed."""

import shutil
import signal
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.errors import BadInput
from headrace.etl.allocate import Lookup, distinct, surrogates_of
from tests.support.killable_children import Children

SCHEMA = pa.schema([("source", pa.string()), ("id", pa.int64()), ("skey", pa.int64()), ("inferred", pa.bool_())])
MEANING = Lookup("skey", "inferred", 1)


@pytest.fixture(scope="module")
def children():
    some = Children()
    yield some
    some.close()


def lookup_at(path, *rows, shards=2) -> hr.Relation:
    table = pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA)
    return hr.Relation.create(path, table, key=["source", "id"], shards=shards)


def same_at(path, pairs) -> hr.Relation:
    columns = list(zip(*[(*a, *b) for a, b in pairs], strict=True)) or [[]] * 4
    types = [pa.string(), pa.int64()] * 2
    arrays = [pa.array(c, t) for c, t in zip(columns, types, strict=True)]
    return hr.Relation.create(
        path, pa.table(arrays, names=["source", "id", "same_source", "same_id"]), key=["source", "id"]
    )


def keys(*pairs) -> pa.Table:
    sources, ids = zip(*pairs, strict=True) if pairs else ((), ())
    return pa.table({"source": pa.array(sources, pa.string()), "id": pa.array(ids, pa.int64())})


def content(path) -> dict:
    with hr.Relation.open(path) as rel:
        rows = pa.Table.from_batches(rel.scan(), rel.schema).to_pylist()
    return {(r["source"], r["id"]): (r["skey"], r["inferred"]) for r in rows}


def given_out(lookup, *pairs, same=None) -> list[int]:
    return surrogates_of(keys(*pairs), lookup, MEANING, same).to_pylist()


def test_keys_never_seen_get_the_next_numbers_in_the_order_they_come(tmp_path):
    with lookup_at(tmp_path / "r", ("a", 1, 7, False)) as lookup:
        assert given_out(lookup, ("b", 1), ("a", 1), ("a", 5), ("b", 1), ("a", 2)) == [8, 7, 9, 8, 10]
        assert given_out(lookup, ("a", 2), ("b", 1)) == [10, 8]  # the handle is of the version before
    assert content(tmp_path / "r") == {
        ("a", 1): (7, False),
        ("b", 1): (8, True),
        ("a", 5): (9, True),
        ("a", 2): (10, True),
    }


def test_nothing_new_makes_no_version(tmp_path):
    with lookup_at(tmp_path / "r", ("a", 1, 7, False)) as lookup:
        assert given_out(lookup, ("a", 1)) == [7]
        assert given_out(lookup) == []
        assert lookup.refresh().version == 1
        given_out(lookup, ("a", 3), ("a", 4))
        assert lookup.refresh().version == 2


def test_the_highest_number_is_that_of_every_writer(tmp_path):
    """A dimension load may bring numbers of its own, and take rows away: no number is given out twice."""
    with lookup_at(tmp_path / "r") as lookup:
        assert given_out(lookup, ("a", 1)) == [1]
        lookup.apply(pa.Table.from_pylist([{"source": "x", "id": 9, "skey": 40, "inferred": False}], schema=SCHEMA))
        assert given_out(lookup, ("a", 2)) == [41]
        lookup.apply(deletes=keys(("a", 2), ("x", 9)))
        lookup.compact()
        assert given_out(lookup, ("a", 3)) == [42]


def test_a_dimension_load_completes_an_inferred_member(tmp_path):
    with lookup_at(tmp_path / "r") as lookup:
        given_out(lookup, ("a", 1))
        lookup.apply(pa.Table.from_pylist([{"source": "a", "id": 1, "skey": 1, "inferred": False}], schema=SCHEMA))
        assert given_out(lookup, ("a", 1), ("a", 2)) == [1, 2]
    assert content(tmp_path / "r") == {("a", 1): (1, False), ("a", 2): (2, True)}


def test_two_sources_that_name_one_thing_share_a_number(tmp_path):
    same = same_at(tmp_path / "same", [(("b", 1), ("a", 2)), (("c", 7), ("b", 1)), (("b", 5), ("a", 6))])
    with lookup_at(tmp_path / "r", ("a", 2, 30, False)) as lookup:
        got = given_out(lookup, ("c", 7), ("b", 1), ("b", 5), ("b", 6), same=same)
        assert got == [30, 30, 31, 32]
        assert given_out(lookup, ("a", 6), same=same) == [31]  # what b/5 stands for came later
    assert content(tmp_path / "r") == {
        ("a", 2): (30, False),
        ("c", 7): (30, False),
        ("b", 1): (30, False),
        ("b", 5): (31, True),
        ("a", 6): (31, True),
        ("b", 6): (32, True),
    }


def test_a_mapping_may_give_the_number(tmp_path):
    table = pa.table({"source": ["b"], "id": [1], "skey": pa.array([30], pa.int64())})
    same = hr.Relation.create(tmp_path / "same", table, key=["source", "id"])
    with lookup_at(tmp_path / "r", ("a", 2, 30, False)) as lookup:
        assert given_out(lookup, ("b", 1), ("b", 2), same=same) == [30, 31]
    assert content(tmp_path / "r")["b", 1] == (30, False)


def test_a_mapping_in_a_circle_is_refused_by_name(tmp_path):
    same = same_at(tmp_path / "same", [(("a", 1), ("b", 1)), (("b", 1), ("a", 1))])
    with lookup_at(tmp_path / "r") as lookup, pytest.raises(BadInput, match=r"key \('(a|b)', 1\) on and on"):
        given_out(lookup, ("a", 1), same=same)
    assert content(tmp_path / "r") == {}


def test_a_type_too_narrow_is_refused_before_anything_is_given_out(tmp_path):
    table = pa.table({"id": [1], "skey": pa.array([2**31 - 2], pa.int32())})
    with hr.Relation.create(tmp_path / "r", table, key="id") as lookup:
        meaning = Lookup("skey", None, 1)
        assert surrogates_of(pa.table({"id": [5]}), lookup, meaning).to_pylist() == [2**31 - 1]
        with pytest.raises(BadInput, match="int32, and 2,147,483,648 does not fit"):
            surrogates_of(pa.table({"id": [6]}), lookup, meaning)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32))
def test_oracle_any_batches_and_mappings(ram_path_factory, seed):
    """Against a dictionary that is filled key by key."""
    random, root = Random(seed), ram_path_factory.mktemp("r")
    pool = [(s, i) for s in "ab" for i in range(6)]
    order = random.sample(pool, len(pool))
    pairs = {
        k: order[i + 1 + random.randrange(len(order) - i - 1)]
        for i, k in enumerate(order[:-1])
        if random.random() < 0.4
    }
    same = same_at(root / "same", list(pairs.items())) if random.random() < 0.7 else None
    known = {k: 100 + i for i, k in enumerate(random.sample(pool, random.randrange(4)))}
    lookup = lookup_at(root / "r", *((*k, n, False) for k, n in known.items()), shards=random.choice([1, 2]))
    expected, last = dict(known), max(known.values(), default=0)
    for _ in range(3):
        asked = [random.choice(pool) for _ in range(random.randrange(8))]
        for k in dict.fromkeys(asked):
            if k in expected:
                continue
            meant = k
            while same is not None and meant in pairs:
                meant = pairs[meant]
            if meant not in expected:
                last += 1
                expected[meant] = last
            expected[k] = expected[meant]
        assert given_out(lookup, *asked, same=same) == [expected[k] for k in asked], seed
    lookup.close()
    assert {k: n for k, (n, _) in content(root / "r").items()} == expected, seed


def test_distinct_keys_in_the_order_they_come(tmp_path):
    with lookup_at(tmp_path / "r") as lookup:
        which, first = distinct(keys(("b", 2), ("a", 9), ("b", 2), ("a", 1), ("a", 9)), lookup.codec)
    assert (which.tolist(), first.tolist()) == ([0, 1, 0, 2, 1], [0, 1, 3])


def test_killed_at_every_step_gives_out_nothing_or_everything(children, ram_path):
    lookup_at(ram_path / "old", ("a", 1, 7, False)).close()
    shutil.copytree(ram_path / "old", ram_path / "whole")
    wanted = ["b", 1, "a", 1, "a", 5]
    calls = children.run("give_out", ram_path / "whole", wanted)
    assert calls["result"] == [8, 7, 9]
    nothing = everything = 0
    for at in range(len(calls["calls"])):
        root = ram_path / str(at)
        shutil.copytree(ram_path / "old", root)
        assert children.run("give_out", root, wanted, at=at)["signal"] == signal.SIGKILL
        there = {n for n, _ in content(root).values()}
        assert there in ({7}, {7, 8, 9}), calls["calls"][at]
        nothing, everything = nothing + (there == {7}), everything + (there != {7})
        # The replay finds them, or is given the same numbers; the next key gets the next one.
        assert children.run("give_out", root, wanted)["result"] == [8, 7, 9], calls["calls"][at]
        assert children.run("give_out", root, ["c", 1])["result"] == [10]
    assert nothing
    assert everything


def test_processes_at_the_same_time_agree_and_leave_no_gaps(children, tmp_path):
    lookup_at(tmp_path / "r").close()
    asked = [[x for i in range(p * 5, p * 5 + 10) for x in ("s", i)] for p in range(6)]
    pids = [children.start("give_out", tmp_path / "r", one) for one in asked]
    answers = [children.wait(pid) for pid in pids]
    found = {}
    for one, answer in zip(asked, answers, strict=True):
        assert answer["error"] is None
        for i, n in zip(one[1::2], answer["result"], strict=True):
            assert found.setdefault(i, n) == n
    assert sorted(found.values()) == list(range(1, 36))
