"""What the programs that tests kill share: where their files are, their Spark session, and a step at which they stand still."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

CHECKPOINTS = "spark.sql.streaming.checkpointFileManagerClass"


class Job:
    """Where everything is."""

    def __init__(self, root: Path) -> None:
        self.relation, self.input, self.table = root / "relation", root / "in", root / "table"
        self.checkpoint, self.scratch = root / "checkpoint", root / "scratch"
        self.held = root / "held"


def stand_still(
    owner: Any, step: str, job: Job, queries: int = 1, query_of: Callable[..., Hashable] = lambda *args, **options: None
) -> None:
    """From a call of a step on, go no further, and say so; HEADRACE_HOLD is how many calls go through before it.

    Who kills at a moment that it waits for may be stopped itself, and come too late: this is as far as the program gets. Of
    several queries, each goes so far, told apart by the arguments of the step; they say so when all of them stand still.
    """
    do, calls, last = getattr(owner, step), Counter[Hashable](), int(os.environ.get("HEADRACE_HOLD", -1))
    test = os.getppid()

    def held(*args: Any, **options: Any) -> Any:
        calls[query := query_of(*args, **options)] += 1
        if calls[query] == last + 1:
            if sum(made > last for made in list(calls.values())) == queries:
                job.held.touch()
            while os.getppid() == test:  # it is killed here, or nobody is left to do so
                time.sleep(0.1)
            os._exit(1)
        return do(*args, **options)

    setattr(owner, step, held)


def session(job: Job) -> Any:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    import headrace as hr

    builder = SparkSession.builder.master("local[2,4]")  # a task may fail four times
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(job.scratch),
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.python.daemon.module": "headrace.spark.daemon",  # or each worker imports Headrace for itself, in seconds
        CHECKPOINTS: hr.tune_session().at_start[CHECKPOINTS],  # or a micro-batch starts some thirty processes
    }.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
