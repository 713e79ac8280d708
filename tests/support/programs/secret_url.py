"""Reads, streams and loads PostgreSQL with a password in the URL, and fails in many ways: `secret_url.py URL DIRECTORY`.

All that it is told by errors, plans and Spark's lists of what it ran is printed; Spark keeps an event log, and logs at INFO.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

import headrace as hr


def tell(*what) -> None:
    sys.stdout.write(" ".join(map(str, what)) + "\n")


def said(call) -> None:
    """Print what a call that fails says, in all ways that a program would show it."""
    try:
        call()
    except Exception as error:
        tell("refused:", error, repr(error), "".join(traceback.format_exception(error)))
    else:
        raise AssertionError("it was to fail")


def processes() -> None:
    """Print the command lines of all processes: Spark and its workers are running."""
    for process in Path("/proc").iterdir():
        with suppress(OSError):
            if process.name.isdigit() and process.name != str(os.getpid()):
                tell("process:", (process / "cmdline").read_bytes())


def finished(query):
    assert query.awaitTermination(120)
    tell(query.lastProgress, query.recentProgress, query._jsq.explainInternal(True), query._jsq.toString())


def main(where: Path) -> None:
    url = "env:SHOP_URL"
    logging.basicConfig(level=logging.DEBUG, stream=sys.stdout)
    logging.getLogger("py4j").setLevel(logging.INFO)
    (where / "events").mkdir()
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder = (
        builder.config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.compress", "false")
        .config("spark.eventLog.dir", f"file:{where}/events")
    )
    spark = builder.config("spark.local.dir", str(where / "local")).config("spark.log.level", "INFO").getOrCreate()
    clear = os.environ["SHOP_URL"]
    table = hr.postgresql("sales", url=clear, by="x")
    tell(repr(table))
    hr.Relation.create(where / "sales.rel", table, key="n").close()
    with hr.Relation.create(where / "rel", pa.table({"k": [0, 1], "name": ["a", "b"]}), key="k") as rel:
        for given in (url, clear):
            df = hr.enrich(hr.read_postgresql(spark, "sales", url=given), rel, on="k")
            tell(repr(df), df._jdf.queryExecution().toString(), df._jdf.queryExecution().analyzed().toJSON())
            tell(hr.load_postgresql(df.select("n", "name"), "target", url=given, key="n"))
            said(lambda given=given: hr.read_postgresql(spark, "missing", url=given))
            said(lambda given=given, df=df: hr.load_postgresql(df, "target", url=given, key="n"))
        sales = hr.enrich(hr.stream_postgresql(spark, "sales", by="x", url=clear), rel, on="k")
        to = {"checkpoint": where / "c", "trigger": {"availableNow": True}, "name": "loading"}
        finished(hr.load_postgresql(sales.select("n", "name"), "target", url=clear, key="n", **to))
        finished(hr.load(sales, where / "t", checkpoint=where / "c2", trigger={"availableNow": True}))
        wrong = clear.replace("/t", "/no_such_database_t")
        said(lambda: hr.read_postgresql(spark, "sales", url=wrong))
        said(lambda: hr.read_postgresql(spark, "sales", url=clear.replace("postgresql:", "mysql:")))
        password = clear.split(":")[2].split("@")[0]
        said(lambda: hr.load(df, f"s3a://AKIA:{password}@bucket/t"))
        said(lambda: hr.load(df, where / "t3", checkpoint=f"s3a://AKIA:{password}@bucket/c"))
        said(lambda: hr.Relation.open(f"s3a://AKIA:{password}@bucket/rel"))
        processes()
    store = spark._jsparkSession.sharedState().statusStore()
    executions = store.executionsList()
    for i in range(executions.size()):
        one = executions.apply(i)
        tell(one.description(), one.details(), one.physicalPlanDescription(), one.modifiedConfigs().toString())
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
