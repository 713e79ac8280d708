import json
from dataclasses import fields

import pytest

from headrace.errors import HeadraceError
from headrace.metrics import JoinStats


def some() -> JoinStats:
    return JoinStats(
        tuples_in=10,
        nulls=1,
        hits=5,
        absent=1,
        misses=3,
        matched=8,
        unmatched=2,
        results=9,
        io_seconds=0.5,
        memory={"index": 10},
        memory_limit=100,
        memory_peak=40,
        left_out={"filter": "needs 2MiB"},
    )


def test_ratio():
    assert some().hit_ratio == 0.5
    assert JoinStats().hit_ratio == 0.0


def test_books_that_balance():
    JoinStats().check()
    some().check()


def test_a_tuple_served_twice_is_found():
    stats = some()
    stats.hits += 1
    with pytest.raises(HeadraceError, match=r"10 tuples in, but 1 nulls . 6 hits"):
        stats.check()


def test_a_tuple_that_did_not_leave_is_found():
    stats = some()
    stats.unmatched -= 1
    with pytest.raises(HeadraceError, match=r"8 matched . 1 unmatched = 9"):
        stats.check()


def test_sum_adds_every_counter():
    numbers = {f.name: i for i, f in enumerate(fields(JoinStats)) if f.type in ("int", "float")}
    total = JoinStats(**numbers) + JoinStats(**numbers)
    twice = {n: 2 * v for n, v in numbers.items()} | {n: numbers[n] for n in ("longest_wait", "longest_wait_batches")}
    assert {name: getattr(total, name) for name in numbers} == twice


def test_sum_merges_parts_and_leaves_its_terms_alone():
    a, b = some(), JoinStats(memory={"index": 1, "queue": 2}, left_out={"sketch": "no room"})
    total = a + b
    assert total.memory == {"index": 11, "queue": 2}
    assert total.left_out == {"filter": "needs 2MiB", "sketch": "no room"}
    assert a == some()
    total.check()


def test_as_dict_is_a_copy_that_json_takes():
    stats = some()
    found = stats.as_dict()
    assert json.loads(json.dumps(found)) == found
    assert found["hits"] == 5
    assert found["hit_ratio"] == 0.5
    found["memory"]["index"] = 0
    assert stats.memory == {"index": 10}
