"""Texts of paths, compared and put together by whole columns."""

from __future__ import annotations

from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Bools, Int64s

_COMPARE = {
    "=": pc.equal, "!=": pc.not_equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal,
}  # fmt: skip
_NUMBER = r"^-?([0-9]+(\.[0-9]*)?|\.[0-9]+)$"  # number() of XPath 1.0, as twigs have it
_IN_TEXT = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("\r", "&#13;"))
_IN_VALUE = (("&", "&amp;"), ("<", "&lt;"), ('"', "&quot;"), ("\t", "&#9;"), ("\n", "&#10;"), ("\r", "&#13;"))


def numbers(column: pa.Array) -> Int64s:
    """The values of a column of integers without nulls."""
    # Of its buffer: to_numpy imports pandas, which takes longer than many a document.
    return np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column)]


def indices(values: Int64s) -> pa.Array:
    """Integers as an Arrow column."""
    return pa.Array.from_buffers(pa.int64(), values.size, [None, pa.py_buffer(np.ascontiguousarray(values))])


def truths(values: Bools) -> pa.Array:
    """Truth values as an Arrow column."""
    return pa.Array.from_buffers(pa.bool_(), values.size, [None, pa.py_buffer(np.packbits(values, bitorder="little"))])


def offsets(counts: Int64s) -> pa.Array:
    """Where lists of these lengths begin and end."""
    ends = np.zeros(counts.size + 1, np.int32)
    np.cumsum(counts, out=ends[1:])
    return pa.Array.from_buffers(pa.int32(), ends.size, [None, pa.py_buffer(ends)])


def holds(texts: pa.Array, operator: str, literal: str | float) -> Bools:
    """Which texts compare with a literal as asked: with a text by code points, with a number as twigs do."""
    if operator == "contains":
        found = pc.match_substring(texts, cast(str, literal))
    elif isinstance(literal, str):
        found = _COMPARE[operator](texts, literal)
    else:
        trimmed = pc.utf8_trim(texts, " \t\r\n")
        is_number = pc.match_substring_regex(trimmed, _NUMBER)
        doubles = pc.cast(pc.if_else(is_number, trimmed, pa.scalar(None, pa.string())), pa.float64())
        found = pc.fill_null(_COMPARE[operator](doubles, literal), operator == "!=")
    return mask(found)


def compared(left: pa.Array, operator: str, right: pa.Array) -> Bools:
    """Which texts of two columns compare as asked, row by row, by code points."""
    return mask(_COMPARE[operator](left, right))


def mask(found: pa.Array) -> Bools:
    """Truth values, of which a null is false."""
    filled = pc.fill_null(found, False)
    bits = np.frombuffer(filled.buffers()[1], np.uint8)
    return np.unpackbits(bits, bitorder="little")[filled.offset : filled.offset + len(filled)].astype(np.bool_)


def ranks(texts: pa.Array) -> tuple[Int64s, pa.Array]:
    """The place of each text among all different ones, in the order of code points, and these in order."""
    coded = texts.dictionary_encode()
    order = pc.sort_indices(coded.dictionary)
    places = np.empty(len(order), np.int64)
    places[numbers(order.cast(pa.int64()))] = np.arange(len(order))
    return places[numbers(coded.indices.cast(pa.int64()))], coded.dictionary.take(order)


def present(places: Int64s, size: int) -> Bools:
    """Which of so many places occur."""
    found = np.zeros(size, np.bool_)
    found[places] = True
    return found


def exists(left: tuple[Int64s, pa.Array], right: tuple[Int64s, pa.Array], operator: str, size: int) -> Bools:
    """Which of so many places have a text on the left and one on the right that compare as asked.

    Each side has places and their texts. Of the order of two sets of texts the smallest and the largest say enough.
    """
    codes, texts = ranks(pa.concat_arrays([left[1], right[1]]))
    a, b = codes[: left[0].size], codes[left[0].size :]
    if operator == "=":
        n = max(1, len(texts))
        return present(left[0][np.isin(left[0] * n + a, right[0] * n + b)], size)
    both = present(left[0], size) & present(right[0], size)
    last = len(texts)
    least, most = np.full((2, size), last, np.int64), np.full((2, size), -1, np.int64)
    for side, (places, some) in enumerate(((left[0], a), (right[0], b))):
        np.minimum.at(least[side], places, some)
        np.maximum.at(most[side], places, some)
    found: Bools
    if operator == "!=":
        found = (least[0] != most[1]) | (most[0] != least[1])
    elif operator == "<":
        found = least[0] < most[1]
    elif operator == "<=":
        found = least[0] <= most[1]
    elif operator == ">":
        found = most[0] > least[1]
    else:
        found = most[0] >= least[1]
    return both & found


def joined(texts: pa.Array, counts: Int64s, between: str) -> pa.Array:
    """Texts put together, as many at a time as counts say."""
    return pc.binary_join(pa.ListArray.from_arrays(offsets(counts), texts), between)


def as_attributes(name: str, values: pa.Array) -> pa.Array:
    """Values as attributes of a start tag; nothing for a null."""
    written = pc.binary_join_element_wise(f' {name}="', _escaped(values, _IN_VALUE), '"', "")
    return pc.fill_null(written, "")


def as_text(values: pa.Array) -> pa.Array:
    """Values as text of an element."""
    return _escaped(values, _IN_TEXT)


def _escaped(values: pa.Array, references: tuple[tuple[str, str], ...]) -> pa.Array:
    for character, reference in references:
        values = pc.replace_substring(values, character, reference)
    return values
