"""Values of many types at their edges, and a condition of two rows decided in exact arithmetic."""

import math
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from random import Random

import numpy as np
import pyarrow as pa

from headrace.conditions import (
    AllOf,
    Band,
    Between,
    Compare,
    EditDistance,
    Equal,
    Intersects,
    Jaccard,
    Predicate,
    Within,
)
from tests.support.similar_texts import edits, similarity

EDGE = 2**53


DAY = datetime(2024, 2, 29)


# Texts of one to four bytes a code point, that begin alike, that end early, that are equal, empty and null
TEXTS = [
    "",
    "a",
    "aa",
    "ab",
    "b",
    "B",
    "Z",
    "é",
    "e",
    "ß",
    "€",
    "👍",
    "👎",
    "customer 1",
    "customer 10",
    "customer 2",
    "z" * 40,
    None,
]


POOLS = {
    "int64": (pa.int64(), [0, 1, -1, 2, 3, EDGE, EDGE + 1, EDGE + 2, -EDGE - 1, 2**63 - 1, 2**63 - 2, -(2**63), None]),
    "int16": (pa.int16(), [0, 1, -1, 2, 3, 2**15 - 1, -(2**15), None]),
    "uint32": (pa.uint32(), [0, 1, 2, 3, 2**32 - 1, None]),
    "double": (
        pa.float64(),
        [
            0.0,
            -0.0,
            1.0,
            1.5,
            -1.5,
            2.0,
            float(EDGE),
            EDGE + 2.0,
            2.0**63,
            -(2.0**63),
            5e-324,
            1e308,
            math.inf,
            -math.inf,
            math.nan,
            None,
        ],
    ),
    "float": (pa.float32(), [0.0, -0.0, 1.0, 1.5, -2.0, math.inf, math.nan, None]),
    "date": (pa.date32(), [date(1969, 12, 30), *(date(2024, 2, d) for d in (27, 28, 29)), date(2024, 3, 1), None]),
    "ms": (pa.timestamp("ms"), [DAY + timedelta(milliseconds=i) for i in (-1500, -1, 0, 1, 2, 1500)] + [None]),
    "us": (pa.timestamp("us"), [DAY + timedelta(microseconds=i) for i in (-1001, -1, 0, 1, 999, 1000, 1001)] + [None]),
    "utc": (pa.timestamp("s", "UTC"), [DAY + timedelta(seconds=i) for i in range(-2, 3)] + [None]),
    "cents": (pa.decimal128(10, 2), [Decimal(i) / 100 for i in (-150, -1, 0, 1, 99, 100, 101, 150)] + [None]),
    "myriads": (
        pa.decimal128(12, 4),
        [Decimal(i) / 10_000 for i in (-9_999, -101, -99, 0, 1, 100, 9_901, 10_000)] + [None],
    ),
    "text": (pa.string(), TEXTS),
    "large text": (pa.large_string(), TEXTS),
    "words": (pa.dictionary(pa.int8(), pa.string()), TEXTS),
    "binary": (
        pa.binary(),
        [None if text is None else text.encode() for text in TEXTS] + [b"\xff", b"a\x00", b"a\xff"],
    ),
    "whole": (pa.decimal128(18, 0), [Decimal(i) for i in (-1, 0, 1, 2, 10**17, -(10**17))] + [None]),
}


PAIRS = [
    ("int64", "int64"),
    ("int16", "int64"),
    ("int64", "int16"),
    ("uint32", "int64"),
    ("double", "double"),
    ("float", "double"),
    ("int64", "double"),
    ("double", "int64"),
    ("int16", "float"),
    ("float", "int16"),
    ("date", "date"),
    ("ms", "us"),
    ("us", "ms"),
    ("date", "us"),
    ("us", "date"),
    ("utc", "utc"),
    ("cents", "myriads"),
    ("myriads", "cents"),
    ("int64", "cents"),
    ("cents", "int64"),
    ("whole", "int64"),
    ("myriads", "whole"),
]


TEXT_PAIRS = [("text", "text"), ("large text", "text"), ("words", "text"), ("binary", "binary")]


def plain(value):
    """A value to compare in Python, where integers meet floats exactly; None where it satisfies nothing."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day)
    return Fraction(value) if isinstance(value, Decimal) else value


def plus(value, amount, like):
    """value + amount: doubles where a double takes part in a sum, exact elsewhere."""
    if isinstance(amount, timedelta):
        return value + amount
    if not amount:
        return value
    if isinstance(value, float) or isinstance(like, float):
        return float(value) + float(amount)
    return Fraction(value) + Fraction(amount)


def one_value(value) -> pa.Array:
    """An array of one value; a null is one of text."""
    return pa.array([value], pa.string() if value is None else None)


def holds(condition, left, right) -> bool:
    match condition:
        case AllOf(conditions):
            return all(holds(one, left, right) for one in conditions)
        case Compare(x, op, y):
            a, b = plain(left[x]), plain(right[y])
            if a is None or b is None:
                return False
            return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "!=": a != b, "=": a == b}[op]
        case Equal(xs, ys):
            return all(holds(Compare(x, "=", y), left, right) for x, y in zip(xs, ys, strict=True))
        case Between(column, low, high, of, inclusive, open_ends):
            one, two = (left, right) if of == "left" else (right, left)
            value, a, b = plain(one[column]), plain(two[low]), plain(two[high])
            above = a is not None and value is not None and (a < value or (a == value and inclusive in ("both", "low")))
            below = (
                b is not None and value is not None and (value < b or (value == b and inclusive in ("both", "high")))
            )
            above, below = above or (open_ends and two[low] is None), below or (open_ends and two[high] is None)
            return value is not None and above and below
        case Band(x, y, below, above):
            a, b = plain(left[x]), plain(right[y])
            return a is not None and b is not None and plus(b, -below, a) <= a <= plus(b, above, a)
        case Intersects(a, b):
            half = len(a) // 2
            pairs = [(a[i], "<=", b[half + i]) for i in range(half)] + [(a[half + i], ">=", b[i]) for i in range(half)]
            return all(holds(Compare(*pair), left, right) for pair in pairs)
        case Within(xs, ys, eps, metric):
            a = left[xs[0]] if len(xs) < len(ys) else [left[x] for x in xs]
            if a is None or any(plain(v) is None for v in [*a, *(right[y] for y in ys)]):
                return False
            d = np.abs(np.array(a, float) - np.array([right[y] for y in ys], float))
            far = {"euclidean": float(np.sqrt((d * d).sum())), "manhattan": float(d.sum()), "chebyshev": float(d.max())}
            return far[metric] <= eps
        case EditDistance(x, y, most):
            return left[x] is not None and right[y] is not None and edits(left[x], right[y]) <= most
        case Jaccard(x, y, least, q):
            return left[x] is not None and right[y] is not None and similarity(left[x], right[y], q) >= least
        case Predicate(fn, xs, ys):
            one, two = (
                pa.record_batch({n: one_value(row[n]) for n in names}) for row, names in ((left, xs), (right, ys))
            )
            return bool(pa.array(fn(one, two))[0].as_py())
    raise AssertionError(condition)


def pick(random: Random, pool: str, count: int) -> pa.Array:
    type_, values = POOLS[pool]
    return pa.array([random.choice(values) for _ in range(count)], type_)
