"""Moments and intervals. Moments are in UTC, in microseconds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

UNITS = ("microsecond", "millisecond", "second", "minute", "hour", "day", "week", "month", "quarter", "year")
_MONDAY = int(datetime(2000, 1, 3, tzinfo=UTC).timestamp()) * 1_000_000
"""Microseconds of a Monday: buckets of days and weeks begin where people begin them, as in DuckDB."""
_BEFORE_ALL = 1 << 57  # microseconds: 4,500 years, so that no moment is before the first bucket


def truncated(x: Any, unit: str) -> Any:
    """The begin of the hour, day, ... that a moment is in; weeks begin on Monday."""
    return pc.floor_temporal(x, unit=unit, week_starts_monday=True).cast(x.type)


def bucket(x: Any, width: int) -> Any:
    """The begin of the bucket, so many microseconds wide, that a moment is in."""
    origin = _MONDAY - (_BEFORE_ALL // width) * width
    since = pc.subtract(x.cast(pa.int64()), pa.scalar(origin, pa.int64()))
    whole = pc.multiply(pc.divide(since, pa.scalar(width, pa.int64())), pa.scalar(width, pa.int64()))
    return pc.add(whole, pa.scalar(origin, pa.int64())).cast(x.type)


def _part(name: str) -> Callable[[Any], Any]:
    return lambda x: getattr(pc, name)(x).cast(pa.int64())


PARTS: dict[str, Callable[[Any], Any]] = {
    name: _part(name) for name in ("year", "quarter", "month", "day", "hour", "minute", "second")
}
PARTS["week"] = _part("iso_week")
PARTS["dayofweek"] = lambda x: pc.day_of_week(x, count_from_zero=True, week_start=7).cast(pa.int64())
PARTS["dayofyear"] = _part("day_of_year")
PARTS["epoch"] = lambda x: pc.divide(x.cast(pa.int64()).cast(pa.float64(), safe=False), 1e6)

KERNELS: dict[str, Callable[..., Any]] = {
    "date_trunc": truncated,
    "bucket": bucket,
    "moment + interval": pc.add,
    "moment - interval": pc.subtract,
    "moment - moment": pc.subtract,
    **PARTS,
}
