"""Functions on texts and on lists of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.conditions import LONGEST_GRAM
from headrace.errors import BadInput, missing_extra
from headrace.kernels.texts import FACTS, gram_sets, jaccard_of, text_facts
from headrace.relation.columns import address, from_arrow

_MARK = "\x1e"  # before each text of a list that is written as one text; XML has no such character


def substring(x: Any, start: int, length: int | None) -> Any:
    """From the start-th code point on, counted from 1; a start below 0 counts from the end."""
    if start < 0:
        size = pc.utf8_length(x)
        begun = pc.utf8_slice_codeunits(x, start, None)
        begun = pc.if_else(pc.less(size, -start), x, begun)
        return begun if length is None else pc.utf8_slice_codeunits(begun, 0, length)
    end = None if length is None else max(0, start - 1 + length)
    return pc.utf8_slice_codeunits(x, max(0, start - 1), end)


def trimmed(x: Any, which: str, characters: str) -> Any:
    """Without characters at both ends, or at one."""
    return {"both": pc.utf8_trim, "left": pc.utf8_ltrim, "right": pc.utf8_rtrim}[which](x, characters)


def matches(x: Any, pattern: str) -> Any:
    """Whether a regular expression is found in x. RE2 takes time linear in the text, whatever the pattern."""
    return pc.match_substring_regex(x, pattern)


def check_pattern(pattern: str) -> None:
    """Refuse what RE2 cannot read."""
    try:
        matches(pa.array([""]), pattern)
    except pa.ArrowInvalid as error:
        raise BadInput(f"{pattern!r} is not a regular expression of RE2: {str(error).splitlines()[0]}") from error


def like_pattern(pattern: str, escape: str | None, ignore_case: bool) -> str:
    """The regular expression that a pattern of LIKE stands for."""
    out, i = [], 0
    while i < len(pattern):
        char = pattern[i]
        if char == escape and i + 1 < len(pattern):
            i += 1
            out.append(re.escape(pattern[i]))
        else:
            out.append({"%": ".*", "_": "."}.get(char) or re.escape(char))
        i += 1
    return f"(?s{'i' if ignore_case else ''})\\A(?:{''.join(out)})\\z"


def contains(x: Any, y: Any) -> Any:
    """Whether x contains y; of two columns too."""
    if isinstance(y, pa.Scalar) and isinstance(x, pa.Array):
        return pc.match_substring(x, y.as_py()) if y.is_valid else pa.nulls(len(x), pa.bool_())
    return _each(x, y, lambda a, b: np.strings.find(a, b) >= 0)


def starts_with(x: Any, y: Any) -> Any:
    """Whether x begins with y."""
    return _each(x, y, np.strings.startswith)


def ends_with(x: Any, y: Any) -> Any:
    """Whether x ends with y."""
    return _each(x, y, np.strings.endswith)


def _each(x: Any, y: Any, of: Callable[[Any, Any], Any]) -> Any:
    """What a function of NumPy's texts says of each two."""
    there = pc.and_(pc.is_valid(x), pc.is_valid(y))
    a, b = (
        np.array(
            one.as_py() or "" if isinstance(one, pa.Scalar) else pc.fill_null(one, "").to_pylist(),
            np.dtypes.StringDType(),
        )
        for one in (x, y)
    )
    size = next(len(one) for one in (x, y) if not isinstance(one, pa.Scalar))
    said = pa.array(np.broadcast_to(of(a, b), (size,)).copy(), pa.bool_())
    return pc.if_else(there, said, pa.scalar(None, pa.bool_()))


def list_contains(x: Any, y: Any) -> Any:
    """Whether a list has a text."""
    found = pc.fill_null(
        pc.equal(pc.list_flatten(x), y if isinstance(y, pa.Scalar) else y.take(pc.list_parent_indices(x))), False
    )
    counts = np.bincount(pc.list_parent_indices(x).filter(found).to_numpy(), minlength=len(x))
    known = pc.is_valid(x) if isinstance(y, pa.Scalar) and y.is_valid else pc.and_(pc.is_valid(x), pc.is_valid(y))
    return pc.if_else(known, pa.array(counts > 0), pa.scalar(None, pa.bool_()))


def list_text(x: Any) -> Any:
    """A list as one text, different lists as different texts: for keys."""
    values = pc.binary_join_element_wise(
        _MARK, pc.fill_null(x.values.slice(x.offsets[0].as_py(), x.offsets[-1].as_py() - x.offsets[0].as_py()), ""), ""
    )
    marked = pa.ListArray.from_arrays(pc.subtract(x.offsets, x.offsets[0]), values)
    joined = pc.binary_join(marked, "")
    return pc.if_else(pc.is_valid(x), joined, pa.scalar(None, pa.string()))


def text_list(x: Any) -> Any:
    """The lists that `list_text` wrote as texts."""
    parts = pc.split_pattern(x, _MARK)
    return pc.list_slice(parts, 1).cast(pa.list_(pa.string()))


def similarity(x: Any, y: Any) -> Any:
    """The part of q-grams that two texts have in common, as hr.jaccard counts them: 0 to 1."""
    x, y = _arrays(x, y)
    there = pc.and_(pc.is_valid(x), pc.is_valid(y))
    out = np.empty(len(x), np.float64)
    jaccard_of(*_grams(x), *_grams(y), out)
    return pc.if_else(there, pa.array(out), pa.scalar(None, pa.float64()))


def gram_size(x: Any) -> Any:
    """The logarithm of how many q-grams a text has: those of similar texts are near. That of the empty text is far from all."""
    buffers = from_arrow(pc.fill_null(x, ""))
    longest = int(np.diff(buffers.offsets).max(initial=0))
    facts = np.empty(FACTS * len(x), np.int64)
    text_facts(address(buffers.values), buffers.offsets, LONGEST_GRAM, True, np.empty(longest, np.uint64), facts)
    grams = facts[::FACTS]
    sizes = np.where(grams > 0, np.log(np.maximum(grams, 1)), -1.0e6)
    return pc.if_else(pc.is_valid(x), pa.array(sizes), pa.scalar(None, pa.float64()))


def edit_distance(x: Any, y: Any) -> Any:
    """How many code points must be inserted, deleted or replaced to make one text the other."""
    try:
        from rapidfuzz.distance import Levenshtein
        from rapidfuzz.process import cpdist
    except ModuleNotFoundError as error:
        raise missing_extra("edit_distance", error, "feeds") from None
    x, y = _arrays(x, y)
    there = pc.and_(pc.is_valid(x), pc.is_valid(y))
    if not len(x):
        return pa.array([], pa.int64())
    a, b = (pc.fill_null(one, "").to_numpy(zero_copy_only=False) for one in (x, y))
    found = np.asarray(cpdist(a, b, scorer=Levenshtein.distance)).astype(np.int64)
    return pc.if_else(there, pa.array(found), pa.scalar(None, pa.int64()))


def _grams(texts: pa.Array) -> tuple[Any, Any]:
    buffers = from_arrow(pc.fill_null(texts, ""))
    offsets = buffers.offsets
    out, ends = np.empty(int(offsets[-1] - offsets[0]), np.uint64), np.empty(offsets.size, np.int64)
    gram_sets(address(buffers.values), offsets, LONGEST_GRAM, out, ends)
    return out, ends


def _arrays(x: Any, y: Any) -> tuple[pa.Array, pa.Array]:
    """Two values as arrays of one length; one of them is an array."""
    size = next(len(one) for one in (x, y) if not isinstance(one, pa.Scalar))
    a, b = (pa.repeat(one, size) if isinstance(one, pa.Scalar) else one for one in (x, y))
    return a, b


KERNELS: dict[str, Callable[..., Any]] = {
    "lower": pc.utf8_lower,
    "upper": pc.utf8_upper,
    "length": lambda x: pc.utf8_length(x).cast(pa.int64()),
    "substr": substring,
    "trim": trimmed,
    "replace": lambda x, what, by: pc.replace_substring(x, what, by),
    "regexp": matches,
    "contains": contains,
    "starts_with": starts_with,
    "ends_with": ends_with,
    "||": lambda x, y: pc.binary_join_element_wise(x, y, ""),
    "concat": lambda *texts: pc.binary_join_element_wise(*(pc.fill_null(one, "") for one in texts), ""),
    "to text": lambda x: x.cast(pa.string()),
    "array_to_string": lambda x, between: pc.binary_join(x, between),
    "list_contains": list_contains,
    "list_text": list_text,
    "text_list": text_list,
    "array_length": lambda x: pc.list_value_length(x).cast(pa.int64()),
    "similarity": similarity,
    "gram_size": gram_size,
    "edit_distance": edit_distance,
}
