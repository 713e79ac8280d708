"""JoinTotals: sums over the pairs of a window join, from which its estimates are made.

Every arriving tuple meets the other side's sample, and is itself certain. So the total of the joined windows is the sum, over
the live tuples u of both sides, of Y(u): what the pairs count for that u is the earlier tuple of. Tuples that are kept add up
their Y from their arrival on. In a fair sample the candidates do, which may enter it later; so Y is complete for every tuple
that is ever in it. The sample of a side is a simple random sample of its live tuples, and the samples of both sides are
independent.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.arrays import Bools, Float64s, Int32s, Int64s
from headrace.errors import BadInput, shown
from headrace.progressive.output import Output, PairRows
from headrace.sampling.estimates import Asked, Groups, SampleTotals, amounts, answer, field_of, sample_totals
from headrace.sampling.event_times import EventTimes
from headrace.sampling.everything import Everything
from headrace.sampling.sampled_side import SampledSide


class JoinTotals:
    """What is summed, by which groups, and where the columns are.

    Parameters
    ----------
    columns
        Result columns that are summed.
    group_by
        The result column whose values make groups; None for no groups.
    groups
        The most groups at a time.
    """

    def __init__(self, columns: tuple[str, ...], group_by: str | None, groups: int) -> None:
        self.columns = tuple(dict.fromkeys(columns))
        self.group_by = group_by
        self.groups = Groups(groups)
        self.shape = (1 if group_by is None else groups + 1), 1 + 2 * len(self.columns)
        """the groups and the amounts of the sums of a tuple"""
        self._group: pa.Field | None = None
        self._sources: dict[str, tuple[int, str]] = {}  # of each column: the side, and the name there

    def __repr__(self) -> str:
        return f"estimate={list(self.columns)}, group_by={self.group_by!r}, groups={self.groups.most}"

    def bind(self, output: Output, left: pa.Schema) -> None:
        """Learn where the columns are. Columns that there are not, or that cannot be summed or grouped by, are refused."""
        fields = [field_of(output.schema, name, summed=True) for name in self.columns]
        if self.group_by is not None:
            self._group = field_of(output.schema, self.group_by, summed=False)
            fields.append(self._group)
        for field in fields:
            at = output.schema.names.index(field.name)
            self._sources[field.name] = (0, field.name) if at < len(left) else (1, output.right[at - len(left)])

    def add(
        self,
        sides: Sequence[SampledSide | None],
        kept: SampledSide,
        slots: Int32s,
        left: PairRows,
        right: PairRows,
        which: Bools | None,
    ) -> None:
        """Add pairs, or those that `which` marks, to the sums of the tuples that were kept."""
        if which is not None:
            slots = slots[which]
        columns: dict[str, pa.Array] = {}
        for number, rows in enumerate((left, right)):
            wanted = {name: there for name, (side, there) in self._sources.items() if side == number}
            if wanted:
                taken = rows.take(list(dict.fromkeys(wanted.values())), which)
                columns |= {name: taken.column(there) for name, there in wanted.items()}
        of_pairs = np.ones((slots.size, 1))
        if self.columns:
            of_pairs = amounts(pa.RecordBatch.from_pydict({name: columns[name] for name in self.columns}), self.columns)
        groups: Int64s = np.zeros(slots.size, np.int64)
        if self.group_by is not None:
            groups = self.groups.number(columns[self.group_by], lambda: _unused(sides, self.groups.most))
        kept.add(slots, groups, of_pairs)

    def answer(
        self, asked: Asked, group_by: str | None, sides: Sequence[SampledSide | None], times: EventTimes | None
    ) -> pa.Table:
        """The estimates."""
        for name in asked.columns:
            if name not in self.columns:
                known = f"estimate={list(self.columns)}" if self.columns else "estimate=True, which counts alone"
                raise BadInput(f"column {name!r} was not named when the join was made, with {known}; name it there")
        if group_by is not None and group_by != self.group_by:
            raise BadInput(
                f"group_by={shown(group_by)} was not named when the join was made, with group_by={self.group_by!r}; name it there"
            )
        group = None
        if group_by is not None:
            group = self._group or pa.field(group_by, pa.null())  # nothing has been joined yet
        return answer(asked, self.columns, self.of_sides(sides, times, grouped=group is not None), group)

    def of_sides(
        self, sides: Sequence[SampledSide | None], times: EventTimes | None, *, grouped: bool
    ) -> list[SampleTotals]:
        """What is known from the sample of each side that has one."""
        numbers = self.groups.numbers if grouped else None
        return [sample_totals(*_sampled(side, times), numbers) for side in sides if side is not None]

    def group_values(self) -> pa.RecordBatch | None:
        """The values of groups, in the order of their numbers, for a snapshot."""
        if self._group is None:
            return None
        values, numbers = list(self.groups.numbers), list(self.groups.numbers.values())
        return pa.RecordBatch.from_pydict(
            {"value": pa.array(values, self._group.type), "number": pa.array(numbers, pa.int64())}
        )

    def restore_groups(self, values: pa.RecordBatch) -> None:
        """Number the values of groups as a snapshot has them."""
        self.groups.numbers = dict(zip(values["value"].to_pylist(), values["number"].to_pylist(), strict=True))


def _sampled(side: SampledSide, times: EventTimes | None) -> tuple[float, Float64s]:
    """The number of a side's live tuples, and what the pairs of those in the sample count for."""
    sampler, slots = side.sampler, side.sampler.members()
    length = 0 if times is None else times.length
    if times is not None:
        slots = slots[times.now - side.times(slots) < length]
    whole = isinstance(sampler, Everything) or sampler.complete
    population = float(slots.size) if whole else sampler.live(0 if times is None else times.now, length)
    return population, side.sums_of(slots)


def _unused(sides: Sequence[SampledSide | None], most: int) -> Int64s:
    """The numbers of groups that no tuple has a pair of."""
    used = np.zeros(most + 1, np.bool_)
    for side in sides:
        if side is not None and len(side.sums):
            used |= (side.sums[:, :, 0] > 0).any(axis=0)
    return np.flatnonzero(~used[:most])
