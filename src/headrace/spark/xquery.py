"""`xquery`: a query of for, where and return over XML documents on Spark, exactly once, in a memory budget. [PQP] ch. 7, Fig. 7.1

documents --> tasks: twigs, keep --+
                                   +--> shards: join on one value, construct --> results
documents --> tasks: twigs, keep --+
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql.types import StringType, StructField, StructType

from headrace.errors import BadInput, choice, shown
from headrace.progressive.policies import FlushPolicy
from headrace.spark.construct_step import ConstructStep
from headrace.spark.document_join import Documents, KeyedJoin, Reading
from headrace.spark.logged_plan import PARTITIONS
from headrace.spark.plan import Plan
from headrace.xml import Limits
from headrace.xml.documents import Partial
from headrace.xml.fwr.construction import RESULT
from headrace.xml.fwr.plan import Semantics, plan_query
from headrace.xml.fwr.variable_rows import VariableRows
from headrace.xml.machine import MEMORY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OWN = ("column", "streaming", "options")  # parameters of xml_fragments that documents may have


def xquery(
    spark: SparkSession,
    text: str,
    docs: Mapping[str, Documents | tuple[Documents, Mapping[str, Any]]],
    *,
    semantics: Semantics = "xquery",
    memory: int | str = "64MiB",
    flush: str | FlushPolicy = "rrpj",
    streaming: bool = False,
    dead_letters: str | Path | None = None,
    partial: Partial = "drop",
    scan_memory: int | str = MEMORY,
    limits: Limits | None = None,
    state: str | Path | None = None,
    shards: int | None = None,
    partitions: int = PARTITIONS,
    idle: str | float = "1s",
    workers: int | None = None,
) -> DataFrame:
    """Answer a query over XML documents: a DataFrame with a column "result", each an element as text. Lazy; append mode.

    The results are those of headrace.xml.xquery, whose `explain` shows the plan. A name in doc(...) stands for any number of
    documents: a variable is bound to the elements of all of them.

    Parameters
    ----------
    spark
        The session.
    text, semantics
        The query, and what it means; see headrace.xml.XQuery.
    docs
        By the names of the query: a directory or a DataFrame as in `xml_fragments`; and, where it needs them, parameters of
        `xml_fragments` for these documents alone, as in (df, {"column": "body"}): column, streaming, options.
    memory, flush
        Of the join; see `progressive_join`.
    streaming
        Of directories: whether documents are read as they appear.
    dead_letters, partial, scan_memory, limits
        As in `xml_fragments`; scan_memory is its memory, of a task that reads documents. Documents are read once for each
        variable, and so a document that is not well-formed has a dead letter for each.
    state, shards, partitions, idle, workers
        See `progressive_join`. If no documents are a stream, or there is one variable, no state is needed.
    """
    plan = plan_query(text, semantics)
    if not isinstance(docs, Mapping):
        raise BadInput(f"docs={shown(docs)} must have the documents by their names, as {{'news.xml': directory}}")
    reading = Reading(
        spark=spark, streaming=streaming, dead_letters=dead_letters, partial=partial, memory=scan_memory, limits=limits
    )
    dfs = []
    for number, variable in enumerate(plan.variables):
        name = variable.binding.document
        choice("document", name, docs)
        given = docs[name]
        documents, own = given if isinstance(given, tuple) and len(given) == 2 else (given, {})
        if not isinstance(documents, DataFrame | str | Path) or not isinstance(own, Mapping):
            raise BadInput(
                f"docs[{name!r}]={shown(given)} are no documents; give a directory or a DataFrame, or (df, {{'column': ...}});"
                " bytes of a document are for headrace.xml.xquery"
            )
        dfs.append(reading.rows(f"docs[{name!r}]", documents, VariableRows(text, semantics, number), own, _OWN))
    rows = dfs[0]
    if plan.joins:
        join = KeyedJoin(
            memory=memory, flush=flush, state=state, shards=shards, partitions=partitions, idle=idle, workers=workers
        )
        rows = join.of(dfs, [variable.key_column for variable in plan.variables])
    step = ConstructStep(id=uuid.uuid4().hex, text=text, semantics=semantics, columns=tuple(rows.columns))
    fields = StructType([StructField(name, StringType()) for name in RESULT.names])
    return Plan.of(rows).then(step, None, fields)
