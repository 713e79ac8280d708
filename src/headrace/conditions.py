"""Join conditions: which columns of the two sides must agree, and how."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from headrace.errors import BadInput

On: TypeAlias = "str | Sequence[str] | Mapping[str, str]"

ON_FORMS = "'col', ['a', 'b'] or {'stream_col': 'relation_col'}"


@dataclass(frozen=True)
class Condition(ABC):
    """What two tuples must satisfy to be joined."""

    @property
    @abstractmethod
    def left_columns(self) -> tuple[str, ...]:
        """The columns that are read on the left side (the stream)."""

    @property
    @abstractmethod
    def right_columns(self) -> tuple[str, ...]:
        """The columns that are read on the right side (the relation)."""


@dataclass(frozen=True)
class Equal(Condition):
    """Columns that are equal in pairs. A null equals nothing.

    Args:
        left: columns of the left side.
        right: columns of the right side, in the same order.

    Example:
        >>> Equal(("product",), ("product_id",)).right_columns
        ('product_id',)
    """

    left: tuple[str, ...]
    right: tuple[str, ...]

    def __post_init__(self) -> None:
        _check_columns("left", self.left)
        _check_columns("right", self.right)
        if len(self.left) != len(self.right):
            raise BadInput(
                f"an equality pairs columns: left has {len(self.left)} {list(self.left)}, "
                f"right has {len(self.right)} {list(self.right)}"
            )

    @property
    def left_columns(self) -> tuple[str, ...]:
        """The columns of the left side."""
        return self.left

    @property
    def right_columns(self) -> tuple[str, ...]:
        """The columns of the right side."""
        return self.right


def equal(left: str, right: str | None = None) -> Equal:
    """The condition that two columns are equal; one name serves both sides.

    Example:
        >>> equal("k")
        Equal(left=('k',), right=('k',))
        >>> equal("lk", "rk")
        Equal(left=('lk',), right=('rk',))
    """
    return Equal((left,), (left if right is None else right,))


def parse_on(on: On) -> Equal:
    """The equality that ``on=`` stands for: a column, several, or a mapping of stream to relation.

    Example:
        >>> parse_on(["a", "b"])
        Equal(left=('a', 'b'), right=('a', 'b'))
        >>> parse_on({"product": "product_id"})
        Equal(left=('product',), right=('product_id',))
    """
    left: tuple[str, ...]
    right: tuple[str, ...]
    if isinstance(on, str):
        left, right = (on,), (on,)
    elif isinstance(on, Mapping):
        left, right = tuple(on.keys()), tuple(on.values())
    elif isinstance(on, list | tuple):
        left = right = tuple(on)
    else:
        raise BadInput(f"on={on!r} is not understood; give {ON_FORMS}")
    if not left:
        raise BadInput(f"on={on!r} names no column; give {ON_FORMS}")
    return Equal(left, right)


def _check_columns(side: str, columns: tuple[str, ...]) -> None:
    if not columns:
        raise BadInput(f"the {side} side names no column")
    for column in columns:
        if not isinstance(column, str) or not column:
            raise BadInput(f"{column!r} on the {side} side is not a column name")
    twice = sorted({column for column in columns if columns.count(column) > 1})
    if twice:
        raise BadInput(f"{', '.join(twice)} is named twice on the {side} side")
