"""Every type that can be stored goes in and comes out bit for bit."""

import datetime as dt
import uuid
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.relation.columns import from_arrow, to_arrow
from tests.support.relation_oracle import FEW, check_same, names_of, rows, scanned, values

NAN_WITH_PAYLOAD = np.array([0x7FF800000000BEEF], np.uint64).view(np.float64)[0]
DAY = dt.date(2024, 2, 29)


def temporal(unit_type: pa.DataType, *numbers: int) -> pa.Array:
    """By their numbers, so that nanoseconds and the ends of the range are among them."""
    width = pa.int32() if unit_type.bit_width == 32 else pa.int64()
    return pa.array(numbers, width).view(unit_type)


END = 2**63 - 1
SAMPLES = {
    "bool": pa.array([True, False]),
    "int8": pa.array([-128, 0, 127], pa.int8()),
    "int16": pa.array([-(2**15), 0, 2**15 - 1], pa.int16()),
    "int32": pa.array([-(2**31), 0, 2**31 - 1], pa.int32()),
    "int64": pa.array([-(2**63), 0, END], pa.int64()),
    "uint8": pa.array([0, 255], pa.uint8()),
    "uint16": pa.array([0, 2**16 - 1], pa.uint16()),
    "uint32": pa.array([0, 2**32 - 1], pa.uint32()),
    "uint64": pa.array([0, 2**64 - 1], pa.uint64()),
    "float16": pa.array(np.array([0.5, -0.0, np.nan, np.inf], np.float16)),
    "float32": pa.array([0.1, -0.0, 0.0, float("nan"), float("-inf"), 1e-45], pa.float32()),
    "float64": pa.array([0.1, -0.0, 0.0, NAN_WITH_PAYLOAD, float("inf"), 5e-324], pa.float64()),
    "decimal small": pa.array([Decimal("-99999999.99"), Decimal("0.00")], pa.decimal128(10, 2)),
    "decimal wide": pa.array(
        [Decimal("9" * 33 + "." + "9" * 5), Decimal("-" + "9" * 33 + "." + "9" * 5)],
        pa.decimal128(38, 5),
    ),
    "decimal of no scale": pa.array([Decimal(10**38 - 1), Decimal(-1)], pa.decimal128(38, 0)),
    "string": pa.array(["", "a", "é\0ü", "x" * 300]),
    "binary": pa.array([b"", b"\0\xff", b"y" * 300]),
    "date32": pa.array([DAY, dt.date(1, 1, 1), dt.date(9999, 12, 31)], pa.date32()),
    "timestamp s": temporal(pa.timestamp("s"), -1, 0, 1709164800),
    "timestamp ms": temporal(pa.timestamp("ms"), -1, 0, 1709164800123),
    "timestamp us": temporal(pa.timestamp("us"), -1, 0, 1709164800123456),
    "timestamp us UTC": temporal(pa.timestamp("us", "UTC"), -1, 0, 1709164800123456),
    "time32 s": temporal(pa.time32("s"), 0, 86399),
    "time32 ms": temporal(pa.time32("ms"), 0, 86399999),
    "time64 us": temporal(pa.time64("us"), 0, 86399999999),
    "time64 ns": temporal(pa.time64("ns"), 0, 86399999999999),
    "duration s": temporal(pa.duration("s"), -1, END),
    "duration us": temporal(pa.duration("us"), -END, 0, 5),
    "interval": pa.array([pa.MonthDayNano([1, -2, 3]), pa.MonthDayNano([0, 0, -END])], pa.month_day_nano_interval()),
    "null": pa.nulls(3),
}
# stored as microseconds, if that is asked for
NANOSECONDS = {
    "timestamp": (temporal(pa.timestamp("ns"), -END, -1, 0, 1999, END), pa.timestamp("us")),
    "timestamp Berlin": (
        temporal(pa.timestamp("ns", "Europe/Berlin"), -1, 1709164800123456789),
        pa.timestamp("us", "Europe/Berlin"),
    ),
    "duration": (temporal(pa.duration("ns"), -END, 0, END), pa.duration("us")),
}
# stored in the plain form of the same values
RECODED = {
    "dictionary of string": (pa.array(["b", "", "b"]).dictionary_encode(), pa.string()),
    "dictionary of int": (pa.array([7, -7], pa.int16()).dictionary_encode(), pa.int16()),
    "dictionary with null inside": (
        pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array(["x", None])),
        pa.string(),
    ),
    "large_string": (pa.array(["", "é"], pa.large_string()), pa.string()),
    "string_view": (
        pa.array(["", "a string too long to be inlined"], pa.string_view()),
        pa.string(),
    ),
    "large_binary": (pa.array([b"", b"\0"], pa.large_binary()), pa.binary()),
    "binary_view": (pa.array([b"", b"\0" * 40], pa.binary_view()), pa.binary()),
    "fixed_size_binary": (pa.array([b"abc", b"\0\0\0"], pa.binary(3)), pa.binary()),
    "date64": (pa.array([DAY, dt.date(1969, 12, 31)], pa.date64()), pa.date32()),
    "decimal32": (pa.array([Decimal("1.5")], pa.decimal32(5, 1)), pa.decimal128(5, 1)),
    "decimal64": (pa.array([Decimal("-1.5")], pa.decimal64(15, 1)), pa.decimal128(15, 1)),
}


def spread(sample: pa.Array, n: int, seed: int, nulls: float = 0.25) -> pa.Array:
    """n values of a sample in random order, with some nulls."""
    if pa.types.is_string_view(sample.type) or pa.types.is_binary_view(sample.type):
        plain = sample.cast(RECODED[str(sample.type)][1])  # Arrow cannot take from a view
        return spread(plain, n, seed, nulls).cast(sample.type)
    rng = np.random.default_rng(seed)
    at = rng.integers(0, len(sample), n)
    return sample.take(pa.array(at, mask=rng.random(n) < nulls))


def keys(n: int, seed: int) -> pa.Array:
    """Unsorted, some several times."""
    return pa.array(np.random.default_rng(seed).integers(-n, n + 1, n), pa.int64())


@pytest.mark.parametrize("kind", SAMPLES)
def test_oracle_round_trip(kind, tmp_path):
    for number, (n, nulls) in enumerate([(0, 0), (1, 0), (1, 1), (700, 0), (700, 0.25), (700, 1)]):
        table = pa.table({"k": keys(n, 1), "v": spread(SAMPLES[kind], n, 2, nulls)})
        with hr.Relation.create(tmp_path / str(number), table, key="k", page_size=4096) as rel:
            assert rel.schema == table.schema
            check_same(rel, table)
            assert rel.lookup(table.select(["k"])).schema.field("v").type == SAMPLES[kind].type


@pytest.mark.parametrize("kind", SAMPLES)
def test_oracle_slices_and_chunks(kind, tmp_path):
    """Arrays that start in the middle of their buffers, by more and by less than a byte of validity."""
    whole = pa.table({"k": keys(400, 3), "v": spread(SAMPLES[kind], 400, 4)})
    table = pa.concat_tables([whole.slice(3, 90), whole.slice(131, 0), whole.slice(77, 200)])
    with hr.Relation.create(tmp_path / "r", table, key="k", page_size=4096, shards=3) as rel:
        check_same(rel, table)


@pytest.mark.parametrize("kind", SAMPLES)
def test_oracle_buffers_of_a_slice(kind):
    """To our form and back, from arrays that start anywhere in their buffers."""
    whole = spread(SAMPLES[kind], 100, 8)
    for start, n in [(0, 100), (1, 99), (8, 16), (13, 0), (99, 1), (37, 41)]:
        part = whole.slice(start, n)
        again = to_arrow(part.type, n, from_arrow(part))
        again.validate(full=True)
        assert again.type == part.type
        assert values(again) == values(part)


@pytest.mark.parametrize("kind", RECODED)
def test_oracle_other_encodings_are_stored_plain(kind, tmp_path):
    sample, plain = RECODED[kind]
    v = spread(sample, 300, 5)
    table = pa.table({"k": keys(300, 6), "v": v}).slice(11)
    with hr.Relation.create(tmp_path / "r", table, key="k", page_size=4096) as rel:
        assert rel.schema.field("v").type == plain
        check_same(rel, table.set_column(1, "v", table["v"].cast(plain)))


@pytest.mark.parametrize("kind", NANOSECONDS)
def test_nanoseconds_are_refused_or_stored_as_microseconds(kind, tmp_path):
    sample, stored = NANOSECONDS[kind]
    table = pa.table({"k": keys(300, 6), "v": spread(sample, 300, 5)})
    with pytest.raises(
        hr.UnsupportedType, match=r"column 'v' has type .*\[ns.*; pass nanoseconds='truncate' to Relation"
    ):
        hr.Relation.create(tmp_path / "r", table, key="k")
    assert not (tmp_path / "r").exists()
    cut = pc.divide(table["v"].cast(pa.int64(), safe=False), 1000).cast(stored)  # towards zero
    with hr.Relation.create(tmp_path / "r", table, key="k", page_size=4096, nanoseconds="truncate") as rel:
        assert rel.schema.field("v").type == stored
        check_same(rel, table.set_column(1, "v", cut))
        whole = pa.table({"k": [10**6], "v": pa.array([5000], pa.int64()).cast(sample.type)})
        rel.apply(upserts=whole)  # what loses nothing is taken
        with pytest.raises(hr.BadInput, match=r"column 'v' of type .*\[ns.* does not fit .*\[us.*would lose data"):
            rel.apply(upserts=whole.set_column(1, "v", pa.array([5001], pa.int64()).cast(sample.type)))


def test_nanoseconds_of_a_key_stay(tmp_path):
    """Keys are compared and not given back, so Spark need not have them."""
    table = pa.table({"k": temporal(pa.timestamp("ns"), 1, 2), "v": [1, 2]})
    with hr.Relation.create(tmp_path / "r", table, key="k", nanoseconds="truncate") as rel:
        assert rel.schema.field("k").type == pa.timestamp("ns")
        check_same(rel, table)


def test_oracle_all_types_in_one_relation(tmp_path):
    """More columns than a bitmap byte has bits, of every width, beside each other in a page."""
    columns = {"k": keys(500, 7)}
    columns |= {kind: spread(sample, 500, i) for i, (kind, sample) in enumerate(SAMPLES.items())}
    table = pa.table(columns)
    with hr.Relation.create(tmp_path / "r", table, key="k", page_size="16KiB") as rel:
        check_same(rel, table)
        some = ["string", "bool", "interval"]
        got = rel.lookup([0, 5], columns=some)
        assert got.schema.names == ["k", *some]


def test_oracle_structs_are_flattened(tmp_path):
    inner = pa.struct([("x", pa.int32()), ("text", pa.string())])
    outer = pa.struct([("inner", inner), ("flag", pa.bool_())])
    some = [
        {"inner": {"x": 1, "text": "one"}, "flag": True},
        {"inner": {"x": None, "text": ""}, "flag": None},
        {"inner": None, "flag": False},
        None,
    ]
    table = pa.table({"k": pa.array(range(40)), "s": pa.array(some * 10, outer), "v": range(40)})
    plain = pa.table(
        {
            "k": table["k"],
            "s_inner_x": pa.array([1, None, None, None] * 10, pa.int32()),
            "s_inner_text": pa.array(["one", "", None, None] * 10),
            "s_flag": pa.array([True, None, False, None] * 10),
            "v": table["v"],
        }
    )
    with hr.Relation.create(tmp_path / "r", table, key="k", page_size=4096) as rel:
        assert rel.schema.names == plain.schema.names
        check_same(rel, plain)
    with hr.Relation.create(tmp_path / "s", table.slice(7, 20), key="k", page_size=4096) as rel:
        check_same(rel, plain.slice(7, 20))


def test_a_field_of_a_struct_can_be_the_key(tmp_path):
    table = pa.table({"s": pa.array([{"id": 3, "v": "c"}, {"id": 1, "v": "a"}])})
    with hr.Relation.create(tmp_path / "r", table, key="s_id") as rel:
        assert rel.lookup([3]).to_pylist() == [{"s_id": 3, "s_v": "c"}]


def test_a_relation_of_keys_alone(tmp_path):
    table = pa.table({"k": [3, 1, 3]})
    with hr.Relation.create(tmp_path / "r", table, key="k") as rel:
        check_same(rel, table)
        assert rel.lookup([3, 4]).to_pylist() == [{"k": 3}, {"k": 3}]


def test_column_order_is_kept_in_the_schema_and_the_key_leads_results(tmp_path):
    table = pa.table({"v": ["x"], "b": [2], "w": [1.5], "a": [1]})
    with hr.Relation.create(tmp_path / "r", table, key=["a", "b"]) as rel:
        assert rel.schema.names == ["v", "b", "w", "a"]
        assert names_of(rel) == ["a", "b", "v", "w"]
        check_same(rel, table)


@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize("shards", [1, 5])
def test_hardly_any_rows(n, shards, tmp_path):
    table = pa.table({"k": pa.array([7] * n, pa.int32()), "v": pa.array(["x"] * n, pa.string())})
    with hr.Relation.create(tmp_path / "r", table, key="k", shards=shards) as rel:
        assert scanned(rel) == rows(table)
        assert rel.lookup([7, 8]).to_pylist() == table.to_pylist()
        assert rel.lookup([]).to_pylist() == []
        rel.verify()
        assert rel.describe()["pages"] == n


MIXED = st.fixed_dictionaries(
    {
        "k": st.integers(-3, 3),
        "s": st.none() | st.text(st.sampled_from("\0aé"), max_size=400),
        "b": st.none() | st.booleans(),
        "f": st.none() | st.floats(width=32),
        "d": st.none() | st.decimals(-1000, 1000, places=3),
        "t": st.none() | st.datetimes(),
        "z": st.none() | st.binary(max_size=9),
    }
)
SCHEMA = pa.schema(
    {
        "k": pa.int8(),
        "s": pa.string(),
        "b": pa.bool_(),
        "f": pa.float32(),
        "d": pa.decimal128(20, 3),
        "t": pa.timestamp("us"),
        "z": pa.binary(),
    }
)


@given(st.lists(MIXED, max_size=60), st.integers(1, 3), st.sampled_from([0.05, 0.5, 1.0]))
@FEW
def test_oracle_mixed_rows(ram_path_factory, some, shards, fill):
    table = pa.Table.from_pylist(some, SCHEMA)
    root = ram_path_factory.mktemp("mixed") / "r"
    with hr.Relation.create(root, table, key="k", shards=shards, page_size=4096, fill=fill) as rel:
        check_same(rel, table)


def test_inputs_are_not_changed(tmp_path):
    table = pa.table({"k": keys(200, 1), "v": spread(SAMPLES["string"], 200, 2)})
    before = table.to_pylist()
    rel = hr.Relation.create(tmp_path / "r", table, key="k")
    asked = pa.array([5, 3, None, 5])
    rel.lookup(asked)
    assert table.to_pylist() == before
    assert asked.to_pylist() == [5, 3, None, 5]


def test_results_own_their_memory(tmp_path):
    """A result outlives the relation, and a later lookup does not write over it."""
    table = pa.table({"k": range(5000), "v": [f"value {i}" for i in range(5000)]})
    rel = hr.Relation.create(tmp_path / "r", table, key="k", page_size=4096)
    first = rel.lookup([1, 4000])
    batch = next(iter(rel.scan()))
    before = batch.to_pylist()
    rel.lookup(list(range(5000)))
    for _ in rel.scan():
        pass
    rel.close()
    del rel
    assert first.to_pylist() == [{"k": 1, "v": "value 1"}, {"k": 4000, "v": "value 4000"}]
    assert batch.to_pylist() == before
    first.validate(full=True)
    batch.validate(full=True)


def test_uuids_as_an_extension_are_refused_by_name(tmp_path):
    table = pa.table({"k": [1], "id": pa.array([uuid.uuid4().bytes], pa.uuid())})
    with pytest.raises(hr.UnsupportedType, match=r"'id'.*uuid"):
        hr.Relation.create(tmp_path / "r", table, key="k")
