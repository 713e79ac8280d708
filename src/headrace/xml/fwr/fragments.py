"""Fragments: a variable as [PQP] has it, one row for each combination of nodes that its twig matches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.xml.fwr import values as v
from headrace.xml.fwr.syntax import Binding, Comparison, VarPath, literal
from headrace.xml.fwr.variable import KeyOf, Variable, in_slices
from headrace.xml.path import divide, parse
from headrace.xml.twig import Content, Twig

_ORDERED = ("<", "<=", ">", ">=")


class Fragments(Variable):
    """The fragments of one variable: its path with all paths of where and return as branches, in one twig.

    A path that only return uses is an optional branch: it must not filter. A path that occurs several times is one branch, so
    that what is returned is what was compared. The first comparison of a branch with a literal is a predicate of the twig, and
    others are made right after it. A name also stands for the attribute of this name of an element without such a child.
    """

    def __init__(
        self, binding: Binding, conditions: Sequence[Comparison], returned: Sequence[VarPath], key: KeyOf | None
    ) -> None:
        super().__init__(binding, returned, key)
        steps = binding.steps
        # Parents are unique: steps above that lead to the element by them, without predicates, do not multiply fragments.
        start = 0
        while start < len(steps) - 1 and not steps[start].predicates and steps[start + 1].axis == "/":
            start += 1
        self._after: list[Comparison] = []
        tests: dict[VarPath, Comparison] = {}
        shows: dict[VarPath, list[Content]] = {}
        for condition in conditions:
            left, right = condition.left, condition.right
            paths = [left, right] if isinstance(right, VarPath) else [left]
            by_order = isinstance(right, str) and condition.operator in _ORDERED
            if len(paths) == 1 and left.steps and left not in tests and not by_order:
                tests[left] = condition
                shows.setdefault(left, [])
            else:
                self._after.append(condition)
                for path in paths:
                    _show(shows, path, "text")
        if key is not None:
            _show(shows, key.path, "text")
        required = set(shows)
        for path in returned:
            # Beside its text an attribute that stands for a child is known from one: as XML it is the same.
            _show(shows, path, "text")
            _show(shows, path, "xml")

        text = binding.text
        last: dict[VarPath, int] = {}
        optional: list[int] = []
        for path in shows:
            if not path.steps:
                continue
            before = len(divide(parse(text), start)[1])
            main = [k for k, node in enumerate(parse(f"//x{path.below}")) if not node.predicate]
            last[path] = before + main[-1] - 1
            if path not in required:
                optional.append(before)
            text += _branch(path, tests.get(path))
        nodes = divide(parse(text), start)[1]
        bound = [k for k, node in enumerate(nodes) if not node.predicate][-1]
        content: dict[str, Sequence[Content]] = {node.column: () for node in nodes}
        content[nodes[bound].column] = ("order",)
        self._columns: dict[tuple[VarPath, str], str] = {}
        for path, kinds in shows.items():
            column = nodes[last.get(path, bound)].column
            content[column] = (*content[column], *kinds)
            for kind in kinds:
                self._columns[path, kind] = column if content[column][0] == kind else f"{column} ({kind})"
        self._optional = [nodes[k].column for k in optional]
        self.twigs = [Twig(text, content=content, optional=self._optional, start=start)]

    def take(self, number: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take fragments; yields those that pass the comparisons that the twig does not make."""
        keep = np.ones(batch.num_rows, np.bool_)
        for condition in self._after:
            left = self._column(batch, condition.left, "text")
            if isinstance(condition.right, VarPath):
                keep &= v.compared(left, condition.operator, self._column(batch, condition.right, "text"))
            else:
                keep &= v.holds(left, condition.operator, condition.right)
        columns = [self._value(batch, path) for path in self.returned]
        keys = None
        if self.key is not None:
            columns.insert(0, pa.nulls(batch.num_rows, pa.string()))
            keys = self._column(batch, self.key.path, "text").filter(v.truths(keep))
        columns = columns or [pa.nulls(batch.num_rows, pa.string())]
        yield from in_slices(self.schema, columns, np.flatnonzero(keep), keys)

    def describe(self) -> list[str]:
        """The lines of the plan, from the join down to the document."""
        kept = [condition.text for condition in self._after]
        lines = [f"keep fragments with {' and '.join(kept)}"] if kept else []
        optional = f" (optional: {', '.join(self._optional)})" if self._optional else ""
        return [*lines, f"twig {self.twigs[0].path}{optional}"]

    def _column(self, batch: pa.RecordBatch, path: VarPath, kind: str) -> pa.Array:
        return batch.column(self._columns[path, kind])

    def _value(self, batch: pa.RecordBatch, path: VarPath) -> pa.Array:
        """The node of a path as it is written in a result; nothing if there is none."""
        xml, text = self._column(batch, path, "xml"), self._column(batch, path, "text")
        if path.attribute is not None:
            return v.as_attributes(path.attribute, text)
        return pc.fill_null(pc.if_else(pc.equal(xml, text), v.as_text(text), xml), "")


def _show(shows: dict[VarPath, list[Content]], path: VarPath, kind: Content) -> None:
    kinds = shows.setdefault(path, [])
    if kind not in kinds:
        kinds.append(kind)


def _branch(path: VarPath, test: Comparison | None) -> str:
    """A path as a predicate, with the comparison that the twig makes."""
    if test is None:
        return f"[{path.branch}]"
    assert not isinstance(test.right, VarPath)
    if test.operator == "contains":
        return f"[contains({path.branch}, {literal(test.right)})]"
    return f"[{path.branch} {test.operator} {literal(test.right)}]"
