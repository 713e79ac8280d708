"""What is asked of `estimate`, the sums that it is answered from, and the table of answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Bools, Float64s, Int64s
from headrace.errors import BadInput, UnsupportedType, shown
from headrace.sampling.intervals import Estimate, Stratum, estimate_ratio, estimate_total

GROUPS = 64  # groups that estimates have at most, by default


@dataclass(frozen=True, slots=True)
class Asked:
    """The quantities of a call of `estimate`."""

    count: bool
    sums: tuple[str, ...]
    averages: tuple[str, ...]
    confidence: float

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are summed, each once."""
        return tuple(dict.fromkeys([*self.sums, *self.averages]))


def asked_of(count: bool, sum: str | Sequence[str] | None, avg: str | Sequence[str] | None, confidence: float) -> Asked:
    """Check the arguments of `estimate`."""
    if not isinstance(confidence, float) or not 0 < confidence < 1:
        raise BadInput(
            f"confidence={shown(confidence)} is not a probability; give one above 0 and below 1, such as 0.95"
        )
    asked = Asked(count, column_names("sum", sum), column_names("avg", avg), confidence)
    if not (asked.count or asked.columns):
        raise BadInput("nothing is to be estimated; give count=True, sum='column' or avg='column'")
    return asked


def column_names(argument: str, names: str | Sequence[str] | None) -> tuple[str, ...]:
    """The names of columns that were given as one, several or none."""
    found = () if names is None else (names,) if isinstance(names, str) else tuple(names)
    for name in found:
        if not isinstance(name, str) or not name:
            raise BadInput(f"{argument}={shown(names)} names no column; give the name of a column, or several")
    return found


def field_of(schema: pa.Schema, name: str, *, summed: bool) -> pa.Field:
    """The field of a column that is summed or grouped by. Types that cannot be are refused."""
    if name not in schema.names:
        raise BadInput(f"there is no column {name!r} to estimate; the columns are {', '.join(schema.names)}")
    type_, t = schema.field(name).type, pa.types
    if summed and not (t.is_integer(type_) or t.is_floating(type_) or t.is_decimal(type_) or t.is_boolean(type_)):
        raise UnsupportedType(f"column {name!r} has type {type_}, which cannot be summed; name a column of numbers")
    if not summed and (t.is_floating(type_) or t.is_nested(type_)):
        raise UnsupportedType(f"column {name!r} has type {type_}; group by integers, texts, dates or the like")
    return schema.field(name)


def amounts(rows: pa.RecordBatch, columns: Sequence[str]) -> Float64s:
    """What rows count for, as [row, amount]: 1; then for each column its value, 0 for null, and 1 if it is not null."""
    out = np.ones((rows.num_rows, 1 + 2 * len(columns)))
    for i, name in enumerate(columns):
        column = rows.column(name)
        out[:, 1 + 2 * i] = np.asarray(pc.cast(column, pa.float64(), safe=False).fill_null(0.0))
        out[:, 2 + 2 * i] = np.asarray(column.is_valid())
    return out


@dataclass
class Groups:
    """Numbers the values of the column that estimates are grouped by, from 0. Number `most` stands for all values without one."""

    most: int
    numbers: dict[Any, int] = field(default_factory=dict)

    def number(self, column: pa.Array, unused: Callable[[], Int64s]) -> Int64s:
        """The number of each value. Where there is none left for a new value, `unused` gives numbers to be used again."""
        found = pc.dictionary_encode(column, null_encoding="encode")
        codes = np.array([self._number(value, unused) for value in found.dictionary.to_pylist()], np.int64)
        return codes[np.asarray(found.indices)] if codes.size else codes

    def _number(self, value: Any, unused: Callable[[], Int64s]) -> int:
        if value in self.numbers:
            return self.numbers[value]
        if len(self.numbers) == self.most:
            free = set(unused().tolist())
            self.numbers = {v: n for v, n in self.numbers.items() if n not in free}
            if len(self.numbers) == self.most:
                return self.most
        taken = set(self.numbers.values())
        self.numbers[value] = next(n for n in range(self.most) if n not in taken)
        return self.numbers[value]


GroupKey = tuple[Any, bool]  # the value of a group, and whether it stands for all values without a number
ALL: GroupKey = (None, False)  # where there are no groups
_OTHER: GroupKey = (None, True)


@dataclass(frozen=True, slots=True)
class SampleTotals:
    """What is known from one simple random sample, by group."""

    population: float
    """the number of tuples that it was drawn from"""
    drawn: int
    """the number of tuples in it"""
    by_group: dict[GroupKey, Stratum]
    """all groups whose values have a number; those without one together, if the sample has any"""

    def stratum(self, group: GroupKey, width: int) -> Stratum:
        """A group's amounts, of which there are `width`."""
        return self.by_group.get(group) or Stratum.nothing(self.population, self.drawn, width)


def sample_totals(population: float, values: Float64s, numbers: dict[Any, int] | None) -> SampleTotals:
    """Sum up a sample's values, [tuple, group, amount]. `numbers`: of the values of groups; None where there are none."""
    size, n = max(population, len(values)), len(values)
    if numbers is None:
        return SampleTotals(size, n, {ALL: Stratum.of(population, values.sum(axis=1))})
    counted: Bools = np.asarray(values[:, :, 0].any(axis=0))
    nothing = Stratum.nothing(size, n, values.shape[2])
    by_group: dict[GroupKey, Stratum] = {
        (value, False): Stratum.of(population, values[:, number]) if counted[number] else nothing
        for value, number in sorted(numbers.items(), key=lambda item: item[1])
    }
    if counted[-1]:
        by_group[_OTHER] = Stratum.of(population, values[:, -1])
    return SampleTotals(size, n, by_group)


def row_totals(
    rows: pa.RecordBatch, population: float, columns: Sequence[str], group_by: str | None, groups: int
) -> tuple[SampleTotals, pa.Field | None]:
    """Sum up the rows of a simple random sample; gives the field of groups too."""
    check_groups(groups)
    for name in columns:
        field_of(rows.schema, name, summed=True)
    of_rows = amounts(rows, columns)
    group, numbered, codes = None, Groups(groups), np.zeros(rows.num_rows, np.int64)
    if group_by is not None:
        group = field_of(rows.schema, group_by, summed=False)
        codes = numbered.number(rows.column(group_by), lambda: np.empty(0, np.int64))
    values = np.zeros((rows.num_rows, 1 if group is None else groups + 1, of_rows.shape[1]))
    values[np.arange(rows.num_rows), codes] = of_rows
    return sample_totals(population, values, None if group is None else numbered.numbers), group


def check_groups(groups: object) -> None:
    """Refuse what is not a number of groups."""
    if isinstance(groups, bool) or not isinstance(groups, int) or groups < 1:
        raise BadInput(f"groups={shown(groups)} is not a number of groups; give 1 or more")


def answer(asked: Asked, columns: Sequence[str], samples: Sequence[SampleTotals], group: pa.Field | None) -> pa.Table:
    """The table of estimates: a row for each group and quantity.

    `columns` are those whose sums the samples have. Where a sample has values without a number of their own, they are marked in
    the column `other`; so is each value that another sample has a number for and this one has not.
    """
    width = 1 + 2 * len(columns)
    rows: list[tuple[Any, bool, str, Estimate]] = []
    for key, strata in _groups(samples, group, width).items():
        if asked.count:
            found = estimate_total(strata, asked.confidence)
            rows.append((*key, "count", Estimate(found.estimate, max(0.0, found.low), found.high)))
        for kind, names in (("sum", asked.sums), ("avg", asked.averages)):
            for name in names:
                at = 1 + 2 * list(columns).index(name)
                if kind == "sum":
                    found = estimate_total(strata, asked.confidence, at)
                else:
                    found = estimate_ratio(strata, asked.confidence, at, at + 1)
                rows.append((*key, f"{kind}({name})", found))
    out: dict[str, pa.Array] = {}
    if group is not None:
        out[group.name] = pa.array([row[0] for row in rows], group.type)
        out["other"] = pa.array([row[1] for row in rows], pa.bool_())
    out["quantity"] = pa.array([row[2] for row in rows], pa.string())
    for name in ("estimate", "low", "high"):
        out[name] = pa.array([getattr(row[3], name) for row in rows], pa.float64())
    population, kept = sum(s.population for s in samples), sum(s.drawn for s in samples)
    out["rows"] = pa.array([math.ceil(population)] * len(rows), pa.int64())
    out["kept"] = pa.array([kept] * len(rows), pa.int64())
    return pa.table(out)


def _groups(samples: Sequence[SampleTotals], group: pa.Field | None, width: int) -> dict[GroupKey, list[Stratum]]:
    """The strata of each group."""
    if group is None:
        return {ALL: [sample.stratum(ALL, width) for sample in samples]}
    seen = (key for sample in samples for key, found in sample.by_group.items() if found.means[0])
    keys = [key for key in dict.fromkeys(seen) if not key[1]]
    full = [sample for sample in samples if _OTHER in sample.by_group]
    apart = [key for key in keys if all(key in sample.by_group for sample in full)]
    found = {key: [sample.stratum(key, width) for sample in samples] for key in apart}
    if full:
        rest = [key for key in keys if key not in apart]
        found[_OTHER] = [_added([sample.stratum(key, width) for key in (*rest, _OTHER)]) for sample in samples]
    return found


def _added(strata: Sequence[Stratum]) -> Stratum:
    """Groups of one sample together.

    How they vary together is not known; the variance of a sum of k amounts is at most k times the sum of theirs.
    """
    first, k = strata[0], len(strata)
    means, spread = (np.sum([getattr(s, name) for s in strata], axis=0) for name in ("means", "spread"))
    return Stratum(first.population, first.drawn, means, k * spread)
