"""The partitioning for a condition, and the part of the condition that is tested on the pairs it finds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from headrace.conditions import AllOf, Condition, Equal, Intersects, Within
from headrace.errors import BadInput
from headrace.progressive.grids.boxes import BoxGrid
from headrace.progressive.grids.keys import HashPartitioning
from headrace.progressive.grids.lsh import VectorLsh
from headrace.progressive.grids.partitioning import Partitioning
from headrace.progressive.grids.pivots import VectorPivots, random_pivots
from headrace.progressive.grids.unbounded import UnboundedBoxes, UnboundedVectors
from headrace.progressive.grids.vectors import VectorGrid

_MANY_DIMENSIONS = 32  # of vectors that pivots divide; a grid, which has few of the dimensions, prunes little there
_RANDOM_PIVOTS = 64  # that processes agree on without having seen a vector

CellWidth: TypeAlias = "float | Sequence[float]"  # in all dimensions, or one number for each


def partitioning_for(
    condition: Condition,
    partitions: int | None = None,
    space: Sequence[float] | None = None,
    cells: int | Sequence[int] | None = None,
) -> tuple[Partitioning, Condition | None]:
    """Return the partitioning that finds pairs for a condition, and what is still to be tested on them (None for nothing).

    If the condition has equalities, tuples are divided by all of them together; otherwise by the first box or distance.

    Parameters
    ----------
    condition
        equal, intersects, within, or all_of with one of them.
    partitions
        The number of partitions, for keys and boxes; the partitioning's default if None.
    space, cells
        The space and the cells of the grid, for boxes and vectors; see BoxGrid and VectorGrid.

    Example
    -------
    >>> import headrace as hr
    >>> divided, ask = partitioning_for(hr.all_of(hr.equal("k"), hr.compare("a", "<", "b"), hr.equal("l")))
    >>> divided.condition, ask
    (Equal(left=('k', 'l'), right=('k', 'l')), Compare(left='a', op='<', right='b'))
    """
    parts = list(_parts(condition))
    equal = [one for one in parts if isinstance(one, Equal)]
    if equal:
        _only_for_grids(condition, space=space, cells=cells)
        # A pair of columns that is named twice counts once. Of two pairs with a column in common the first is part of the key,
        # and the second is tested on pairs of rows.
        left: list[str] = []
        right: list[str] = []
        asked: list[Condition] = []
        for one in equal:
            for x, y in zip(one.left, one.right, strict=True):
                if x not in left and y not in right:
                    left.append(x)
                    right.append(y)
                elif (x, y) not in zip(left, right, strict=True):
                    asked.append(Equal((x,), (y,)))
        keys = Equal(tuple(left), tuple(right))
        rest = [*asked, *(one for one in parts if not isinstance(one, Equal))]
        return HashPartitioning(keys) if partitions is None else HashPartitioning(keys, partitions), _all(rest)
    lead = next((one for one in parts if isinstance(one, Intersects | Within)), None)
    if lead is None:
        raise BadInput(
            f"{condition!r} cannot divide two streams; use equal, intersects or within, or all_of with one of them beside others"
        )
    ask = _all([one for one in parts if one is not lead])
    if isinstance(lead, Intersects):
        return BoxGrid(lead, space, cells, partitions=partitions), ask
    if partitions is not None:
        raise BadInput(f"partitions={partitions!r} is for keys and boxes; a grid over vectors takes cells=")
    if cells is not None and not isinstance(cells, int):
        raise BadInput(f"cells={cells!r} is not a number; a grid over vectors has as many in each dimension")
    if lead.recall < 1 or in_many_dimensions(lead):
        _only_for_grids(condition, space=space, cells=cells)
        return VectorLsh(lead) if lead.recall < 1 else VectorPivots(lead), ask
    return VectorGrid(lead, space, 4 if cells is None else cells), ask


def unbounded_partitioning_for(
    condition: Condition, partitions: int, cell: CellWidth | None, pivots: Any = None
) -> tuple[Partitioning, Condition | None]:
    """Return the partitioning for a condition where the space is not known: grids have cells of a given width, and no bounds.

    All processes have the same, without having seen a row: `pivots` are vectors that the user gives, None for none.
    """
    parts = list(_parts(condition))
    lead = next((one for one in parts if isinstance(one, Intersects | Within)), None)
    if lead is None or any(isinstance(one, Equal) for one in parts):
        _only_for_grids(condition, cell=cell)
        return partitioning_for(condition, partitions)
    ask = _all([one for one in parts if one is not lead])
    if pivots is not None and not isinstance(lead, Within):
        raise BadInput(f"pivots are for within(), and the condition is {lead!r}; leave them out")
    if isinstance(lead, Within):
        if pivots is not None or lead.recall < 1 or lead.metric == "cosine":
            _only_for_grids(condition, cell=cell)
            return _agreed_cells(lead, partitions, pivots), ask
        return UnboundedVectors(lead, cell, partitions), ask
    if cell is None:
        raise BadInput(
            f"{lead!r} on streams needs cell=..., the width of a grid's cell: about that of the larger boxes, one number or one"
            " for each dimension"
        )
    return UnboundedBoxes(lead, cell, partitions), ask


def in_many_dimensions(condition: Within) -> bool:
    """Whether pivots divide vectors better than a grid: angles, and vectors that are known to have many coordinates."""
    known = condition.dims or max(len(condition.left), len(condition.right))
    return condition.metric == "cosine" or known >= _MANY_DIMENSIONS


def _agreed_cells(condition: Within, partitions: int, pivots: Any) -> Partitioning:
    """Cells that do not depend on the rows that a process has seen."""
    if condition.recall < 1 and pivots is None:
        return VectorLsh(condition, partitions=partitions, centred=False)
    if pivots is None:
        size = condition.dims or max(len(condition.left), len(condition.right))
        pivots = random_pivots(condition, _RANDOM_PIVOTS, size)
    return VectorPivots(condition, pivots, partitions)


def _only_for_grids(condition: Condition, **options: object) -> None:
    """Refuse options of grids for a condition that no grid divides."""
    for name, value in options.items():
        if value is not None:
            raise BadInput(
                f"{name}={value!r} is for boxes and vectors in a grid, and {condition!r} is divided without one"
            )


def _parts(condition: Condition) -> Iterator[Condition]:
    """The conditions that must all hold."""
    if isinstance(condition, AllOf):
        for one in condition.conditions:
            yield from _parts(one)
    else:
        yield condition


def _all(conditions: Sequence[Condition]) -> Condition | None:
    """One condition that says what all of these say; None if there are none."""
    if not conditions:
        return None
    return conditions[0] if len(conditions) == 1 else AllOf(tuple(conditions))
