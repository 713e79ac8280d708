"""Comparisons, three-valued logic, and choices between values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def is_in(x: Any, values: tuple[Any, ...], has_null: bool) -> Any:
    """Whether x is one of some values; null if it is null, or if it is none of them and one of them is null."""
    found = pc.is_in(x, pa.array(values, x.type))
    unknown = pc.or_kleene(pc.is_null(x), pc.invert(found)) if has_null else pc.is_null(x)
    return pc.if_else(unknown, pa.scalar(None, pa.bool_()), found)


def if_true(condition: Any, then: Any, otherwise: Any) -> Any:
    """One of two values; a condition that is null counts as false."""
    return pc.if_else(pc.fill_null(condition, False), then, otherwise)


def null_if(x: Any, y: Any) -> Any:
    """X, or null where it is equal to y."""
    return pc.if_else(pc.fill_null(pc.equal(x, y), False), pa.scalar(None, x.type), x)


def not_distinct(x: Any, y: Any) -> Any:
    """Whether two values are equal, or both null."""
    both_null = pc.and_(pc.is_null(x), pc.is_null(y))
    return pc.or_(both_null, pc.fill_null(pc.equal(x, y), False))


KERNELS: dict[str, Callable[..., Any]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
    "and": pc.and_kleene,
    "or": pc.or_kleene,
    "not": pc.invert,
    "is null": pc.is_null,
    "in": is_in,
    "if": if_true,
    "coalesce": pc.coalesce,
    "nullif": null_if,
    "is not distinct": not_distinct,
    "greatest": pc.max_element_wise,
    "least": pc.min_element_wise,
}
