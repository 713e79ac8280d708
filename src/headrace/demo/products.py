"""The products: N rows of about 100 bytes, each a function of its number, from two sources with different kinds of keys.

The shops identify a product by an EAN-13, the web shop by an article code of ten characters; (source, code) is the key.
Numbers from N on give valid codes that no product has, as mistyped or withdrawn codes would be.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Bools, Int64s, UInt8s
from headrace.demo.strings import strings
from headrace.splitmix import draw, uniform_ints

KEY = ("source", "code")
SCHEMA = pa.schema(
    [
        ("source", pa.string()),
        ("code", pa.string()),
        ("name", pa.string()),
        ("category", pa.string()),
        ("brand", pa.string()),
        ("unit_price", pa.int64()),  # in cents, so that sums are exact
        ("weight", pa.int32()),  # in grams
        ("supplier", pa.int32()),
        ("listed", pa.date32()),
    ]
)

_CHUNK = 100_000
_SOURCES = pa.array(["store", "web"])
_WEB_SHARE = (2, 5)
# Affine maps x → x * factor mod modulus; bijective, because factor and modulus have no common divisor. Twice the most
# products of a scenario times a factor is less than 2⁶³.
_EAN_FACTOR, _EAN_MODULUS = 61_803_398_749, 10**11
_WEB_FACTOR, _WEB_MODULUS = 174_353_179_877, 36**8
_EAN_LENGTH, _WEB_LENGTH = 13, 10
_DIGITS = np.frombuffer(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ", np.uint8)

_THINGS = {
    "Kitchen": ["kettle", "saucepan", "cutting board", "whisk", "colander", "bread knife"],
    "Garden": ["rake", "watering can", "hose", "flower pot", "shears", "bird feeder"],
    "Tools": ["hammer", "spirit level", "drill bit", "clamp", "chisel", "spanner"],
    "Lighting": ["desk lamp", "lantern", "bulb", "floor lamp", "torch", "light strip"],
    "Furniture": ["chair", "bookcase", "side table", "stool", "bench", "coat rack"],
    "Textiles": ["towel", "blanket", "cushion", "tablecloth", "curtain", "rug"],
    "Toys": ["puzzle", "kite", "train set", "building set", "doll", "yo-yo"],
    "Sports": ["football", "yoga mat", "skipping rope", "racket", "helmet", "water bottle"],
    "Stationery": ["notebook", "fountain pen", "stapler", "ruler", "binder", "paper knife"],
    "Groceries": ["coffee", "olive oil", "honey", "rice", "dark chocolate", "tea"],
}
_ADJECTIVES = ["Plain", "Oak", "Steel", "Compact", "Classic", "Blue", "Folding", "Large", "Travel", "Fine"]
_BRANDS = ["Aldermoor", "Brightwell", "Cotterel", "Dunmore", "Everley", "Fairholt", "Greyfell", "Hartwick"]
_PRICES = {  # cents, from and below
    "Kitchen": (490, 9_000),
    "Garden": (390, 12_000),
    "Tools": (290, 15_000),
    "Lighting": (250, 19_000),
    "Furniture": (2_900, 90_000),
    "Textiles": (590, 25_000),
    "Toys": (190, 9_000),
    "Sports": (490, 14_000),
    "Stationery": (50, 4_000),
    "Groceries": (90, 2_500),
}

_CATEGORY_NAMES = pa.array(list(_THINGS))
_THING_NAMES = pa.array([thing for things in _THINGS.values() for thing in things])
_PER_CATEGORY = len(_THING_NAMES) // len(_CATEGORY_NAMES)
_PRICE_FROM, _PRICE_BELOW = np.array([_PRICES[category] for category in _THINGS]).T


def reader(count: int) -> pa.RecordBatchReader:
    """Return a reader that generates products 0 to `count` - 1."""
    return pa.RecordBatchReader.from_batches(SCHEMA, _chunks(count))


def products(numbers: Int64s) -> pa.RecordBatch:
    """Generate the products with these numbers.

    Example:
        >>> products(np.array([1])).select(["source", "code", "name", "unit_price"]).to_pylist()
        [{'source': 'web', 'code': 'B0283HDQLH', 'name': 'Travel torch 2', 'unit_price': 1969}]
    """
    thing = _things(numbers)
    model = pa.array(numbers % 10_000 + 1).cast(pa.string())
    adjective = pa.array(_ADJECTIVES).take(pa.array(uniform_ints(draw(0, 2, numbers), len(_ADJECTIVES))))
    columns = [
        sources(numbers),
        codes(numbers),
        pc.binary_join_element_wise(adjective, _THING_NAMES.take(pa.array(thing)), model, " "),
        _CATEGORY_NAMES.take(pa.array(thing // _PER_CATEGORY)),
        pa.array(_BRANDS).take(pa.array(uniform_ints(draw(0, 3, numbers), len(_BRANDS)))),
        pa.array(prices(numbers)),
        pa.array((uniform_ints(draw(0, 4, numbers), 8_000) + 20).astype(np.int32)),
        pa.array((uniform_ints(draw(0, 5, numbers), 2_000) + 1).astype(np.int32)),
        pa.array((uniform_ints(draw(0, 6, numbers), 3_650) + 16_000).astype(np.int32)).view(pa.date32()),
    ]
    return pa.record_batch(columns, schema=SCHEMA)


def sources(numbers: Int64s) -> pa.StringArray:
    """Return the source of each product."""
    return _SOURCES.take(pa.array(_is_web(numbers).astype(np.int8)))


def codes(numbers: Int64s) -> pa.StringArray:
    """Return the code of each product in its source; different numbers have different keys."""
    web = _is_web(numbers)
    rows = np.empty((len(numbers), _EAN_LENGTH), np.uint8)
    rows[~web] = _ean(numbers[~web])
    rows[web, :_WEB_LENGTH] = _article(numbers[web])
    return strings(rows, np.where(web, _WEB_LENGTH, _EAN_LENGTH))


def prices(numbers: Int64s) -> Int64s:
    """Return the price of each product in cents."""
    category = _things(numbers) // _PER_CATEGORY
    low, high = _PRICE_FROM[category], _PRICE_BELOW[category]
    # the square of a uniform number: cheap products are more frequent than dear ones
    share = uniform_ints(draw(0, 7, numbers), 1_000) ** 2
    cents: Int64s = (low + share * (high - low) // 1_000_000) // 10 * 10 + 9
    return cents


def _chunks(count: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, count, _CHUNK):
        yield products(np.arange(start, min(start + _CHUNK, count)))


def _things(numbers: Int64s) -> Int64s:
    return uniform_ints(draw(0, 1, numbers), len(_THING_NAMES))


def _is_web(numbers: Int64s) -> Bools:
    some, of = _WEB_SHARE
    return np.asarray(numbers % of < some)


def _ean(numbers: Int64s) -> UInt8s:
    digits = np.empty((len(numbers), _EAN_LENGTH), np.int64)
    digits[:, 0] = 2  # the prefix for codes that a shop gives itself
    _write(numbers * _EAN_FACTOR % _EAN_MODULUS, digits[:, 1:-1], 10)
    weighted = digits[:, 0:-1:2].sum(axis=1) + 3 * digits[:, 1:-1:2].sum(axis=1)
    digits[:, -1] = -weighted % 10
    return _DIGITS[digits]


def _article(numbers: Int64s) -> UInt8s:
    digits = np.empty((len(numbers), _WEB_LENGTH), np.int64)
    digits[:, :2] = 11, 0  # "B0"
    _write(numbers * _WEB_FACTOR % _WEB_MODULUS, digits[:, 2:], 36)
    return _DIGITS[digits]


def _write(values: Int64s, digits: Int64s, base: int) -> None:
    for place in reversed(range(digits.shape[1])):
        values, digits[:, place] = np.divmod(values, base)
