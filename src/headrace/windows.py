"""Sliding windows: which tuples of a stream are live. [PQP] §9.1

Made by `hr.rows` and `hr.time`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from headrace.errors import BadInput, shown
from headrace.units import parse_duration


@dataclass(frozen=True)
class RowWindow:
    """The latest `size` tuples of a stream: a window by sequence.

    Args:
        size: the number of tuples, 1 or more.
    """

    size: int

    def __post_init__(self) -> None:
        if isinstance(self.size, bool) or not isinstance(self.size, int) or self.size < 1:
            raise BadInput(f"rows({shown(self.size)}) is not a window; give a whole number of rows, 1 or more")


@dataclass(frozen=True)
class TimeWindow:
    """The tuples whose time is less than `length` before now, the latest time that was seen: a window by time.

    Args:
        length: seconds, above 0.
        on: the column with the time of a tuple, a timestamp or a date; of both sides, in a join.
        late: seconds that a tuple may come out of order; one that is later is counted and dropped.
    """

    length: float
    on: str
    late: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.on, str) or not self.on:
            raise BadInput(f"on={shown(self.on)} is not a column name; name the column with the time of a tuple")


Window: TypeAlias = "RowWindow | TimeWindow"


def rows(size: int) -> RowWindow:
    """Make the window of the latest rows of a stream.

    Example:
        >>> rows(10_000)
        RowWindow(size=10000)
    """
    return RowWindow(size)


def time(length: str | float | timedelta, *, on: str, late: str | float | timedelta = 0) -> TimeWindow:
    """Make the window of the rows of the last ten minutes, or of another length, by their own time.

    Args:
        length: how long a row is live, such as ``"10 minutes"`` or a number of seconds.
        on: the column with the time of a row, a timestamp or a date.
        late: how far rows may come out of order.

    Example:
        >>> time("10 minutes", on="t", late="5s")
        TimeWindow(length=600.0, on='t', late=5.0)
    """
    return TimeWindow(parse_duration(length, name="length"), on, parse_duration(late, name="late", zero=True))


def check_window(window: object) -> None:
    """Refuse an object that is not a window."""
    if not isinstance(window, RowWindow | TimeWindow):
        raise BadInput(f"window={shown(window)} is not a window; make one with hr.rows or hr.time")
