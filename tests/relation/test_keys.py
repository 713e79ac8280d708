"""Lookups and scans for every type a key can have, against brute force."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from tests.support.relation_oracle import FEW, by_key, check_same, in_order, names_of, rows

DAY = dt.date(2024, 2, 29)
NOON = dt.datetime(2024, 2, 29, 12)
LATER = dt.datetime(2024, 3, 1)
WIDE = Decimal("123456789012345678901234567890123.00001")

# Each: the type, keys that occur, in the order of the type, and one that does not.
KEYS = {
    "int8": (pa.int8(), [-128, -1, 0, 1, 127], 5),
    "int16": (pa.int16(), [-(2**15), -1, 0, 300, 2**15 - 1], 5),
    "int32": (pa.int32(), [-(2**31), -1, 0, 70_000, 2**31 - 1], 5),
    "int64": (pa.int64(), [-(2**63), -(2**40), 0, 1, 2**63 - 1], 5),
    "string": (pa.string(), ["", "\0", "a", "a\0", "aaaaaaaa", "aaaaaaaab", "é", "\U0001f600"], "b"),
    "binary": (pa.binary(), [b"", b"\0", b"\0\0", b"a" * 8, b"a" * 9, b"\x7f", b"\xff"], b"\x80"),
    "date": (pa.date32(), [dt.date.min, dt.date(1969, 12, 31), DAY, dt.date.max], dt.date(2000, 1, 1)),
    "timestamp s": (pa.timestamp("s"), [dt.datetime.min, dt.datetime(1969, 1, 1), NOON], LATER),
    "timestamp us": (pa.timestamp("us"), [dt.datetime.min, NOON, dt.datetime.max], LATER),
    "timestamp ns": (pa.timestamp("ns"), [dt.datetime(1700, 1, 1), NOON], LATER),
    "timestamp zone": (
        pa.timestamp("us", "America/New_York"),
        [dt.datetime(1960, 1, 1, tzinfo=dt.UTC), NOON.replace(tzinfo=dt.UTC)],
        LATER.replace(tzinfo=dt.UTC),
    ),
    "decimal": (
        pa.decimal128(10, 2),
        [Decimal("-99999999.99"), Decimal("-0.01"), Decimal("0.00"), Decimal("99999999.99")],
        Decimal("0.01"),
    ),
    "decimal of 18": (
        pa.decimal128(18, 0),
        [Decimal(-(10**18) + 1), Decimal(0), Decimal(10**18 - 1)],
        Decimal(1),
    ),
    "decimal of 19": (
        pa.decimal128(19, 0),
        [Decimal(-(10**19) + 1), Decimal(0), Decimal(10**19 - 1)],
        Decimal(1),
    ),
    "decimal wide": (
        pa.decimal128(38, 5),
        [-WIDE, Decimal("-0.00001"), Decimal("0.00000"), Decimal("0.00001"), WIDE],
        Decimal("1.00000"),
    ),
}


def relation_of(tmp_path, types, present, seed, **options):
    """Every key once, some several times, one often enough to fill pages; unsorted."""
    rng = np.random.default_rng(seed)
    at = [*range(len(present)), *rng.integers(0, len(present), 300).tolist(), *[1] * 300]
    at = rng.permutation(at).tolist()
    names = [f"k{i}" for i in range(len(types))]
    columns = {name: pa.array([present[i][j] for i in at], types[j]) for j, name in enumerate(names)}
    table = pa.table({"v": pa.array(range(len(at))), **columns, "pad": ["p" * (i % 40) for i in range(len(at))]})
    rel = hr.Relation.create(tmp_path / "r", table, key=names, page_size=4096, **options)
    return rel, table


def check_lookups(rel, table, types, present, absent):
    names = names_of(rel)
    held = by_key(table, rel.key, names)
    asked = [absent, *present, absent, present[0], (None,) * len(types), present[-1]]
    keys = pa.table({name: pa.array([k[j] for k in asked], types[j]) for j, name in enumerate(rel.key)})
    expected = [row for key in dict.fromkeys(rows(keys)) for row in held.get(key, [])]
    assert len(expected) == table.num_rows
    assert rows(rel.lookup(keys)) == expected
    for one in range(keys.num_rows):
        single = keys.slice(one, 1)
        assert rows(rel.lookup(single)) == held.get(rows(single)[0], [])


def check_scan(rel, table, present):
    """Shards one after the other, each in key order and, for one key, in order of arrival."""
    order = {key: i for i, key in enumerate(present)}
    arrived = {v: i for i, v in enumerate(table["v"].to_pylist())}
    places = []
    for batch in rel.scan():
        keys, _ = rel.codec.encode([batch.column(name) for name in rel.key])
        shard = rel.opened.shards_of(keys.hashes()).tolist()
        key = zip(*(batch.column(name).to_pylist() for name in rel.key), strict=True)
        places += [(s, order[k], arrived[v]) for s, k, v in zip(shard, key, batch.column("v").to_pylist(), strict=True)]
    assert len(places) == table.num_rows
    assert in_order(places)


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("kind", KEYS)
def test_oracle_one_key_column(kind, shards, tmp_path):
    type_, present, absent = KEYS[kind]
    present = [(key,) for key in present]
    rel, table = relation_of(tmp_path, [type_], present, 1, shards=shards)
    check_same(rel, table)
    check_lookups(rel, table, [type_], present, (absent,))
    check_scan(rel, table, present)


@pytest.mark.parametrize(
    "kinds",
    [
        ("int32", "string"),
        ("string", "int8"),
        ("string", "string"),
        ("binary", "decimal wide"),
        ("decimal wide", "date"),
        ("decimal", "timestamp us", "string"),
        ("int64", "int64", "int64"),
    ],
    ids=" + ".join,
)
def test_oracle_composite_keys(kinds, tmp_path):
    """All combinations: equal first parts, equal last parts, and parts that could run together."""
    types = [KEYS[kind][0] for kind in kinds]
    present = [()]
    for kind in kinds:
        present = [(*some, key) for some in present for key in KEYS[kind][1][:4]]
    absent = (*present[0][:-1], KEYS[kinds[-1]][2])
    rel, table = relation_of(tmp_path, types, present, 2, shards=2)
    check_same(rel, table)
    check_lookups(rel, table, types, present, absent)
    check_scan(rel, table, present)


def test_a_null_in_any_part_of_a_composite_key_matches_nothing(tmp_path):
    table = pa.table({"a": [0, 0, 1], "b": ["", "x", ""], "v": [1, 2, 3]})
    rel = hr.Relation.create(tmp_path / "r", table, key=["a", "b"])
    asked = pa.table({"a": pa.array([None, 0, None, 0]), "b": pa.array(["", None, None, "x"], pa.string())})
    assert rel.lookup(asked).to_pylist() == [{"a": 0, "b": "x", "v": 2}]


@pytest.mark.parametrize(
    ("stored", "given"),
    [
        (pa.int8(), pa.int64()),
        (pa.int64(), pa.int8()),
        (pa.int32(), pa.uint32()),
        (pa.int16(), pa.uint8()),
    ],
)
def test_integers_of_other_widths_are_compared_by_value(stored, given, tmp_path):
    rel = hr.Relation.create(tmp_path / "r", pa.table({"k": pa.array([0, 1, 44], stored)}), key="k")
    plain = pa.array([44, 1, 7], given)
    for keys in (plain, plain.dictionary_encode(), pa.array([0, 0, 0, 44, 1, 7, 0], given).slice(3, 3)):
        assert rel.lookup(keys).to_pylist() == [{"k": 44}, {"k": 1}]


def test_an_integer_outside_the_keys_type_is_simply_absent(tmp_path):
    rel = hr.Relation.create(tmp_path / "r", pa.table({"k": pa.array([44, -1], pa.int8())}), key="k")
    assert rel.lookup(pa.array([44 + 256, 2**40 - 1, 2**32 - 1])).num_rows == 0


@pytest.mark.parametrize(
    "keys",
    [
        pa.array(["b", "x", None], pa.large_string()),
        pa.array(["b", "x", None], pa.string_view()),
        pa.array(["b", "x", None]).dictionary_encode(),
        pa.chunked_array([["b"], [], ["x", None]], pa.string()),
        pa.array(["zz", "b", "x", None, "q"]).slice(1, 3),
        ["b", "x", None],
        ("b", "x", None),
        pa.table({"other": [1, 2, 3], "k": ["b", "x", None]}),
        pa.record_batch({"k": ["b", "x", None]}),
    ],
    ids=["large", "view", "dictionary", "chunked", "sliced", "list", "tuple", "table", "batch"],
)
def test_keys_in_any_arrow_form(keys, tmp_path):
    rel = hr.Relation.create(tmp_path / "r", pa.table({"k": ["b", "a"], "v": [1, 2]}), key="k")
    assert rel.lookup(keys).to_pylist() == [{"k": "b", "v": 1}]


@pytest.mark.parametrize(
    ("key", "asked"),
    [
        (pa.array([1]), pa.array(["1"])),
        (pa.array([1]), pa.array([1.0])),
        (pa.array([1]), pa.array([1], pa.uint64())),
        (pa.array(["a"]), pa.array([1])),
        (pa.array(["a"]), pa.array([b"a"])),
        (pa.array([DAY]), pa.array([NOON])),
        (pa.array([NOON], pa.timestamp("us")), pa.array([NOON], pa.timestamp("us", "UTC"))),
        (pa.array([NOON], pa.timestamp("us")), pa.array([NOON], pa.timestamp("ns"))),
        (pa.array([Decimal("1.00")], pa.decimal128(10, 2)), pa.array([Decimal("1.000")], pa.decimal128(10, 3))),
    ],
    ids=lambda a: str(a.type),
)
def test_keys_of_another_type_are_refused_naming_both(key, asked, tmp_path):
    rel = hr.Relation.create(tmp_path / "r", pa.table({"k": key}), key="k")
    with pytest.raises(hr.BadInput) as caught:
        rel.lookup(asked)
    for word in ("'k'", str(key.type), str(asked.type)):
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "keys",
    [["x"], [1.5], [True], [2**70], [dt.date(2024, 1, 1)], 5, None],
    ids=["text", "fraction", "bool", "too large", "date", "number", "None"],
)
def test_keys_that_are_no_keys_are_refused(keys, tmp_path):
    rel = hr.Relation.create(tmp_path / "r", pa.table({"k": [1, 2]}), key="k")
    with pytest.raises(hr.BadInput, match="'k'"):
        rel.lookup(keys)


def test_keys_in_a_pandas_frame_are_answered_or_refused_in_our_own_words(tmp_path):
    rel = hr.Relation.create(tmp_path / "r", pa.table({"k": [1, 2]}), key="k")
    try:
        found = rel.lookup(pd.DataFrame({"k": [1]}))
    except hr.BadInput:
        return
    assert found.to_pylist() == [{"k": 1}]


def test_a_time_of_day_does_not_match_a_date(tmp_path):
    """The list is of another type than the key; cutting the time off would invent a match."""
    rel = hr.Relation.create(tmp_path / "r", pa.table({"k": [DAY]}), key="k")
    with pytest.raises(hr.BadInput, match="'k'"):
        rel.lookup([NOON])
    assert rel.lookup([DAY]).num_rows == 1


@pytest.mark.parametrize("between", [0, 70_000, 200_000])
def test_a_key_given_twice_is_answered_once(between, tmp_path):
    """However far apart: lookups work through many keys in pieces."""
    rel = hr.Relation.create(tmp_path / "r", pa.table({"k": [3, 3, 5]}), key="k")
    keys = pa.concat_arrays([pa.array([3]), pa.array(np.full(between, 9)), pa.array([5, 3])])
    assert rel.lookup(keys)["k"].to_pylist() == [3, 3, 5]


def test_a_relation_opened_by_a_relative_path(tmp_path, monkeypatch):
    table = pa.table({"k": [1, 2]})
    hr.Relation.create(tmp_path / "r", table, key="k").close()
    monkeypatch.chdir(tmp_path)
    rel = hr.Relation.open("r")
    monkeypatch.chdir("/")
    check_same(rel, table)
    assert rel.apply(deletes=[1]) == 2


def test_a_composite_key_is_asked_for_with_all_its_columns(tmp_path):
    rel = hr.Relation.create(tmp_path / "r", pa.table({"a": [1], "b": [2]}), key=["a", "b"])
    with pytest.raises(hr.BadInput, match="2 columns \\(a, b\\)"):
        rel.lookup([1])
    with pytest.raises(hr.BadInput, match="no column 'b'"):
        rel.lookup(pa.table({"a": [1]}))


def test_wider_timestamps_than_the_keys_unit_can_say(tmp_path):
    """The year 3000 does not fit nanoseconds: such a key is absent, or refused in our own words."""
    far = pa.array([dt.datetime(3000, 1, 1), NOON], pa.timestamp("s"))
    rel = hr.Relation.create(tmp_path / "r", pa.table({"k": far.slice(1).cast(pa.timestamp("ns"))}), key="k")
    try:
        found = rel.lookup(far)
    except hr.BadInput:
        return
    assert found.num_rows == 1


def test_columns_choose_the_payload(tmp_path):
    table = pa.table({"k": [1, 2], "a": ["x", "y"], "b": [True, False]})
    rel = hr.Relation.create(tmp_path / "r", table, key="k")
    assert rel.lookup([2], columns=["b"]).to_pylist() == [{"k": 2, "b": False}]
    assert rel.lookup([2], columns=["b", "a", "b"]).schema.names == ["k", "b", "a"]
    assert rel.lookup([2], columns=["k"]).to_pylist() == [{"k": 2}]
    assert rel.lookup([9], columns=[]).to_pylist() == []
    assert {tuple(b.schema.names) for b in rel.scan(columns=["a"])} == {("k", "a")}
    with pytest.raises(hr.BadInput, match="'nope'"):
        rel.lookup([2], columns=["nope"])


@given(
    st.lists(st.tuples(st.integers(-4, 4), st.text(st.sampled_from("\0ab"), max_size=3)), max_size=80),
    st.lists(st.one_of(st.none(), st.integers(-6, 6)), max_size=10),
    st.lists(st.one_of(st.none(), st.text(st.sampled_from("\0ab"), max_size=3)), max_size=10),
    st.integers(1, 3),
)
@FEW
def test_oracle_tiny_domains(ram_path_factory, data, numbers, texts, shards):
    root = ram_path_factory.mktemp("tiny")
    table = pa.table(
        {
            "i": pa.array([i for i, _ in data], pa.int16()),
            "s": pa.array([s for _, s in data], pa.string()),
            "v": pa.array(["v" * (7 * n % 200) for n in range(len(data))], pa.string()),
        }
    )
    numbers = pa.array(numbers, pa.int16())
    texts = pa.array(texts, pa.string())
    n = min(len(numbers), len(texts))
    both = pa.table({"i": numbers.slice(0, n), "s": texts.slice(0, n)})
    for number, (key, asked) in enumerate(
        [(["i"], pa.table({"i": numbers})), (["s"], pa.table({"s": texts})), (["s", "i"], both)]
    ):
        path = root / str(number)
        with hr.Relation.create(path, table, key=key, shards=shards, page_size=4096, fill=0.1) as rel:
            check_same(rel, table)
            held = by_key(table, key, names_of(rel))
            expected = [r for k in dict.fromkeys(rows(asked.select(key))) for r in held.get(k, [])]
            assert rows(rel.lookup(asked)) == expected


def test_many_keys_at_once_and_rows_on_large_pages(tmp_path):
    """What a lookup sets aside must follow what it finds, not rows times the size of a page."""
    n = 100_000
    table = pa.table({"k": range(n), "v": ["x"] * n})
    rel = hr.Relation.create(tmp_path / "r", table, key="k", page_size="1MiB")
    found = rel.lookup(list(range(n - 1, -1, -1)))
    assert found["k"].to_pylist() == list(range(n - 1, -1, -1))
    assert found["v"].to_pylist() == ["x"] * n
