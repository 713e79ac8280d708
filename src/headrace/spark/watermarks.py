"""Time bounds of `progressive_join`, from the watermarks of its sides."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pyspark.sql.functions import col

from headrace.errors import BadInput
from headrace.progressive.grids.partitioning import SIDES
from headrace.progressive.logged.join_spec import TimeBound
from headrace.spark.plan import derived
from headrace.units import parse_duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_WATERMARK = "spark.watermarkDelayMs"  # where Spark notes a watermark's delay, in the metadata of its column
_MICROS = 10**6  # in a second: Spark's timestamps are in microseconds


def time_bound(
    sides: tuple[DataFrame, DataFrame],
    within_time: str | float | None,
    time: str | tuple[str, str] | None,
    delay: str | float | None,
) -> TimeBound | None:
    """The time bound that `within_time` asks for; refuses sides that it cannot hold for."""
    if within_time is None:
        for name, value in (("time", time), ("delay", delay)):
            if value is not None:
                raise BadInput(f"{name}={value!r} is for within_time=...: how far apart in event time pairs may be")
        return None
    within = parse_duration(within_time, name="within_time", zero=True)
    late = None if delay is None else parse_duration(delay, name="delay", zero=True)
    if time is not None and not (isinstance(time, str) or (isinstance(time, tuple) and len(time) == 2)):
        raise BadInput(f"time={time!r} is not a column, nor one of each side; give 'at' or ('ordered_at', 'paid_at')")
    named = (time, time) if isinstance(time, str) or time is None else time
    found = [_of_side(side, df, named[side], late) for side, df in enumerate(sides)]
    return TimeBound((found[0][0], found[1][0]), round(within * _MICROS), (found[0][1], found[1][1]))


def _of_side(side: int, df: DataFrame, name: str | None, late: float | None) -> tuple[str, int | None]:
    """The column with the event time, and by how many microseconds rows may be late; None for a side that is not a stream."""
    marked = [f.name for f in df.schema.fields if _WATERMARK in f.metadata]
    if name is None:
        if len(marked) != 1:
            raise BadInput(
                f"the {SIDES[side]} side has no watermark, or more than one; name its event time with time=..., and give it"
                " withWatermark(...) or delay=..."
            )
        name = marked[0]
    if name not in df.columns:
        raise BadInput(f"time={name!r} is not a column of the {SIDES[side]} side, which has {', '.join(df.columns)}")
    if not df.isStreaming:
        return name, None
    if name in marked:
        return name, 1000 * int(df.schema[name].metadata[_WATERMARK])
    if late is None:
        raise BadInput(
            f"nobody knows how late rows of the {SIDES[side]} side may be; give it withWatermark({name!r}, ...), or delay=..."
        )
    return name, round(late * _MICROS)


def watermark_delay(side: int, df: DataFrame, name: str) -> float | None:
    """The seconds that rows may be late by the watermark on a column; None for a DataFrame that is not a stream."""
    if not df.isStreaming:
        return None
    delay = df.schema[name].metadata.get(_WATERMARK)
    if delay is None:
        raise BadInput(
            f"the {SIDES[side]} side has no watermark on {name!r}, so that nobody knows how late its rows may be; give it"
            f" withWatermark({name!r}, '10 seconds')"
        )
    return int(delay) / 1000


def with_delay(df: DataFrame, name: str, seconds: float) -> DataFrame:
    """Note at a column by how much rows may be late, where withWatermark notes it.

    Spark allows one watermark on the way of a row. Our steps ask for the delay alone and find late rows themselves, so that one
    may follow another.
    """
    marked = {_WATERMARK: math.ceil(1000 * seconds)}
    columns = [(one, col(f"`{one.replace('`', '``')}`")) for one in df.columns]
    return derived(
        df.select(*(found.alias(one, metadata=marked) if one == name else found for one, found in columns)), df
    )
