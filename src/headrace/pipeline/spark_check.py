"""Checks that only Spark can make: SQL expressions, their types, and the columns after them. Nothing is run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException

from headrace.pipeline.build import add_step, refused
from headrace.pipeline.check import check_draft, check_sink
from headrace.pipeline.document import BadPipeline, Key
from headrace.pipeline.models import Pipeline
from headrace.pipeline.noting import Checked, located
from headrace.pipeline.parts import Filter, Select
from headrace.pipeline.read import Draft
from headrace.pipeline.sources import stand_in
from headrace.spark.schemas import stream_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SparkChecker:
    """Checks steps one by one, each on an empty stream with the columns that come to it.

    Parameters
    ----------
    spark
        The session that checks.
    """

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def columns_after(self, draft: Draft, number: int, schema: pa.Schema) -> pa.Schema | None:
        """Return the columns after a step; None if the step has a mistake that hides them."""
        step, at = draft.steps[number], ("step", number)
        assert step is not None
        df = stand_in(self.spark, schema)
        if isinstance(step, Select):
            # One expression after the other, so that every wrong one is named.
            before = len(draft.problems)
            for expression in step.select:
                self._note(draft, (*at, "select"), partial(df.selectExpr, expression))
            if len(draft.problems) > before:
                return None
        after: list[DataFrame] = []
        self._note(draft, at, lambda: after.append(add_step(draft.place, step, at, df)))
        return stream_schema(after[0].schema) if after else None

    def parse(self, draft: Draft, number: int) -> None:
        """Check the syntax of a step's expressions, where it is not known which columns there are."""
        step = draft.steps[number]
        name = "filter" if isinstance(step, Filter) else "select"
        expressions: Iterable[str] = (
            (step.filter,) if isinstance(step, Filter) else step.select if isinstance(step, Select) else ()
        )
        nothing = self.spark.range(0)
        for expression in expressions:
            self._note(draft, ("step", number, name), partial(_parse, nothing, expression))

    def _note(self, draft: Draft, key: Key, check: Callable[[], object]) -> None:
        try:
            with refused(draft.document, key):
                check()
        except BadPipeline as error:
            draft.problems += error.problems


def _parse(df: DataFrame, expression: str) -> None:
    """Parse an expression; that its columns are not there says nothing."""
    try:
        df.selectExpr(expression)
    except ParseException:
        raise
    except AnalysisException:
        pass


def check_with_spark(draft: Draft, spark: SparkSession) -> Checked:
    """Check everything, with Spark for what only it can check; every mistake is noted in the draft."""
    del draft.problems[draft.read :]  # those of a check without Spark are found again
    checked = check_draft(draft, SparkChecker(spark))
    if not draft.problems:
        try:
            _check_chain(draft.pipeline(), spark, checked)
        except BadPipeline as error:
            draft.problems += error.problems
    return checked


def describe_with_spark(pipeline: Pipeline, spark: SparkSession, checked: Checked) -> None:
    """Check a pipeline with Spark, and fill in the columns that only it knows; raises `BadPipeline` with every mistake."""
    draft = Draft.of(pipeline)
    checked.schemas = check_with_spark(draft, spark).schemas
    draft.pipeline()


def _check_chain(pipeline: Pipeline, spark: SparkSession, checked: Checked) -> None:
    """Check that the steps go together, one after the other, as they will run."""
    source = checked.schemas[0]
    assert source is not None
    df = stand_in(spark, source)
    sources = {name: stand_in(spark, one.schema) for name, one in checked.sources.items() if one and one.schema}
    for number, step in enumerate(pipeline.steps):
        df = add_step(pipeline, step, ("step", number), df, sources)
    with located(pipeline.document, ("sink",)):
        check_sink(pipeline, stream_schema(df.schema))
