"""Composite keys as byte strings: same order, and back again."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import DamagedRelation
from headrace.kernels.keys import (
    decode_ints,
    decode_strings,
    decode_wide,
    encode_ints,
    encode_strings,
    encode_wide,
    string_sizes,
    take_strings,
)
from headrace.relation.columns import address
from headrace.relation.keys import ByteKeys, KeyCodec
from tests.support.kernel_arrays import BYTE_STRINGS, RELAXED, longs, strings, to_bytes

LONG = st.one_of(st.integers(-3, 3), st.sampled_from([-(2**63), 2**63 - 1, -(2**32), 255, 256, -256]))
WIDE = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([2**64, -(2**64), 2**64 - 1, 2**63, 10**38 - 1, -(10**38) + 1]),
)


def decimal_of(units: int) -> Decimal:
    """Hundred-thousandths; by its digits, since arithmetic would round to the context's 28."""
    digits = tuple(int(d) for d in str(abs(units)))
    return Decimal((int(units < 0), digits, -5))


def wide_words(values) -> np.ndarray:
    raw = b"".join(v.to_bytes(16, "little", signed=True) for v in values)
    return np.frombuffer(raw, np.uint64)


def encode_triples(rows) -> tuple[np.ndarray, np.ndarray]:
    """(int, bytes, wide) tuples by the kernels alone."""
    data, offsets = strings([r[1] for r in rows], b"?")
    sizes = np.full(len(rows), 24, np.int64)
    string_sizes(address(data), offsets, sizes)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    out, cursor = np.zeros(int(starts[-1]), np.uint8), starts[:-1].copy()
    encode_ints(longs(r[0] for r in rows), address(out), cursor)
    encode_strings(address(data), offsets, address(out), cursor)
    encode_wide(wide_words([r[2] for r in rows]), address(out), cursor)
    assert cursor.tolist() == starts[1:].tolist(), "sizes promised and bytes written differ"
    return out, starts


ROWS = st.lists(st.tuples(LONG, BYTE_STRINGS, WIDE), max_size=12)


@given(ROWS)
@RELAXED
def test_oracle_order_is_kept(rows):
    encoded = to_bytes(*encode_triples(rows))
    assert [r for _, r in sorted(zip(encoded, rows, strict=True))] == sorted(rows)
    assert len(set(encoded)) == len(set(rows))


@given(ROWS)
@RELAXED
def test_oracle_round_trip(rows):
    data, starts = encode_triples(rows)
    cursor = starts[:-1].copy()
    n = len(rows)
    numbers, words = np.empty(n, np.int64), np.empty(2 * n, np.uint64)
    text, offsets = np.zeros(data.size, np.uint8), np.zeros(n + 1, np.int64)
    ends = starts[1:]
    assert decode_ints(address(data), cursor, ends, numbers) == n
    assert decode_strings(address(data), cursor, ends, address(text), offsets) == n
    assert decode_wide(address(data), cursor, ends, words) == n
    assert cursor.tolist() == ends.tolist()
    assert numbers.tolist() == [r[0] for r in rows]
    assert offsets[-1] == sum(len(r[1]) for r in rows)
    assert to_bytes(text, offsets) == [r[1] for r in rows]
    assert words.tolist() == wide_words([r[2] for r in rows]).tolist()


@given(st.lists(BYTE_STRINGS, min_size=1, max_size=4), st.data())
@RELAXED
def test_no_key_is_decoded_past_its_end(keys, data):
    """Bytes that are no encoding: what comes out stays within what there is room for, or the key is refused."""
    kinds = st.sampled_from([pa.int64(), pa.binary(), pa.decimal128(38, 5)])
    codec = KeyCodec(["a", "b", "c"], [data.draw(kinds) for _ in "abc"])
    held, offsets = strings(keys)
    try:
        decoded = codec.decode(ByteKeys(held, offsets))
    except DamagedRelation as error:
        assert "key" in str(error)
    else:
        again, _ = codec.encode(decoded)
        assert to_bytes(again.data, again.offsets) == keys


def test_the_encoding_on_disk_does_not_change():
    data, starts = encode_triples([(-1, b"a\0b", 1)])
    assert data.tobytes() == (bytes.fromhex("7fffffffffffffff") + b"a\x00\xffb\x00\x01" + b"\x80" + bytes(14) + b"\x01")
    assert starts.tolist() == [0, 30]


def test_a_prefix_comes_first_and_components_do_not_run_together():
    rows = [
        (0, b"ab", 0),
        (0, b"a", 9),
        (0, b"a\0", 5),
        (0, b"", 0),
        (0, b"a\0\0", 1),
        (0, b"a\1", 1),
    ]
    encoded = to_bytes(*encode_triples(rows))
    assert [r for _, r in sorted(zip(encoded, rows, strict=True))] == sorted(rows)


@given(st.lists(BYTE_STRINGS, min_size=1, max_size=10), st.binary(max_size=3), st.data())
@RELAXED
def test_oracle_take_strings(values, before, data):
    which = data.draw(st.lists(st.integers(0, len(values) - 1), max_size=20))
    source, offsets = strings(values, before)
    expected = [values[i] for i in which]
    _, out_offsets = strings(expected)
    out = np.zeros(sum(map(len, expected)), np.uint8)
    take_strings(address(source), offsets, longs(which), address(out), out_offsets)
    assert to_bytes(out, out_offsets) == expected


TEXT = st.text(st.sampled_from("\0a\u00e9\uffff\U0001f600"), max_size=4)
COLUMNS = {
    "int8": (pa.int8(), st.integers(-128, 127)),
    "int16": (pa.int16(), st.integers(-3, 3)),
    "int32": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "int64": (pa.int64(), LONG),
    "string": (pa.string(), TEXT),
    "binary": (pa.binary(), BYTE_STRINGS),
    "date": (pa.date32(), st.dates()),
    "timestamp": (pa.timestamp("us"), st.datetimes()),
    "decimal": (pa.decimal128(10, 2), st.decimals(-100, 100, places=2)),
    "wide": (pa.decimal128(38, 5), WIDE.map(decimal_of)),
}


@pytest.mark.parametrize("first", COLUMNS)
@pytest.mark.parametrize("second", ["int64", "string", "wide"])
@given(data=st.data())
@settings(deadline=None, max_examples=15)
def test_oracle_composites_of_every_pair(first, second, data):
    kinds = [COLUMNS[first], COLUMNS[second]]
    rows = data.draw(st.lists(st.tuples(*(values for _, values in kinds)), max_size=8))
    types = [type_ for type_, _ in kinds]
    codec = KeyCodec(["a", "b"], types)
    arrays = [pa.array([r[i] for r in rows], t) for i, t in enumerate(types)]
    keys, valid = codec.encode(arrays)
    assert valid.size == 0
    assert isinstance(keys, ByteKeys)
    assert [a.to_pylist() for a in codec.decode(keys)] == [a.to_pylist() for a in arrays]
    assert [rows[i] for i in keys.argsort()] == sorted(rows)
