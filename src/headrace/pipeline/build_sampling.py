"""The steps that sample, on DataFrames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.errors import BadInput
from headrace.pipeline.document import filled
from headrace.pipeline.fields import filled_size
from headrace.pipeline.models import Pipeline
from headrace.pipeline.sampling_parts import (
    Estimate,
    JoinInPart,
    JoinWindows,
    Sample,
    Sampling,
    Windowed,
    condition_of,
    window_of,
)
from headrace.spark.column_names import ColumnNames
from headrace.spark.estimate import estimate
from headrace.spark.sample import sample
from headrace.spark.watermarks import with_delay
from headrace.spark.window_join import approximate_join, window_join
from headrace.units import parse_duration
from headrace.windows import TimeWindow, Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def add_sampling_step(pipeline: Pipeline, step: Sampling, df: DataFrame, sources: Mapping[str, DataFrame]) -> DataFrame:
    """Return the rows after a step that samples.

    Parameters
    ----------
    pipeline
        The pipeline, whose run log keeps the samples.
    step
        The step.
    df
        The rows before it.
    sources
        The sources that steps join with, by name.
    """
    if step.other is not None and step.other not in sources:
        raise BadInput(f"there is no source {step.other!r}; describe it in a table [sources.{step.other}]")
    sides = [df] if step.other is None else [df, sources[step.other]]
    if isinstance(step, JoinInPart):
        return _joined_in_part(pipeline, step, *sides)
    sides = [_with_lateness(side, step) for side in sides]
    arguments: dict[str, Any] = {
        "window": _on_spark(window_of(step)),
        "size": step.size,
        "memory": filled_size(step.memory),
        "seed": step.seed,
        "state": pipeline.run_log,
    }
    if isinstance(step, Sample):
        return sample(*sides, method=step.method, batch_column=step.batch_column, **arguments)
    arguments |= {"sample": step.sample, "suffix": filled(step.suffix), "cell": step.cell, "shards": step.shards}
    if isinstance(step, JoinWindows):
        left, right = sides
        return window_join(left, right, _condition(step), method=step.method, **arguments)
    condition = () if step.other is None else (_condition(step),)
    return estimate(
        *sides,
        *condition,
        count=step.count,
        sum=step.columns("sum"),
        avg=step.columns("avg"),
        group_by=step.group_by,
        groups=step.groups,
        confidence=step.confidence,
        **arguments,
    )


def _joined_in_part(pipeline: Pipeline, step: JoinInPart, left: DataFrame, right: DataFrame) -> DataFrame:
    return approximate_join(
        left,
        right,
        _condition(step),
        memory=step.budget,
        tuples=step.tuples,
        method=step.method,
        seed=step.seed,
        allocation=step.allocation,
        replacement=step.replacement,
        quality=step.quality,
        partitions=step.partitions,
        share=step.share,
        counters=filled_size(step.counters),
        suffix=filled(step.suffix),
        state=pipeline.run_log,
        shards=step.shards,
    )


def _condition(step: JoinWindows | JoinInPart | Estimate) -> Any:
    condition = condition_of(step)
    if condition is None:
        raise BadInput(f"neither on nor condition is given in {step.what}; say which columns to join on")
    return condition


def _with_lateness(df: DataFrame, step: Windowed) -> DataFrame:
    """The rows with a note of how late they may be, which a window by time needs."""
    if not isinstance(step.window, str):
        return df
    if step.time is None or step.late is None:
        raise BadInput(f"{step.what} with a window by time needs time and late: the column, and how late rows may come")
    late = parse_duration(filled_size(step.late), name="late", zero=True)
    return with_delay(df, ColumnNames.of(df.sparkSession).resolve(step.time, df.columns), late)


def _on_spark(window: Window | None) -> Window | None:
    """The window without its lateness, which the watermark says."""
    return TimeWindow(window.length, window.on) if isinstance(window, TimeWindow) else window
