"""Twigs compiled to the arrays that the twig machine runs on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

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
    """A twig to be compiled: its query nodes, what is shown as (node, kind), the optional ones, and if names are strict.

    `above` are steps that the root lies under: they say where it is, and are no part of a fragment.
    """

    nodes: Sequence[QueryNode]
    shown: Sequence[tuple[int, str]]
    optional: frozenset[int]
    strict: bool
    above: Sequence[QueryNode] = ()


@dataclass(frozen=True)
class Dispatch:
    """The machine nodes of each known name, and last those of any other; with the words of the pool that they take."""

    at: Int64s
    nodes: Int64s
    needs: Int64s  # for their records
    cells: Int64s  # for the cells that lead to them


@dataclass(frozen=True)
class Program:
    """The arrays of several twigs; headrace.kernels.twigs says what is in them."""

    nodes: Int64s
    slots: Int64s
    members: Int64s
    required: Int64s
    queries: Int64s
    elements: Dispatch
    attributes: Dispatch
    literals: Int64s
    digits: UInt8s
    twigs: Int64s
    columns: Int64s
    flags: dict[bytes, int]
    default: int
    most: int  # query nodes or columns of a twig
    pending_needs: int  # words that attributes which stand for children may take at the end of an element

    @property
    def count(self) -> int:
        """The number of machine nodes."""
        return self.nodes.size // t.NODE

    @property
    def lists(self) -> int:
        """The number of lists of all machine nodes."""
        return self.slots.size


_Key = tuple[str, bool, str, bool, bool]  # axis, if an attribute, name, if it falls back to one, if a root of twigs
_Member = tuple[Test | None, tuple[int, ...], int]  # its test, the lists that it requires, and the twig of a root


@dataclass
class _MachineNode:
    """A machine node while it is built: query nodes that are reached by the same steps are members of one."""

    parent: int
    query: QueryNode
    falls_back: bool
    emits: bool
    members: dict[_Member, int]  # what a member is, and the list or twig that it goes to
    needs_text: bool = False
    needs_xml: bool = False
    slots: list[bool] = field(default_factory=list)  # its lists: over a descendant edge or not
    children: dict[_Key, int] = field(default_factory=dict)


def compile_twigs(plans: Sequence[TwigPlan]) -> Program:
    """Compile twigs to one program, which shares the scan, and all that they have in common from their roots on."""
    builder = _Builder()
    twigs = np.zeros((len(plans), t.TWIG_FIELDS), np.int64)
    columns: list[int] = []
    first = 0
    for number, plan in enumerate(plans):
        twigs[number] = first, len(plan.nodes), len(columns) // 2, len(plan.shown), _width(plan)
        for shown, kind in plan.shown:
            columns += [shown, KINDS[kind]]
        builder.add(number, plan)
        first += len(plan.nodes)
    return builder.program(twigs, columns, max(max(len(plan.nodes), len(plan.shown)) for plan in plans))


class _Builder:
    """Builds machine nodes as a trie of steps, and gives every query node a list in the records of its parent."""

    def __init__(self) -> None:
        self.nodes: list[_MachineNode] = []
        self.roots: dict[_Key, int] = {}
        self.queries: list[int] = []

    def add(self, twig: int, plan: TwigPlan) -> None:
        """Add a twig."""
        machine = [0] * len(plan.nodes)
        holder = -1
        for query in plan.above:
            holder = self._node(holder, query, False, False)
        for k, query in enumerate(plan.nodes):
            falls_back = (
                query.predicate and not plan.strict and not query.children and not query.attribute and query.name != "*"
            )
            machine[k] = self._node(machine[query.parent] if k else holder, query, falls_back, k == 0)
            kinds = {kind for which, kind in plan.shown if which == k}
            self.nodes[machine[k]].needs_text |= query.test is not None or "text" in kinds
            self.nodes[machine[k]].needs_xml |= "xml" in kinds
        # Children before parents, since a member is known by the lists that it requires.
        lists = [0] * len(plan.nodes)
        for k in reversed(range(len(plan.nodes))):
            query, node = plan.nodes[k], self.nodes[machine[k]]
            # Branches with a test come first: they fail more often than the others.
            branches = [child for child in query.children if child not in plan.optional]
            tested = sorted(branches, key=lambda child: (plan.nodes[child].test is None, lists[child]))
            required = tuple(dict.fromkeys(lists[child] for child in tested))
            if k == 0:
                node.members[query.test, required, twig] = twig
                continue
            member = query.test, required, -1
            if member not in node.members:
                slots = self.nodes[node.parent].slots
                node.members[member] = len(slots)
                slots.append(query.axis == "//")
            lists[k] = node.members[member]
        for k, query in enumerate(plan.nodes):
            self.queries += [max(query.parent, 0), lists[k]]

    def _node(self, parent: int, query: QueryNode, falls_back: bool, emits: bool) -> int:
        """The machine node of a step under a parent, which is made if no twig had it before."""
        known = self.nodes[parent].children if parent >= 0 else self.roots
        key = query.axis, query.attribute, query.name, falls_back, emits
        if key not in known:
            known[key] = len(self.nodes)
            self.nodes.append(_MachineNode(parent, query, falls_back, emits, {}))
        return known[key]

    def program(self, twigs: Int64s, columns: list[int], most: int) -> Program:
        """Return the arrays of all twigs that were added."""
        nodes = np.zeros((len(self.nodes), t.NODE), np.int64)
        members: list[int] = []
        required: list[int] = []
        slots: list[bool] = []
        literals = _Literals()
        by_name: dict[str, list[int]] = {}
        by_attribute: dict[str, list[int]] = {}
        for q, node in enumerate(self.nodes):
            row = nodes[q]
            row[t.PARENT] = node.parent
            row[t.CHILD_EDGE] = node.query.axis == "/"
            row[t.ANY_LEVEL] = node.parent < 0 and node.query.axis == "//"
            row[t.SLOTS_AT], row[t.LISTS_OF] = len(slots), len(node.slots)
            row[t.NEEDS_TEXT], row[t.NEEDS_XML], row[t.FALLS_BACK] = node.needs_text, node.needs_xml, node.falls_back
            row[t.MEMBERS_AT], row[t.MEMBERS_OF] = len(members) // t.MEMBER, len(node.members)
            row[t.EMITS] = node.emits or node.parent < 0
            slots += node.slots
            for (test, lists, _), target in node.members.items():
                members += [target, *literals.add(test), len(required), len(lists)]
                required += lists
            if not node.query.attribute:
                by_name.setdefault(node.query.name, []).append(q)
            if node.query.attribute or node.falls_back:
                by_attribute.setdefault(node.query.name, []).append(q)
        anything = by_name.pop("*", [])
        names = sorted({*by_name, *by_attribute})
        found = [sorted(by_name.get(name, []) + anything) for name in names]
        return Program(
            nodes=nodes.ravel(),
            slots=np.array(slots, np.int64),
            members=np.array(members, np.int64),
            required=np.array(required, np.int64),
            queries=np.array(self.queries, np.int64),
            elements=_dispatch([*found, anything], nodes),
            attributes=_dispatch([*(by_attribute.get(name, []) for name in names), []], nodes),
            literals=np.array(literals.fields, np.int64),
            digits=np.frombuffer(bytes(literals.digits) + b"\0", np.uint8),
            twigs=twigs.ravel(),
            columns=np.array(columns, np.int64),
            flags={
                name.encode(): _element_flags(which, nodes) | (x.AS_ATTRIBUTE if name in by_attribute else 0)
                for name, which in zip(names, found, strict=True)
            },
            default=_element_flags(anything, nodes),
            most=most,
            pending_needs=t.CELL * int(nodes[nodes[:, t.FALLS_BACK] == 1, t.MEMBERS_OF].sum()),
        )


def _width(plan: TwigPlan) -> int:
    """Words of a row: the twig's number, an order, and two for a text."""
    return 1 + sum(1 if kind == "order" else 2 for _, kind in plan.shown)


def _element_flags(found: list[int], nodes: Int64s) -> int:
    if not found:
        return 0
    return x.AS_ELEMENT | (x.WITH_TEXT if nodes[found, t.NEEDS_TEXT].any() else 0)


def _dispatch(lists: Sequence[list[int]], nodes: Int64s) -> Dispatch:
    sizes, cells = t.LISTS + 2 * nodes[:, t.LISTS_OF], t.CELL * nodes[:, t.MEMBERS_OF]
    at = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    needs, made = (
        np.array([int(words[found].sum()) if found else 0 for found in lists], np.int64) for words in (sizes, cells)
    )
    return Dispatch(at, np.array([q for found in lists for q in found], np.int64), needs, made)


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
