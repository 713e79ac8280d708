"""Twigs compiled to the arrays that the twig machine runs on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headrace.arrays import Int64s, UInt8s
from headrace.kernels import twigs as t
from headrace.kernels import xml_scan as x
from headrace.xml.numbers import End, interval, number_of
from headrace.xml.path import QueryNode, Test

KINDS = {"order": t.AS_ORDER, "text": t.AS_STRING, "xml": t.AS_XML}
_TEXT_TESTS = {"=": t.SAME_TEXT, "!=": t.OTHER_TEXT, "contains": t.CONTAINS}
_NUMBER_TESTS = {
    "=": t.EQUAL, "!=": t.UNEQUAL, "<": t.BELOW, "<=": t.AT_MOST, ">": t.ABOVE, ">=": t.AT_LEAST,
}  # fmt: skip


@dataclass(frozen=True)
class TwigPlan:
    """A twig to be compiled: its query nodes, what is shown as (node, kind), the optional ones, and if names are strict."""

    nodes: Sequence[QueryNode]
    shown: Sequence[tuple[int, str]]
    optional: frozenset[int]
    strict: bool


@dataclass(frozen=True)
class Dispatch:
    """The query nodes of each known name, and last those of any other; with the words of the pool that they take."""

    at: Int64s
    nodes: Int64s
    needs: Int64s


@dataclass(frozen=True)
class Program:
    """The arrays of several twigs; headrace.kernels.twigs says what is in them."""

    nodes: Int64s
    children: Int64s
    elements: Dispatch
    attributes: Dispatch
    literals: Int64s
    digits: UInt8s
    twigs: Int64s
    columns: Int64s
    flags: dict[bytes, int]
    default: int
    most: int  # query nodes or columns of a twig

    @property
    def count(self) -> int:
        """The number of query nodes."""
        return self.nodes.size // t.NODE


def compile_twigs(plans: Sequence[TwigPlan]) -> Program:
    """Compile twigs to one program, which shares the scan among them."""
    total = sum(len(plan.nodes) for plan in plans)
    nodes = np.zeros((total, t.NODE), np.int64)
    twigs = np.zeros((len(plans), t.TWIG_FIELDS), np.int64)
    children: list[int] = []
    columns: list[int] = []
    literals = _Literals()
    by_name: dict[str, list[int]] = {}
    by_attribute: dict[str, list[int]] = {}
    first = 0
    for number, plan in enumerate(plans):
        twigs[number] = first, len(plan.nodes), len(columns) // 2, len(plan.shown), _width(plan)
        for shown, kind in plan.shown:
            columns += [shown, KINDS[kind]]
        for k, node in enumerate(plan.nodes):
            row = nodes[first + k]
            kinds = {kind for which, kind in plan.shown if which == k}
            falls_back = (
                node.predicate and not plan.strict and not node.children and not node.attribute and node.name != "*"
            )
            row[t.PARENT] = -1 if node.parent < 0 else first + node.parent
            row[t.CHILD_EDGE] = node.axis == "/"
            row[t.ANY_LEVEL] = node.parent < 0 and node.axis == "//"
            row[t.SLOT] = 0 if node.parent < 0 else plan.nodes[node.parent].children.index(k)
            row[t.LISTS_OF] = len(node.children)
            row[t.CHILDREN_AT] = len(children)
            row[t.TWIG] = number
            row[t.TEST], row[t.LITERAL] = literals.add(node.test)
            row[t.NEEDS_TEXT] = node.test is not None or "text" in kinds
            row[t.NEEDS_XML] = "xml" in kinds
            row[t.OPTIONAL] = k in plan.optional
            row[t.FALLS_BACK] = falls_back
            children += [first + child for child in node.children]
            if not node.attribute:
                by_name.setdefault(node.name, []).append(first + k)
            if node.attribute or falls_back:
                by_attribute.setdefault(node.name, []).append(first + k)
        first += len(plan.nodes)
    anything = by_name.pop("*", [])
    names = sorted({*by_name, *by_attribute})
    lists = [sorted(by_name.get(name, []) + anything) for name in names]
    return Program(
        nodes=nodes.ravel(),
        children=np.array(children, np.int64),
        elements=_dispatch([*lists, anything], nodes),
        attributes=_dispatch([*(by_attribute.get(name, []) for name in names), []], nodes),
        literals=np.array(literals.fields, np.int64),
        digits=np.frombuffer(bytes(literals.digits) + b"\0", np.uint8),
        twigs=twigs.ravel(),
        columns=np.array(columns, np.int64),
        flags={
            name.encode(): _element_flags(found, nodes) | (x.AS_ATTRIBUTE if name in by_attribute else 0)
            for name, found in zip(names, lists, strict=True)
        },
        default=_element_flags(anything, nodes),
        most=max(max(len(plan.nodes), len(plan.shown)) for plan in plans),
    )


def _width(plan: TwigPlan) -> int:
    """Words of a row: the twig's number, an order, and two for a text."""
    return 1 + sum(1 if kind == "order" else 2 for _, kind in plan.shown)


def _element_flags(found: list[int], nodes: Int64s) -> int:
    if not found:
        return 0
    return x.AS_ELEMENT | (x.WITH_TEXT if nodes[found, t.NEEDS_TEXT].any() else 0)


def _dispatch(lists: Sequence[list[int]], nodes: Int64s) -> Dispatch:
    sizes = t.LISTS + 2 * nodes[:, t.LISTS_OF]
    at = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    needs = np.array([int(sizes[found].sum()) if found else 0 for found in lists], np.int64)
    return Dispatch(at, np.array([q for found in lists for q in found], np.int64), needs)


class _Literals:
    """The literals of all tests: fields of each, and the bytes that they point into."""

    def __init__(self) -> None:
        self.fields: list[int] = [0] * t.LITERAL_FIELDS
        self.digits = bytearray()

    def add(self, test: Test | None) -> tuple[int, int]:
        """Return the kind of a test and where its literal is."""
        if test is None:
            return t.NO_TEST, 0
        literal = test.literal
        if isinstance(literal, str) and test.operator in _TEXT_TESTS:
            at = self._put([len(self.digits), len(literal.encode()), *[0] * (t.LITERAL_FIELDS - 2)])
            self.digits += literal.encode()
            return _TEXT_TESTS[test.operator], at
        number = number_of(literal) if isinstance(literal, str) else literal
        if math.isnan(number):
            return t.NEVER, 0
        low, high, inclusive = interval(number)
        at = self._put([0, 0, inclusive, *self._end(low), *self._end(high)])
        return _NUMBER_TESTS[test.operator], at

    def _put(self, fields: list[int]) -> int:
        self.fields += fields
        return len(self.fields) - t.LITERAL_FIELDS

    def _end(self, end: End) -> tuple[int, int, int, int]:
        at = len(self.digits)
        self.digits += end.digits
        return end.sign, at, end.whole, len(end.digits)
