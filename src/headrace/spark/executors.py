"""Executors of a Spark application: how many tasks each runs at a time, and the directory that its workers share."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.files import own_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def workers_of(session: SparkSession) -> int:
    """Tasks that an executor runs at the same time: its cores divided by the cores of a task."""
    context = session.sparkContext
    each = int(context.getConf().get("spark.task.cpus", "1"))
    local = str(context.master).startswith("local")
    cores = None if local else context.getConf().get("spark.executor.cores")
    if cores is None:
        # A standalone executor takes all cores of its machine unless it is configured otherwise, so Spark is asked.
        executors = context._jsc.sc().statusStore().executorList(True)
        cores = max((executors.apply(i).totalCores() for i in range(executors.size())), default=0)
    return max(1, (int(cores) or int(context.defaultParallelism)) // each)


def executor_directory() -> Path:
    """A directory that the Python workers of this executor, and no others, have in common. It is for this user alone."""
    local = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return own_directory(Path(local or tempfile.gettempdir(), "headrace" if local else f"headrace-{os.getppid()}"))
