"""Hashes of items: the same for ever, and different where items are."""

import struct
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import UnsupportedType
from headrace.feeds.items import ITEM_SCHEMA, contents, identities, row_hashes

ITEM = {
    "guid": "g", "link": "http://a.example/", "title": "Title", "description": "Wörter", "author": "Ann",
    "category": ["x", "y"], "pubDate": datetime(2026, 1, 2, tzinfo=UTC), "updated": None, "geoLat": 1.5, "geoLong": -2.0,
    "box": {"xmin": -2.0, "ymin": 1.5, "xmax": -2.0, "ymax": 1.5}, "elev": None, "feed": "http://f.example/",
    "seen": datetime(2026, 1, 3, tzinfo=UTC),
}  # fmt: skip


def batch(*items):
    return pa.RecordBatch.from_pylist([ITEM | item for item in items], ITEM_SCHEMA)


def hashes(array):
    return [value.hex() for value in array.to_pylist()]


def murmur(data, seed):
    """MurmurHash3 x64 128, from its published description, with Python's numbers."""
    mask, c1, c2 = (1 << 64) - 1, 0x87C37B91114253D5, 0x4CF5AD432745937F

    def turn(x, r):
        return (x << r | x >> 64 - r) & mask

    def finish(x):
        for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
            x = (x ^ x >> 33) * factor & mask
        return x ^ x >> 33

    h1 = h2 = seed
    blocks = len(data) // 16
    for k in range(blocks):
        a, b = struct.unpack_from("<QQ", data, 16 * k)
        h1 = ((turn(h1 ^ turn(a * c1 & mask, 31) * c2 & mask, 27) + h2) * 5 + 0x52DCE729) & mask
        h2 = ((turn(h2 ^ turn(b * c2 & mask, 33) * c1 & mask, 31) + h1) * 5 + 0x38495AB5) & mask
    tail = data[16 * blocks :]
    h2 ^= turn(int.from_bytes(tail[8:], "little") * c2 & mask, 33) * c1 & mask
    h1 ^= turn(int.from_bytes(tail[:8], "little") * c1 & mask, 31) * c2 & mask
    h1, h2 = h1 ^ len(data), h2 ^ len(data)
    h1 = h1 + h2 & mask
    h2 = h2 + h1 & mask
    h1, h2 = finish(h1), finish(h2)
    h1 = h1 + h2 & mask
    return struct.pack("<QQ", h1, h2 + h1 & mask)


def test_the_published_values_of_the_hash():
    # The verification value of the reference implementation: a hash of hashes of 256 keys.
    keys = bytes(range(256))
    all_ = b"".join(murmur(keys[:k], 256 - k) for k in range(256))
    assert murmur(all_, 0)[:4] == (0x6384BA69).to_bytes(4, "little")


@given(st.lists(st.one_of(st.none(), st.binary(max_size=70)), min_size=1, max_size=6))
def test_oracle_hashes_are_those_of_the_published_function(values):
    found = row_hashes([pa.array(values, pa.binary())]).to_pylist()
    assert found == [murmur(bytes([255]) * 16 if value is None else murmur(value, 0), 0) for value in values]


IDENTITIES = [
    "ad694c842f8a586c539a8167dcdc5beb",
    "f542d7f76445c7ecb7947819bb0c778d",
    "0a4610f0a6ea6e7ebc7380c9c24aca5a",
    "0a4610f0a6ea6e7ebc7380c9c24aca5a",
]
CONTENTS = [
    "7ea2726fa9053a29a634edefa42a385f",
    "cd05709eb182e6dd7055a82db2a40fab",
    "5d914e1896a7fe3c380d3c08ddef501c",
    "1904f486645adf9d9a5ed4c41b038238",
]


def test_hashes_are_kept_for_ever():
    """They are in stores of users: a change of these values makes every item new."""
    items = batch({}, {"guid": None}, {"guid": None, "link": None}, {"guid": "", "link": ""})
    assert hashes(identities(items)) == IDENTITIES
    assert hashes(contents(items)) == CONTENTS


def test_an_identity_is_of_the_guid_else_the_link_else_what_is_said():
    items = batch(
        {}, {"title": "other"}, {"guid": None}, {"guid": None, "title": "other"}, {"guid": "", "link": None},
        {"guid": None, "link": "", "author": "Bob"}, {"guid": None, "link": None, "title": "other"}, {"guid": "http://a.example/"},
    )  # fmt: skip
    found = hashes(identities(items))
    assert found[0] == found[1] and found[2] == found[3] and found[4] == found[5]
    assert len(set(found)) == 5


@pytest.mark.parametrize("column", [name for name in ITEM_SCHEMA.names if name not in ("feed", "seen")])
def test_every_column_counts_and_null_is_no_value(column):
    other = {
        "category": ["x"], "pubDate": datetime(2026, 1, 2, 0, 0, 1, tzinfo=UTC), "updated": datetime(1970, 1, 1, tzinfo=UTC),
        "geoLat": 0.0, "geoLong": 0.0, "elev": 0.0, "box": ITEM["box"] | {"ymax": 2.0},
    }.get(column, "")  # fmt: skip
    empty = {"category": []}.get(column, other)
    found = hashes(contents(batch({}, {column: other}, {column: None}, {column: empty})))
    assert len({found[0], found[1]}) == 2
    if ITEM[column] is not None:
        assert found[2] not in (found[0], found[1], found[3])


def test_where_and_when_an_item_was_seen_does_not_count():
    items = batch({}, {"feed": "http://other.example/", "seen": datetime(2027, 1, 1, tzinfo=UTC)})
    assert len(set(hashes(contents(items)))) == 1


def test_hashes_do_not_depend_on_how_rows_are_held():
    items = batch(*({"guid": f"g{k}", "category": ["x"] * (k % 3)} for k in range(20)))
    alone = [row for k in range(20) for row in hashes(contents(items.take([k])))]
    assert (
        hashes(contents(items))
        == alone
        == [row for k in (0, 7, 14) for row in hashes(contents(items.slice(k, 7)))][:20]
    )
    assert hashes(identities(items.slice(5, 3))) == hashes(identities(items))[5:8]
    assert len(identities(items.slice(0, 0))) == len(contents(items.slice(0, 0))) == 0


def test_a_type_without_a_hash_is_named():
    with pytest.raises(UnsupportedType, match="decimal"):
        row_hashes([pa.array([1], pa.decimal128(3))])
