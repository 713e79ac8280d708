"""Similarity of texts: terms that pass over pairs that cannot be similar, and tests that decide about the others.

A term notes three words of a text (kernels/texts.py). Two texts are a few edits apart only if their lengths are, and share many
grams only if they have about as many of them; and each edit, or gram that only one of them has, changes few bits of a signature.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import AnyArray, Bools, Int32s, Int64s, UInt8s, UInt64s
from headrace.conditions import EditDistance, Jaccard
from headrace.errors import BadInput, UnsupportedType, missing_extra, shown
from headrace.kernels.texts import EDIT_GRAM, FACTS, expand_similar, gram_sets, may_match, similar, text_facts
from headrace.predicates.numbers import Types
from headrace.predicates.pair_test import LeftRows, PairTest
from headrace.predicates.ranges import in_order
from headrace.predicates.texts import as_plain, bools, is_text
from headrace.relation.columns import address, from_arrow, plain_type

_WIDE = 1e-9  # widens a range of sizes that is computed in doubles, so that rounding loses no pair


class SimilarityTerm:
    """Passes over pairs of texts that cannot be similar, and finds candidates by their sizes.

    The size of a text is the number of its code points for edit distances, of its grams for the Jaccard similarity.
    """

    rank, size, exact_lead, prefilter = 1, FACTS, True, True

    def __init__(self, condition: EditDistance | Jaccard) -> None:
        self.condition = condition
        # The most edits, or the least part of grams; a negative number of edits stands for none.
        self._bounds = (-1, float(condition.at_least)) if isinstance(condition, Jaccard) else (condition.at_most, 0.0)
        self.values: Int64s = np.empty(0, np.int64)  # facts of left texts by slot, as one array

    def bind(self, left: Types, right: Types, sides: tuple[str, str]) -> None:
        """Take the types of the columns; refuses what is not text."""
        check_text(self.condition, sides[0], self.condition.left, left)
        check_text(self.condition, sides[1], self.condition.right, right)

    def read_left(self, batch: pa.RecordBatch) -> tuple[Int64s, Bools]:
        """Return the facts of left texts, and which are not null."""
        return self._read(batch.column(self.condition.left))

    def read_right(self, columns: dict[str, Any]) -> None:
        """Note the facts of the right texts that `keep` and `spans` refer to."""
        self._facts, self._there = self._read(columns[self.condition.right])

    def _read(self, array: Any) -> tuple[Int64s, Bools]:
        texts = as_plain(array, pa.string())
        buffers = from_arrow(texts)
        longest = int(np.diff(buffers.offsets).max(initial=0))
        facts = np.empty(FACTS * len(texts), np.int64)
        jaccard = isinstance(self.condition, Jaccard)
        q = self.condition.q if isinstance(self.condition, Jaccard) else EDIT_GRAM
        text_facts(address(buffers.values), buffers.offsets, q, jaccard, np.empty(longest, np.uint64), facts)
        return facts, bools(texts.is_valid())

    def keep(self, r: Int32s, slots: Int32s, keep: UInt8s) -> None:
        """Set keep[k] to 0 where right tuple r[k] and the left tuple in slots[k] cannot be similar."""
        keep &= self._there[r].view(np.uint8)
        may_match(self.values, self._facts, *self._bounds, r, slots, keep)

    def in_order(self, slots: Int32s, rows: LeftRows) -> tuple[AnyArray, Int32s]:
        """Return the sizes of the texts in some slots, sorted, and their slots."""
        return in_order(self.values[::FACTS], slots)

    def spans(self, xs: Int64s) -> tuple[Int64s, Int64s]:
        """Return the range of candidates of each right tuple among sorted sizes of left texts."""
        sizes, (edits, least) = self._facts[::FACTS], self._bounds
        if edits >= 0:
            low, high = sizes - edits, sizes + edits
        else:
            low = np.ceil(sizes * (least - _WIDE)).astype(np.int64)
            high = np.floor(sizes / least * (1 + _WIDE)).astype(np.int64)
        begin = np.searchsorted(xs, low, "left").astype(np.int64)
        end = np.searchsorted(xs, high, "right").astype(np.int64)
        return begin, np.where(self._there, end, begin)

    def expand(self, begin: Int64s, end: Int64s, order: Int32s, stop: Int64s, r: Int32s, slots: Int32s) -> int:
        """Write the next pairs of a right tuple and a slot in its range that may be similar; see the kernel."""
        return int(expand_similar(begin, end, order, self.values, self._facts, *self._bounds, stop, r, slots))


class _SimilarityTest(PairTest):
    """Compares the distinct texts of pairs."""

    cost = 1

    def __init__(self, condition: EditDistance | Jaccard) -> None:
        self.condition = condition
        self.left, self.right = (condition.left,), (condition.right,)

    def bind(self, left: Types, right: Types, sides: tuple[str, str]) -> None:
        """Take the types of the columns; refuses what is not text."""
        check_text(self.condition, sides[0], self.condition.left, left)
        check_text(self.condition, sides[1], self.condition.right, right)

    def can_match(self, batch: pa.RecordBatch) -> Bools | None:
        """Tell which left tuples have a text."""
        return bools(batch.column(self.left[0]).is_valid())

    def keep(self, left: pa.RecordBatch, right: pa.RecordBatch) -> Bools:
        """Tell which rows have similar texts."""
        x, y = as_plain(left.column(self.left[0]), pa.string()), as_plain(right.column(self.right[0]), pa.string())
        out: Bools = bools(x.is_valid()) & bools(y.is_valid())
        rows = np.flatnonzero(out)
        if rows.size:
            some = pa.array(rows)
            out[rows] = self._similar(*_distinct(x.take(some)), *_distinct(y.take(some)))
        return out

    @abstractmethod
    def _similar(self, texts: pa.Array, i: Int32s, others: pa.Array, j: Int32s) -> Bools:
        """Tell for each k whether texts[i[k]] and others[j[k]] are similar."""


class EditTest(_SimilarityTest):
    """Tests whether two texts are few edits apart, by RapidFuzz."""

    pair_bytes = 200  # two texts as Python objects, which take 49 bytes beside their own, and what is noted of the pair

    def __init__(self, condition: EditDistance) -> None:
        super().__init__(condition)
        self._most = condition.at_most
        self._distances = _distance_function()

    def _similar(self, texts: pa.Array, i: Int32s, others: pa.Array, j: Int32s) -> Bools:
        near: Bools = self._distances(_objects(texts)[i], _objects(others)[j], self._most) <= self._most
        return near


class JaccardTest(_SimilarityTest):
    """Tests whether two texts share a large part of their grams."""

    pair_bytes = 64  # what is noted of the pair
    copies = 11  # grams take eight bytes for one of a text

    def __init__(self, condition: Jaccard) -> None:
        super().__init__(condition)
        self._q, self._least = condition.q, float(condition.at_least)

    def _similar(self, texts: pa.Array, i: Int32s, others: pa.Array, j: Int32s) -> Bools:
        keep = np.ones(i.size, np.uint8)
        similar(*self._grams(texts), *self._grams(others), i, j, self._least, keep)
        return keep.view(np.bool_)

    def _grams(self, texts: pa.Array) -> tuple[UInt64s, Int64s]:
        buffers = from_arrow(texts)
        offsets = buffers.offsets
        out, ends = np.empty(int(offsets[-1] - offsets[0]), np.uint64), np.empty(offsets.size, np.int64)
        gram_sets(address(buffers.values), offsets, self._q, out, ends)
        return out, ends


def check_text(condition: EditDistance | Jaccard, whose: str, name: str, types: Types) -> None:
    """Refuse a column that is not text, by name."""
    if not is_text(types[name]) or pa.types.is_binary(plain_type(name, types[name])):
        raise UnsupportedType(
            f"{whose} column {name!r} has type {types[name]}, and {condition} compares texts; cast it to string first"
        )


def _distinct(texts: pa.Array) -> tuple[pa.Array, Int32s]:
    """Return each text once, and which of them each row has."""
    encoded = texts.dictionary_encode()
    return encoded.dictionary, np.asarray(encoded.indices).astype(np.int32, copy=False)


def _objects(texts: pa.Array) -> AnyArray:
    """Return texts as Python's, which RapidFuzz compares."""
    try:
        objects: AnyArray = texts.to_numpy(zero_copy_only=False)
    except UnicodeDecodeError as error:
        raise BadInput(
            f"a text is not UTF-8 ({shown(error)}), so its code points cannot be compared; decode it first"
        ) from error
    return objects


def _distance_function() -> Callable[[AnyArray, AnyArray, int], AnyArray]:
    """Return the function that gives the edit distances of pairs of texts; those beyond a limit may be any number beyond it."""
    try:
        from rapidfuzz.distance import Levenshtein
        from rapidfuzz.process import cpdist
    except ModuleNotFoundError as error:
        raise missing_extra("edit_distance", error) from None

    def distances(one: AnyArray, other: AnyArray, most: int) -> AnyArray:
        found: AnyArray = cpdist(one, other, scorer=Levenshtein.distance, score_cutoff=most)
        return found

    return distances
