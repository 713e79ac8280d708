"""Check a pipeline without Spark: paths, relations, and the columns on their way from the source to the sink.

Only Spark knows the type of an SQL expression. After one, the columns are unknown here, and `build` checks them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.conditions import parse_on
from headrace.errors import HeadraceError, choice
from headrace.pipeline.document import BadPipeline, Document, Key, Problem, filled, near
from headrace.pipeline.fields import filled_size
from headrace.pipeline.models import Pipeline
from headrace.pipeline.parts import (
    DeltaSink,
    Duplicates,
    Enrich,
    FileSource,
    Filter,
    KafkaSink,
    KafkaSource,
    Keys,
    ParquetSink,
    PostgreSQLSink,
    PostgreSQLSource,
    Select,
)
from headrace.relation import Relation
from headrace.semistream import ALGORITHMS, AdaptiveJoin, ConditionalJoin
from headrace.semistream.base import SemiStreamJoin


@dataclass
class Checked:
    """The results of a check."""

    schemas: list[pa.Schema | None] = field(default_factory=list)
    """columns after the source and after each step; None where only Spark knows them"""
    operators: dict[int, SemiStreamJoin] = field(default_factory=dict)
    """the joins of the enrich steps, by the step's number"""
    spark: list[Key] = field(default_factory=list)
    """expressions that only Spark can check"""


def check_pipeline(pipeline: Pipeline) -> Checked:
    """Check a pipeline; raises `BadPipeline` with every mistake and its line."""
    document, problems, checked = pipeline.document, list[Problem](), Checked()
    schema: pa.Schema | None = None
    with _noting(document, ("source",), problems):
        _check_source(pipeline)
    with _noting(document, ("source",), problems):
        schema = pipeline.source.schema_
    checked.schemas.append(schema)
    for number, step in enumerate(pipeline.steps):
        at: Key = ("step", number)
        if isinstance(step, Enrich):
            schema = _check_enrich(pipeline, number, step, schema, checked, problems)
        elif isinstance(step, Keys | Duplicates):
            with _noting(document, at, problems):
                schema = _check_lookup(pipeline, at, step, schema)
            if schema is None:
                checked.spark.append(at)
        elif isinstance(step, Filter):
            checked.spark.append((*at, "filter"))
        elif isinstance(step, Select):
            schema = _selected(step, schema)
            if schema is None:
                checked.spark.append((*at, "select"))
        checked.schemas.append(schema)
    if schema is not None:
        with _noting(document, ("sink",), problems):
            check_sink(pipeline, schema)
    for key, path in _written(pipeline):
        with _noting(document, key, problems):
            _check_writable(path)
    if problems:
        raise BadPipeline(problems)
    return checked


@contextmanager
def located(document: Document, key: Key) -> Iterator[None]:
    """Attach a place in the file to errors that are raised inside."""
    try:
        yield
    except BadPipeline:
        raise
    except (HeadraceError, OSError) as error:
        raise BadPipeline([document.problem(key, str(error))]) from error


@contextmanager
def _noting(document: Document, key: Key, problems: list[Problem]) -> Iterator[None]:
    try:
        with located(document, key):
            yield
    except BadPipeline as error:
        problems += error.problems


def refuse(document: Document, key: Key, message: str) -> BadPipeline:
    """Make the error for one place."""
    return BadPipeline([document.problem(key, message)])


def _check_source(pipeline: Pipeline) -> None:
    source, document = pipeline.source, pipeline.document
    if isinstance(source, FileSource):
        path = pipeline.at(source.path)
        if not path.is_dir():
            found = "a file" if path.exists() else "nothing"
            raise refuse(
                document, ("source", "path"), f"found {found} at {source.path!r}, expected a directory; make it first"
            )
    if isinstance(source, KafkaSource) and source.value != "bytes" and source.columns is None:
        raise refuse(
            document, ("source", "columns"), f"is missing: value = {source.value!r} needs the columns and their types"
        )
    if isinstance(source, PostgreSQLSource):
        return
    for name in getattr(source, "required", ()):
        check_column(document, ("source", "required"), name, source.schema_)


def check_column(document: Document, key: Key, name: str, schema: pa.Schema) -> None:
    """Refuse a column that does not exist."""
    if name not in schema.names:
        raise refuse(document, key, f"there is no column {name!r}; {near(name, schema.names)}")


def _check_enrich(
    pipeline: Pipeline, number: int, step: Enrich, schema: pa.Schema | None, checked: Checked, problems: list[Problem]
) -> pa.Schema | None:
    document, at = pipeline.document, ("step", number)
    try:
        with located(document, (*at, "enrich")):
            relation = Relation.open(pipeline.at(step.enrich))
        with located(document, (*at, "algorithm")):
            choice("algorithm", step.algorithm, ("auto", *ALGORITHMS))
        if step.on is None and step.condition is None:
            raise refuse(document, (*at, "on"), "is missing in an enrich step: say which column to join on")
        if step.on is not None and schema is not None:
            with located(document, (*at, "on")):
                for name in parse_on(step.on).left:
                    check_column(document, (*at, "on"), name, schema)
        for name in step.columns or ():
            check_column(document, (*at, "columns"), name, relation.schema)
        with located(document, at):
            operator = make_join(step, relation)
            checked.operators[number] = operator
            if schema is None:
                return None
            versions = [pa.field(step.version_column, pa.int64())] if step.version_column else []
            return pa.schema([*operator.output_schema(schema), *versions])
    except BadPipeline as error:
        problems += error.problems
    return None


def _check_lookup(pipeline: Pipeline, at: Key, step: Keys | Duplicates, schema: pa.Schema | None) -> pa.Schema | None:
    """Return the columns after a step of surrogate keys or duplicates; None if only Spark knows them."""
    document = pipeline.document
    name, on = (step.surrogate_keys, step.key) if isinstance(step, Keys) else (step.duplicates, step.on)
    with located(document, (*at, "surrogate_keys" if isinstance(step, Keys) else "duplicates")):
        relation = Relation.open(pipeline.at(name))
    if schema is None or on is None:
        return None
    key: Key = (*at, "key" if isinstance(step, Keys) else "on")
    with located(document, key):
        for column in parse_on(on).left:
            check_column(document, key, column, schema)
    if isinstance(step, Keys):
        check_column(document, (*at, "surrogate"), step.surrogate, relation.schema)
        return schema.append(relation.schema.field(step.surrogate))
    for column in step.columns or ():
        check_column(document, (*at, "columns"), column, relation.schema)
    join = AdaptiveJoin(
        relation, on, filled_size(step.memory), how="left", columns=step.columns, suffix=filled(step.suffix)
    )
    return join.output_schema(schema).append(pa.field(step.flag, pa.bool_()))


def make_join(step: Enrich, relation: Relation) -> SemiStreamJoin:
    """Make the join of a step, to check that it can run and to learn its memory."""
    how = "left" if step.unmatched == "null" else step.how
    options: dict[str, Any] = {"how": how, "columns": step.columns, "suffix": filled(step.suffix)}
    memory = filled_size(step.memory)
    if step.condition is None and step.algorithm in ("auto", "adaptive"):
        return AdaptiveJoin(relation, step.on, memory, order=step.order, **options)
    if step.condition is not None:
        options["condition"] = step.condition
        if step.on is not None and step.algorithm in ("auto", "adaptive"):
            return ConditionalJoin(relation, step.on, memory, order=step.order, **options)
    name = step.algorithm if step.algorithm not in ("auto", "adaptive") else "meshjoin"
    operator: SemiStreamJoin = ALGORITHMS[name](relation, step.on, memory, **options)
    return operator


def _selected(step: Select, schema: pa.Schema | None) -> pa.Schema | None:
    """Return the columns of a select of plain names; None if it has expressions."""
    if schema is None or any(name not in schema.names for name in step.select):
        return None
    return pa.schema([schema.field(name) for name in step.select])


def check_sink(pipeline: Pipeline, schema: pa.Schema) -> None:
    """Refuse rows that do not fit the sink."""
    sink, document = pipeline.sink, pipeline.document
    for name in getattr(sink, "partition_by", ()):
        check_column(document, ("sink", "partition_by"), name, schema)
    if isinstance(sink, KafkaSink) and sink.key is not None:
        check_column(document, ("sink", "key"), sink.key, schema)
    if isinstance(sink, PostgreSQLSink):
        _check_table(document, sink, schema)
    if isinstance(sink, DeltaSink):
        from deltalake import DeltaTable

        from headrace.spark.delta.schema import check_partitions, check_schema, delta_types

        path = pipeline.at(sink.path)
        check_partitions(delta_types(schema), sink.partition_by)
        if path.is_dir() and DeltaTable.is_deltatable(str(path)):
            check_schema(DeltaTable(str(path)), schema, sink.partition_by, path)


def _check_table(document: Document, sink: PostgreSQLSink, schema: pa.Schema) -> None:
    """Refuse columns that the table does not have. Their types are checked when the run starts."""
    from headrace.sources.postgresql import TableReader

    with located(document, ("sink", "table")):
        table = TableReader.describe(filled(sink.table), filled(sink.url)).schema
    for name in schema.names:
        check_column(document, ("sink", "table"), name, table)
    for key, names in (("key", sink.key), ("latest_by", [sink.latest_by] if sink.latest_by else [])):
        for name in names:
            check_column(document, ("sink", key), name, schema)


def _written(pipeline: Pipeline) -> Iterator[tuple[Key, Path]]:
    """Return the directories that a run writes to."""
    yield ("state",), pipeline.state
    if isinstance(pipeline.sink, DeltaSink | ParquetSink):
        yield ("sink", "path"), pipeline.at(pipeline.sink.path)


def _check_writable(path: Path) -> None:
    there = path
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir():
        raise NotADirectoryError(f"found a file at {there}, expected a directory")
    if not os.access(there, os.W_OK | os.X_OK):
        raise PermissionError(f"{there} cannot be written to; give another directory, or the right to write there")
