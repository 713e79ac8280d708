"""`progress`: what enrichment did in each micro-batch, readable while the query runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from headrace.errors import BadInput
from headrace.spark.journal import log_directory, read_log, reported
from headrace.spark.plan import Plan
from headrace.spark.reports import Progress

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery


def progress(query: StreamingQuery | str | DataFrame) -> list[Progress]:
    """What enrichment did in each micro-batch so far, oldest first.

    The last one may be under way: it sums up the tasks that have ended.

    Parameters
    ----------
    query
        A StreamingQuery, or its id; or a batch DataFrame that `enrich` gave.
    """
    plan = Plan.found(query)
    if plan is not None:
        return [entry for step in plan.steps for entry in reported(step.id)]
    name = query if isinstance(query, str) else getattr(query, "id", None)
    if name is None or isinstance(query, DataFrame):  # of a DataFrame, `id` would be a column
        raise BadInput(f"query={query!r} is neither a streaming query nor a DataFrame that hr.enrich gave")
    if Path(str(name)).name != str(name) or not str(name).strip("."):  # it becomes the name of a file
        raise BadInput(f"query={query!r} is not the id of a query; give query.id")
    return reported(str(name)) or list(read_log(log_directory() / f"{name}.jsonl"))
