"""Check a pipeline without Spark: paths, relations, and the columns on their way from the source to the sink.

Only Spark knows the type of an SQL expression. After one, the columns are unknown here unless a `SqlChecker` is given
(`spark_check.py`). All mistakes are named at once: what a mistake hides is left out of the check, and nothing else.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from headrace.conditions import parse_on, renamed
from headrace.cost.broadcast import BROADCAST
from headrace.errors import BadInput, choice
from headrace.files import exists, is_directory
from headrace.pipeline.check_sampling import check_sampling
from headrace.pipeline.document import BadPipeline, Document, Key, filled, near
from headrace.pipeline.fields import filled_size
from headrace.pipeline.models import Pipeline
from headrace.pipeline.noting import Checked, Columns, Noting, check_column, column_names, located
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
    Select,
    Sink,
    Source,
    XmlSource,
)
from headrace.pipeline.read import Draft
from headrace.pipeline.sampling_parts import JoinInPart, Sampling
from headrace.relation import Relation
from headrace.semistream import ALGORITHMS, AdaptiveJoin, ConditionalJoin, algorithm_for, check_condition
from headrace.semistream.base import SemiStreamJoin
from headrace.spark.column_names import ColumnNames
from headrace.spark.defer import Defer
from headrace.spark.shed import Shedding, estimated_columns
from headrace.xml import DocumentMatcher, Twig

S = TypeVar("S", Enrich, Keys, Duplicates, Keys | Duplicates)

_CONNECT = 3.0  # seconds for a server to answer: one on the same network takes milliseconds


class SqlChecker(Protocol):
    """What only Spark knows. Mistakes are noted in the draft."""

    def columns_after(self, draft: Draft, number: int, schema: pa.Schema) -> pa.Schema | None:
        """Return the columns after a step; None if the step has a mistake that hides them."""
        ...

    def parse(self, draft: Draft, number: int) -> None:
        """Check the syntax of a step's expressions, where it is not known which columns there are."""
        ...


def check_pipeline(pipeline: Pipeline) -> Checked:
    """Check a pipeline; raises `BadPipeline` with every mistake and its line."""
    draft = Draft.of(pipeline)
    checked = check_draft(draft)
    draft.pipeline()
    return checked


def check_draft(draft: Draft, sql: SqlChecker | None = None) -> Checked:
    """Check what a file names, and note every mistake in the draft. A mistake in one part hides none in another.

    Parameters
    ----------
    draft
        The file as far as it can be understood.
    sql
        Checks what only Spark can; without it that is left out, and listed in `Checked.spark`.
    """
    checked = Checked()
    columns = _check_source(draft, draft.source, ("source",))
    for name, source in draft.sources.items():
        checked.sources[name] = _check_source(draft, source, ("sources", name))
    checked.schemas.append(columns.schema if columns else None)
    for number, step in enumerate(draft.steps):
        before, known = len(draft.problems), columns
        if isinstance(step, Enrich):
            columns = _check_enrich(draft, number, step, columns, checked)
        elif isinstance(step, Keys | Duplicates):
            columns = _check_lookup(draft, number, step, columns, checked)
        elif isinstance(step, Sampling):
            columns = check_sampling(draft, number, step, columns, checked)
        elif isinstance(step, Select):
            columns = _selected(step, columns)
            if columns is None:
                checked.spark.append(("step", number, "select"))
        elif isinstance(step, Filter):
            checked.spark.append(("step", number, "filter"))
        else:  # nobody knows what the step does
            columns = None
        # Of a step that samples everything is known here.
        if sql is not None and not isinstance(step, Sampling | None) and len(draft.problems) == before:
            columns = _ask_spark(draft, sql, number, known, columns)
        checked.schemas.append(columns.schema if columns else None)
    _check_use(draft)
    if columns is not None and draft.sink is not None:
        _check_sink_columns(draft, columns)
    for key, path in _written(draft):
        with Noting(draft, key):
            _check_writable(path)
    if isinstance(draft.sink, KafkaSink) and not draft.is_faulty(("sink", "servers")):
        with Noting(draft, ("sink", "servers")):
            _check_reachable(filled(draft.sink.servers))
    return checked


def _ask_spark(
    draft: Draft, sql: SqlChecker, number: int, before: Columns | None, after: Columns | None
) -> Columns | None:
    """Have Spark check a step that has no mistake so far; returns the columns after it."""
    if before is None or before.schema is None:
        sql.parse(draft, number)
        return after
    problems = len(draft.problems)
    schema = sql.columns_after(draft, number, before.schema)
    if schema is not None and len(draft.problems) == problems and not _is_shaped(draft, number):
        return Columns.of(schema)
    # A filter changes no columns, and of a join the names are known whatever is wrong with it.
    return before if isinstance(draft.steps[number], Filter) else after


# -- the source --------------------------------------------------------------------------------------------------------


def _check_source(draft: Draft, source: Source | None, at: Key) -> Columns | None:
    """Check a source; returns its columns as far as they are known."""
    document = draft.document
    if source is None:
        return _declared(draft, at)
    if isinstance(source, FileSource | XmlSource):
        path = document.at(source.path)
        if not is_directory(path):
            found = "a file" if exists(path) else "nothing"
            draft.note((*at, "path"), f"found {found} at {source.path!r}, expected a directory; make it first")
    if isinstance(source, XmlSource):
        return _check_twig(draft, source, at)
    if isinstance(source, KafkaSource):
        with Noting(draft, (*at, "servers")):
            if not draft.is_faulty((*at, "servers")):
                _check_reachable(filled(source.servers))
        if source.value != "bytes" and source.columns is None:
            draft.note((*at, "columns"), f"is missing: value = {source.value!r} needs the columns and their types")
            return None
    if any(draft.is_faulty((*at, name)) for name in ("columns", "value", "url", "table", "by")):
        columns = _declared(draft, at)
    else:
        schema: pa.Schema | None = None
        with Noting(draft, at):
            schema = source.schema_
        columns = None if schema is None else Columns.of(schema)
    if columns is None or not isinstance(source, FileSource | KafkaSource):
        return columns
    for name in source.required:
        with Noting(draft, (*at, "required")):
            check_column(document, (*at, "required"), name, columns.names)
    return columns


def _check_twig(draft: Draft, source: XmlSource, at: Key) -> Columns | None:
    """Check the twig of a source, and what its other keys say of it, one after the other so that each mistake has its key."""
    if draft.is_faulty((*at, "twig")):
        return None
    twig = Twig(source.twig)
    before = len(draft.problems)
    for name in ("content", "optional"):
        with Noting(draft, (*at, name)):
            twig = Twig(source.twig, strict=source.strict, **{name: getattr(source, name)})
    with Noting(draft, (*at, "memory")):
        DocumentMatcher(twig, partial=source.partial, memory=filled_size(source.memory))
    if len(draft.problems) > before or draft.is_faulty((*at, "content")):
        return None
    if source.document is not None and column_names(draft).taken(source.document, source.pattern.schema.names):
        draft.note(
            (*at, "document"), f"{source.document!r} is a column of the twig too; give another name, or false for none"
        )
    return Columns.of(source.schema_)


def _declared(draft: Draft, at: Key) -> Columns | None:
    """Return the columns that the file declares for a source with a mistake: their names are known, whatever their types."""
    source: Any = draft.document.values
    for part in at:
        source = source.get(part) if isinstance(source, dict) else None
    declared = source.get("columns") if isinstance(source, dict) else None
    return Columns(tuple(declared)) if isinstance(declared, dict) and declared else None


def _check_use(draft: Draft) -> None:
    """Note each source that several steps join with, and each that no step does."""
    users: dict[str, int] = {}
    for number, step in enumerate(draft.steps):
        name = step.other if isinstance(step, Sampling) else None
        if name is None:
            continue
        if name in users:
            key = "approximate_join" if isinstance(step, JoinInPart) else "window_join"
            draft.note(
                ("step", number, key),
                f"step {users[name] + 1} joins with {name!r} already, and a source is read once; describe it a second time, by"
                " another name",
            )
        users.setdefault(name, number)
    if None in draft.steps or draft.is_faulty(("step",)) or users.keys() - draft.sources.keys():
        return  # nobody knows what those steps are to join with
    for name in draft.sources:
        if name not in users:
            draft.note(("sources", name), "no step joins with it; name it in a window_join, or leave it out")


def _check_reachable(servers: str) -> None:
    """Refuse servers of which none accepts a connection."""
    addresses = [address.strip() for address in servers.split(",")]
    reasons = []
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            raise BadInput(f"found {address!r}, expected a server and its port, such as 'kafka.example:9092'")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT).close()
        except (OSError, OverflowError) as error:
            reasons.append(f"{address}: {error}")
        else:
            return
    raise BadInput(f"no server can be reached ({'; '.join(reasons)}); start it, or correct the address")


# -- steps -------------------------------------------------------------------------------------------------------------

#: Keys of a step that change which columns it gives.
_SHAPING = (
    *("enrich", "surrogate_keys", "duplicates", "on", "key", "how", "columns", "suffix", "unmatched", "condition"),
    *("version_column", "flag", "surrogate", "inferred"),
)


def _is_shaped(draft: Draft, number: int) -> bool:
    """Whether a mistake hides which columns a step gives: one in such a key, or in a key that is not known at all."""
    step = draft.steps[number]
    names = {str(key[2]) for key in draft.faulty if key[:2] == ("step", number) and len(key) > 2}
    known = () if step is None else type(step).model_fields
    return any(name in _SHAPING or name not in known for name in names)


def _check_enrich(draft: Draft, number: int, step: Enrich, columns: Columns | None, checked: Checked) -> Columns | None:
    """Check a join; returns the columns after it as far as they are known."""
    document, at, before = draft.document, ("step", number), len(draft.problems)
    relation: Relation | None = None
    with Noting(draft, (*at, "enrich")):
        relation = Relation.open(document.at(step.enrich))
    names = column_names(draft)
    if relation is not None:
        step = _as_written(step, names, columns, relation)
    algorithm = False
    with Noting(draft, (*at, "algorithm")):
        choice("algorithm", step.algorithm, ("auto", BROADCAST, *ALGORITHMS))
        check_condition(step.algorithm, step.condition)
        algorithm = True
    with Noting(draft, at):
        _check_waiting(step)
    if step.on is None and step.condition is None:
        draft.note((*at, "on"), "is missing in an enrich step: say which column to join on")
    on = step.on if _check_on(draft, (*at, "on"), step.on, columns) else None
    if step.estimate is not False and (step.shed is None or step.waits):
        draft.note((*at, "estimate"), _no_estimate(step))
    if relation is None:
        return None
    known = _check_payload(draft, (*at, "columns"), step.columns, relation)
    if on is None and step.on is not None:
        on = list(relation.key)  # so that one mistake in `on` hides none in the memory
    if algorithm and (step.on is not None or step.condition is not None):
        with Noting(draft, at):
            operator = make_join(step.model_copy(update={"columns": known, "on": on}), relation)
            checked.operators[number] = operator
            if columns is None:
                return None
            if columns.schema is not None and len(draft.problems) == before and not _is_shaped(draft, number):
                versions = [pa.field(step.version_column, pa.int64())] if step.version_column else []
                joined = operator.output_schema(columns.schema)
                if step.shed is not None:
                    with Noting(draft, (*at, "estimate")):
                        estimated_columns(Shedding(step.shed, estimate=step.estimate), relation.unique, joined)
                result = _told_apart(joined, columns.schema, names, filled(step.suffix))
                return Columns.of(pa.schema([*result, *versions]))
    return _with_relation(columns, relation, filled(step.suffix), step.version_column)


def _as_written(step: S, names: ColumnNames, columns: Columns | None, relation: Relation) -> S:
    """Return a step with the names of columns as stream and relation spell them. Those that they do not have stay as they are."""
    stream, there = [] if columns is None else list(columns.names), relation.schema.names

    def of_stream(name: str) -> str:
        return _spelt(names, name, stream)

    def of_relation(name: str) -> str:
        return _spelt(names, name, there)

    update: dict[str, Any] = {}
    if isinstance(step, Keys):
        given = parse_on(step.key)
        update["key"] = dict(zip(map(of_stream, given.left), map(of_relation, given.right), strict=True))
        update["surrogate"] = of_relation(step.surrogate)
    else:
        if step.on is not None:
            given = parse_on(step.on)
            update["on"] = dict(zip(map(of_stream, given.left), map(of_relation, given.right), strict=True))
        if step.columns is not None:
            update["columns"] = tuple(map(of_relation, step.columns))
        if step.condition is not None:
            update["condition"] = renamed(step.condition, of_stream, of_relation)
    return step.model_copy(update=update)


def _spelt(names: ColumnNames, name: str, columns: list[str]) -> str:
    """Return a name as one of some columns is spelt; itself if two are, which is refused when the step is made."""
    try:
        return names.resolve(name, columns)
    except BadInput:
        return name


def _told_apart(result: pa.Schema, stream: pa.Schema, names: ColumnNames, suffix: str | None) -> pa.Schema:
    """Return the schema of a result with the names that `enrich` gives to columns which Spark would take for others."""
    called = list(stream.names)
    for name in result.names[len(stream) :]:
        called.append(names.free(name, called, suffix))
    return pa.schema([one.with_name(name) for one, name in zip(result, called, strict=True)])


def _check_on(draft: Draft, key: Key, on: Any, columns: Columns | None) -> bool:
    """Note every column to join on that the stream does not have; returns whether there was none."""
    if on is None or columns is None:
        return True
    before = len(draft.problems)
    with Noting(draft, key):
        for name in parse_on(on).left:
            with Noting(draft, key):
                check_column(draft.document, key, name, columns.names)
    return len(draft.problems) == before


def _check_payload(draft: Draft, key: Key, names: tuple[str, ...] | None, relation: Relation) -> tuple[str, ...] | None:
    """Note every column that the relation does not have; returns the others."""
    for name in names or ():
        with Noting(draft, key):
            check_column(draft.document, key, name, relation.schema.names)
    return None if names is None else tuple(name for name in names if name in relation.schema.names)


def _with_relation(columns: Columns | None, relation: Relation, suffix: str, *more: str | None) -> Columns | None:
    """Return the names that a join gives at most, where a mistake hides which."""
    if columns is None:
        return None
    names = relation.schema.names
    found = (*columns.names, *names, *(f"{name}{suffix}" for name in names), *(name for name in more if name))
    return Columns(tuple(dict.fromkeys(found)))


def _check_waiting(step: Enrich) -> None:
    """Refuse settings of waiting and shedding that do not go together."""
    defer = Defer(
        deadline=filled_size(step.deadline),
        unmatched=step.unmatched,
        retry_for=filled_size(step.retry_for),
        shards=step.shards if step.remembers else None,
    )
    defer.how(step.how)
    defer.check_join(step.algorithm, step.order)
    if step.shed is None and step.target_delay is not None:
        raise BadInput(
            f"target_delay={step.target_delay!r} needs shed=...: what to put aside when rows cannot be joined in time"
        )


def _no_estimate(step: Enrich) -> str:
    """Why nothing can be said of what shedding leaves out."""
    if step.shed is None:
        return 'is for shed = "sample": it says what the rows that are put aside would have added'
    return "is for results that come with their rows, and here rows may wait; leave out the deadline, or the estimate"


def _check_lookup(
    draft: Draft, number: int, step: Keys | Duplicates, columns: Columns | None, checked: Checked
) -> Columns | None:
    """Check a step of surrogate keys or duplicates; returns the columns after it as far as they are known."""
    at: Key = ("step", number)
    is_keys, before = isinstance(step, Keys), len(draft.problems)
    path, on = (step.surrogate_keys, step.key) if isinstance(step, Keys) else (step.duplicates, step.on)
    relation: Relation | None = None
    with Noting(draft, (*at, "surrogate_keys" if is_keys else "duplicates")):
        relation = Relation.open(draft.document.at(path))
    names = column_names(draft)
    if relation is not None:
        step = _as_written(step, names, columns, relation)
        on = step.key if isinstance(step, Keys) else step.on
    _check_on(draft, (*at, "key" if is_keys else "on"), on, columns)
    if relation is not None and isinstance(step, Keys):
        with Noting(draft, (*at, "surrogate")):
            check_column(draft.document, (*at, "surrogate"), step.surrogate, relation.schema.names)
    if relation is not None and isinstance(step, Duplicates):
        _check_payload(draft, (*at, "columns"), step.columns, relation)
    by_key = is_keys or (relation is not None and on is not None and set(parse_on(on).right) == set(relation.key))
    if relation is None or columns is None or not by_key:
        checked.spark.append(at)
        return None
    if columns.schema is not None and len(draft.problems) == before and not _is_shaped(draft, number):
        with Noting(draft, at):
            after = _after_lookup(step, relation, columns.schema)
            suffix = None if isinstance(step, Keys) else filled(step.suffix)
            return Columns.of(_told_apart(after, columns.schema, names, suffix))
    if isinstance(step, Keys):
        return Columns((*columns.names, step.surrogate))
    return _with_relation(columns, relation, filled(step.suffix), step.flag)


def _after_lookup(step: Keys | Duplicates, relation: Relation, schema: pa.Schema) -> pa.Schema:
    if isinstance(step, Keys):
        return schema.append(relation.schema.field(step.surrogate))
    join = AdaptiveJoin(
        relation, step.on, filled_size(step.memory), how="left", columns=step.columns, suffix=filled(step.suffix)
    )
    return join.output_schema(schema).append(pa.field(step.flag, pa.bool_()))


def make_join(step: Enrich, relation: Relation) -> SemiStreamJoin:
    """Make the join of a step, to check that it can run and to learn its memory."""
    how = "left" if step.unmatched == "null" else step.how
    options: dict[str, Any] = {"how": how, "columns": step.columns, "suffix": filled(step.suffix)}
    memory = filled_size(step.memory)
    name = algorithm_for(step.algorithm, step.on, step.condition, relation)
    if name == BROADCAST:  # Spark's own join has no memory of ours
        memory = AdaptiveJoin.least_memory(relation, step.columns)
    if step.condition is None and name in ("auto", "adaptive", BROADCAST):
        return AdaptiveJoin(relation, step.on, memory, order=step.order, **options)
    if step.condition is not None:
        options["condition"] = step.condition
        if name in ("auto", "adaptive"):
            return ConditionalJoin(relation, step.on, memory, order=step.order, **options)
    operator: SemiStreamJoin = ALGORITHMS[name](relation, step.on, memory, **options)
    return operator


def _selected(step: Select, columns: Columns | None) -> Columns | None:
    """Return the columns of a select of plain names; None if it has expressions."""
    if columns is None or any(name not in columns.names for name in step.select):
        return None
    if columns.schema is None:
        return Columns(tuple(step.select))
    return Columns.of(pa.schema([columns.schema.field(name) for name in step.select]))


# -- the sink ----------------------------------------------------------------------------------------------------------


def _check_sink_columns(draft: Draft, columns: Columns) -> None:
    """Note what does not fit the sink; where types are not known, the names of columns that the sink's keys name."""
    sink, place, before = draft.sink, draft.place, len(draft.problems)
    for key, names in _named_by(sink):
        for name in names:
            with Noting(draft, ("sink", key)):
                check_column(draft.document, ("sink", key), name, columns.names)
    if columns.schema is not None and not draft.is_faulty(("sink",)) and len(draft.problems) == before:
        with Noting(draft, ("sink",)):
            check_sink(place, columns.schema)


def _named_by(sink: Sink | None) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Return the keys of a sink that name columns, and the names."""
    if isinstance(sink, DeltaSink | ParquetSink):
        yield "partition_by", sink.partition_by
    elif isinstance(sink, KafkaSink):
        yield "key", () if sink.key is None else (sink.key,)
    elif isinstance(sink, PostgreSQLSink):
        yield "key", sink.key
        yield "latest_by", () if sink.latest_by is None else (sink.latest_by,)


def check_sink(pipeline: Pipeline, schema: pa.Schema) -> None:
    """Refuse rows that do not fit the sink."""
    sink, document = pipeline.sink, pipeline.document
    for key, names in _named_by(sink):
        for name in names:
            check_column(document, ("sink", key), name, schema.names)
    if isinstance(sink, PostgreSQLSink):
        _check_table(document, sink, schema)
    if isinstance(sink, DeltaSink):
        from deltalake import DeltaTable

        from headrace.spark.delta.schema import check_partitions, check_schema, delta_types

        path = pipeline.at(sink.path)
        check_partitions(delta_types(schema), sink.partition_by)
        if is_directory(path) and DeltaTable.is_deltatable(str(path)):
            check_schema(DeltaTable(str(path)), schema, sink.partition_by, path)


def _check_table(document: Document, sink: PostgreSQLSink, schema: pa.Schema) -> None:
    """Refuse columns that the table does not have. Their types are checked when the run starts."""
    from headrace.sources.postgresql import TableReader

    with located(document, ("sink", "table")):
        table = TableReader.describe(filled(sink.table), filled(sink.url)).schema
    if missing := [name for name in schema.names if name not in table.names]:
        raise BadPipeline(
            [
                document.problem(("sink", "table"), f"there is no column {name!r}; {near(name, table.names)}")
                for name in missing
            ]
        )


def _written(draft: Draft) -> Iterator[tuple[Key, Path]]:
    """Return the directories that a run writes to."""
    if draft.head is not None:
        yield ("state",), draft.place.state
    if isinstance(draft.sink, DeltaSink | ParquetSink):
        yield ("sink", "path"), draft.document.at(draft.sink.path)


def _check_writable(path: Path) -> None:
    there = path
    while not exists(there) and there != there.parent:
        there = there.parent
    if not is_directory(there):
        raise NotADirectoryError(f"found a file at {there}, expected a directory")
    if not os.access(there, os.W_OK | os.X_OK):  # files: asks what the user may do, and touches nothing
        raise PermissionError(f"{there} cannot be written to; give another directory, or the right to write there")
