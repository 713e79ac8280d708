"""Construction: makes the results of a query of the rows of its variables, joined."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.xml.fwr import values as v
from headrace.xml.fwr.plan import Plan
from headrace.xml.fwr.syntax import VarPath
from headrace.xml.fwr.variable import MANY

RESULT = pa.schema([("result", pa.string())])


class Construction:
    """Makes results of joined rows, which have the columns of all variables; of their keys, that of the first is enough."""

    def __init__(self, plan: Plan) -> None:
        parts = list(plan.query.element.template)
        self._template = [part.text if isinstance(part, VarPath) else part for part in parts]
        self._is_path = [isinstance(part, VarPath) for part in parts]
        self._key = plan.variables[0].key_column
        # Two elements that have several keys in common are joined on each. Of more than two variables those between have one key
        # alone, so that nothing repeats.
        self._lists = [variable.keys_column for variable in plan.variables] if len(plan.variables) == 2 else []

    def make(self, joined: pa.RecordBatch) -> pa.RecordBatch:
        """The results of some rows, each an element as text."""
        batch = self._once(joined)
        parts = [batch.column(p) if path else p for p, path in zip(self._template, self._is_path, strict=True)]
        if not any(self._is_path):
            parts.append(pa.repeat("", batch.num_rows))
        return pa.RecordBatch.from_arrays([pc.binary_join_element_wise(*parts, "")], schema=RESULT)

    def _once(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Leave out repeats: two elements that have several keys in common are a result for the smallest of them."""
        if not self._lists:
            return batch
        lists = [batch.column(name) for name in self._lists]
        rows = np.flatnonzero(v.mask(pc.and_(lists[0].is_valid(), lists[1].is_valid())))
        if not rows.size:
            return batch
        which = v.indices(rows)
        split = [pc.split_pattern(some.take(which), MANY) for some in lists]
        key = batch.column(self._key).take(which)
        codes, texts = v.ranks(pa.concat_arrays([split[0].flatten(), split[1].flatten(), key]))
        at = 0
        found = []
        for some in split:
            counts = v.numbers(pc.list_value_length(some).cast(pa.int64()))
            found.append(np.repeat(np.arange(rows.size), counts) * len(texts) + codes[at : at + int(counts.sum())])
            at += int(counts.sum())
        common = np.intersect1d(found[0], found[1])
        smallest = common[np.unique(common // len(texts), return_index=True)[1]] % len(texts)
        keep = np.ones(batch.num_rows, np.bool_)
        keep[rows] = smallest == codes[at:]
        return batch.filter(v.truths(keep))
