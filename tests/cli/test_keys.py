import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from headrace.cli.keys import parse_keys
from headrace.errors import BadInput


def parse(text: str, kind: pa.DataType) -> object:
    return parse_keys([text], pa.schema({"k": kind}), ("k",))["k"][0]


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("-7", pa.int8(), -7),
        ("9223372036854775807", pa.int64(), 2**63 - 1),
        ("a,b", pa.string(), "a,b"),
        ("", pa.string(), ""),
        ("abc", pa.binary(), b"abc"),
        ("0x00ff", pa.binary(), b"\x00\xff"),
        ("2024-12-31", pa.date32(), dt.date(2024, 12, 31)),
        ("2024-12-31T23:59:59", pa.timestamp("us"), dt.datetime(2024, 12, 31, 23, 59, 59)),
        ("12.5", pa.decimal128(9, 2), Decimal("12.50")),
    ],
)
def test_keys_take_the_columns_type(text, kind, value):
    assert parse(text, kind).as_py() == value
    assert parse(text, kind).type == kind


def test_nanoseconds_are_kept():
    found = parse("2024-01-01T00:00:00.123456789", pa.timestamp("ns"))
    assert found.value % 10**9 == 123456789


@pytest.mark.parametrize("text", ["2024-07-01T14:00:00", "2024-07-01T12:00:00Z"])
def test_a_timestamp_without_a_zone_is_in_the_columns(text):
    found = parse(text, pa.timestamp("us", tz="Europe/Paris"))
    assert found.value == 1719835200 * 10**6


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("abc", pa.int64()),
        ("1.5", pa.int64()),
        ("300", pa.int8()),
        ("", pa.int32()),
        ("31.12.2024", pa.date32()),
        ("noon", pa.timestamp("us")),
        ("noon", pa.timestamp("us", tz="UTC")),
        ("1.234", pa.decimal128(9, 2)),
        ("ten", pa.decimal128(9, 2)),
        ("0xzz", pa.binary()),
    ],
)
def test_a_bad_key_names_value_column_and_type(text, kind):
    with pytest.raises(BadInput) as caught:
        parse(text, kind)
    assert f"key {text!r} is not a value of column k ({kind}" in str(caught.value)


def test_composite_keys():
    schema = pa.schema({"shop": pa.int32(), "v": pa.int8(), "name": pa.string()})
    found = parse_keys(["1,pear", '2,"a, b"'], schema, ("shop", "name"))
    assert found.to_pylist() == [{"shop": 1, "name": "pear"}, {"shop": 2, "name": "a, b"}]


@pytest.mark.parametrize("text", ["1", "", "1,2,3"])
def test_a_composite_key_has_all_its_values(text):
    schema = pa.schema({"a": pa.int32(), "b": pa.int32()})
    with pytest.raises(BadInput, match="key is a,b, separated by commas"):
        parse_keys([text], schema, ("a", "b"))
