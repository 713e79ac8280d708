"""BoundElements: the elements that a variable is bound to, each once, with what the query asks of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Bools, Int64s
from headrace.errors import BadInput
from headrace.memory import MemoryBudget, Reservation
from headrace.xml.fwr import values as v
from headrace.xml.fwr.reader import refusal
from headrace.xml.fwr.syntax import Binding, Comparison, VarPath, literal
from headrace.xml.fwr.variable import MANY, KeyOf, Variable, in_slices
from headrace.xml.path import divide, parse
from headrace.xml.twig import Content, Twig

_ORDERED = ("<", "<=", ">", ">=")


class BoundElements(Variable):
    """The elements of one variable, as XQuery has them: an element is bound once, and = holds if any of its values is equal.

    Every condition and every path has a twig of its own that begins at the bound element, so that no products arise: rows of
    all of them come when the element ends. The last twig is the element alone. It marks the element as complete: all other
    rows of it have come by then.

        //item[contains(title, "CNA")]   -> filter   item 7
        //item//techNews/keyword         -> values   item 7 "Google", item 7 "Robotics"
        //item//techNews/blurb           -> nodes    item 7 node 12 <blurb>…</blurb>, …
        //item                           -> mark     item 7                            => rows of item 7 for the join

    A row for the join has one key, the values of all returned paths, and, if the element has several keys, all of them: a pair
    of elements is a result for the smallest key that both have, and for no other. So repeats are left out without a list of
    what was sent.
    """

    def __init__(
        self,
        source: str,
        binding: Binding,
        conditions: Sequence[Comparison],
        returned: Sequence[VarPath],
        key: KeyOf | None,
    ) -> None:
        super().__init__(binding, returned, key)
        self._source = source
        self._conditions = list(conditions)
        steps = binding.steps
        predicates = [bool(step.predicates) for step in steps[:-1]]
        # The first step that must have ended before it is known whether an element is bound.
        self._start = predicates.index(True) if True in predicates else len(steps) - 1
        self._bound = len(steps) - 1 - self._start
        self._base = "".join(step.text for step in steps[:-1]) + steps[-1].bare
        #: An element may be bound again when an outer element ends, in which case those that were must be remembered.
        self._recurs = any(step.axis == "//" for step in steps[self._start + 1 :])
        self.twigs: list[Twig] = []
        self._filters = [self._twig(branch=f"[{predicate}]") for predicate in steps[-1].predicates]
        self._selections: list[tuple[int, Comparison]] = []
        self._pairs: list[tuple[int, int, Comparison]] = []
        self._texts: dict[VarPath, int] = {}
        for condition in self._conditions:
            self._add(condition)
        self._key_twig = None if key is None else self._text_twig(key.path)
        self._nodes = [self._twig(path.below, show=("order", "xml")) for path in returned]
        self._mark = self._twig()
        self._pending: list[list[pa.RecordBatch]] = [[] for _ in self.twigs]
        self._held: Reservation | None = None
        self._seen: Reservation | None = None
        self._sent: Int64s = np.empty(0, np.int64)

    def reserve(self, budget: MemoryBudget) -> None:
        """Reserve memory for rows of elements that have not ended."""
        self._held = budget.reserve(f"rows of open elements of ${self.binding.variable}", 0)
        self._seen = budget.reserve(f"numbers of elements of ${self.binding.variable} that were bound", 0)

    def take(self, number: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take rows of one of the twigs; yields rows of elements that are complete, for the join."""
        assert self._held is not None
        if number != self._mark:
            self._held.resize(self._held.nbytes + batch.nbytes)
            self._pending[number].append(batch)
            return
        ended = np.unique(v.numbers(batch.column(0)))
        rows = [self._rows_of(number, ended) for number in range(self._mark)]
        self._held.resize(sum(batch.nbytes for some in self._pending for batch in some))
        yield from self._complete(ended, rows)

    def describe(self) -> list[str]:
        """The lines of the plan, from the join down to the document."""
        kept = [condition.text for condition in self._conditions]
        kept += [f"${self.binding.variable}[{predicate}]" for predicate in self.binding.steps[-1].predicates]
        lines = [f"keep elements with {' and '.join(kept)}"] if kept else []
        return [*lines, *(f"twig {twig.path}" for twig in self.twigs)]

    # -- twigs -------------------------------------------------------------------------------------------------------------

    def _add(self, condition: Comparison) -> None:
        left, right = condition.left, condition.right
        if isinstance(right, VarPath):
            self._pairs.append((self._text_twig(left), self._text_twig(right), condition))
        elif condition.operator == "contains" and right == "":
            pass  # contains(…, "") is true also of no node
        elif not left.steps or (isinstance(right, str) and condition.operator in _ORDERED):
            # A twig compares texts by order as numbers, and has no way to ask its root.
            self._selections.append((self._text_twig(left), condition))
        elif condition.operator == "contains":
            self._filters.append(self._twig(branch=f"[contains({left.branch}, {literal(right)})]"))
        else:
            self._filters.append(self._twig(branch=f"[{left.branch} {condition.operator} {literal(right)}]"))

    def _text_twig(self, path: VarPath) -> int:
        if path not in self._texts:
            self._texts[path] = self._twig(path.below, show=("text",))
        return self._texts[path]

    def _twig(self, below: str = "", branch: str = "", show: tuple[Content, ...] = ()) -> int:
        """Add a twig that shows the number of the bound element, and what is asked of the end of its path; returns its number."""
        path = self._base + branch + below
        nodes = divide(parse(path), self._start)[1]
        main = [node.column for node in nodes if not node.predicate]
        content: dict[str, Sequence[Content]] = {node.column: () for node in nodes}
        content[main[self._bound]] = ("order",)
        content[main[-1]] = (*content[main[-1]], *show)
        self.twigs.append(Twig(path, content=content, strict=True, start=self._start))
        return len(self.twigs) - 1

    # -- elements that are complete ----------------------------------------------------------------------------------------

    def _rows_of(self, number: int, ended: Int64s) -> tuple[Int64s, pa.RecordBatch]:
        """Rows of a twig that belong to elements that have ended, with the places of these; the others wait on."""
        waiting = self._pending[number]
        if not waiting:
            schema = self.twigs[number].schema
            return np.empty(0, np.int64), pa.RecordBatch.from_arrays(
                [pa.array([], f.type) for f in schema], schema=schema
            )
        batch = waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)
        orders = v.numbers(batch.column(0))
        places = np.minimum(np.searchsorted(ended, orders), ended.size - 1)
        found = ended[places] == orders
        if found.all():
            self._pending[number] = []
            return places, batch
        self._pending[number] = [batch.take(v.indices(np.flatnonzero(~found)))]
        return places[found], batch.take(v.indices(np.flatnonzero(found)))

    def _complete(self, ended: Int64s, rows: Sequence[tuple[Int64s, pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
        keep = self._new(ended)
        for number in self._filters:
            keep &= v.present(rows[number][0], ended.size)
        for number, condition in self._selections:
            places, batch = rows[number]
            assert not isinstance(condition.right, VarPath)
            keep &= v.present(places[v.holds(batch.column(1), condition.operator, condition.right)], ended.size)
        for left, right, condition in self._pairs:
            keep &= v.exists(_texts(rows[left]), _texts(rows[right]), condition.operator, ended.size)
        kept = np.flatnonzero(keep)
        if not kept.size:
            return
        columns = [
            self._values(path, *rows[number], ended.size)
            for path, number in zip(self.returned, self._nodes, strict=True)
        ]
        if self.key is None or self._key_twig is None:
            yield from in_slices(self.schema, columns or [pa.nulls(ended.size, pa.string())], kept)
            return
        places, batch = rows[self._key_twig]
        codes, texts = v.ranks(batch.column(1))
        each = np.unique(places * len(texts) + codes)  # different keys of an element, in the order of code points
        places, codes = each // max(1, len(texts)), each % max(1, len(texts))
        counts = np.bincount(places, minlength=ended.size)
        if self.key.single and (counts[kept] > 1).any():
            raise BadInput(
                f"an element of ${self.binding.variable} has {counts[kept].max()} values of {self.key.path.text}, which several"
                " equalities compare: XQuery lets each equality take another value, which is not supported for three or more"
                ' variables; bind a variable to the values, or use semantics="fragments"'
            )
        keys = texts.take(v.indices(codes))
        none = pa.scalar(None, pa.string())
        all_keys = pc.if_else(v.truths(counts > 1), v.joined(keys, counts, MANY), none)
        chosen = keep[places]
        which = places[chosen]
        yield from in_slices(self.schema, [all_keys, *columns], which, keys.take(v.indices(np.flatnonzero(chosen))))

    def _new(self, ended: Int64s) -> Bools:
        """Which elements were not bound before."""
        if not self._recurs:
            return np.ones(ended.size, np.bool_)
        assert self._seen is not None
        new = ~np.isin(ended, self._sent)
        self._seen.resize(2 * 8 * (self._sent.size + ended.size))
        self._sent = np.union1d(self._sent, ended)
        return new

    def _values(self, path: VarPath, places: Int64s, batch: pa.RecordBatch, size: int) -> pa.Array:
        """The nodes of a path of each element, in document order and each once, as they are written in a result."""
        orders = v.numbers(batch.column(1))
        order = np.lexsort((orders, places))
        places, orders = places[order], orders[order]
        first = np.ones(places.size, np.bool_)
        first[1:] = (places[1:] != places[:-1]) | (orders[1:] != orders[:-1])
        xmls = batch.column(2).take(v.indices(order[first]))
        counts = np.bincount(places[first], minlength=size)
        if path.attribute is not None:
            if (counts > 1).any():
                reason = (
                    f"{path.text} has {counts.max()} attributes for one result, and an element has only one of a name; return the"
                    " elements that they belong to"
                )
                raise refusal(self._source, path.at, reason)
            xmls = v.as_attributes(path.attribute, xmls)
        return v.joined(xmls, counts, "")


def _texts(rows: tuple[Int64s, pa.RecordBatch]) -> tuple[Int64s, pa.Array]:
    return rows[0], rows[1].column(1)
